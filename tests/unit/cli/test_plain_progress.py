"""Progress in a pipe or a log: a line when something happens, and one now and then."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from hpcbench.cli import due, output


def followed(monkeypatch: pytest.MonkeyPatch, *looks: tuple[str, int, dict[str, int]]) -> None:
    """Follow an experiment whose looks have these states, answers and failures, a second apart."""
    seconds = iter(range(1000))
    statuses: Iterator[Any] = (
        SimpleNamespace(
            id="x", state=state, answered=answered, samples=100, failures=failures, reason=""
        )
        for state, answered, failures in looks
    )
    monkeypatch.setattr(due, "do_what_is_due", lambda *_: True)
    monkeypatch.setattr(
        "hpcbench.status.experiment_status.counted", lambda found: "1 failed" * bool(found)
    )
    monkeypatch.setattr(output.time, "monotonic", lambda: float(next(seconds)))
    observer = SimpleNamespace(look=lambda: next(statuses))
    output._follow_plainly(
        None,  # type: ignore[arg-type]
        observer,  # type: ignore[arg-type]
        next(statuses),
        0,
        silent=False,
        until=inf,
    )


def test_each_answer_is_not_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    followed(monkeypatch, *(("running", n, {}) for n in range(25)), ("done", 100, {}))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "x running 0/100 samples done"
    assert lines[-1] == "x done 100/100 samples done"
    assert 3 <= len(lines) <= 6


def test_a_failure_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    followed(monkeypatch, ("running", 1, {}), ("running", 2, {"a": 1}), ("done", 2, {"a": 1}))
    assert capsys.readouterr().out.splitlines()[1] == "x running 2/100 samples done, 1 failed"
