"""The state of an experiment while others are at work on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.experiment.files import Appender
from hpcbench.launch import status as looking
from tests.unit.small import experiment, record


def test_a_submission_that_ends_while_we_look_is_not_taken_for_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = experiment(tmp_path, [record(1)])
    with Appender(found.submission_file) as log:
        log.write(
            {"event": "round", "round": 0, "workers": {"g0": 1}, "steps": ["g0"], "time": 0.0}
        )
        log.write({"event": "intent", "step": "g0"})
    assert looking.status(found).state == "interrupted"

    def ends_now(_: object) -> bool:
        with Appender(found.submission_file) as log:
            log.write({"event": "submitted", "step": "g0", "job": "1:1"})
        return False  # its lock is gone already

    monkeypatch.setattr(looking, "submitting", ends_now)
    assert looking.status(found).state != "interrupted"
