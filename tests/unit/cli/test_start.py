"""`hpcbench` alone and `hpcbench submit` without a plan say what to type next."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.cli.parse import parser
from tests.unit.command import Cli


@pytest.fixture(autouse=True)
def _nothing_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HPCBENCH_SITE", str(tmp_path / "site"))


def commands(text: str) -> list[list[str]]:
    """The commands that are shown, without their `hpcbench`."""
    found = re.findall(r"^  hpcbench (.*?)(?:  .*)?$", text, re.MULTILINE)
    return [shlex.split(line) for line in found]


def test_hpcbench_alone_leads_on(cli: Cli) -> None:
    shown = cli()
    assert len(shown.splitlines()) <= 10
    verbs = [words[0] for words in commands(shown)]
    assert verbs == ["init", "doctor", "submit", "new", "data", "--help"]
    for words in commands(shown):
        if words[0] != "--help":
            parser().parse_args(words)  # every line can be typed as it is
    (demo,) = (Path(words[1]) for words in commands(shown) if words[0] == "submit")
    assert demo.is_file()


def test_submit_without_a_plan_is_wrong_input_and_leads_on(cli: Cli) -> None:
    said = cli.err("submit")
    assert said.startswith("submit needs a plan, the YAML file of a run; next:\n  hpcbench init")
    assert [words[0] for words in commands(said)][:3] == ["init", "doctor", "submit"]
    assert cli.err("--site", "nowhere", "submit") == said


def test_a_plan_that_new_wrote_is_the_next_to_submit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "compose.yaml").write_text("services: {}\n")
    words = ["--task", "vqa", "--dataset", "demo_vqa", "--model", "tiny-vlm"]
    assert main(["new", "first", *words]) == 0
    capsys.readouterr()
    main([])
    shown = commands(capsys.readouterr().out)
    assert [words for words in shown if words[0] == "submit"] == [
        ["submit", "first.yaml", "--dry-run"]
    ]


def test_what_is_there_is_not_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config/hpcbench/sites").mkdir(parents=True)
    (tmp_path / "config/hpcbench/sites/default.yaml").write_text("name: default\n")
    (tmp_path / "plan.yaml").write_text("name: mine\n")
    main(["submit"])
    said = capsys.readouterr().err
    assert commands(said)[0] == ["submit", "plan.yaml", "--dry-run"]
    assert "init" not in said
