"""What in a reading somebody should hear of at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from hpcbench.monitor.host import Process, ProcessTree, process
from hpcbench.monitor.nvml import Gpu
from hpcbench.monitor.phases import Reading, throttle_names

GIB = 1 << 30

Kind = Literal[
    "out_of_memory", "memory_near_limit", "disk_nearly_full", "engine_gone", "throttled",
    "gpu_unreadable", "gpu_memory_held",
]  # fmt: skip

NEAR_LIMIT = 0.95
"""Of the memory limit, counted without what the kernel would drop."""

MOMENT_SECONDS = 2.0
"""So long a killed process may take to end, and one that has ended to be waited for by its parent."""

AGAIN_SECONDS = 60.0
"""The same alarm about the same thing is not raised again so soon."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something is wrong with the machine or will be soon."""

    kind: Kind
    message: str
    """What is the matter, in one line."""


class Alarms:
    """Finds them in readings, and tells each no more than once a minute.

    A GPU whose memory is nearly full is none: engines fill it on purpose.

    Args:
        least_free_bytes: a folder's disk with less room, or on a small one less than 2 %, is nearly full.
    """

    def __init__(self, folders: Mapping[str, str], least_free_bytes: int = GIB) -> None:
        self._folders, self._least_free = folders, least_free_bytes
        self._engine: Process | None = None
        self._kills: int | None = None
        self._killed_at: float | None = None
        self._ended_before: dict[int, Process] = {}
        self._zombie_at: float | None = None
        self._throttles: dict[Gpu, int] = {}
        self._told: dict[tuple[Kind, str], float] = {}

    def watch(self, engine: Process | None) -> None:
        """From now on this process must live; None: none has to."""
        self._engine, self._zombie_at = engine, None

    def new(self, now: Reading, tree: ProcessTree) -> Iterator[Alarm]:
        """What is to be told of a reading."""
        found = (*self._memory(now, tree), *self._disks(now), *self._gone(now), *self._slow(now))
        for subject, alarm in found:
            key = (alarm.kind, subject)
            if now.at - self._told.get(key, -AGAIN_SECONDS) >= AGAIN_SECONDS:
                self._told[key] = now.at
                yield alarm

    def _memory(self, now: Reading, tree: ProcessTree) -> Iterator[tuple[str, Alarm]]:
        host = now.host
        if host is None:
            return
        if self._kills is not None and host.kills > self._kills:
            self._killed_at = now.at
        self._kills = host.kills
        # Count and tree are not read at the same time, and a large process takes a moment to die.
        ended = {**self._ended_before, **tree.ended}
        self._ended_before = tree.ended
        if self._killed_at is not None and (ended or now.at - self._killed_at > MOMENT_SECONDS):
            self._killed_at = None
            limit = f" of {_gib(host.limit)}" if host.limit is not None else ""
            text = f"the kernel killed {_victim(ended)} for want of memory{limit}"
            yield "", Alarm("out_of_memory", text)
        if host.limit and (host.limited_held or 0) > NEAR_LIMIT * host.limit:
            held = _gib(host.limited_held or 0)
            text = f"the job holds {held} of memory, its limit is {_gib(host.limit)}"
            yield "", Alarm("memory_near_limit", text)

    def _disks(self, now: Reading) -> Iterator[tuple[str, Alarm]]:
        for name, disk in now.disks.items():
            if disk.free < min(self._least_free, 0.02 * disk.size):
                text = f"{_gib(disk.free)} left of {_gib(disk.size)} where {name} is ({self._folders[name]})"
                yield name, Alarm("disk_nearly_full", text)

    def _gone(self, now: Reading) -> Iterator[tuple[str, Alarm]]:
        engine = self._engine
        if engine is None:
            return
        found = process(engine.pid)
        if found is None or found.begun != engine.begun:
            what = "is gone"
        elif found.state not in "ZX":
            return
        else:
            self._zombie_at = now.at if self._zombie_at is None else self._zombie_at
            if now.at - self._zombie_at <= MOMENT_SECONDS:
                return
            what = "has ended, and nobody took its exit code (a zombie)"
        self._engine = None  # told once
        who = f"the engine's first process ({engine.name}, pid {engine.pid})"
        yield str(engine.pid), Alarm("engine_gone", f"{who} {what}")

    def _slow(self, now: Reading) -> Iterator[tuple[str, Alarm]]:
        """Each reason once for good of each GPU: it is worth knowing, not worth hearing again."""
        for gpu, one in now.gpus.items():
            known = self._throttles.get(gpu, 0)
            new = throttle_names(one.throttles & ~known)
            self._throttles[gpu] = known | one.throttles
            if new:
                text = f"GPU {gpu.index} ({gpu.name}) runs slower than it could: {', '.join(new)}"
                heat = f" at {one.celsius} °C" if one.celsius is not None else ""
                yield f"{gpu.uuid} {new}", Alarm("throttled", text + heat)


def _victim(ended: Mapping[int, Process]) -> str:
    """Who was killed: the largest of those that have just ended."""
    if not ended:
        return "a process of the job"
    one = max(ended.values(), key=lambda one: one.rss_bytes)
    return f"{one.name} (pid {one.pid}, last seen with {_gib(one.rss_bytes)})"


def _gib(size: int) -> str:
    return f"{size / GIB:.3g} GiB"
