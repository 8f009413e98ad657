"""How long answers of earlier experiments are looked up among ten million, and in how much memory.

Half of the keys are known. `CPU` is the time that the process worked; the peak includes the keys.

    python benchmarks/answer_index.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from hpcbench.experiment.answer_index import Source, find, write_rows
from hpcbench.experiment.layout import Experiment

ANSWERS = 10_000_000
A_SHARD = 256


def make(file: Path) -> Source:
    """An index of random keys."""
    chance = np.random.default_rng(1)
    columns = (
        np.sort(chance.integers(1, 2**64 - 1, ANSWERS, dtype="u8")),
        chance.integers(1, 2**64 - 1, ANSWERS, dtype="u8"),
        (np.arange(ANSWERS) // A_SHARD).astype("u4"),
    )
    experiment = Experiment(file.parent)
    start = write_rows(
        file, experiment, columns, [("rt", n, 1) for n in range(ANSWERS // A_SHARD + 1)], []
    )
    return Source(experiment, file, ANSWERS, start)


def wanted(source: Source, count: int) -> Any:
    """Keys, half of them known."""
    chance = np.random.default_rng(2)
    found = np.empty(count, "u8")
    step = 2 * ANSWERS // count
    for first in range(0, count // 2, 100_000):  # every so many of the index, without holding it
        number = min(100_000, count // 2 - first)
        found[first : first + number] = source.read(0, first * step, number * step)[::step]
    found[count // 2 :] = chance.integers(1, 2**64 - 1, count - count // 2, dtype="u8")
    chance.shuffle(found)
    return found


def main() -> None:
    """Print a row for each number of keys; each runs in a process of its own, so that its peak is its own."""
    if len(sys.argv) > 1:
        file, start, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
        source = Source(Experiment(Path("x")), file, ANSWERS, start)
        keys = wanted(source, count)
        begin = time.perf_counter()
        worked = time.process_time()
        rows = find([source], keys, np.zeros(0, "u8"))
        end, worked = time.perf_counter(), time.process_time() - worked
        print(f"{int((rows >= 0).sum()):>10,}", end="")
        status = Path("/proc/self/status").read_text()  # ru_maxrss has the parent's, too
        (peak,) = (int(line.split()[1]) / 1024 for line in status.splitlines() if "VmHWM" in line)
        print(
            f" of {count:>10,}  {end - begin:6.2f} s  {worked:6.2f} s  {peak:6.0f} MB",
            flush=True,
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.index"
        start = make(file).start
        print(f"{file.stat().st_size / 1e6:.0f} MB of index, {ANSWERS:,} answers")
        print("     known of       keys      time       CPU      peak", flush=True)
        for count in (1_000, 100_000, 1_000_000, 10_000_000):
            words = [sys.executable, __file__, str(file), str(start), str(count)]
            subprocess.run(words, check=True)


if __name__ == "__main__":
    main()
