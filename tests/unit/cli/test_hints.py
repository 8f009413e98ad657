"""Hints beside a mistake: forms instead of patterns, an equal submission, reasons once."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

import hpcbench.notify
import hpcbench.schema
from hpcbench.cli import system_errors
from hpcbench.cli.gate import print_verdict
from hpcbench.cli.output import _how_to_see
from hpcbench.cli.submit import _of_twin, _twin
from hpcbench.errors import Problem, UserError
from hpcbench.experiment.layout import Experiment
from hpcbench.registry.source import parse
from hpcbench.schema.forms import FORMS, complaint
from hpcbench.schema.shared_types import Resources
from tests.unit.past import past


def patterns(model: type[BaseModel]) -> Iterator[str]:
    """Regular expressions in a model's JSON Schema."""

    def walk(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            if isinstance(node.get("pattern"), str):
                yield node["pattern"]
            for inner in node.values():
                yield from walk(inner)
        elif isinstance(node, list):
            for inner in node:
                yield from walk(inner)

    yield from walk(model.model_json_schema())


@pytest.mark.long
def test_every_regular_expression_of_a_document_has_a_form_in_words() -> None:
    models: set[type[BaseModel]] = set()
    for package in (hpcbench.schema, hpcbench.notify):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for one in vars(importlib.import_module(module.name)).values():
                inner = getattr(one, "Options", one)
                if (
                    isinstance(inner, type)
                    and issubclass(inner, BaseModel)
                    and inner is not BaseModel
                ):
                    models.add(inner)
    used = {pattern for model in models for pattern in patterns(model)}
    assert len(used) > 5
    assert used <= set(FORMS)


@pytest.mark.parametrize("given", ["0:00:00", "00:00:00", "0-00:00:00"])
def test_a_worker_gets_some_time(given: str) -> None:
    with pytest.raises(ValidationError, match="must be at least one second"):
        Resources(time_limit=given)


def test_a_pattern_without_a_description_is_not_shown() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Resources).validate_python({"time_limit": "1h"})
    (detail,) = caught.value.errors()
    other = {**detail, "ctx": {"pattern": "^(x|y)$"}}
    assert complaint(dict(detail)) == "must be of the form [DAYS-]HH:MM:SS, such as 02:00:00"
    assert complaint(other) == "has an invalid form"


@pytest.mark.long
def test_a_definition_of_a_hundred_thousand_brackets_does_not_end_the_process() -> None:
    with pytest.raises(UserError, match="nested more than 64 levels deep"):
        parse(Path("p.yaml"), "[" * 100_000)


def test_mistakes_of_one_kind_are_counted_and_others_are_not() -> None:
    many = [
        Problem(f"run_tasks.{n}.limit: must be greater than 0, not 0", "p.yaml", n + 5, 9)
        for n in range(3)
    ]
    other = Problem("run_tasks.1.limit: must be greater than 0, not -1", "p.yaml", 9, 9)
    assert str(UserError(*many, other)).splitlines() == [
        "p.yaml:5:9: run_tasks.0.limit: must be greater than 0, not 0; 2 more times, in lines 6, 7",
        "p.yaml:9:9: run_tasks.1.limit: must be greater than 0, not -1",
    ]
    assert len(UserError(*many).problems) == 3, "programs see them all"


@pytest.mark.parametrize(
    ("error", "words", "code"),
    [
        (PermissionError(13, "Permission denied", "/x/y"), ["submit", "/x/y"], 2),
        (PermissionError(13, "Permission denied", "/x/y"), ["data", "check", "--out=/x"], 2),
        (PermissionError(13, "Permission denied", "/x/y"), ["submit", "plan.yaml"], 3),
        (OSError(28, "No space left on device"), [], 3),
        (RuntimeError("Symlink loop from '/x'"), [], 2),
        (MemoryError(), [], 3),
    ],
)
def test_a_fault_of_the_machine_is_the_user_s_where_the_user_named_the_path(
    error: Exception, words: list[str], code: int
) -> None:
    known = system_errors.explain(error, words)
    assert known is not None
    assert known.exit_code == code
    assert str(known).endswith(")"), "with a remedy"
    assert system_errors.explain(KeyError("x"), words) is None


def keyed(experiment: Experiment, key: str) -> Experiment:
    data = json.loads(experiment.manifest_file.read_text())
    experiment.manifest_file.write_text(json.dumps({**data, "plan_key": key}))
    return Experiment(experiment.path)


def test_an_equal_submission_is_named_with_what_may_serve_instead(tmp_path: Path) -> None:
    keyed(past(tmp_path, "20261120-1000-plan-aaaa"), "other")
    done = keyed(past(tmp_path, "20261120-1100-plan-bbbb"), "same")
    new = keyed(past(tmp_path, "20261120-1200-plan-cccc", ended=False), "same")
    groups = [asdict(one) for one in done.work.groups]
    line = {"event": "round", "round": 0, "groups": groups, "time": 1.0}
    done.submission_file.write_text(json.dumps(line) + "\n" + '{"event": "handed", "time": 2.0}\n')
    two_hours_ago = done.manifest_file.stat().st_mtime - 7200
    os.utime(done.manifest_file, (two_hours_ago, two_hours_ago))
    twin = _twin(new)
    assert twin is not None
    assert twin.id == done.id
    said = _of_twin(twin, new)
    assert f"{done.id} has the same plan and data, is 2.0 h old and done: `hpcbench report" in said
    assert f"`hpcbench cancel {new.id}` cancels this one" in said
    assert _twin(keyed(past(tmp_path, "20261120-1300-plan-dddd"), "unequal")) is None


def test_the_page_of_a_report_is_named_with_how_it_comes_to_the_eyes(tmp_path: Path) -> None:
    experiment = Experiment(tmp_path / "e")
    report = tmp_path / "report.md"
    assert _how_to_see(experiment, report) == f"\nreport: {report}"
    report.with_suffix(".html").write_text("<html>")
    said = _how_to_see(experiment, report)
    assert said.startswith(f"\nreport: {tmp_path}/report.html\n")
    assert "hpcbench report e --open" in said
    assert "scp " in said


def test_a_gate_gives_every_reason_once(capsys: pytest.CaptureFixture[str]) -> None:
    figures = dict.fromkeys(("baseline", "candidate", "difference", "low", "high", "margin"))
    check = {
        "run_task": "rt", "what": "anls", "kind": "quality", "level": "critical",
        "verdict": "inconclusive", "why": "ten documents are too few", **figures,
    }  # fmt: skip
    reason = "rt, anls: inconclusive (critical): ten documents are too few"
    print_verdict(
        {
            "verdict": "INCONCLUSIVE", "candidate": "b", "baseline": "a", "policy": "default",
            "checks": [check, {**check, "what": "cer"}], "reasons": [reason, "nothing was judged"],
        }
    )  # fmt: skip
    out = capsys.readouterr().out
    assert out.count("ten documents are too few") == 1
    assert "as above" in out
    assert out.count("nothing was judged") == 1
