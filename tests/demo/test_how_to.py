"""The how-to pages do what they say: their definitions are written, their commands run, page by page.

A comment before a block says what the reader cannot see: `not run: REASON`, `env: NAME=VALUE`, `after: a run`
for commands that need an experiment, or `with: THINGS` for those that need other things of the reader, which
`THINGS` below makes. A reader who submits plans ran the demo before, and hpcbench takes over its answers.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.demo.reader import typed
from tests.pages import blocks, missing, shown
from tests.unit.earlier import CUT, unpack
from tests.unit.interchange import kits
from tests.unit.interchange.test_v01_answers import answers, config, data_dirs
from tests.unit.site.test_crontab import FAKE as FAKE_CRONTAB

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/how-to").glob("*.md"))

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

RUN = """\
schema_version: 1
name: small
executor: local
reports: [html, latex]
run_tasks:
  - {name: vqa, ml_task: vqa, model: tiny-vlm, dataset: demo_vqa, prompt: demo_vqa, limit: 8,
     generation: {max_tokens: 96}}
"""


def crontab(reader: Path) -> None:
    """A fake crontab, for the reader's own must stay as it is; and the plan that goes into it."""
    programs = reader / "bin"
    programs.mkdir()
    program = programs / "crontab"
    program.write_text(FAKE_CRONTAB.format(name="crontab", table=reader / "crontab.table"))
    program.chmod(0o755)
    (reader / "plan.yaml").write_text(RUN)


def lmms_eval(reader: Path) -> None:
    kits.lmms_eval(reader / "outputs")
    (found,) = (reader / "outputs").iterdir()
    found.rename(reader / "outputs/Qwen2-VL-2B")


def v01(reader: Path) -> None:
    """A row of v0.1 that only scores, its dataset and its answers."""
    data_dirs(reader, ["45 11", "ОВД"])
    answers(reader, "id;model_answer\n0;45 11\n1;УВД\n")
    config(reader)
    shutil.copy(ROOT / "tests/unit/data/v01/vlm_base.csv", reader)


def v02(reader: Path) -> None:
    path = reader / "registries/models/m.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("name: m\nframework: vllm\ndocker_image: a/b:1\n")


def experiment(reader: Path) -> None:
    """Experiments that have ended."""
    shutil.rmtree(unpack(reader / "home")[CUT].path)


THINGS: Mapping[str, Callable[[Path], None]] = {
    "an experiment": experiment,
    "a crontab": crontab,
    "results of lmms-eval": lmms_eval,
    "files of v0.1": v01,
    "files of v0.2": v02,
}


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    """The folder of a reader: the source's examples, and nothing else."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, demo: tuple[Path, str]) -> Path:
    """A home with experiments that have ended: the demo, and a small one."""
    folder = tmp_path_factory.mktemp("ran")
    shutil.copytree(demo[0], folder / "home", symlinks=True)
    (folder / "small.yaml").write_text(RUN)
    typed(folder, "hpcbench submit small.yaml --wait")
    return folder / "home"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_commands_run_and_its_definitions_are_valid(
    page: Path, reader: Path, request: pytest.FixtureRequest
) -> None:
    printed: dict[str, str] = {}
    for block in blocks(page):
        if block.language == "text":
            for command, lines in shown(block):
                wrong = missing(lines, printed[command])
                assert wrong is None, f"{command}: {wrong}\n{printed[command]}"
            continue
        if block.language == "yaml":
            if block.file:
                folder = "registries" if "/" in block.file else ""
                path = reader / folder / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
            continue
        if block.language != "sh" or block.note == "not run":
            continue
        needs_run = block.note == "after" or "hpcbench submit" in block.text
        if needs_run and not (reader / "home/experiments").exists():
            home = request.getfixturevalue("ran")
            shutil.copytree(home, reader / "home", symlinks=True, dirs_exist_ok=True)
        if block.note == "with":
            THINGS[block.value](reader)
        more = dict([block.value.split("=")]) if block.note == "env" else {}
        for line in block.text.splitlines():
            printed[line] = typed(reader, line, **more)
    if (reader / "registries").exists():
        typed(reader, "hpcbench validate --registry registries", RUN_MODE="dev")
