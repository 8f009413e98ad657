"""`junit.xml` and `comment.md`: what CI servers show of a verdict."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.notify.ci import LONGEST, Comment, Junit
from hpcbench.testing import TABLES, VERDICT, check

JUDGED = {**TABLES, "verdict": VERDICT, "left": 0}

SHAPE: dict[str, tuple[set[str], set[str], set[str]]] = {
    # tag: attributes it must have, may have, children
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors"}, {"skipped", "time", "timestamp", "hostname"},
        {"testcase", "properties", "system-out", "system-err"},
    ),
    "testcase": ({"name"}, {"classname", "time"}, {"skipped", "error", "failure", "system-out"}),
    "failure": (set(), {"type", "message"}, set()),
    "error": (set(), {"type", "message"}, set()),
    "skipped": (set(), {"type", "message"}, set()),
    "system-out": (set(), set(), set()),
}  # fmt: skip
"""Attributes that jenkinsci/xunit-plugin's junit-10.xsd allows, as far as they are used."""


def suites(tables: Any = JUDGED) -> ET.Element:
    """The file, parsed and compared with the schema's shape and its own counts."""
    data = Junit({}).render(tables)["junit.xml"]
    assert isinstance(data, bytes)
    root = ET.fromstring(data)  # noqa: S314 - our own
    for element in root.iter():
        needed, more, children = SHAPE[element.tag]
        assert needed <= set(element.keys()) <= needed | more, element.tag
        assert {child.tag for child in element} <= children
    for suite in root:
        for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(key, "")) == len(suite.findall(f"testcase/{tag}"))
        assert int(suite.get("tests", "")) == len(suite.findall("testcase"))
        names = [case.get("name") for case in suite]
        assert len(set(names)) == len(names)  # GitLab shows one of two with one name
        assert all(case.get("classname") == suite.get("name") for case in suite)
    for key in ("tests", "failures", "errors"):
        assert int(root.get(key, "")) == sum(int(suite.get(key, "")) for suite in root)
    return root


def found(root: ET.Element) -> dict[str, list[str]]:
    """Test → text in it."""
    return {
        f"{case.get('classname')}/{case.get('name')}": [child.tag for child in case]
        for case in root.iter("testcase")
    }


def test_a_critical_failure_fails_and_what_is_open_or_advisory_is_skipped() -> None:
    root = suites()
    assert found(root) == {
        "example/completed": [],
        "example/verdict": ["failure"],
        "example.vqa/answers": ["system-out"],
        "example.vqa/quality: anls": ["failure"],
        "example.vqa/quality: =1+1": ["skipped"],
        "example.vqa/speed: tokens_per_second": ["system-out"],
    }
    (failure,) = (one for one in root.iter("failure") if "anls" in (one.get("message") or ""))
    assert failure.get("message", "").startswith("vqa anls: fail, 0.8125 → 0.5 (-0.3125")


def test_without_a_gate_it_says_whether_there_were_answers() -> None:
    assert found(suites(TABLES)) == {"example/completed": [], "example.vqa/answers": ["system-out"]}
    run_task = {**TABLES["metrics"]["run_tasks"]["vqa"], "answered": 0, "outcomes": {"failed": 4}}
    dead = {**TABLES, "left": 4, "metrics": {"run_tasks": {"vqa": run_task}}}
    assert found(suites(dead)) == {"example/completed": ["error"], "example.vqa/answers": ["error"]}


def test_an_advisory_failure_and_an_open_verdict_fail_nothing() -> None:
    checks = [{**VERDICT["checks"][0], "level": "advisory"}]
    verdict = {**VERDICT, "verdict": "INCONCLUSIVE", "checks": checks}
    root = suites({**JUDGED, "verdict": verdict})
    assert root.get("failures") == "0"
    assert found(root)["example/verdict"] == ["skipped"]


NAMES = st.text(min_size=1, max_size=30)


@given(NAMES, NAMES, st.text(max_size=100), st.sampled_from(["pass", "fail", "inconclusive", "?"]))
def test_whatever_names_there_are_both_files_are_whole(
    run_task: str, what: str, why: str, word: str
) -> None:
    one = {**VERDICT["checks"][0], "run_task": run_task, "what": what, "why": why, "verdict": word}
    tables = {**JUDGED, "verdict": {**VERDICT, "checks": [one, one], "reasons": [why]}}
    suites(tables)
    text = Comment({}).render(tables)["comment.md"]
    assert isinstance(text, str)
    text.encode()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    for row in rows:
        cells = len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) - 1
        assert cells in (9, 5), row


def test_a_comment_says_the_verdict_first_and_can_be_found_again() -> None:
    text = Comment({}).render(JUDGED)["comment.md"]
    assert isinstance(text, str)
    lines = text.splitlines()
    assert lines[0] == "<!-- hpcbench: example -->"
    assert lines[1] == ("### hpcbench: NO-GO for plan example against `20251231-1200-example-aaaa`")
    rows = [line for line in lines if line.startswith("| ")]
    assert rows[1].startswith(
        "| ✘ fail | critical | vqa | anls | 0.8125 | 0.5 | -0.3125 [-0.5, -0.125]"
    )
    assert "&lt;b&gt;no" not in text and "\\>no" in text  # escaped for Markdown, shown as written
    assert "<b>" not in text


def test_a_comment_never_is_longer_than_github_takes() -> None:
    checks = [{**VERDICT["checks"][0], "what": f"m{n}", "why": "x" * 400} for n in range(2_000)]
    text = Comment({}).render({**JUDGED, "verdict": {**VERDICT, "checks": checks}})["comment.md"]
    assert isinstance(text, str)
    assert len(text) <= LONGEST < 65_000
    assert "further lines are in the report" in text
    assert text.count("<details>") == text.count("</details>")


@pytest.mark.parametrize("plugin", [Junit, Comment])
def test_both_keep_the_contract_of_reports(tmp_path: Path, plugin: type) -> None:
    check("reports", plugin, tmp_path)
