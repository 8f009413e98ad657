"""The plan or the manifest of an experiment is damaged: one line names the file, and lists go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from tests.unit.command import Cli
from tests.unit.small import experiment, record, response, write_attempt

CONTENTS = {
    "empty": "",
    "torn": '{"id": "x", "work"',
    "list": "[1, 2]",
    "text": '"half"',
    "other": '{"work": {"groups": 1}, "run_tasks": 7}',
}
VERBS = ("status", "report", "score", "rerun", "resume", "usage")


def evaluated(folder: Path) -> Experiment:
    """An experiment with scores."""
    here = experiment(folder, [record(0)])
    write_attempt(here, 0, 1, [response("s0", "0")])
    evaluate(here)
    return here


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("file", ["manifest.json", "resolved.json"])
def test_one_line_names_the_damaged_file(tmp_path: Path, cli: Cli, file: str, content: str) -> None:
    whole, here = evaluated(tmp_path / "whole"), evaluated(tmp_path)
    (here.path / file).write_text(CONTENTS[content])
    damaged = f"{here.path / file} is damaged: "
    for verb, before in (*((verb, ()) for verb in VERBS), ("compare", (whole.path,))):
        # A verb that does not need the damaged part goes on: neither of these two reads groups.
        if verb in ("rerun", "compare") and (file, content) == ("manifest.json", "other"):
            continue
        said = cli.err(verb, *before, here.path, code=3)
        assert said.count("\n") == 1 and damaged in said, (verb, said)
    assert here.id in cli("list")
