"""Verbs that read: list, status, watch."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from pathlib import Path

from hpcbench.cli.due import do_what_is_due
from hpcbench.cli.output import console, finish, print_json, table
from hpcbench.experiment.layout import Experiment, all_experiments, find, home
from hpcbench.registry.registry_dirs import has_default_site
from hpcbench.status import briefs
from hpcbench.status import status as status_of


def list_experiments(arguments: argparse.Namespace) -> int:
    """`hpcbench list`."""
    root = _home()
    rows = briefs(all_experiments(root))
    if arguments.json:
        print_json([asdict(row) for row in rows])
        return 0
    if not rows:
        print(f"no experiments in {root}")
        return 0
    from rich.text import Text

    from hpcbench.cli.status_screen import COLOURS

    numbers = ("run tasks", "samples done")
    shown = table("experiment", "state", *numbers, right=numbers)
    for row in rows:
        state = Text(row.state, COLOURS[row.state])
        shown.add_row(row.id, state, str(row.run_tasks), f"{row.answered:,}/{row.samples:,}")
    console().print(shown)
    return 0


def status(arguments: argparse.Namespace) -> int:
    """`hpcbench status [EXPERIMENT]`."""
    experiment = _find(arguments)
    now = status_of(experiment)
    if do_what_is_due(experiment, now):
        now = status_of(experiment)
    if arguments.json:
        print_json(asdict(now))
    else:
        from hpcbench.cli.status_screen import StatusScreen

        out = console()
        out.print(StatusScreen(now), soft_wrap=not out.is_terminal)
    return 0


def watch(arguments: argparse.Namespace) -> int:
    """`hpcbench watch [EXPERIMENT]`."""
    return finish(_find(arguments))


def _find(arguments: argparse.Namespace) -> Experiment:
    return find(_home(), arguments.experiment)


def _home() -> Path:
    """Folder of experiments; if no profile can name it, this imports no schemas of definitions."""
    if os.environ.get("HPCBENCH_HOME") or not has_default_site():
        return home()
    from hpcbench.registry.catalog import user_site

    return home(user_site())
