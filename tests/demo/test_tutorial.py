"""The tutorial's pages for a laptop, command by command, with the output that they show.

The folder of the reader holds files with names of modules: those of a source folder and of researchers. The
reader ran the whole demo before, and hpcbench takes over its answers; in a campaign, nothing.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.campaign import first
from tests.demo.reader import typed
from tests.pages import blocks, missing, shown

ROOT = Path(__file__).parents[2]
PAGES = ("tutorial.md", "tutorial-own-data.md")

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    """The current folder of a reader."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "hpcbench").mkdir()
    for name in ("hpcbench/__init__.py", "queue.py", "aiohttp.py"):
        (tmp_path / name).write_text("raise SystemExit('imported from the current folder')\n")
    return tmp_path


@pytest.mark.parametrize("before", first(1, ["the whole demo", "nothing"]))
def test_the_commands_of_the_pages_run_and_print_what_they_show(
    reader: Path, before: str, request: pytest.FixtureRequest
) -> None:
    if before == "the whole demo":
        home, _ = request.getfixturevalue("demo")
        shutil.copytree(home, reader / "home", symlinks=True)
    printed: dict[str, str] = {}
    for page in PAGES:
        for block in blocks(ROOT / "docs" / page):
            if block.note == "not run":
                continue
            if block.file:
                path = reader / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
            elif block.language == "sh":
                more = dict([block.value.split("=")]) if block.note == "env" else {}
                for line in block.text.splitlines():
                    printed[line] = typed(reader, line, **more)
            elif block.language == "text":
                for command, lines in shown(block):
                    wrong = missing(lines, printed[command])
                    assert wrong is None, f"{page}: {wrong}\n{printed[command]}"
    assert len(printed) > 12
    asked = printed["hpcbench submit scans-plan.yaml --wait"]
    assert f"asks {0 if before == 'the whole demo' else 44} of 50 samples" in asked
    typed(reader, "MY_ENDPOINT_KEY=x hpcbench validate --registry registries")
    for metrics in reader.glob("home/experiments/*-scans-*/metrics.json"):
        (task,) = json.loads(metrics.read_text())["run_tasks"].values()
        assert task["metrics"]["kie_f1_micro"]["value"] > 0.95
