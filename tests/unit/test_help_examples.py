"""Every example of every `--help` is a command that works.

Most run here, each in a folder with the demo's files and in a home with two experiments that ran the demo's
model. `ONLY_PARSED` lists the others and why they do not run; of these the test checks that they parse.
Words in capitals are the user's own: `PLAN` is the demo's plan here, `EXPERIMENT` an experiment of the home.
"""

from __future__ import annotations

import argparse
import io
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.cli.parse import parser
from tests.unit.earlier import CUT, WHOLE, unpack

ROOT = Path(__file__).parents[2]

_REASONS: Mapping[str, Sequence[str]] = {
    "it starts an engine and runs for minutes; tests/demo runs such commands": (
        "doctor --run",
        "submit PLAN --wait",
        "rerun EXPERIMENT --wait",
        "ab PLAN --a model.dtype=bfloat16 --b model.dtype=float16 --metric answers_per_s --wait",
        "ab A.yaml B.yaml --limit 20 --wait",
        "load PLAN --concurrency 1,8,64 --slo ttft=500,tpot=50 --wait",
        "load PLAN --rate 0.5,1,2 --requests 200",
        "regress PLAN --baseline main --set-baseline-if-none",
    ),
    "it serves until a signal ends it": (
        "serve tiny-vlm --port 8000",
        "serve tiny-vlm --job --time-limit 00:30:00",
        "portal",
        "portal --allow-edit --allow-submit --plans .",
        "portal --tcp",
        "portal --tcp --port 8080 --listen 0.0.0.0 --proxy-address 10.0.0.7 --root-path /node/n1/8080",
    ),
    "it needs a running portal, or the id of a token": (
        "portal url",
        "portal status",
        "portal stop",
        "portal token revoke TOKEN",
    ),
    "it asks questions in a terminal": ("new",),
    "it examines this machine's Slurm; test_init.py runs it with others": (
        "init",
        "init --dry-run",
    ),
    "it changes the crontab of this account": (
        "cron install PLAN --at '0 2 * * *'",
        "cron install PLAN --at @daily --regress main",
        "cron install PLAN --regress main --at '0 2 * * *'",
        "cron list",
        "cron script PLAN",
        "cron remove demo",
    ),
    "it needs the internet, a tracker, a token server or a cluster": (
        "auth login MODEL",
        "auth forget MODEL",
        "init --site NAME --ssh USER@HOST",
        "images build vllm-openai",
        "images lock vllm-openai",
        "models fetch Qwen/Qwen2.5-VL-7B-Instruct",
        "plugins check examples/plugins/amount-metric",
        "upload @last --to s3://BUCKET/results",
        "export @last --to phoenix --url http://localhost:6006",
        "track @last",
        "track @last --live",
        "track @last --tracker phoenix --option url=http://localhost:6006",
    ),
    "it needs Apptainer, or an image in the cache": (
        "images verify",
        "images show vllm-openai",
        "images save vllm-openai --with-hpcbench --out images.tar",
        "images restore images.tar",
    ),
    "it needs an experiment or files of another kind than those of the home": (
        "serve tiny-vlm --stop",
        "ab @last",
        "compare @last @last --run-task vqa-easy=vqa-hard",
        "notify @last",
        "notify PLAN --test",
        "pause @last vqa-hard",
        "resume @last vqa-hard --pilot 0",
        "rerun EXPERIMENT --source demo_vqa=/data/pages",
        "data add FOLDER --annotations answers.csv --answer total,date",
        "import FOLDER --from lmms-eval --metrics anls --map id=doc.questionId",
        "import FILE --from v01 --vlm-base vlm_base.csv --out imported",
        "import registries --from v02 --dry-run",
    ),
}
ONLY_PARSED = {f"hpcbench {line}": why for why, lines in _REASONS.items() for line in lines}


def leaves(
    command: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Every parser of the command line, with the words that lead to it."""
    yield words, command
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, verb in action.choices.items():
                yield from leaves(verb, (*words, name))


def examples(command: argparse.ArgumentParser) -> list[str]:
    """The commands at the end of its help."""
    _, _, shown = command.format_help().rpartition("\nexample")
    return re.findall(r"^  (hpcbench .+?)(?:  .*)?$", shown, re.MULTILINE)


EVERY = {words: examples(command) for words, command in leaves(parser())}
COMMANDS = list(dict.fromkeys(line for lines in EVERY.values() for line in lines))


def words_of(line: str) -> list[str]:
    """The arguments that a shell passes; `<<< '{}'` is standard input."""
    return shlex.split(line.partition(" <<< ")[0])[1:]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_a_help_ends_with_an_example_of_its_verb(words: tuple[str, ...]) -> None:
    found = [words_of(line)[: len(words)] for line in EVERY[words]]
    assert list(words) in found


@pytest.mark.parametrize("line", COMMANDS)
def test_an_example_parses(line: str) -> None:
    words = words_of(line)
    parser(words).parse_args(words)


def test_what_does_not_run_is_an_example() -> None:
    assert set(ONLY_PARSED) <= set(COMMANDS)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `examples/` and a file of answers, and a home with two experiments and a baseline."""
    unpack(tmp_path / "home")
    shutil.rmtree(tmp_path / "home/experiments" / CUT)
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HPCBENCH_SITE", str(tmp_path / "site"))
    monkeypatch.setenv("RUN_MODE", "dev")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}\n")))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "answers.jsonl").write_text(
        '{"id": "easy-0001-code", "answer": "30364", "prediction": "30364", "references": ["30364"]}\n'
    )
    monkeypatch.chdir(folder)
    assert main(["baseline", "set", WHOLE, "--name", "main"]) == 0
    return folder


def with_database(folder: Path, *, made: bool) -> None:
    """A site profile with a database, perhaps with its tables."""
    profile = folder / "config/hpcbench/sites/default.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text(f"name: default\ndatabase: {{type: sqlite, url: {folder}/results.sqlite}}\n")
    if made:
        assert main(["database", "init"]) == 0


OWN = {"PLAN": "examples/demo/plan.yaml", "EXPERIMENT": WHOLE, "FILE": "answers.jsonl"}

CODES = {"gate": {0, 4, 5}, "registry diff": {0, 1}, "doctor": {0, 3}}
"""Verbs whose exit code is their answer; all others end with 0."""

SLOW = ("hpcbench portal bundle @last --out pages.zip", "hpcbench report @last --format pdf")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(one, marks=pytest.mark.long) if one in SLOW else one
        for one in COMMANDS
        if one not in ONLY_PARSED
    ],
)
def test_an_example_runs(world: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [OWN.get(word, word) for word in words_of(line)]
    verb = " ".join(words)
    if words[0] == "database":
        with_database(world.parent, made=words[1] != "init")
    (allowed,) = [codes for name, codes in CODES.items() if verb.startswith(name)] or [{0}]
    assert main(words) in allowed, capsys.readouterr().err
