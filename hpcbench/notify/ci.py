"""Reports for CI: `junit.xml`, the gate's checks as tests; `comment.md`, its verdict for a pull request.

The JUnit form has no standard; this one uses only the elements that its readers share: Jenkins' schema
(jenkinsci/xunit-plugin, junit-10.xsd) and GitLab's (docs.gitlab.com/ci/testing/unit_test_reports).
A check of the gate is a test: failed if it is critical and failed, skipped if it is advisory or undecided.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from hpcbench.experiment.counts import outcomes_in_words
from hpcbench.experiment.ending import why_nothing
from hpcbench.experiment.view.metrics_json import Scores
from hpcbench.notify.messages import (
    NONE,
    check_line,
    figures,
    markdown,
    number,
    one_line,
)
from hpcbench.number_format import share
from hpcbench.reporting.sections.shared import scores_in

LONGEST = 60_000
"""Most characters of a comment; GitHub accepts 65,536."""

MARKER = "<!-- hpcbench: {plan} -->"
"""First line of a comment: the next run finds by it the comment to replace."""

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain (section 2.2)."""

_WORDS = {"pass": "✔ pass", "fail": "✘ fail", "inconclusive": "? undecided"}


class _NoOptions(BaseModel):
    """Options of a report that has none."""

    model_config = ConfigDict(extra="forbid")


class Junit:
    """`junit.xml`, for the pages of CI servers."""

    api: ClassVar[int] = 1

    Options: ClassVar[type[BaseModel]] = _NoOptions

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.Options.model_validate(dict(options))

    def render(self, tables: Mapping[str, Any]) -> Mapping[str, str | bytes]:
        """A suite for each run task, and one for the whole experiment."""
        checks = _by_run_task(tables)
        root = ET.Element("testsuites", name=_xml(tables["id"]))
        root.append(_suite(tables, _common(tables, checks.pop("", []))))
        for name, table in scores_in(tables).items():
            root.append(_suite(tables, _of_run_task(name, table, checks.pop(name, [])), name))
        for name, left in checks.items():  # checks of the gate without a run task here
            root.append(_suite(tables, map(_of_check, left), name))
        for key in ("tests", "failures", "errors"):
            root.set(key, str(sum(int(suite.get(key, 0)) for suite in root)))
        ET.indent(root)
        text = ET.tostring(root, encoding="unicode")
        return {"junit.xml": f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()}


class Comment:
    """`comment.md`, short: the verdict and its checks."""

    api: ClassVar[int] = 1

    Options: ClassVar[type[BaseModel]] = _NoOptions

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.Options.model_validate(dict(options))

    def render(self, tables: Mapping[str, Any]) -> Mapping[str, str | bytes]:
        """Verdict first; lines that do not fit are left out, with a remark."""
        plan = one_line(tables["plan"].get("name", "")).replace("--", "-")
        head = [MARKER.format(plan=plan), _headline(tables), ""]
        reproduce = (tables.get("provenance") or {}).get("reproduce")
        tail = [
            "",
            f"Experiment `{_code(tables['id'])}`; the report has all figures and example samples.",
            *(["", f"Reproduce: `{_code(reproduce)}`"] if reproduce else []),
            "",
        ]
        room = LONGEST - sum(len(line) + 1 for line in head + tail)
        return {"comment.md": "\n".join([*head, *_fitting(_body(tables), room), *tail])}


# --- JUnit ---------------------------------------------------------------------------------------------


def _by_run_task(tables: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for check in (tables.get("verdict") or {}).get("checks", ()):
        found.setdefault(str(check.get("run_task") or ""), []).append(check)
    return found


def _suite(tables: Mapping[str, Any], cases: Iterator[ET.Element], name: str = "") -> ET.Element:
    """A suite of these tests; GitLab would show only one of two tests with the same name."""
    plan = one_line(tables["plan"].get("name", ""))
    suite = ET.Element("testsuite", name=_xml(f"{plan}.{name}" if name else plan))
    names: dict[str, int] = {}
    for case in cases:
        given = case.get("name", "")
        names[given] = names.get(given, 0) + 1
        if names[given] > 1:
            case.set("name", f"{given} ({names[given]})")
        case.set("classname", suite.get("name", ""))
        suite.append(case)
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(sum(case.find(tag) is not None for case in suite)))
    suite.set("tests", str(len(suite)))
    return suite


def _common(tables: Mapping[str, Any], checks: Sequence[Mapping[str, Any]]) -> Iterator[ET.Element]:
    """Tests about the whole experiment."""
    ended = ET.Element("testcase", name="completed")
    if tables.get("reason"):
        _put(ended, "error", f"{tables['state']}: {one_line(tables['reason'])}")
    elif left := tables.get("left", 0):
        _put(ended, "error", f"{left} samples are in shards that did not finish")
    yield ended
    verdict = tables.get("verdict")
    if verdict is not None:
        case = ET.Element("testcase", name="verdict")
        said = f"{verdict['verdict']} against {one_line(verdict['baseline'])}"
        tag = {"GO": "system-out", "NO-GO": "failure"}.get(verdict["verdict"], "skipped")
        _put(case, tag, said, "\n".join(one_line(one) for one in verdict.get("reasons", ())))
        yield case
    yield from map(_of_check, checks)


def _of_run_task(
    name: str, table: Scores, checks: Sequence[Mapping[str, Any]]
) -> Iterator[ET.Element]:
    """Whether any sample was scored, and the gate's checks."""
    case = ET.Element("testcase", name="answers")
    outcomes = outcomes_in_words(table.outcomes)
    said = f"samples: {table.counts.sentence()}"
    if table.asked and not table.is_scored:
        _put(case, "error", one_line(why_nothing(table)), outcomes)
    else:
        _put(case, "system-out", said, outcomes)
    yield case
    yield from map(_of_check, checks)


def _of_check(check: Mapping[str, Any]) -> ET.Element:
    case = ET.Element(
        "testcase", name=_xml(f"{one_line(check.get('kind'))}: {one_line(check.get('what'))}")
    )
    found, advisory = check.get("verdict"), check.get("level") == "advisory"
    tag = "system-out" if found == "pass" else "failure"
    if found != "pass" and (advisory or found != "fail"):
        tag = "skipped"
    _put(case, tag, check_line(check))
    return case


def _put(case: ET.Element, tag: str, said: str, more: str = "") -> None:
    """Put a text in a test; a failure has it as its message, too, since some pages show only this."""
    element = ET.SubElement(case, tag)
    if tag != "system-out":
        element.set("message", _xml(said))
        if tag != "skipped":
            element.set("type", "hpcbench")
    element.text = _xml(f"{said}\n{more}" if more else said)


def _xml(text: object) -> str:
    return _NOT_XML.sub("\ufffd", str(text))


# --- the comment ---------------------------------------------------------------------------------------


def _headline(tables: Mapping[str, Any]) -> str:
    verdict, plan = tables.get("verdict"), markdown(one_line(tables["plan"].get("name", "")))
    if verdict is not None:
        against = _code(verdict["baseline"])
        return f"### hpcbench: {verdict['verdict']} for plan {plan} against `{against}`"
    ended = f"is {tables['state']}" if tables.get("reason") else "not compared with a baseline"
    return f"### hpcbench: plan {plan}{'' if tables.get('reason') else ','} {ended}"


def _body(tables: Mapping[str, Any]) -> list[str]:
    """Lines, the most important first."""
    verdict = tables.get("verdict")
    lines: list[str] = []
    if reason := tables.get("reason"):
        lines += [f"**{tables['state'].capitalize()}: {markdown(one_line(reason))}**", ""]
    elif left := tables.get("left", 0):
        lines += [f"**{left} samples are missing: the experiment did not finish.**", ""]
    if verdict is not None:
        lines += [f"- {markdown(one_line(one))}" for one in verdict.get("reasons", ())[:3]]
        lines += ["", *_checks(verdict.get("checks", ())), ""]
    return [
        *lines,
        "<details><summary>All scores</summary>",
        "",
        *_scores(tables),
        "",
        "</details>",
    ]


def _checks(checks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The checks as a table, checks that did not pass first."""
    if not checks:
        return
    yield "| verdict | level | run task | check | baseline | candidate | difference | margin | reason |"
    yield "|---|---|---|---|--:|--:|--:|--:|---|"
    order = {"fail": 0, "inconclusive": 1}
    worst_first = sorted(
        checks,
        key=lambda one: (order.get(str(one.get("verdict")), 2), one.get("level") != "critical"),
    )
    for one in worst_first:
        shown = figures(one)
        span = f" [{shown['low']}, {shown['high']}]" if shown["low"] != NONE else ""
        cells = [
            _WORDS.get(str(one.get("verdict")), _cell(one.get("verdict"))),
            _cell(one.get("level")), _cell(one.get("run_task")), _cell(one.get("what")),
            shown["baseline"], shown["candidate"], shown["difference"] + span, shown["margin"],
            _cell(one.get("why")),
        ]  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def _scores(tables: Mapping[str, Any]) -> Iterator[str]:
    yield "| run task | metric | value | 95 % interval | coverage |"
    yield "|---|---|--:|--:|--:|"
    for name, table in scores_in(tables).items():
        for metric, entry in table.metrics.items():
            span = "–"
            if entry is not None and entry.low is not None:
                span = f"{number(entry.low)} to {number(entry.high)}"
            value = number(entry.value if entry is not None else None)
            cells = [_cell(name), _cell(metric), value, span, share(table.coverage)]
            yield f"| {' | '.join(cells)} |"


def _fitting(lines: Sequence[str], room: int) -> list[str]:
    """As many lines as fit; an open fold is closed."""
    kept: list[str] = []
    room -= 200  # for the remark about the rest
    for number_, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            open_ = "<details><summary>All scores</summary>" in kept
            return [
                *kept, "", *(["</details>", ""] if open_ else []),
                f"{len(lines) - number_} further lines are in the report.",
            ]  # fmt: skip
        kept.append(line)
    return kept


def _cell(text: object) -> str:
    """Hostile text in a cell of a table."""
    shown = one_line(text if text is not None else "")
    return markdown(shown[:300]) or "–"


def _code(text: object) -> str:
    """Hostile text between backticks."""
    return one_line(text).replace("`", "'")
