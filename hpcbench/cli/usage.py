"""`hpcbench usage`: usage of the cluster by experiments."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from hpcbench.cli.output import console, print_json, say, table
from hpcbench.errors import HpcbenchError, UserError, first_line
from hpcbench.experiment.layout import all_experiments, find, home
from hpcbench.experiment.view.usage import CAUSES, Hours, Spent, Usage
from hpcbench.number_format import percent
from hpcbench.registry.catalog import user_site
from hpcbench.usage.gpu_hours import (
    By,
    totals,
    usage_of,
)

HEADS = ("allocated", "used", "wasted", *(cause.replace("_", " ") for cause in CAUSES))
"""Columns of hours."""


def usage(arguments: argparse.Namespace) -> int:
    """`hpcbench usage [EXPERIMENT …]`."""
    found = _found(arguments)
    by: By = arguments.by or ("run_task" if len(found) == 1 else "experiment")
    sums = totals(found, by)
    if arguments.json:
        rows = [
            {by: name, **one.model_dump(exclude={"run_task", "model"}), "wasted": one.wasted}
            for (name, _), one in sums.items()
        ]
        print_json({"by": by, "hours": rows, "experiments": [one.model_dump() for one in found]})
        return 0
    if not sums:
        print("no job has used resources yet")
        return 0
    shown = table(by.replace("_", " "), "unit", *HEADS, right=HEADS)
    for (name, unit), one in sums.items():
        shown.add_row(name, f"{unit}-hours", *_cells(one))
    if len(sums) > 1:
        for unit in dict.fromkeys(unit for _, unit in sums):
            whole = Hours(unit=unit)
            for one in (one for (_, own), one in sums.items() if own == unit):
                whole = whole.plus(one)
            shown.add_row("all", f"{unit}-hours", *_cells(whole), style="bold")
    console().print(shown)
    for line in [*_sent(found), *(_notes(found[0]) if len(found) == 1 else ())]:
        console().print(line, soft_wrap=True, highlight=False)
    return 0


def _found(arguments: argparse.Namespace) -> list[Usage]:
    root = home(user_site())
    if not arguments.all:
        wanted = arguments.experiments or ["@last"]
        return [usage_of(find(root, one)) for one in dict.fromkeys(wanted)]
    if arguments.experiments:
        remedy = "give --all or names, not both"
        raise UserError("--all means every experiment, and the command names some", remedy=remedy)
    found = []
    for experiment in all_experiments(root):
        try:
            found.append(usage_of(experiment))
        except (HpcbenchError, OSError, ValueError, KeyError) as error:
            say(f"{experiment.id} is left out: {first_line(error)}")
    return found


def _cells(one: Hours) -> list[str]:
    share = f" ({percent(one.used / one.allocated)})" if one.allocated else ""
    parts = [figure(getattr(one, cause)) for cause in CAUSES]
    return [figure(one.allocated), figure(one.used) + share, figure(one.wasted), *parts]


def _sent(usages: Sequence[Usage]) -> Iterator[str]:
    """Requests of these experiments and what they took, for each currency."""
    known = [one.spent for one in usages if one.spent is not None]
    for currency in sorted({one.currency or "" for one in known}):
        own = [one for one in known if (one.currency or "") == currency]
        whole = Spent(
            requests=sum(one.requests for one in own),
            tokens=sum(one.tokens for one in own),
            cost=sum(one.cost or 0.0 for one in own),
            currency=currency,
        )
        yield f"sent: {whole.in_words}"


def _notes(one: Usage) -> list[str]:
    lines = []
    if one.waited is not None:
        lines.append(
            f"time in the queue: {one.waited.first:.0f} s until the first job started, "
            f"median {one.waited.median:.0f} s, maximum {one.waited.longest:.0f} s"
        )
    if one.energy_wh is not None:
        of = "nodes, by Slurm" if one.energy_source == "slurm" else "GPUs, by the monitor"
        lines.append(f"energy: {one.energy_wh / 1000:.3g} kWh ({of})")
    if one.gpu_utilisation:
        text = ", ".join(f"{name} {percent:.0f} %" for name, percent in one.gpu_utilisation.items())
        lines.append(f"GPU utilisation while answering: {text}")
    if one.source == "workers":
        lines.append(
            "source: workers' records, without the time before the first and after the last record"
        )
    return lines


def figure(hours: float) -> str:
    """Hours with their significant digits: `12.3`, `0.042`, `0`."""
    if hours >= 9.95:
        return f"{hours:.1f}"
    return (
        f"{hours:.3f}".rstrip("0").rstrip(".")
        if hours >= 0.0005
        else ("0" if not hours else "<0.001")
    )
