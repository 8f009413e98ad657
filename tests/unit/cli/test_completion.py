"""A shell that completes: names from folders, at once, and never an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

ANSWER = "import sys; sys.argv[0] = 'hpcbench'; from hpcbench.cli.main import entry; entry()"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two experiments, a baseline, a model of the project and a plan."""
    folder = tmp_path / "home"
    for name in ("20260101-1200-old-aaaa", "20260102-1200-new-bbbb"):
        (folder / "experiments" / name).mkdir(parents=True)
        (folder / "experiments" / name / "manifest.json").write_text("{}")
        tasks = {f"easy-{name[14:17]}": [], "hard": []}
        (folder / "experiments" / name / "chosen.json").write_text(json.dumps(tasks))
    (folder / "experiments" / "half-made").mkdir()
    (folder / "baselines/main").mkdir(parents=True)
    entry = {
        "name": "main",
        "number": 1,
        "experiment": "20260101-1200-old-aaaa",
        "by": "me",
        "time": 0,
    }
    (folder / "baselines/main/00001.jsonl").write_text(json.dumps(entry) + "\n")
    (tmp_path / "registries/models/mine").mkdir(parents=True)
    for file in ("vlm.yaml", "vlm.dev.yaml"):
        (tmp_path / "registries/models/mine" / file).write_text("name: not read")
    (tmp_path / "plan.yaml").write_text("name: p\nrun_tasks: [{name: of-plan}]\n")
    return tmp_path


def tab(home: Path, line: str, **environ: str) -> list[str]:
    """Words that a shell offers after a line."""
    given = {
        **os.environ, "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9",
        "_ARGCOMPLETE": "1", "_ARGCOMPLETE_SUPPRESS_SPACE": "1", "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SHELL": "bash", "_ARGCOMPLETE_STDOUT_FILENAME": str(home / "offered"),
        "HPCBENCH_HOME": str(home / "home"), "XDG_CONFIG_HOME": str(home / "config"), **environ,
    }  # fmt: skip
    (home / "offered").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", ANSWER],
        env=given,
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return (home / "offered").read_text().split("\n")


NEW, OLD = "20260102-1200-new-bbbb", "20260101-1200-old-aaaa"


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("hpcbench sta", ["status"]),
        ("hpcbench status ", ["@last", NEW, OLD, "main"]),
        ("hpcbench compare main ", ["@last", NEW, OLD, "main"]),
        ("hpcbench pause @last ", ["easy-new", "hard"]),
        ("hpcbench score 20260101 --run-task e", ["easy-old"]),
        ("hpcbench load plan.yaml --run-task ", ["of-plan"]),
        ("hpcbench serve mine/", ["mine/vlm"]),
        ("hpcbench models verify mine/", ["mine/vlm"]),
        ("hpcbench data check demo_k", ["demo_kie"]),
        ("hpcbench registry show models/mine", ["models/mine/vlm"]),
        ("hpcbench baseline show ", ["main"]),
        ("hpcbench new --model mine/", ["mine/vlm"]),
        ("hpcbench new --dataset demo_k", ["demo_kie"]),
        ("hpcbench new --task page_o", ["page_order"]),
        ("hpcbench new --prompt kie_j", ["kie_json"]),
        ("hpcbench ne", ["new"]),
        ("hpcbench submit pl", ["plan.yaml"]),
        ("hpcbench submit plan.yaml --max", ["--max-gpu-hours"]),
    ],
)
def test_names_are_offered_where_they_are_wanted(home: Path, line: str, offered: list[str]) -> None:
    assert tab(home, line) == offered


@pytest.mark.parametrize(
    "line",
    ["hpcbench pause no-such ", "hpcbench load no-such.yaml --run-task "],
)
def test_what_is_not_there_offers_nothing_and_says_nothing(home: Path, line: str) -> None:
    assert tab(home, line) == [""]


def test_damaged_and_closed_places_say_nothing(home: Path) -> None:
    (home / "home/experiments" / NEW / "chosen.json").write_text("{half")
    assert tab(home, "hpcbench pause @last ") == [""]
    (home / "config/hpcbench/sites").mkdir(parents=True)
    (home / "config/hpcbench/sites/default.yaml").write_text("home: [\n")
    assert tab(home, "hpcbench status ", HPCBENCH_HOME="") == ["@last"]


def test_a_profile_says_where_experiments_are(home: Path) -> None:
    (home / "config/hpcbench/sites").mkdir(parents=True)
    (home / "config/hpcbench/sites/default.yaml").write_text(f"home: {home}/home\n")
    assert tab(home, "hpcbench status 2026", HPCBENCH_HOME="") == [NEW, OLD]


def test_definitions_and_experiments_are_named_without_the_schemas(home: Path) -> None:
    code = (
        "import argparse, sys; from hpcbench.cli.completion import definitions, experiments\n"
        "here = argparse.Namespace(); list(definitions('models')(here))\n"
        "next(experiments(here)); print('pydantic' in sys.modules, 'yaml' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=home, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]


def test_bash_completes_with_what_the_verb_prints(home: Path) -> None:
    program = home / "bin/hpcbench"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{ANSWER}" "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(hpcbench completion bash)"
        COMP_LINE="hpcbench serve mine/" COMP_POINT=20 COMP_WORDS=(hpcbench serve mine/) COMP_CWORD=2
        COMP_TYPE=9 _python_argcomplete hpcbench mine/ serve
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    environ = {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        ["bash", "-c", script], cwd=home, env=environ, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("mine/vlm", "")


def test_the_lines_of_the_page_on_installing_make_a_shell_complete() -> None:
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    for shell in ("bash", "fish"):
        assert f"hpcbench completion {shell}" in page
        command = [sys.executable, "-c", ANSWER, "completion", shell]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "hpcbench" in done.stdout
