"""Reading 100,000 samples: rate and memory of the table iterator over Parquet, JSONL and CSV.

Prints samples per second, with and without images, and the most memory of the process (VmHWM, pages of mapped
files included), beside ten times the fastest engine figure. Then the same of 500 samples that lie apart, as
`where` and `sample` choose them, and of pages of 300 kB in row groups of 100 and of 1,000.

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
import random, re, sys, time
from pathlib import Path
from hpcbench.data.table import TableDataset
from hpcbench.data.datasets import samples
from hpcbench.plugins import DatasetSpec
since = time.perf_counter()
table = TableDataset(DatasetSpec(Path(sys.argv[1]), sys.argv[2]))
count = table.count()
opened = time.perf_counter()
ranges = [(0, count)]
if sys.argv[4] == "apart":
    ranges = [(place, place + 1) for place in sorted(random.Random(0).sample(range(count), 500))]
seen = sum(1 for _ in samples(table, ranges, 0, count, images=sys.argv[3] == "images"))
done = time.perf_counter()
most = int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) // 1024
print(f"{seen} {opened - since:.2f} {seen / (done - opened):.0f} {most}")
"""

ENGINE = 300
"""Requests a second; the fastest engine measured so far, vLLM's offline mode with a tiny model, does 241."""

HEAVY = 1500
"""Samples with a page of 300 kB."""


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
        print(
            "form                                 opened after   samples/s   x 10 engines   most memory"
        )
        heavy = ("heavy-100.parquet", "heavy-1000.parquet")
        for file in ("a.parquet", "a.jsonl", "a.csv", *heavy):
            for images in ("images", "none"):
                for which in ("all", "apart"):
                    done = subprocess.run(
                        [sys.executable, "-c", READ, name, file, images, which],
                        capture_output=True, text=True, check=True,
                    )  # fmt: skip
                    seen, opened, rate, most = done.stdout.split()
                    expected = HEAVY if file in heavy else arguments.samples
                    assert int(seen) == (500 if which == "apart" else expected)
                    ratio = int(rate) / (10 * ENGINE)
                    reported = f"{file}{'' if images == 'images' else ', no images'}"
                    reported += ", apart" if which == "apart" else ""
                    print(f"{reported:<38} {opened:>8} s {rate:>11} {ratio:>14.1f} {most:>9} MiB")


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
    pages = [
        {**row(number), "images": {"bytes": os.urandom(300_000), "path": None}}
        for number in range(HEAVY)
    ]
    for group in (100, 1000):
        file = folder / f"heavy-{group}.parquet"
        polars.DataFrame(pages).write_parquet(file, row_group_size=group)


if __name__ == "__main__":
    main()
