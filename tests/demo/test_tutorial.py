"""The tutorial's commands, as they stand there, in a folder that holds files with names of modules."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


def commands() -> list[list[str]]:
    """The first block of commands without those that install."""
    block = re.findall(r"```sh\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)[0]
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    return [words for words in lines if words and words[0] in ("python", "hpcbench")]


def test_the_tutorial_reaches_a_right_number_from_a_folder_with_modules_in_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    # What a source folder holds, and what else lies in folders of researchers.
    (tmp_path / "hpcbench").mkdir()
    for name in ("hpcbench/__init__.py", "queue.py", "aiohttp.py"):
        (tmp_path / name).write_text("raise SystemExit('imported from the current folder')\n")
    programs = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HPCBENCH_HOME": str(tmp_path / "home"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    made = commands()
    assert [words[1] for words in made] == ["examples/fifty_pages.py", "data", "submit"]
    for words in made:
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    (metrics,) = (tmp_path / "home/experiments").glob("*/metrics.json")
    (task,) = json.loads(metrics.read_text())["run_tasks"].values()
    assert task["asked"] == 50
    assert task["metrics"]["kie_f1_micro"]["value"] > 0.95
