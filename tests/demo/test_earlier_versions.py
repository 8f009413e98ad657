"""An experiment that an earlier version began goes on under this one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcbench.experiment.claims import answers_of
from hpcbench.experiment.layout import Experiment
from tests.demo.reader import hpcbench
from tests.unit.earlier import CUT, WHOLE, unpack

pytestmark = pytest.mark.engine


def answers(experiment: Experiment) -> dict[str, str]:
    return {name: one.text for _, own in answers_of(experiment, "vqa") for name, one in own.items()}


def test_resume_asks_what_was_not_asked_and_keeps_what_was_answered(tmp_path: Path) -> None:
    found = unpack(tmp_path)
    before = answers(found[CUT])
    assert len(before) == 33
    # Forced: it was started on another machine, of which only that machine can say whether it still works.
    hpcbench(tmp_path, "resume", CUT, "--force", "--wait")
    now = Experiment(found[CUT].path)
    assert json.loads(now.outcome_file.read_text())["state"] == "done"
    after = answers(now)
    assert len(after) == 120
    assert {name: after[name] for name in before} == before
    # Its scores were read by an earlier parser, which compare refuses to mix with today's.
    hpcbench(tmp_path, "score", WHOLE)
    compared = json.loads(hpcbench(tmp_path, "compare", WHOLE, CUT, "--common", "--json"))
    assert "exact_match" in json.dumps(compared)
