"""Every example of every `--help` is a command that works.

Most run here, each in a folder with the demo's files and in a home with two experiments that ran the demo's
model. Those that need a cluster, a server or an engine run in the tests that have one, by
`tests.help_examples.example`. `ONLY_PARSED` lists the rest and why they do not run: these only parse.
Words in capitals are the user's own: `PLAN` is the demo's plan here, `EXPERIMENT` an experiment of the home.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.cli.parse import parser
from hpcbench.evaluation.stage import evaluate
from tests.cluster.packages import install_packages
from tests.conftest import ROOT
from tests.remote.hub import hub
from tests.unit.court import Court
from tests.unit.earlier import CUT, WHOLE, unpack
from tests.unit.interchange import kits
from tests.unit.site.test_crontab import FAKE as FAKE_CRONTAB

_REASONS: Mapping[str, Sequence[str]] = {
    "it runs for minutes, with a real engine's loads; tests/faults/test_tune.py runs the same": (
        "tune MODEL --dataset DATASET --budget 30",
        "tune PLAN --try model.engine_options.max_num_seqs=64,128,256",
    ),
    "it collects wheels of a whole image from an index; tests/packages saves without an image": (
        "images save vllm-openai --with-hpcbench --out images.tar",
    ),
}
ONLY_PARSED = {f"hpcbench {line}": why for why, lines in _REASONS.items() for line in lines}


def elsewhere() -> set[str]:
    """Examples that tests with real parts run: the texts that they give `tests.help_examples.example`."""
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "tests.help_examples" in text:
            found |= set(re.findall(r"\bexample\(\s*\"([^\"]+)\"", text))
    return {f"hpcbench {line}" for line in found}


ELSEWHERE = elsewhere()


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


def test_what_does_not_run_here_is_an_example() -> None:
    assert set(ONLY_PARSED) <= set(COMMANDS)
    assert set(COMMANDS) >= ELSEWHERE
    assert not ELSEWHERE & set(ONLY_PARSED)


@dataclass
class Worlds:
    """Folders in which examples run: the next example has the same one if the last changed nothing in it."""

    parent: Path
    current: Path | None = None
    state: object = None

    def next(self) -> tuple[Path, bool]:
        """A world, and whether it is new and empty."""
        if self.current is not None and state_of(self.current) == self.state:
            return self.current, False
        self.end()
        self.current = Path(tempfile.mkdtemp(dir=self.parent))
        return self.current, True

    def end(self) -> None:
        """Remove what there is."""
        if self.current is not None:
            shutil.rmtree(self.current)
        self.current = None


def state_of(folder: Path) -> list[tuple[str, int, int]]:
    """Path, time of the last change and size of all below a folder."""
    seen = {path: path.lstat() for path in (folder, *folder.rglob("*"))}
    return [(str(path), one.st_mtime_ns, one.st_size) for path, one in sorted(seen.items())]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    made = Worlds(tmp_path_factory.mktemp("worlds"))
    yield made
    made.end()


@pytest.fixture
def world(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `examples/` and a file of answers, and a home with two experiments and a baseline."""
    above, new = worlds.next()
    monkeypatch.setenv("HPCBENCH_HOME", str(above / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(above / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(above / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(above / "state"))
    monkeypatch.setenv("HPCBENCH_SITE", str(above / "site"))
    monkeypatch.setenv("RUN_MODE", "dev")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}\n")))
    folder = above / "folder"
    if new:
        folder.mkdir()
    monkeypatch.chdir(folder)
    if new:
        unpack(above / "home")
        shutil.rmtree(above / "home/experiments" / CUT)
        (folder / "examples").symlink_to(ROOT / "examples")
        (folder / "answers.jsonl").write_text(
            '{"id": "easy-0001-code", "answer": "30364", "prediction": "30364", "references": ["30364"]}\n'
        )
        assert main(["baseline", "set", WHOLE, "--name", "main"]) == 0
        worlds.state = state_of(above)
    return folder


def with_database(folder: Path, *, made: bool) -> None:
    """A site profile with a database, perhaps with its tables."""
    profile = folder / "config/hpcbench/sites/default.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text(f"name: default\ndatabase: {{type: sqlite, url: {folder}/results.sqlite}}\n")
    if made:
        assert main(["database", "init"]) == 0


# --- parts that some examples need --------------------------------------------------------------------

Own = Mapping[str, str]
"""Words of an example → the test's own."""


def a_crontab(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Own:
    """A fake crontab, in which the demo's plan is on a schedule."""
    programs = folder.parent / "bin"
    programs.mkdir()
    for name in ("crontab", "scrontab"):
        program = programs / name
        program.write_text(FAKE_CRONTAB.format(name=name, table=folder.parent / f"{name}.table"))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    assert main(["cron", "install", OWN["PLAN"], "--at", "@weekly"]) == 0
    return {}


def pages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Own:
    """A folder of pages and a table of answers."""
    page = next((ROOT / "examples/demo/data/images").rglob("*.*"))
    (folder / "FOLDER").mkdir()
    rows = ["image,total,date"]
    for number in range(3):
        shutil.copy(page, folder / f"FOLDER/{number}{page.suffix}")
        rows.append(f"{number}{page.suffix},{number}.50,2026-01-0{number + 1}")
    (folder / "FOLDER/answers.csv").write_text("\n".join(rows) + "\n")
    return {}


def results_of_another_kit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Own:
    kits.lmms_eval(folder / "FOLDER")
    return {}


def v01(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Own:
    """v0.1's own files."""
    for name in ("user_config_model_eval.csv", "vlm_base.csv"):
        shutil.copy(ROOT / "tests/unit/data/v01" / name, folder)
    return {"FILE": "user_config_model_eval.csv"}


def v02(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Own:
    """A registry of v0.2."""
    path = folder / "registries/models/m.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("name: m\nframework: vllm\ndocker_image: a/b:1\n")
    return {}


def two_run_tasks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Own:
    """Answers to two run tasks that ask about the same samples."""
    return {"@last": WHOLE, "vqa-easy=vqa-hard": "vqa=vqa"}


def a_browser(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Own:
    if shutil.which("chromium") is None:
        install_packages(["chromium"])
    return {}


def a_judge(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Own:
    """An experiment with a judge that agrees with people."""
    court, names = Court(folder.parent / "judged"), [f"s{number}" for number in range(40)]
    court.answer("rt", {name: f"a{name}" for name in names})
    words = {name: "right" if number % 3 else "wrong" for number, name in enumerate(names)}
    court.verdicts({**words})
    evaluate(court.experiment)
    labels = court.labels(folder / "labels.jsonl", words)
    return {"EXPERIMENT": str(court.experiment.path), "FILE": str(labels)}


@contextmanager
def a_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A small model in a fake of the hub, which cannot be reached from here."""
    files = {"config.json": b"{}", "model.safetensors": b"weights"}
    with hub({"Qwen/Qwen2.5-VL-7B-Instruct": files}) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield


PREPARED: Mapping[str, Callable[[Path, pytest.MonkeyPatch], Own]] = {
    "cron ": a_crontab,
    "data add FOLDER": pages,
    "judge ": a_judge,
    "import FOLDER": results_of_another_kit,
    "import FILE": v01,
    "import registries": v02,
    "compare @last @last": two_run_tasks,
    "report @last --format pdf": a_browser,
}

OWN = {"PLAN": "examples/demo/plan.yaml", "EXPERIMENT": WHOLE, "FILE": "answers.jsonl"}

CODES = {"gate": {0, 4, 5}, "registry diff": {0, 1}, "doctor": {0, 3}}
"""Verbs whose exit code is their answer; all others end with 0."""


@pytest.mark.long
@pytest.mark.parametrize(
    "line",
    [one for one in COMMANDS if one not in ONLY_PARSED and one not in ELSEWHERE],
)
def test_an_example_runs(
    world: Path, line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = line.removeprefix("hpcbench ")
    own = dict(OWN)
    for start, prepare in PREPARED.items():
        if command.startswith(start):
            own |= prepare(world, monkeypatch)
    words = [own.get(word, word) for word in words_of(line)]
    if words[0] == "database":
        with_database(world.parent, made=words[1] != "init")
    (allowed,) = [codes for name, codes in CODES.items() if command.startswith(name)] or [{0}]
    with a_hub(monkeypatch) if command.startswith("models fetch") else nullcontext():
        assert main(words) in allowed, capsys.readouterr().err
