"""Submitting a plan of many run tasks beside a raw `sbatch --array` of as many, on the one-machine cluster.

All jobs are held and cancelled by their ids: only submission is timed. The raw array is the floor; what
hpcbench does besides is start Python, read the run tasks, look the hashes up, plan, write the manifest, and
submit the job that finalises too. `hpcbench --help` is its start alone. One run beforehand fills the caches
(hashes, packages) and is not counted. See lab_scene.py for what it needs.

    python benchmarks/submit_tasks.py [--tasks 1000] [--runs 3]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.lab_scene import drill, sbatch
from tests.slurm.drill import Drill

GOAL = 3.0
"""Seconds over the raw array, for a thousand run tasks."""


def main() -> None:
    """Time them in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    count = given.tasks
    with drill("submit-tasks") as user:
        user.at_site(options={"hold": True})
        plan = user.plan(
            *({"name": f"numbers-{number}", "limit": 8} for number in range(count)),
            shard_size=8,
            parallelism=min(count, 1000),
            workers="all",
        )
        ways: dict[str, Callable[[], str | None]] = {
            f"raw sbatch --array=0-{count - 1}": lambda: _raw(user, count),
            "hpcbench --help": lambda: _hpcbench(user, "--help"),
            f"hpcbench submit --dry-run, {count}": lambda: _submit(user, plan, "--dry-run"),
            f"hpcbench submit, {count} run tasks": lambda: _submit(user, plan),
        }
        took: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(given.runs + 1):
            for name, way in ways.items():
                started = time.perf_counter()
                job = way()
                took[name].append(time.perf_counter() - started)
                if job:
                    user.slurm("scancel", job)
                user.end()
    print(f"load {os.getloadavg()[0]:.1f}; medians of {given.runs}")
    floor = 0.0
    for name, seconds in took.items():
        middle = statistics.median(seconds[1:])
        floor = floor or middle
        print(f"{name:<36}{middle:>8.2f} s{middle / floor:>8.1f}{middle - floor:>+8.2f} s")
    print(f"goal: at most {GOAL:+.2f} s for 1,000 run tasks")


def _submit(user: Drill, plan: Path, *more: str) -> None:
    _hpcbench(user, "submit", plan, "--registry", user.folder / "registry", "--json", *more)


def _hpcbench(user: Drill, *words: str | Path) -> None:
    user.run(*words)


def _raw(user: Drill, count: int) -> str:
    words = [f"--array=0-{count - 1}", "--hold", "--mem=100M", "-o", "/dev/null"]
    return sbatch(user.lab, *words, "--wrap", "true")


if __name__ == "__main__":
    main()
