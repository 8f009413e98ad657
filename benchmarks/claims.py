"""How many shards 64 processes can claim in a second in one folder, beside what the folder itself can do.

Each process has its own board and its own view of the files, as workers have; all begin at once, none does
any work between two claims, which is far worse than any cluster does: a shard is minutes. A shard that was
claimed twice, or never, ends the benchmark. The clock runs from the start to the last claim; how long the
processes then need to find that nothing is left is printed apart.

The floors are the bare system calls, by as many processes, each on names of its own: `open` with O_EXCL and
nothing else, and what a claim that survives a power cut cannot do without: a private file, its fsync,
link(2), fsync of the folder. A claim opens the file of answers besides, which is a third name. Files are
on the disk of this machine; on a network file system each call costs more for all of them alike, and
ratios hold better than figures.

    python benchmarks/claims.py [--shards 20000] [--processes 64] [--folder DIRECTORY]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.synchronize import Barrier
from pathlib import Path
from queue import Queue
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from hpcbench.experiment.claim_store import ClaimStore
from hpcbench.experiment.claims import Owner
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.scheduler import Candidate, ShardScheduler
from hpcbench.files.atomic import write_atomic, write_json
from hpcbench.planning import plan_work
from tests.unit.small import measured, resolved, run_task

GOAL = 500
"""Claims in a second."""

Worker = Callable[[Path, int, int, int], tuple[list[int], int, float]]
"""Folder, own number, processes, shards → shards claimed, claims that others were quicker at, time of the
last."""


def main() -> None:
    """Run the floors and the real thing, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    print(f"{given.processes} processes, {given.shards} shards, load {os.getloadavg()[0]:.1f}")
    print(f"{'':<38}{'a second':>10}{'÷ link':>8}{'missed':>9}{'to the end':>12}")
    floor = None
    for name, worker in (
        ("link(2), fsync of file and folder", _link),
        ("open(2) with O_EXCL", _exclusive),
        ("claim", _claim),
        ("claim, and say that it is done", _claim_and_end),
    ):
        folder = Path(tempfile.mkdtemp(prefix="claims-", dir=given.folder))
        try:
            rate, missed, end = _measure(worker, folder, given.processes, given.shards)
        finally:
            shutil.rmtree(folder)
        floor = floor or rate
        goal = "" if rate >= GOAL else f"   below the goal of {GOAL}"
        print(
            f"{name:<38}{rate:>10.0f}{rate / floor:>8.2f}{missed / given.shards:>9.1%}{end:>10.1f} s{goal}"
        )


def _measure(worker: Worker, folder: Path, processes: int, shards: int) -> tuple[float, int, float]:
    """Claims in a second, claims that missed, seconds until the last process has ended."""
    context = multiprocessing.get_context("fork")
    _scene(folder, processes, shards)
    barrier, results = context.Barrier(processes + 1), context.SimpleQueue()
    running = [
        context.Process(
            target=_run, args=(worker, folder, number, processes, shards, barrier, results)
        )
        for number in range(processes)
    ]
    for process in running:
        process.start()
    barrier.wait()
    started = time.monotonic()
    reported = [results.get() for _ in running]
    end = time.monotonic() - started
    for process in running:
        process.join()
    claimed = sorted(index for own, _, _ in reported for index in own)
    assert claimed == list(range(shards)), "a shard was claimed twice, or never"
    last = max(when for _, _, when in reported) - started
    return shards / last, sum(missed for _, missed, _ in reported), end


def _run(
    worker: Worker,
    folder: Path,
    number: int,
    processes: int,
    shards: int,
    barrier: Barrier,
    results: Queue[Any],
) -> None:
    Experiment(folder).work  # noqa: B018 - reads the plan, as a worker has long done when it claims
    barrier.wait()
    results.put(worker(folder, number, processes, shards))


def _scene(folder: Path, processes: int, shards: int) -> None:
    plan = resolved(run_task("rt"), shard_size=10, parallelism=processes)
    work = plan_work(plan, measured(plan, 10 * shards))
    here = Experiment(folder)
    write_atomic(here.resolved_file, plan.model_dump_json())
    write_json(here.manifest_file, {"work": asdict(work), "measured": {}})
    here.shards_dir("rt").mkdir(parents=True)


def _exclusive(
    folder: Path, number: int, processes: int, shards: int
) -> tuple[list[int], int, float]:
    own = list(range(number, shards, processes))
    for index in own:
        os.close(os.open(folder / f"{index:05d}", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    return own, 0, time.monotonic()


def _link(folder: Path, number: int, processes: int, shards: int) -> tuple[list[int], int, float]:
    own = list(range(number, shards, processes))
    line = b"x" * 200 + b"\n"
    for index in own:
        private, name = folder / f".{index:05d}", folder / f"{index:05d}"
        descriptor = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(descriptor, line)
        os.fsync(descriptor)
        os.close(descriptor)
        os.link(private, name)
        private.unlink()
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(descriptor)
        os.close(descriptor)
    return own, 0, time.monotonic()


def _claim(folder: Path, number: int, processes: int, shards: int) -> tuple[list[int], int, float]:
    return _pull(folder, number, processes, end=False)


def _claim_and_end(
    folder: Path, number: int, processes: int, shards: int
) -> tuple[list[int], int, float]:
    return _pull(folder, number, processes, end=True)


def _pull(folder: Path, number: int, processes: int, end: bool) -> tuple[list[int], int, float]:
    """The loop of a worker, without work."""
    experiment, owner = Experiment(folder), Owner(f"1_{number}", 0, "host", os.getpid())
    board = ShardScheduler(
        experiment.work.cuts,
        {"rt": "m"},
        ClaimStore(experiment, "g0", owner),
        owner,
        place=number / processes,
        workers=processes,
        chance=random.Random(number),
    )
    own, missed, last = [], 0, 0.0
    while isinstance(found := board.next("m"), Candidate):
        claim = board.claim(found)
        if claim is None:
            missed += 1
            continue
        own.append(found.shard.index)
        last = time.monotonic()
        if end:
            claim.end("done")
            board.done(found.shard)
        else:
            claim.abandon()
    return own, missed, last


if __name__ == "__main__":
    main()
