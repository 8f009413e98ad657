"""An agent of two models on the cluster: paused at a turn, and continued on another node."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcbench.files.atomic import read_lines
from tests.cluster.lab import Lab
from tests.faults.payments import exits, lines, turns
from tests.faults.test_agents import FEW, two_models
from tests.slurm.drill import Drill, Run, until

# tests/faults/test_agents.py has a pause, and two models, with the local executor.
pytestmark = [pytest.mark.slurm, pytest.mark.campaign, pytest.mark.timeout(900)]


@pytest.fixture
def drill(lab: Lab, python_with_agents: Path, shared_cache: Path) -> Iterator[Drill]:
    one = Drill(lab, python_with_agents, lab.new_directory("moves"), shared_cache)
    yield one
    one.end()
    shutil.rmtree(one.folder, ignore_errors=True)


def nodes(run: Run) -> list[str]:
    """The node of each worker so far."""
    paths = sorted(run.path.glob("workers/g*.events.jsonl"), key=lambda path: path.stat().st_mtime)
    return [str(next(read_lines(path))["owner"]["node"]) for path in paths]


def test_an_agent_of_two_models_goes_on_at_its_turn_on_another_node(drill: Drill, lab: Lab) -> None:
    tasks = two_models(drill, answer_ms=(300, 400))
    run = drill.submit(drill.plan(*tasks, shard_size=FEW, parallelism=1))
    until(lambda: len(turns(run)) > 6, "turns")
    drill.run("pause", run.id)
    run.wait("paused")
    before, first = turns(run), nodes(run)
    assert len(before) < FEW * 4

    two_models(drill, answer_ms=(1, 3))
    with lab.drained(first):
        drill.run("resume", run.id)
        until(lambda: len(nodes(run)) > len(first), "the next worker")
        later = nodes(run)[len(first) :]
        run.wait("done")

    assert {*later}.isdisjoint(first), "another node"
    assert exits(run) == {"answered": FEW}
    written = [(line["sample"], line["turn"]) for line in lines(run) if "reply" in line]
    assert before <= {*written}, "a finished turn was lost"
    assert len(written) == len({*written}) == FEW * 4, "no turn was asked twice"
    ready = [one["model"] for one in run.said("model_ready")]
    assert {*ready} == {"scripted", "writes"}
