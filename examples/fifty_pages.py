"""Fifty pages to try hpcbench with, as a user would have them: images and a table that Excel saved.

    python examples/fifty_pages.py scans

It copies receipts of the demo into the folder, with their answers in `answers.csv`.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path

DEMO = Path(__file__).parent / "demo" / "data"
PAGES = 50


def make(folder: Path) -> None:
    """Write the folder; one that exists is refused."""
    folder.mkdir(parents=True)
    lines = (DEMO / "kie.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    receipts = [row for row in rows if row["metadata"]["doc_type"] == "receipt"][:PAGES]
    with (folder / "answers.csv").open("w", encoding="utf-8-sig", newline="") as file:
        table = csv.writer(file, delimiter=";")
        table.writerow(["file", "language", *receipts[0]["references"][0]])
        for row in receipts:
            page = f"{row['document']}.png"
            shutil.copy(DEMO / row["images"][0], folder / page)
            table.writerow([page, row["metadata"]["language"], *row["references"][0].values()])


if __name__ == "__main__":
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        sys.exit("usage: python examples/fifty_pages.py FOLDER   (a folder that is not there yet)")
    make(Path(sys.argv[1]))
    print(f"{PAGES} pages and answers.csv in {sys.argv[1]}")
