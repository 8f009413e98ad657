"""GPU memory is seen to come back when an engine has ended, before the next one begins.

GPUs are a fake; the wrapper and the scripted engine of the last test are real.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hpcbench.experiment.claims import Owner
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import write_json
from hpcbench.monitor.sampler import Monitor
from hpcbench.worker.engine import EngineProcess
from hpcbench.worker.gpu_release import TOLERANCE, wait_for_memory
from tests.fake_nvml import GIB, FakeGpu, FakeNvml
from tests.unit import small
from tests.unit.wrapper.running import ROOT, gone, install_scripted

STRANGER = 2**22 + 1
"""A process number that no process has."""

Machine = Callable[..., FakeNvml]


class Reported:
    """Events that a worker would write down."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def write(self, kind: str, /, *, sync: bool = False, **details: Any) -> None:
        self.events.append((kind, details))


@pytest.fixture
def monitor() -> Iterator[Callable[[], Monitor]]:
    """Starts monitors that look often."""
    started: list[Monitor] = []

    def start() -> Monitor:
        started.append(Monitor(os.getpid(), seconds=0.02))
        started[-1].start()
        return started[-1]

    yield start
    for one in started:
        one.stop()


def waited(monitor: Monitor, longest: float = 600.0) -> list[tuple[str, dict[str, Any]]]:
    """Events of a wait."""
    reported = Reported()
    asyncio.run(wait_for_memory(monitor, reported, longest))  # type: ignore[arg-type]
    return reported.events


def test_memory_that_is_back_is_reported_at_once(
    monitor: Callable[[], Monitor], machine: Machine
) -> None:
    gpu = FakeGpu("GPU-0", used=GIB)
    machine(gpu)
    watching = monitor()
    gpu.used = GIB + TOLERANCE
    [(kind, said)] = waited(watching)
    assert kind == "memory_returned"
    assert said["left"] == TOLERANCE
    assert 0 <= said["seconds"] < 600
    gpu.used = 0  # less than before
    assert waited(watching)[0][1]["left"] == 0


async def test_memory_is_waited_for(monitor: Callable[[], Monitor], machine: Machine) -> None:
    first, second = FakeGpu("GPU-0"), FakeGpu("GPU-1", used=30 * GIB)
    machine(first, second)
    watching = monitor()
    second.used = 40 * GIB
    reported = Reported()
    waiting = asyncio.ensure_future(wait_for_memory(watching, reported))  # type: ignore[arg-type]
    await asyncio.sleep(0.4)
    assert not waiting.done()
    second.used = 30 * GIB
    await asyncio.wait_for(waiting, 60)
    [(kind, said)] = reported.events
    assert kind == "memory_returned"
    assert said["seconds"] > 0.3


def test_memory_that_does_not_come_back_is_an_alarm_that_names_gpu_and_bytes(
    monitor: Callable[[], Monitor], machine: Machine
) -> None:
    first, second = FakeGpu("GPU-0", used=GIB), FakeGpu("GPU-1", used=GIB)
    machine(first, second)
    watching = monitor()
    second.used += 3 * GIB
    [(kind, said)] = waited(watching, 0.3)
    assert (kind, said["kind"]) == ("alarm", "gpu_memory_held")
    assert said["message"].startswith("GPU 1 (NVIDIA A100-SXM4-40GB) still holds 3 GiB")
    assert str(3 * GIB) in said["message"]


def test_memory_of_other_people_is_not_waited_for(
    monitor: Callable[[], Monitor], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = FakeGpu("GPU-0", used=2 * GIB, processes={os.getppid(): 2 * GIB})
    machine(gpu)
    watching = monitor()
    gpu.used = 5 * GIB
    gpu.processes[STRANGER] = 3 * GIB
    monkeypatch.setattr(
        "hpcbench.monitor.nvml._owner", lambda pid: os.getuid()
    )  # left of an engine
    assert waited(watching, 0.3)[0][0] == "alarm"
    monkeypatch.setattr("hpcbench.monitor.nvml._owner", lambda pid: 4711)
    [(kind, said)] = waited(watching)
    assert (kind, said["left"]) == ("memory_returned", 0)
    gpu.used, gpu.processes = (
        3 * GIB,
        {STRANGER: 3 * GIB},
    )  # who was there at first has gone meanwhile
    assert waited(watching)[0][0] == "memory_returned"
    gpu.used = 4 * GIB
    assert waited(watching, 0.3)[0][0] == "alarm"


def test_without_gpus_nothing_waits_and_nothing_is_said(monitor: Callable[[], Monitor]) -> None:
    assert waited(monitor()) == []


def test_of_a_gpu_that_cannot_be_read_any_more_nothing_is_said(
    monitor: Callable[[], Monitor], machine: Machine
) -> None:
    gpu = FakeGpu("GPU-0")
    machine(gpu)
    watching = monitor()
    gpu.broken = 999
    assert waited(watching) == []


@pytest.mark.long
async def test_the_next_model_is_loaded_once_memory_was_seen_to_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugins").mkdir()
    paths = [str(install_scripted(tmp_path / "plugins")), str(ROOT), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, paths)))
    here = small.experiment(tmp_path, [small.record(0)])
    group = here.work.groups[0]
    environment = {"kind": "venv", "path": sys.executable, "digest": None}
    write_json(here.manifest_file, {
        "work": asdict(here.work), "measured": {},
        "environments": {group.environment: environment},
    })  # fmt: skip
    here = Experiment(here.path)
    engines: list[int] = []

    async def unloaded() -> None:
        assert gone(engines[-1:], 0.1)
        assert pids.read_text().split()[0] == str(engines[-1])  # none has been started yet
        seen.append(len(engines))

    pids, seen = tmp_path / "pids", list[int]()
    model = here.resolved.run_tasks[0].model.model_copy(
        update={"engine": "scripted", "source": "", "engine_options": {"pids": str(pids)}}
    )
    async with EngineProcess(here, group, Owner.here(), unloaded) as wrapper:
        for _ in range(2):
            loaded = await wrapper.load(model, lambda line: None)
            assert loaded.pid is not None
            engines.append(loaded.pid)
    assert seen == [1, 2]
