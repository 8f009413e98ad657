"""The definition of `hpcbench data add` is submitted as it is, and the tiny model reads the pages."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples/demo/data"


def demo(table: str, count: int) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (DEMO / table).read_text().splitlines()]
    return [row for row in rows if row["metadata"]["doc_type"] == "form"][:count]


def typed(folder: Path, *words: str) -> str:
    """Screen of a user who types it there, with nothing set up."""
    home = {"HPCBENCH_HOME": str(folder / "home"), "XDG_CONFIG_HOME": str(folder / "config")}
    done = subprocess.run(
        [sys.executable, "-c", "from hpcbench.cli.main import main; raise SystemExit(main())", *words],
        cwd=folder, env={**os.environ, **home, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.engine
def test_a_zipped_folder_with_excels_csv_is_submitted_with_the_printed_line(tmp_path: Path) -> None:
    rows = demo("kie.jsonl", 6)
    (tmp_path / "far").mkdir()
    with (tmp_path / "far/list.csv").open("w", encoding="utf-8-sig", newline="") as file:
        table = csv.writer(file, delimiter=";")
        table.writerow(["Page", *rows[0]["references"][0]])
        for row in rows:
            page = Path(row["images"][0])
            shutil.copy(DEMO / page, tmp_path / "far" / page.name)
            table.writerow([page.stem, *row["references"][0].values()])
    with zipfile.ZipFile(tmp_path / "forms.zip", "w") as archive:
        for path in (tmp_path / "far").iterdir():
            archive.write(path, f"forms/{path.name}")
    reported = typed(tmp_path, "data", "add", "forms.zip").splitlines()
    words = next(line.split()[1:] for line in reported if line.startswith("  hpcbench submit"))
    typed(tmp_path, *words, "--wait")
    (metrics,) = (tmp_path / "home/experiments").glob("*/metrics.json")
    (task,) = json.loads(metrics.read_text())["run_tasks"].values()
    assert task["metrics"]["kie_f1_micro"]["value"] > 0.9
