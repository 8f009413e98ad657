"""Every command that a page offers, wherever it is written: the real parser takes it."""

from __future__ import annotations

import ast
import contextlib
import html
import io
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.parse import parser
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.workers import worker_runs
from hpcbench.portal.commands_to_copy import commands
from hpcbench.portal.plan_starters import STARTERS
from hpcbench.portal.routes.plans import commands_of
from hpcbench.reporting.provenance import reproduce
from tests.conftest import ROOT
from tests.syntax import parsed
from tests.unit import small

MENTION = re.compile(r"\bhpcbench +([a-z-]+)\b")
"""`hpcbench` and what may be a verb."""

MARKED = (
    re.compile(r"`\s*(hpcbench [^`]*)`"),
    re.compile(r"<code>\s*(hpcbench [^<]*)</code>"),
    re.compile(r"\btext=\"(hpcbench [^\"]*)\""),
)
"""How a command is set off from the text about it."""


def verbs(of: Any = None) -> dict[str, Any]:
    """Name of a verb → its parser; of none where there are no verbs below it."""
    found = [one.choices for one in (of or parser())._actions if isinstance(one.choices, dict)]
    return dict(found[0]) if found else {}


def is_named(words: list[str]) -> bool:
    """Whether these words are no more than the name of a verb: what is said is about it."""
    here: Any = None
    for word in words:
        below = verbs(here)
        if word not in below:
            return False
        here = below[word]
    return True


def parses(text: str) -> bool:
    """Whether the command line's own parser takes it."""
    words = shlex.split(text)
    assert words[0] == "hpcbench", text
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            parser().parse_args(words[1:])
        except SystemExit:
            return False
    return True


def client() -> Iterator[tuple[Path, str]]:
    """Sources of the pages, without tests and remarks."""
    for path in sorted((ROOT / "portal" / "src").rglob("*.ts*")):
        if ".test." in path.name or path.name == "schema.d.ts" or "testing" in path.parts:
            continue
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        yield path, re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)


def server() -> Iterator[tuple[Path, str]]:
    """Texts that the portal sends: pages without scripts, and strings of its code other than docstrings."""
    folder = ROOT / "hpcbench"
    for path in sorted((folder / "portal" / "pages").glob("*.html")):
        yield path, re.sub(r"\{\{[^{}]*\}\}", "X", path.read_text())
    for path in [*(folder / "portal").rglob("*.py"), *(folder / "status").rglob("*.py")]:
        tree = parsed(path.read_text())
        for node in ast.walk(tree):
            # A docstring, or one of a variable, is a statement of its own.
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                node.value.value = ""
        within = {
            id(part)
            for one in ast.walk(tree)
            if isinstance(one, ast.JoinedStr)
            for part in ast.walk(one)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield (
                    path,
                    "".join(
                        str(part.value) if isinstance(part, ast.Constant) else "X"
                        for part in node.values
                    ),
                )
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in within
            ):
                yield path, node.value


@cache
def texts() -> list[tuple[Path, str]]:
    """The texts of both, with their files."""
    return [*client(), *server()]


def offered() -> Iterator[str]:
    """Commands of these texts, as a page shows them."""
    for _, text in texts():
        for mark in MARKED:
            for command in mark.findall(text):
                shown = re.sub(r"\$\{[^{}]*\}", "X", html.unescape(command))
                yield re.sub(r"\{\"([^\"]*)\"\}", r"\1", " ".join(shown.split()))


@pytest.mark.long
def test_a_command_in_a_text_of_a_page_parses_or_is_the_name_of_a_verb() -> None:
    found = set(offered())
    assert {one for one in found if not is_named(shlex.split(one)[1:]) and not parses(one)} == set()


def test_the_empty_pages_are_among_them() -> None:
    found = set(offered())
    assert "hpcbench submit plan.yaml --dry-run" in found
    assert "hpcbench cron install plan.yaml --at '0 2 * * *'" in found
    assert "hpcbench compare BASELINE X" in found
    assert "hpcbench score X" in found


def test_no_text_names_a_command_that_is_not_set_off() -> None:
    known = set(verbs())
    for path, text in texts():
        rest = "" if text == "hpcbench portal" else text  # its name, as a title
        for mark in (*MARKED, re.compile(r'aria-label="[^"]*"')):
            rest = mark.sub("", rest)
        for found in MENTION.findall(rest):
            assert found not in known, f"{path.relative_to(ROOT)}: {found}"


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    """An experiment with one run task."""
    return small.experiment(tmp_path / "a b", [small.record(0)])


def test_the_commands_of_a_run_task_parse(experiment: Experiment) -> None:
    task = experiment.resolved.run_tasks[0]
    found = [one.text for one in commands(experiment, task, list(worker_runs(experiment)))]
    ours = [text for text in [*found, reproduce(experiment)] if text.startswith("hpcbench ")]
    assert len(ours) >= 5
    for text in ours:
        assert parses(text), text


@pytest.mark.long
@pytest.mark.parametrize("name", ["plan.yaml", "-n.yaml", "a b.yaml", "$(x).yaml"])
def test_the_commands_of_a_plan_parse(tmp_path: Path, name: str) -> None:
    found = commands_of(tmp_path / "my plans", (name,))
    assert len(found) == 4
    for one in found:
        change, command = one.text.split(" && ")
        assert shlex.split(change) == ["cd", str(tmp_path / "my plans")]
        assert parses(command), command


def test_the_commands_in_starters_parse() -> None:
    for one in STARTERS:
        for mark in MARKED:
            for command in mark.findall(one.text):
                assert parses(command), command
