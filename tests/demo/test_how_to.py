"""The how-to pages do what they say: their definitions are written, their commands run, page by page.

A comment before a block says what the reader cannot see: `not run: REASON`, `env: NAME=VALUE`, or
`after: a run` for commands that need an experiment.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.demo.reader import typed
from tests.pages import blocks

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


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    """The folder of a reader: the source's examples, and nothing else."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with an experiment that has ended."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "small.yaml").write_text(RUN)
    typed(folder, "hpcbench submit small.yaml --wait")
    return folder / "home"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_commands_run_and_its_definitions_are_valid(
    page: Path, reader: Path, request: pytest.FixtureRequest
) -> None:
    for block in blocks(page):
        if block.language == "yaml":
            if block.file:
                path = reader / ("" if block.file == "plan.yaml" else "registries") / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
            continue
        if block.language != "sh" or block.note == "not run":
            continue
        if block.note == "after" and not (reader / "home").exists():
            shutil.copytree(request.getfixturevalue("ran"), reader / "home", symlinks=True)
        more = dict([block.value.split("=")]) if block.note == "env" else {}
        for line in block.text.splitlines():
            typed(reader, line, **more)
    if (reader / "registries").exists():
        typed(reader, "hpcbench validate --registry registries", RUN_MODE="dev")
