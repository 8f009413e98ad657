"""Reading 100,000 samples: rate and memory of the table iterator over Parquet, JSONL and CSV.

Prints samples per second, with and without images, and the most memory of the process (VmHWM, pages of mapped
files included), beside ten times the fastest engine figure.

    python benchmarks/iterate.py [--samples 100000]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

READ = r"""
import re, sys, time
from pathlib import Path
from hpcbench.data.table import TableDataset
from hpcbench.data.datasets import samples
from hpcbench.plugins import DatasetSpec
begun = time.perf_counter()
table = TableDataset(DatasetSpec(Path(sys.argv[1]), sys.argv[2]))
count = table.count()
opened = time.perf_counter()
seen = sum(1 for _ in samples(table, [(0, count)], 0, count, images=sys.argv[3] == "images"))
done = time.perf_counter()
most = int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) // 1024
print(f"{seen} {opened - begun:.2f} {seen / (done - opened):.0f} {most}")
"""

ENGINE = 300
"""Requests a second; the fastest engine measured so far, vLLM's offline mode with a tiny model, does 241."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=100_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, arguments.samples)
        print(
            f"{arguments.samples} samples; ten times the fastest engine figure is {10 * ENGINE} a second"
        )
        print("form                 opened after   samples/s   x 10 engines   most memory")
        for file in ("a.parquet", "a.jsonl", "a.csv"):
            for images in ("images", "none"):
                done = subprocess.run(
                    [sys.executable, "-c", READ, name, file, images],
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
                seen, opened, rate, most = done.stdout.split()
                assert int(seen) == arguments.samples
                ratio = int(rate) / (10 * ENGINE)
                told = f"{file}{'' if images == 'images' else ', no images'}"
                print(f"{told:<22} {opened:>8} s {rate:>11} {ratio:>14.1f} {most:>9} MiB")


def write(folder: Path, count: int) -> None:
    """Images of 8 kB inside the Parquet file, in row groups of 1,000 as Hugging Face writes them."""
    import polars

    def row(number: int) -> dict[str, object]:
        return {
            "id": f"s{number}", "document": f"d{number // 5}", "split": "test", "references": ["12.50"],
            "fields": {"question": f"What is the total of {number}?"}, "metadata": {"doc_type": "receipt"},
        }  # fmt: skip

    with (folder / "a.jsonl").open("w") as file, (folder / "a.csv").open("w") as table:
        table.write("id,images,document,split,references\n")
        for number in range(count):
            file.write(json.dumps({**row(number), "images": [f"{number}.png"]}) + "\n")
            table.write(f"s{number},{number}.png,d{number // 5},test,12.50\n")
    noise = os.urandom(8000)
    rows = [
        {**row(number), "images": {"bytes": number.to_bytes(4, "big") + noise, "path": None}}
        for number in range(count)
    ]
    polars.DataFrame(rows).write_parquet(folder / "a.parquet", row_group_size=1000)


if __name__ == "__main__":
    main()
