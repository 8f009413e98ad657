"""An engine on several nodes as its worker sees it: every fault ends all ranks and names one.

`srun` is a stand-in here, which runs the step on this machine; tests/slurm/test_several_nodes.py has Slurm's.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.experiment.claims import Owner
from hpcbench.experiment.layout import Experiment
from hpcbench.inference.client import EngineGone, LoadFailed
from hpcbench.schema.load import Route
from hpcbench.schema.model import Parallel
from hpcbench.schema.records import Message, Request
from hpcbench.worker.engine import EngineProcess
from hpcbench.worker.event_log import EventSink
from hpcbench.wrapper.shared_memory import FOLDER
from tests.faults.conftest import Trial, question

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do
  [[ $1 == --nodelist=* ]] && export SLURMD_NODENAME=${1#*=}
  shift
done
[[ -e %(broken)s ]] && { echo "srun: error: Task launch failed on node $SLURMD_NODENAME" >&2; exit 1; }
export SLURM_JOB_ID=71 SLURM_STEP_ID=$$
exec "$@"
"""

SCANCEL = """#!/bin/bash
kill -KILL ${2#71.}
"""

SCONTROL = "#!/bin/bash\necho NodeName=$4 NodeAddr=127.0.0.1\n"

TRIALS = 100 if os.environ.get("HPCBENCH_FULL") else 1
"""Drawn faults."""


@pytest.fixture
def prepared(calm: Trial) -> Iterator[Trial]:
    """An experiment whose jobs have ended: only its files are needed."""
    yield calm
    calm.kill_all()


class Nodes:
    """Two nodes, both this machine.

    Args:
        trial: the experiment.
        folder: for the programs of Slurm.
        route: of the requests.
    """

    def __init__(self, trial: Trial, folder: Path, route: Route) -> None:
        self.trial, self.bench, self.route = trial, trial.bench, route
        self.broken = folder / "broken"
        for name, text in (
            ("srun", SRUN % {"broken": self.broken}),
            ("scontrol", SCONTROL),
            ("scancel", SCANCEL),
        ):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self.experiment = Experiment(trial.path)

    @asynccontextmanager
    async def engine(
        self, number: int = 0, events: EventSink | None = None
    ) -> AsyncIterator[EngineProcess]:
        """The worker's side of an engine on both."""
        self.experiment.use_packages()
        group = replace(self.experiment.work.groups[0], nodes=2)
        owner = Owner(f"7{number}", 0, "here", os.getpid(), "one")

        async def nothing() -> None:
            pass

        async with EngineProcess(self.experiment, group, owner, nothing, events=events) as engine:
            yield engine

    async def load(self, engine: EngineProcess) -> None:
        """Load the model on both, and take the route to it."""
        model = self.experiment.resolved.run_tasks[0].model
        update = {"nodes": 2, "parallel": Parallel(tensor=2), "stall_timeout": 40.0}
        await engine.load(model.model_copy(update=update), lambda line: None)
        assert await engine.client.take(self.route) == self.route

    def ranks(self) -> dict[int, int]:
        """Rank → process of the engine."""
        found = {}
        for pid in self.trial.engines():
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                found[int(words[words.index("--rank") + 1])] = pid
        return found

    def steps(self) -> list[int]:
        """Processes of the further node."""
        return self.trial.pids("hpcbench.worker.rank")


@pytest.fixture
def nodes(prepared: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, route: Route) -> Nodes:
    """Two nodes, and an engine that loads at once."""
    found = Nodes(prepared, tmp_path, route)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "one,two")
    found.bench.script(answer_ms=[1, 3])
    return found


async def answer(engine: EngineProcess, number: int) -> str:
    """The engine's answer to a question."""
    asked = (Message("user", question(number)),)
    said = await engine.client.ask(Request(f"s{number}", asked, {"max_tokens": 8}, timeout=30))
    return said.text or said.error or ""


async def ask_for_ever(engine: EngineProcess, right: str) -> None:
    """Ask until the engine is gone; no answer is wrong."""
    while True:
        assert await answer(engine, 1) == right


def kill_further(nodes: Nodes) -> str:
    os.kill(nodes.ranks()[1], signal.SIGKILL)
    return "rank 1 on two: engine was ended by SIGKILL"


def kill_first(nodes: Nodes) -> str:
    os.kill(nodes.ranks()[0], signal.SIGKILL)
    return "rank 0 on one: engine was ended by SIGKILL"


def stop_further(nodes: Nodes) -> str:
    os.kill(nodes.ranks()[1], signal.SIGSTOP)
    return "rank 1 on two: a process of the engine was stopped"


def stop_first(nodes: Nodes) -> str:
    os.kill(nodes.ranks()[0], signal.SIGSTOP)
    return "rank 0 on one: a process of the engine was stopped"


def kill_step(nodes: Nodes) -> str:
    for pid in nodes.steps():
        os.kill(pid, signal.SIGKILL)
    return "rank 1 on two: its job step ended"


def stop_step(nodes: Nodes) -> str:
    for pid in nodes.steps():
        os.kill(pid, signal.SIGSTOP)
    return "rank 1 on two: its node was silent"


FAULTS = (kill_further, kill_first, stop_further, stop_first, kill_step, stop_step)


@pytest.mark.parametrize("seed", range(TRIALS))
def test_any_fault_of_a_rank_ends_all_and_the_next_load_serves(nodes: Nodes, seed: int) -> None:
    asyncio.run(any_fault(nodes, seed))


async def any_fault(nodes: Nodes, seed: int) -> None:
    chance = random.Random(seed)
    fault: Callable[[Nodes], str] = chance.choice(FAULTS[:1] if TRIALS == 1 else FAULTS)
    async with nodes.engine(seed) as engine:
        await nodes.load(engine)
        assert set(nodes.ranks()) == {0, 1}
        right = await answer(engine, 1)
        await asyncio.sleep(chance.random())

        since = time.monotonic()
        named = fault(nodes)

        with pytest.raises(EngineGone):
            await ask_for_ever(engine, right)
        blamed = await engine.blamed()
        assert blamed is not None and str(blamed).startswith(named), str(blamed)
        assert not nodes.ranks() and not nodes.steps()
        print(f"{fault.__name__}: {time.monotonic() - since:.1f} s")
        await nodes.load(engine)
        assert await answer(engine, 1) == right
    assert not nodes.trial.engines() and not nodes.steps()


def test_what_a_stopped_rank_has_in_shared_memory_goes_with_it(nodes: Nodes) -> None:
    # It does not end by SIGTERM: its wrapper must live on to kill it and to tidy up after it.
    kept = FOLDER / f"hpcbench-test-rank-{os.getpid()}"
    nodes.bench.script(answer_ms=[1, 3], shared_memory=str(kept))
    try:
        asyncio.run(a_stopped_rank(nodes, kept))
        assert not kept.exists()
    finally:
        kept.unlink(missing_ok=True)


async def a_stopped_rank(nodes: Nodes, kept: Path) -> None:
    async with nodes.engine(91) as engine:
        await nodes.load(engine)
        right = await answer(engine, 1)
        assert kept.exists()
        named = stop_further(nodes)
        with pytest.raises(EngineGone):
            await ask_for_ever(engine, right)
        assert str(await engine.blamed()).startswith(named)


@pytest.mark.parametrize(
    ("stays", "how"),
    [(True, "reported"), (False, "ended with exit code 1 as a further rank:")],
)
def test_a_rank_with_an_error_in_its_log_is_named_although_another_one_ended_first(
    nodes: Nodes, stays: bool, how: str
) -> None:
    asyncio.run(an_error_of_a_further_rank(nodes, stays, how))


async def an_error_of_a_further_rank(nodes: Nodes, stays: bool, how: str) -> None:
    nodes.bench.script(answer_ms=[1, 3], rank_errors=[question(2)], rank_stays=stays)
    async with nodes.engine() as engine:
        await nodes.load(engine)
        since = time.monotonic()
        with pytest.raises(EngineGone):
            await answer(engine, 2)
        blamed = await engine.blamed()
        assert time.monotonic() - since < 20
    assert str(blamed) == f"rank 1 on two: engine {how} AssertionError: no place for {question(2)}"
    assert not nodes.trial.engines() and not nodes.steps()


def test_a_node_that_does_not_join_is_named(nodes: Nodes) -> None:
    asyncio.run(a_missing_node(nodes))


async def a_missing_node(nodes: Nodes) -> None:
    nodes.broken.touch()
    async with nodes.engine() as engine:
        with pytest.raises(LoadFailed, match="rank 1 on two: its job step did not start") as failed:
            await nodes.load(engine)
    assert failed.value.node == "two"
    assert not nodes.trial.engines() and not nodes.steps()


class Heard:
    """Events in a list."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def write(self, kind: str, /, *, sync: bool = False, **details: Any) -> None:
        self.events.append({"event": kind, **details})


def test_the_monitor_of_a_further_node_reports_its_memory_by_run_task(nodes: Nodes) -> None:
    heard = Heard()
    asyncio.run(a_watched_rank(nodes, heard))
    figures = [one for one in heard.events if one["event"] == "monitor"]
    (memory,) = [one["memory"] for one in figures if one["run_task"] == "numbers"]
    assert (figures[0]["rank"], figures[0]["node"]) == (1, "two")
    assert memory["host_held_peak"] > 10 * 2**20, "a process of Python has more"
    assert not [one for one in heard.events if one["event"] == "alarm"], heard.events
    (file,) = nodes.experiment.workers_dir.glob("*.790-0.rank1.monitor.jsonl")
    phases = [json.loads(line)["phase"] for line in file.read_text().splitlines()]
    assert phases[0] == "start" and phases[-1] == "numbers"


async def a_watched_rank(nodes: Nodes, heard: Heard) -> None:
    async with nodes.engine(90, heard) as engine:
        await nodes.load(engine)
        engine.mark("numbers")
        assert await answer(engine, 1)
