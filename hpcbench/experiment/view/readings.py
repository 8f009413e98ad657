"""Readings of workers' monitors: two lines a second, so few readers need all of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.workers import MONITOR, WorkerRun, parsed

TAIL_BYTES = 16_384
"""More than the longest reading: eight GPUs take some 1,500 bytes."""

BLOCKS, BLOCK_BYTES = 64, 16 * 1024
"""Number and size of the blocks that are read of a larger file."""


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
        with experiment.worker_monitor(run.group, run.id).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
            tail = file.read()
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
