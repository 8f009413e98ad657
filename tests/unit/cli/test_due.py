"""Work that is due at the login node is tried again after a pause, not without end."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli import due as verb
from tests.unit.scene import Scene


def test_due_work_that_stays_due_is_tried_after_pauses_that_double(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(tmp_path, site={"submit_from_jobs": False})
    scene.submitted()
    now = scene.look()
    clock, tries = [1000.0], list[float]()

    def run(*_: Any, **__: Any) -> Any:
        tries.append(clock[0])
        return subprocess.CompletedProcess([], 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr("hpcbench.submit.fingerprint.stops_jobs", lambda _: False)
    for _ in range(200):
        verb.do_what_is_due(scene.experiment, now)
        clock[0] += 1
    assert [round(one - tries[0]) for one in tries] == [0, 5, 15, 35, 75, 155]
    assert capsys.readouterr().err.count("this command does it") == len(tries)
