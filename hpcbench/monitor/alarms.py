"""Alarms for problems in a reading that a user should know at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from hpcbench.monitor.host import ProcessTree
from hpcbench.monitor.nvml import Gpu
from hpcbench.monitor.phases import Reading, throttle_names
from hpcbench.process_table import Process, process

GIB = 1 << 30

Kind = Literal[
    "out_of_memory", "memory_near_limit", "disk_nearly_full", "engine_gone", "throttled",
    "gpu_unreadable", "gpu_memory_held",
]  # fmt: skip

NEAR_LIMIT = 0.95
"""Share of the memory limit, without memory that the kernel can drop."""

MOMENT_SECONDS = 2.0
"""Longest time for a killed process to end, and for its parent to reap it."""

AGAIN_SECONDS = 60.0
"""Shortest time between two equal alarms about one subject."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A present or approaching problem of the machine."""

    kind: Kind
    message: str
    """The problem, in one line."""


class Alarms:
    """Finds alarms in readings, and raises each at most once a minute.

    A GPU whose memory is nearly full raises none: engines fill it on purpose.

    Args:
        least_free_bytes: a folder's disk with less space, or on a small one less than 2 %, is nearly full.
    """

    def __init__(self, folders: Mapping[str, str], least_free_bytes: int = GIB) -> None:
        self._folders, self._least_free = folders, least_free_bytes
        self._engine: Process | None = None
        self._kills: int | None = None
        self._killed_at: float | None = None
        self._ended_before: dict[int, Process] = {}
        self._zombie_at: float | None = None
        self._throttles: dict[Gpu, int] = {}
        self._raised_at: dict[tuple[Kind, str], float] = {}

    def watch(self, engine: Process | None) -> None:
        """Raise an alarm when this process ends, from now on; None: watch none."""
        self._engine, self._zombie_at = engine, None

    def new(self, now: Reading, tree: ProcessTree) -> Iterator[Alarm]:
        """Alarms of a reading."""
        found = (*self._memory(now, tree), *self._disks(now), *self._gone(now), *self._slow(now))
        for subject, alarm in found:
            key = (alarm.kind, subject)
            if now.at - self._raised_at.get(key, -AGAIN_SECONDS) >= AGAIN_SECONDS:
                self._raised_at[key] = now.at
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
            limit = f" (limit: {_gib(host.limit)})" if host.limit is not None else ""
            text = f"the kernel killed {_victim(ended)}: out of memory{limit}"
            yield "", Alarm("out_of_memory", text)
        if host.limit and (host.limited_held or 0) > NEAR_LIMIT * host.limit:
            held = _gib(host.limited_held or 0)
            text = f"the job uses {held} of memory; its limit is {_gib(host.limit)}"
            yield "", Alarm("memory_near_limit", text)

    def _disks(self, now: Reading) -> Iterator[tuple[str, Alarm]]:
        for name, disk in now.disks.items():
            if disk.free < min(self._least_free, 0.02 * disk.size):
                where = f"on the disk of {name} ({self._folders[name]})"
                text = f"{_gib(disk.free)} of {_gib(disk.size)} free {where}"
                yield name, Alarm("disk_nearly_full", text)

    def _gone(self, now: Reading) -> Iterator[tuple[str, Alarm]]:
        engine = self._engine
        if engine is None:
            return
        found = process(engine.pid)
        if found is None or found.start_ticks != engine.start_ticks:
            what = "is gone"
        elif found.state not in "ZX":
            return
        else:
            self._zombie_at = now.at if self._zombie_at is None else self._zombie_at
            if now.at - self._zombie_at <= MOMENT_SECONDS:
                return
            what = "has ended, and its parent has not read its exit code (a zombie)"
        self._engine = None  # one alarm is enough
        who = f"the engine's first process ({engine.name}, pid {engine.pid})"
        yield str(engine.pid), Alarm("engine_gone", f"{who} {what}")

    def _slow(self, now: Reading) -> Iterator[tuple[str, Alarm]]:
        """Each reason once per GPU and run: it is worth one alarm, not more."""
        for gpu, one in now.gpus.items():
            known = self._throttles.get(gpu, 0)
            new = throttle_names(one.throttles & ~known)
            self._throttles[gpu] = known | one.throttles
            if new:
                text = f"GPU {gpu.index} ({gpu.name}) is throttled: {', '.join(new)}"
                heat = f"; temperature {one.celsius} °C" if one.celsius is not None else ""
                yield f"{gpu.uuid} {new}", Alarm("throttled", text + heat)


def _victim(ended: Mapping[int, Process]) -> str:
    """Description of the killed process: the largest of those that have just ended."""
    if not ended:
        return "a process of the job"
    one = max(ended.values(), key=lambda one: one.rss_bytes)
    return f"{one.name} (pid {one.pid}, last seen with {_gib(one.rss_bytes)})"


def _gib(size: int) -> str:
    return f"{size / GIB:.3g} GiB"
