"""How long answers of earlier experiments are looked up among ten million, and in how much memory.

Half of the keys are known. `lookup` finds their answers in the index file, `assign` gives each key one.

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

from hpcbench.experiment.answer_index import Source, assign, look_up, write_rows
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
    start = write_rows(
        file, "x", columns, [("rt", n, 1) for n in range(ANSWERS // A_SHARD + 1)], []
    )
    return Source(Experiment(Path("x")), file, ANSWERS, start)


def wanted(source: Source, count: int) -> Any:
    """Keys, half of them known."""
    chance = np.random.default_rng(2)
    known = [
        source.read(0, int(at), 1)[0] for at in chance.integers(0, ANSWERS, min(count, 10_000) // 2)
    ]
    others = chance.integers(1, 2**64 - 1, count - len(known), dtype="u8")
    return chance.permutation(np.concatenate([np.array(known, "u8"), others]))


def main() -> None:
    """Print a row for each number of keys; each runs in a process of its own, so that its peak is its own."""
    if len(sys.argv) > 1:
        file, start, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
        source = Source(Experiment(Path("x")), file, ANSWERS, start)
        keys = wanted(source, count)
        begin = time.perf_counter()
        hits = look_up([source], keys)
        middle = time.perf_counter()
        assign(keys, hits, np.zeros(0, "u8"))
        end = time.perf_counter()
        status = Path("/proc/self/status").read_text()  # ru_maxrss has the parent's, too
        (peak,) = (int(line.split()[1]) / 1024 for line in status.splitlines() if "VmHWM" in line)
        print(
            f"{count:>9,}  {middle - begin:6.2f} s  {end - middle:6.2f} s  {peak:6.0f} MB",
            flush=True,
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.index"
        start = make(file).start
        print(f"{file.stat().st_size / 1e6:.0f} MB of index, {ANSWERS:,} answers")
        print("     keys    lookup    assign      peak", flush=True)
        for count in (1_000, 100_000, 1_000_000):
            words = [sys.executable, __file__, str(file), str(start), str(count)]
            subprocess.run(words, check=True)


if __name__ == "__main__":
    main()
