"""What a newcomer types next: `hpcbench` alone, and `hpcbench submit` without a plan."""

from __future__ import annotations

import argparse
import contextlib
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import hpcbench
from hpcbench.errors import UserError
from hpcbench.registry.places import share_dir, site_dir, user_dir

_WIDTH = 36
"""Columns of a command; a longer one has its text on the next line."""


def first_steps(arguments: argparse.Namespace) -> int:
    """`hpcbench`."""
    print(f"hpcbench {hpcbench.__version__}: vision-language models on document work, measured")
    print("\nnext:")
    for command, text in _steps():
        print(_line(command, text))
    print(_line("hpcbench --help", "all verbs, and the exit codes"))
    return 0


def without_plan(arguments: argparse.Namespace) -> int:
    """`hpcbench submit`.

    Raises:
        UserError: always; a plan is missing.
    """
    lines = "\n".join(_line(command, text) for command, text in _steps()).splitlines()
    raise UserError("submit needs a plan, the YAML file of a run; next:", *lines)


def _steps() -> Iterator[tuple[str, str]]:
    """Commands that fit what is here, each with what it does."""
    if not any((folder / "sites/default.yaml").is_file() for folder in (user_dir(), site_dir())):
        yield "hpcbench init", "look at this machine or cluster, write a site profile"
        yield "hpcbench doctor", "check what a run needs, each point with its remedy"
    plans = sorted(Path().glob("*plan*.yaml"))
    for plan in plans[:3]:
        yield (
            f"hpcbench submit {shlex.quote(str(plan))} --dry-run",
            "show its jobs; touches nothing",
        )
    if not plans:
        demo = share_dir() / "examples/demo/plan.yaml"
        with contextlib.suppress(OSError, ValueError):  # elsewhere, or this folder is gone
            demo = demo.relative_to(Path.cwd())
        needs = "" if find_spec("torch") else "; it needs PyTorch, see doctor"
        yield (
            f"hpcbench submit {shlex.quote(str(demo))} --wait",
            f"a first run, with what ships{needs}",
        )
    yield "hpcbench data add FOLDER", "make a dataset of your own pages"
    yield "hpcbench registry list models", "models to name in a plan"


def _line(command: str, text: str) -> str:
    if len(command) > _WIDTH:
        return f"  {command}\n  {'':<{_WIDTH}}  {text}"
    return f"  {command:<{_WIDTH}}  {text}"
