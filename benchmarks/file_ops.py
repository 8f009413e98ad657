"""Files and file-system calls of a shard: claim, record, acknowledge, end; then folding. Counted by strace.

A worker's loop over shards of a small experiment runs in a process of its own, once with few and once with
many shards: the difference, by shards, is what a shard costs; start-up falls out. The bounds beside it are
those that `tests/unit/experiment/test_file_ops.py` holds without strace. Without strace it says so.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from hpcbench.experiment.layout import Experiment
from tests.unit import small
from tests.unit.experiment.test_file_ops import (
    FOLD_CALLS,
    RUN_CALLS,
    RUN_SYNCS,
    SAMPLES,
    fold_all,
    run,
)

FEW, MANY = 20, 120

METADATA = (
    "openat", "link", "linkat", "unlink", "unlinkat", "rename", "renameat", "mkdir", "mkdirat", "getdents64",
    "stat", "lstat", "newfstatat", "statx", "access", "faccessat2",
)  # fmt: skip
"""Calls that a metadata server has to answer; reading and writing an open file is not among them."""

COUNTED = (
    *METADATA,
    "fsync",
    "write",
    "pwrite64",
    "read",
    "pread64",
    "ftruncate",
    "fstat",
    "lseek",
    "close",
)


def main() -> None:
    """Count and print, or, in the process that is counted, do the work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", nargs=2, metavar=("PART", "EXPERIMENT"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        part, path = asked.work
        {"run": run, "fold": fold_all}[part](Experiment(Path(path)))
        return
    if shutil.which("strace") is None:
        sys.exit("no strace on this machine: apt-get install strace")
    with tempfile.TemporaryDirectory() as folder:
        counts = {part: _of_a_shard(Path(folder), part) for part in ("run", "fold")}
        files = [
            len(list(one.rglob("*.jsonl"))) for one in sorted(Path(folder).glob("*/*/*/shards"))
        ]
    print(
        f"{'call':<14}{'claim → end':>14}{'fold':>10}   a shard of {SAMPLES} samples, each acknowledged"
    )
    for name in COUNTED:
        if any(counts[part][name] for part in counts):
            print(f"{name:<14}{counts['run'][name]:>14.2f}{counts['fold'][name]:>10.2f}")
    for part, bound in (("run", RUN_CALLS), ("fold", FOLD_CALLS)):
        total = sum(counts[part][name] for name in METADATA)
        print(f"metadata calls, {part}: {total:.2f} a shard (bound {bound})")
    print(f"fsync, run: {counts['run']['fsync']:.2f} a shard (bound {RUN_SYNCS})")
    print(f"files: 2 a shard while it runs, {files[0]} a run task once folded")


def _of_a_shard(folder: Path, part: str) -> Counter[str]:
    """Calls of one shard: the difference between many and few."""
    few, many = (_counted(_scene(folder, count), part) for count in (FEW, MANY))
    return Counter({name: (many[name] - few[name]) / (MANY - FEW) for name in COUNTED})


def _scene(folder: Path, shards: int) -> Path:
    place = folder / str(shards)
    records = [small.record(number) for number in range(shards * SAMPLES)]
    if not place.exists():
        small.experiment(place, records, SAMPLES)
    return next(place.glob("experiments/*"))


def _counted(experiment: Path, part: str) -> Counter[str]:
    """Calls of a whole process."""
    log = experiment.parent / f"{part}.strace"
    argv = [sys.executable, __file__, "--work", part, str(experiment)]
    calls = ",".join(COUNTED)
    subprocess.run(
        [
            "strace",
            "-f",
            "-qq",
            "-o",
            str(log),
            "-e",
            f"trace=?{',?'.join(calls.split(','))}",
            *argv,
        ],
        check=True,
    )
    # fstat is newfstatat of an open file; it is no question about a name.
    text = re.sub(r"newfstatat\(\d", "fstat(", log.read_text(errors="replace"))
    found = Counter(re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE))
    log.unlink()
    return found


if __name__ == "__main__":
    main()
