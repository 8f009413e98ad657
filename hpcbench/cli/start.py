"""Next steps for a new user: `hpcbench` alone, and `hpcbench submit` without a plan."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import hpcbench
from hpcbench.errors import UserError
from hpcbench.registry.registry_dirs import share_dir, site_dir, user_dir

_EXAMINED = 50
"""Number of a folder's files that are checked for plans."""

_BEGINNING = 4000
"""Number of first characters within which a plan names its run tasks."""

_WIDTH = 36
"""Columns for a command; the text of a longer command is on the next line."""


def first_steps(arguments: argparse.Namespace) -> int:
    """`hpcbench`."""
    print(f"hpcbench {hpcbench.__version__}: vision-language models on document work, measured")
    print("\nnext:")
    for command, text in _steps():
        print(hint(command, text))
    print(hint("hpcbench --help", "all verbs, and the exit codes"))
    return 0


def without_plan(arguments: argparse.Namespace) -> int:
    """`hpcbench submit`: a plan is missing, so exit code 2."""
    print("submit needs a plan, the YAML file of a run; next:", file=sys.stderr)
    for command, text in _steps():
        print(hint(command, text), file=sys.stderr)
    return UserError.exit_code


def _steps() -> Iterator[tuple[str, str]]:
    """Commands that fit this folder and machine, each with its effect."""
    if not any((folder / "sites/default.yaml").is_file() for folder in (user_dir(), site_dir())):
        yield "hpcbench init", "examine this machine or cluster, write a site profile"
        yield "hpcbench doctor", "check what a run needs; a failed check has a remedy"
    plans = _plans()
    for plan in plans[:3]:
        yield (
            f"hpcbench submit {shlex.quote(str(plan))} --dry-run",
            "show its jobs, change nothing",
        )
    if not plans:
        demo = share_dir() / "examples/demo/plan.yaml"
        with contextlib.suppress(OSError, ValueError):  # another folder, or this folder is gone
            demo = demo.relative_to(Path.cwd())
        needs = "" if find_spec("torch") else "; it needs PyTorch, see `hpcbench doctor`"
        yield (
            f"hpcbench submit {shlex.quote(str(demo))} --wait",
            f"a first run, with the demo's model and data{needs}",
        )
    yield "hpcbench new", "write your own plan: it asks a few questions"
    yield "hpcbench data add FOLDER", "make a dataset from your own pages"


def _plans() -> list[Path]:
    """Plans of this folder: files with `plan` in their name, and files of `hpcbench new` and `data add`."""
    found = [path for path in sorted(Path().glob("*.yaml"))[:_EXAMINED] if _is_plan(path)]
    return sorted(found, key=lambda path: "plan" not in path.name)


def _is_plan(path: Path) -> bool:
    if "plan" in path.name:
        return True
    with contextlib.suppress(OSError, ValueError):
        return path.is_file() and "\nrun_tasks:" in path.read_text(encoding="utf-8")[:_BEGINNING]
    return False


def hint(command: str, text: str) -> str:
    """A command and its effect, as a line of `next:`."""
    if len(command) > _WIDTH:
        return f"  {command}\n  {'':<{_WIDTH}}  {text}"
    return f"  {command:<{_WIDTH}}  {text}"
