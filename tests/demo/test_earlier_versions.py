"""An experiment that an earlier version began goes on under this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.experiment.claims import answers_of
from hpcbench.experiment.layout import Experiment
from tests.unit.earlier import CUT, WHOLE, unpack

pytestmark = pytest.mark.engine


def answers(experiment: Experiment) -> dict[str, str]:
    return {name: one.text for _, own in answers_of(experiment, "vqa") for name, one in own.items()}


def test_resume_asks_what_was_not_asked_and_keeps_what_was_answered(tmp_path: Path) -> None:
    def hpcbench(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "hpcbench.cli.main", *words],
            env={**os.environ, "HPCBENCH_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)},
            capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    found = unpack(tmp_path)
    before = answers(found[CUT])
    assert len(before) == 33
    # Forced: it was started on another machine, of which only that machine can say whether it still works.
    hpcbench("resume", CUT, "--force", "--wait")
    now = Experiment(found[CUT].path)
    assert json.loads(now.outcome_file.read_text())["state"] == "done"
    after = answers(now)
    assert len(after) == 120
    assert {name: after[name] for name in before} == before
    # Its scores were read by an earlier parser, which compare refuses to mix with today's.
    hpcbench("score", WHOLE)
    assert "exact_match" in json.dumps(
        json.loads(hpcbench("compare", WHOLE, CUT, "--common", "--json"))
    )
