"""Readings of workers' monitors: two lines a second, so few readers need all of them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.workers import MONITOR, WorkerRun, parsed
from hpcbench.files.tail import last_bytes

TAIL_BYTES = 16_384
"""More than the longest reading: eight GPUs take some 1,500 bytes."""

BLOCKS, BLOCK_BYTES = 64, 16 * 1024
"""Number and size of the blocks that are read of a larger file."""


LONGEST_GAP = 120.0
"""Readings of a monitor cover the time between them only if it is shorter than this, in seconds."""


def monitor_heard(experiment: Experiment, run: WorkerRun) -> float:
    """Time of a monitor's last write, also while a model loads; 0: it never wrote."""
    try:
        with experiment.worker_monitor(run.group, run.id).open("rb") as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return 0.0


def last_reading(experiment: Experiment, run: WorkerRun) -> Mapping[str, Any]:
    """The last reading of a working run's monitor; empty: no reading yet."""
    try:
        tail = last_bytes(experiment.worker_monitor(run.group, run.id), TAIL_BYTES)
    except OSError:
        return {}
    for line in reversed(tail[: tail.rfind(b"\n") + 1].splitlines()):
        for reading in parsed(line):
            return reading
    return {}


def readings(experiment: Experiment) -> Iterator[Iterator[list[dict[str, Any]]]]:
    """Each monitor's readings in blocks without gaps: one block, or evenly spread blocks of a large file."""
    folder = experiment.workers()
    for name in sorted(folder.names):
        if name.endswith(MONITOR):
            loose = name in folder.loose and name not in folder.folded
            yield _blocks(folder.path / name) if loose else iter([_whole(folder.read(name))])


def _blocks(path: Path) -> Iterator[list[dict[str, Any]]]:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= BLOCKS * BLOCK_BYTES:
            yield _whole(file.read())
            return
        for turn in range(BLOCKS):
            file.seek(turn * (size - BLOCK_BYTES) // (BLOCKS - 1))
            block = file.read(BLOCK_BYTES)
            yield _whole(block[block.find(b"\n") + 1 :] if turn else block)


def _whole(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Readings of a worker's monitor about its GPUs."""

    utilisation: Mapping[str, tuple[float, float]]
    """Phase → sum of percent × seconds, seconds."""
    energy: Mapping[str, float]
    """Phase → energy of the GPUs, watt-hours; without phases whose readings have no power."""

    @property
    def watt_hours(self) -> float:
        """Energy of the GPUs in all phases."""
        return math.fsum(self.energy.values())

    @classmethod
    def of(cls, blocks: Iterable[Sequence[Mapping[str, Any]]]) -> GpuUse:
        """Sums over the readings of one worker: one block, or several blocks that each have no gap."""
        busy: dict[str, tuple[float, float]] = {}
        joules: dict[str, float] = {}
        covered = 0.0
        first = last = None
        for block in blocks:
            for one, after in pairwise(block):
                seconds = float(after["time"]) - float(one["time"])
                gpus = one.get("gpus") or ()
                if not 0 < seconds < LONGEST_GAP:
                    continue
                first = one["time"] if first is None else first
                last = after["time"]
                covered += seconds
                watts = [gpu["watts"] for gpu in gpus if "watts" in gpu]
                if watts:
                    joules[one["phase"]] = joules.get(one["phase"], 0.0) + seconds * sum(watts)
                known = [gpu["utilisation"] for gpu in gpus if "utilisation" in gpu]
                if known:
                    percent, time_seen = busy.get(one["phase"], (0.0, 0.0))
                    mean = sum(known) / len(known)
                    busy[one["phase"]] = (percent + mean * seconds, time_seen + seconds)
        whole = last - first if first is not None and last is not None else 0.0
        scale = whole / covered / 3600 if covered else 0.0
        return cls(busy, {phase: one * scale for phase, one in joules.items()})
