"""Cost of following 200 workers: CPU time of `EventTail`, and how old an event is when it is shown.

A process of its own is 200 workers, each of which holds a shard and tells of its progress every half second
(ten times as often as real ones). They are followed once a second, as `hpcbench events --follow` does. The
floor is a bare loop of open, fstat and read over the same 200 files at the same pace, without understanding a
line. Half a second of the latency is the pace's, for every reader.

    python benchmarks/event_tail.py [--seconds 20] [--workers 200] [--folder DIR]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from hpcbench.experiment.event_log import EventLog  # noqa: E402
from hpcbench.experiment.events import EventTail  # noqa: E402
from hpcbench.experiment.layout import Experiment  # noqa: E402

GOAL = 0.05
"""Share of one core."""

EVERY = 0.5
"""Seconds between two events of a worker."""

PAUSE = 1.0
"""Seconds between two looks."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--folder", help="where the experiment is made; none: the temporary folder")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.write:
        write(Experiment(Path(asked.write)), asked.workers)
        return
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        here = Experiment(Path(folder) / "experiment")
        writer = subprocess.Popen(
            [sys.executable, __file__, "--write", str(here.path), "--workers", str(asked.workers)]
        )
        try:
            while len(list(here.worker_records())) < asked.workers:
                time.sleep(0.1)
            time.sleep(1)
            floor, bytes_read = bare(here, asked.seconds)
            share, ages, lost = follow(here, asked.seconds)
        finally:
            writer.kill()
            writer.wait()
    ages.sort()
    p50, p99 = statistics.median(ages), ages[int(0.99 * (len(ages) - 1))]
    print(f"{asked.workers} workers, an event of each every {EVERY} s, a look every {PAUSE} s")
    print(f"{'open+fstat+read alone':>24} {floor:>8.2%} of one core, {bytes_read >> 10} KiB")
    print(f"{'EventTail':>24} {share:>8.2%} of one core, {len(ages)} events, {lost} lost")
    print(f"{'from write to event':>24} {p50:>8.2f} s p50, {p99:.2f} s p99")
    print(f"{'goal':>24} {GOAL:>8.2%}: {'kept' if share < GOAL and not lost else 'MISSED'}")


def write(here: Experiment, workers: int) -> None:
    """Be all workers, until killed."""
    logs = []
    for number in range(workers):
        with EventLog(here.shard_events(f"task{number % 4}", number, 1)) as shard:
            shard.write("claimed", owner={"job": f"1_{number}", "node": "n1"})
        log = EventLog(here.worker_events("g0", f"1_{number}-0"))
        log.write("started", owner={"job": f"1_{number}", "node": "n1"})
        log.write("shard_claimed", shard=f"task{number % 4}/{number:05d}", attempt=1)
        logs.append(log)
    started, round_of = time.monotonic(), 0
    while True:
        for number, log in enumerate(logs):
            due = started + EVERY * (round_of + number / workers)
            time.sleep(max(0.0, due - time.monotonic()))
            log.write("progress", shard=f"task{number % 4}/{number:05d}", answered=round_of)
        round_of += 1


def paced(seconds: float, look: Callable[[], object]) -> float:
    """CPU time ÷ time of looking again and again."""
    started, cpu = time.monotonic(), time.process_time()
    looks = 0
    while time.monotonic() - started < seconds:
        look()
        looks += 1
        time.sleep(max(0.0, started + PAUSE * looks - time.monotonic()))
    return (time.process_time() - cpu) / (time.monotonic() - started)


def bare(here: Experiment, seconds: float) -> tuple[float, int]:
    """The floor: share of a core, and bytes that were read."""
    offsets = {str(path): path.stat().st_size for path, _ in here.worker_records()}
    taken = 0

    def look() -> None:
        nonlocal taken
        for path, offset in offsets.items():
            descriptor = os.open(path, os.O_RDONLY)
            size = os.fstat(descriptor).st_size
            if size > offset:
                taken += len(os.pread(descriptor, size - offset, offset))
                offsets[path] = size
            os.close(descriptor)

    return paced(seconds, look), taken


def follow(here: Experiment, seconds: float) -> tuple[float, list[float], int]:
    """Share of a core; seconds from write to event; numbers that are missing between others."""
    tail = EventTail(here)
    tail.poll()
    ages: list[float] = []
    seen: dict[str, int] = {}
    lost = 0

    def look() -> None:
        nonlocal lost
        for event in tail.poll():
            ages.append(time.time() - event.time)
            lost += event.seq - seen.get(event.source, event.seq - 1) - 1
            seen[event.source] = event.seq

    return paced(seconds, look), ages, lost


if __name__ == "__main__":
    main()
