"""A hundred drawn faults of an engine on two nodes of the real cluster, twenty of each kind.

A trial that passed is a line of `build/trials-of-nodes.jsonl` and is not run again before that file is
removed, so the campaign goes on where it was broken off. `HPCBENCH_FULL=1` runs it, four at once by `-n 4`:
only a trial that kills a slurmd has its nodes to itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hpcbench.slurm.nodes import expand_nodes
from tests.slurm.conftest import MakeDrill
from tests.slurm.drill import Drill, Run, until
from tests.slurm.test_several_nodes import ended, given_up, ranks

pytestmark = [pytest.mark.slurm, pytest.mark.campaign, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "build" / "trials-of-nodes.jsonl"
TRIALS = 100


def _passed() -> set[int]:
    """Numbers of the trials that are in the record."""
    return {json.loads(line)["trial"] for line in _lines()}


def _lines() -> list[str]:
    return RECORD.read_text().splitlines() if RECORD.exists() else []


class Trial:
    """One trial: its chance, its user, and what is written of it."""

    def __init__(self, number: int, drill: Drill, calm: Run) -> None:
        self.number, self.drill, self.calm = number, drill, calm
        self.chance = random.Random(number)
        self.fields: dict[str, Any] = {}
        self.runs: list[Run] = []

    def submit(self, alone: bool = False, **script: Any) -> Run:
        """Submit the plan with one worker whose engine has two nodes, and with this script.

        Args:
            alone: whether no other job may be on these nodes.
            script: orders to the engine.
        """
        self.drill.at_site(options={"exclusive": True} if alone else {})
        for count in self.drill.script_file.parent.glob("*.[0-9]*"):
            count.unlink()
        split = self.chance.choice(["tensor", "pipeline"])
        self.drill.model(
            "scripted", nodes=2, parallel={split: 2}, stall_timeout=15, load_timeout=600
        )
        self.drill.script(**script)
        plan = self.drill.plan(parallelism=1, shard_size=10, stages=["inference"])
        self.runs.append(self.drill.submit(plan))
        return self.runs[-1]

    def at_work(
        self, loading: bool = False, alone: bool = False
    ) -> tuple[Run, dict[int, int], list[str]]:
        """An experiment with an engine that loads or answers, its processes, and its nodes."""
        # It loads for longer than a busy machine takes to find its processes.
        run = self.submit(alone, answer_ms=[300, 300], load_ms=500_000 if loading else 0)
        if not loading:
            until(lambda: run.answered() > 2, "answers", timeout=200)
        found = until(lambda: len(both := ranks(run)) == 2 and both, "both ranks", timeout=200)
        (worker,) = run.workers_at()
        time.sleep(self.chance.random())
        return run, found, expand_nodes(worker.node)

    def to_the_end(self, run: Run, before: dict[str, str]) -> None:
        """Let the experiment end; conditions on every trial."""
        self.drill.script(answer_ms=[1, 3])
        run.wait("done")
        final = run.answers()
        assert before.items() <= final.items(), "an acknowledged answer was lost or changed"
        assert final == self.calm.answers()
        assert run.twice() == [] and run.tracebacks() == []
        until(lambda: not run.engines() and not run.pids("hpcbench.worker.rank"), "a quiet cluster")
        self.fields["acknowledged"] = len(before)


def rank_killed(trial: Trial) -> None:
    """SIGKILL for either rank, while the engine loads or answers."""
    loading, rank = trial.chance.random() < 0.3, trial.chance.choice([0, 1])
    run, found, nodes = trial.at_work(loading)
    before = run.answers()
    os.kill(found[rank], signal.SIGKILL)
    trial.fields |= {"rank": rank, "loading": loading, "ended_s": ended(found)}
    if loading:  # a model that never loaded is not tried again by itself
        run.wait("failed")
        trial.drill.script(answer_ms=[1, 3])
        trial.drill.run("resume", run.id)
    trial.to_the_end(run, before)
    (failed,) = run.said("model_failed" if loading else "engine_died")
    assert f"rank {rank} on {nodes[rank]}: engine was ended by SIGKILL" in failed["message"]


def rank_stopped(trial: Trial) -> None:
    """SIGSTOP for either rank of an engine that answers."""
    rank = trial.chance.choice([0, 1])
    run, found, nodes = trial.at_work()
    before = run.answers()
    os.kill(found[rank], signal.SIGSTOP)
    trial.fields |= {"rank": rank, "ended_s": ended(found)}
    trial.to_the_end(run, before)
    (died,) = run.said("engine_died")
    assert died["message"].startswith(f"rank {rank} on {nodes[rank]}: "), died["message"]


def slurmd_killed(trial: Trial) -> None:
    """SIGKILL for the slurmd of either node."""
    rank = trial.chance.choice([0, 1])
    run, found, nodes = trial.at_work(alone=True)
    before = run.answers()
    with trial.drill.lab.without_slurmd(nodes[rank]):
        waited = given_up(trial.drill.lab, nodes[rank], found)
        trial.fields |= {"rank": rank, "given_up_s": waited, "ended_s": ended(found)}
    trial.to_the_end(run, before)


def rank_late(trial: Trial) -> None:
    """The further rank joins late."""
    late = trial.chance.randint(500, 10_000)
    run = trial.submit(answer_ms=[1, 3], late_rank_ms=late)
    trial.fields["late_ms"] = late
    run.wait("done")
    trial.to_the_end(run, {})
    (ready,) = run.said("model_ready")
    assert ready["seconds"] >= late / 1000
    assert not run.said("model_failed") and not run.said("engine_died")


def port_taken(trial: Trial) -> None:
    """Another program takes the port, once or twice."""
    times = trial.chance.choice([1, 2])
    run = trial.submit(answer_ms=[1, 3], ports_taken=times)
    trial.fields["times"] = times
    run.wait("done")
    trial.to_the_end(run, {})
    assert len([one for one in run.said("loading") if "another port" in one["message"]]) == times
    assert not run.said("model_failed") and not run.said("engine_died")


FAULTS: tuple[Callable[[Trial], None], ...] = (
    rank_killed, slurmd_killed, rank_stopped, rank_late, port_taken,
)  # fmt: skip


@pytest.fixture(scope="module")
def user(make_drill: MakeDrill) -> Iterator[Drill]:
    """One user for all trials: each has an experiment of its own."""
    one = make_drill()
    yield one
    one.end()
    shutil.rmtree(one.folder, ignore_errors=True)


@pytest.mark.parametrize("number", [one for one in range(TRIALS) if one not in _passed()])
def test_a_fault_ends_rightly_and_loses_no_answer(user: Drill, calm: Run, number: int) -> None:
    fault = FAULTS[number % len(FAULTS)]
    trial, since = Trial(number, user, calm), time.monotonic()
    try:
        fault(trial)
    finally:
        user.end()
        for run in trial.runs:
            with contextlib.suppress(OSError):
                run.kill_all()
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    RECORD.parent.mkdir(exist_ok=True)
    with RECORD.open("a") as record:
        line: dict[str, Any] = {"trial": number, "fault": fault.__name__}
        line |= {"commit": commit.stdout.strip(), "time": f"{datetime.now():%Y-%m-%d %H:%M}"}
        line |= {"load": os.getloadavg()[0], "took_s": time.monotonic() - since}
        record.write(json.dumps({**line, **trial.fields}) + "\n")


def test_every_trial_has_passed() -> None:
    assert _passed() == set(range(TRIALS))
