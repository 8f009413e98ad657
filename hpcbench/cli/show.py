"""Verbs that read: list, status, watch, logs, report."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.table import Table
from rich.text import Text

from hpcbench.cli.screen import (
    COLOURS,
    console,
    finish,
    metric_table,
    print_json,
    status_screen,
    tail,
)
from hpcbench.errors import Problem, RunFailed, UserError
from hpcbench.experiment.files import read_json
from hpcbench.experiment.layout import Experiment, all_experiments, find, home
from hpcbench.launch.status import status as status_of
from hpcbench.registry.catalog import user_site


def list_experiments(arguments: argparse.Namespace) -> int:
    """`hpcbench list`."""
    root = home(user_site())
    rows = [status_of(experiment) for experiment in all_experiments(root)]
    if arguments.json:
        print_json([row.model_dump(mode="json") for row in rows])
        return 0
    if not rows:
        print(f"no experiments in {root}")
        return 0
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("experiment", "state", "run tasks", "answered"):
        table.add_column(title)
    for row in rows:
        answered = sum(run_task.answered for run_task in row.run_tasks)
        samples = sum(run_task.samples for run_task in row.run_tasks)
        state = Text(row.state, COLOURS[row.state])
        table.add_row(row.id, state, str(len(row.run_tasks)), f"{answered}/{samples}")
    console().print(table)
    return 0


def status(arguments: argparse.Namespace) -> int:
    """`hpcbench status [EXPERIMENT]`."""
    now = status_of(_find(arguments))
    if arguments.json:
        print_json(now.model_dump(mode="json"))
    else:
        console().print(status_screen(now), soft_wrap=True)
    return 0


def watch(arguments: argparse.Namespace) -> int:
    """`hpcbench watch [EXPERIMENT]`."""
    return finish(_find(arguments))


def logs(arguments: argparse.Namespace) -> int:
    """`hpcbench logs [EXPERIMENT] [NAME]`."""
    experiment = _find(arguments)
    files = sorted(
        path
        for folder in (experiment.workers_dir, experiment.jobs_dir)
        for path in folder.glob("*")
        if path.suffix in (".log", ".out")
    )
    if arguments.name:
        return _show_log(files, arguments)
    if arguments.json:
        print_json([{"path": str(path), "bytes": path.stat().st_size} for path in files])
        return 0
    for path in files:
        last = tail(path, 1)
        print(
            f"{path.relative_to(experiment.path)}  {path.stat().st_size} B  {''.join(last)[:100]}"
        )
    return 0


def report(arguments: argparse.Namespace) -> int:
    """`hpcbench report [EXPERIMENT]`."""
    experiment = _find(arguments)
    if not experiment.metrics_file.exists():
        raise RunFailed(f"{experiment.id} has no scores yet: `hpcbench status {experiment.id}`")
    if arguments.json:
        print_json(read_json(experiment.metrics_file))
        return 0
    out = console()
    out.print(metric_table(experiment))
    out.print(f"\nreport: {experiment.report_dir / 'report.html'}", soft_wrap=True)
    return 0


def _find(arguments: argparse.Namespace) -> Experiment:
    return find(home(user_site()), arguments.experiment)


def _show_log(files: list[Path], arguments: argparse.Namespace) -> int:
    chosen = [path for path in files if path.name.startswith(Path(arguments.name).name)]
    if len(chosen) != 1:
        raise UserError(
            Problem(
                f"{len(chosen)} logs begin with '{arguments.name}'",
                remedy="`hpcbench logs EXPERIMENT` lists them",
            )
        )
    print("\n".join(tail(chosen[0], arguments.lines)))
    return 0
