"""`hpcbench export`: responses elsewhere as traces, or their times under other kits' names."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict

from hpcbench.cli.screen import console, print_json
from hpcbench.errors import Problem, UserError
from hpcbench.experiment.claims import pieces_of
from hpcbench.experiment.layout import Experiment, find, home
from hpcbench.registry.catalog import user_site


def export(arguments: argparse.Namespace) -> int:
    """`hpcbench export [EXPERIMENT] --to phoenix --url URL`, `--compat KIT`."""
    experiment = find(home(user_site()), arguments.experiment)
    if arguments.compat:
        return _figures(experiment, arguments)
    if not arguments.url:
        remedy = "`--url http://localhost:6006`"
        raise UserError(Problem("--to phoenix needs its address", remedy=remedy))
    return _traces(experiment, arguments)


def _figures(experiment: Experiment, arguments: argparse.Namespace) -> int:
    """What another kit would have printed, for each part that one worker asked in one go."""
    from rich.table import Table

    from hpcbench.inference.compat import KITS, Figures

    found: dict[str, list[Figures]] = {}
    for run_task in experiment.resolved.run_tasks:
        goal = run_task.task.slo.model_dump(exclude_none=True)
        slos = {name.removesuffix("_ms"): limit for name, limit in goal.items()}
        pieces = pieces_of(experiment, run_task.name)
        parts = [KITS[arguments.compat](piece, slos or None) for piece in pieces]
        found[run_task.name] = [part for part in parts if part]
    if arguments.json:
        told = {
            name: [{key: asdict(one) for key, one in part.items()} for part in parts]
            for name, parts in found.items()
        }
        print_json({"experiment": experiment.id, "compat": arguments.compat, "run_tasks": told})
        return 0
    for name, parts in found.items():
        for number, part in enumerate(parts, 1):
            which = f", part {number} of {len(parts)}" if len(parts) > 1 else ""
            table = Table(box=None, pad_edge=False, header_style="dim", title=f"{name}{which}")
            table.add_column(arguments.compat)
            table.add_column("value", justify="right")
            table.add_column("definition", overflow="fold")
            for key, one in part.items():
                table.add_row(key, f"{one.value:,.3f}", one.definition)
            console().print(table)
    return 0


def _traces(experiment: Experiment, arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import Progress as Bar

    from hpcbench.reporting.phoenix import export as export_traces
    from hpcbench.secret import reveal

    experiment.use_packages()
    key = reveal("${env:PHOENIX_API_KEY}") if os.environ.get("PHOENIX_API_KEY") else None
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    total = sum(shard.stop - shard.start for shard in experiment.work.shards)
    err = Console(stderr=True)
    with Bar(console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("sending traces", total=total)
        sent = export_traces(
            experiment,
            arguments.url,
            arguments.project or experiment.resolved.plan.name,
            headers,
            lambda done: bar.update(task, completed=done),
        )
    if arguments.json:
        print_json({"experiment": experiment.id, "sent": sent})
    else:
        print(f"{sent} traces sent to {arguments.url}")
    return 0
