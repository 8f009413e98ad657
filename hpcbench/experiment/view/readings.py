"""Readings of workers' monitors: two lines a second, so that few readers want all of them."""

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
"""What is read of a file that is longer than all of them."""


def monitor_heard(experiment: Experiment, run: WorkerRun) -> float:
    """When a run's monitor last wrote, which it does also while a model loads; 0: it never did."""
    try:
        with experiment.worker_monitor(run.group, run.id).open("rb") as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return 0.0


def last_reading(experiment: Experiment, run: WorkerRun) -> Mapping[str, Any]:
    """What the monitor of a run that works saw last; empty where it saw nothing yet."""
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
    """Of each monitor blocks of readings without a gap: one, or of a large file evenly spread ones."""
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
