"""`hpcbench database`: make a database of results, send experiments to it, show what it has."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench import secret
from hpcbench.cli.output import console, print_json, say, table
from hpcbench.database import need
from hpcbench.errors import EnvironmentFault, HpcbenchError, UserError
from hpcbench.experiment.layout import Experiment, all_experiments, find, home
from hpcbench.experiment.outcome import state_of
from hpcbench.registry.catalog import user_site
from hpcbench.registry.database_address import address_of

if TYPE_CHECKING:
    from hpcbench.schema.outputs import Database

REMEDY = "add `database: {type: …, url: …}` to the plan or the site profile, see docs/database.md"

NEWEST = 20
"""Experiments that `status` lists."""


def init(arguments: argparse.Namespace) -> int:
    """`hpcbench database init [--plan PLAN]`."""
    need()
    from hpcbench.database import place

    address = address_of(_configured(arguments.plan))
    before, now = asyncio.run(place.init(address))
    if arguments.json:
        print_json({"database": str(address), "before": before, "now": now})
    elif before == now:
        print(f"{address} has the tables of this version already ({now})")
    else:
        since = f"from version {before} " if before is not None else ""
        print(f"{address} has its tables now, {since}version {now}")
    return 0


def sync(arguments: argparse.Namespace) -> int:
    """`hpcbench database sync [EXPERIMENT …] [--all]`."""
    need()
    from hpcbench.database.sync import Synced

    if arguments.all and arguments.experiments:
        raise UserError(
            "--all means every experiment, and the command names some",
            remedy="give --all or names, not both",
        )
    site = user_site()
    root = home(site)
    if arguments.all:
        chosen = list(all_experiments(root))
    else:
        chosen = [find(root, one) for one in dict.fromkeys(arguments.experiments or ["@last"])]
    lines, failed = [], 0
    for experiment in chosen:
        why, synced = None, Synced()
        try:
            synced = _sent(experiment, site.database if site is not None else None)
        except (HpcbenchError, OSError) as error:
            if len(chosen) == 1:
                raise
            why, failed = secret.mask(str(error)), failed + 1
        lines.append(
            {"experiment": experiment.id, "parts": synced.parts, "rows": synced.rows, "fault": why}
        )
        if arguments.json:
            continue
        if why is not None:
            say(f"hpcbench: {experiment.id}: {why}")
        else:
            print(
                f"{experiment.id}: "
                + (f"{synced.rows:,} rows sent" if synced.rows else "nothing new")
            )
    if arguments.json:
        print_json(lines)
    return EnvironmentFault.exit_code if failed else 0


def _sent(experiment: Experiment, own: Database | None) -> Any:
    """Send one experiment to its database, else to the user's own."""
    from rich.console import Console

    from hpcbench.database.later import database_of, settled
    from hpcbench.database.sync import Synced
    from hpcbench.database.sync import sync as send
    from hpcbench.submit import secrets_file

    database = database_of(experiment) or own
    if database is None:
        raise UserError(f"{experiment.id} has no database", remedy=REMEDY)
    with contextlib.suppress(HpcbenchError, OSError):
        secrets_file.load(experiment)  # while it runs, its jobs' secrets
    experiment.use_packages()
    address = address_of(database)
    err = Console(stderr=True)
    with (
        settled(experiment, database),
        err.status(experiment.id) if err.is_terminal else contextlib.nullcontext() as shown,
    ):

        def tell(synced: Synced) -> None:
            if shown is not None:
                shown.update(f"{experiment.id}: {synced.rows:,} rows")

        return asyncio.run(send(experiment, address, tell))


def status(arguments: argparse.Namespace) -> int:
    """`hpcbench database status [--plan PLAN]`."""
    need()
    from hpcbench.database import place
    from hpcbench.database.later import debts

    database = _configured(arguments.plan)
    address = address_of(database)
    newest = list(all_experiments(home(user_site())))[::-1][:NEWEST]
    version, there = asyncio.run(place.held(address, [one.id for one in newest]))
    rows = []
    for one in newest:
        synced, count = there.get(one.id, (None, 0))
        owed = next(iter(debts(one)), None)
        rows.append({
            "experiment": one.id,
            "state": state_of(one) or "running",
            "synced": synced.isoformat(timespec="seconds") if synced is not None else None,
            "rows": count,
            "owed": owed is not None,
            "fault": owed.why if owed is not None else None,
        })  # fmt: skip
    if arguments.json:
        print_json({"database": str(address), "version": version, "experiments": rows})
        return 0
    print(f"{address}, tables of version {version}")
    shown = table("experiment", "state", "in the database", "rows", "", right=("rows",))
    for row in rows:
        shown.add_row(str(row["experiment"]), str(row["state"]), *_words(row))
    console().print(shown)
    return 0


def _words(row: Mapping[str, Any]) -> tuple[str, str, str]:
    there = row["synced"] or ("in part" if row["rows"] else "no")
    left = row["fault"] or ("to be sent" if row["owed"] else "")
    return there, f"{row['rows']:,}", left


def _configured(plan: Path | None) -> Database:
    """The database of a plan, or of the user's site profile.

    Raises:
        UserError: there is none.
    """
    if plan is not None:
        from hpcbench.registry.resolve import load_plan

        resolved = load_plan(plan)
        found, where = resolved.plan.database or resolved.site.database, str(plan)
    else:
        site = user_site()
        found, where = site.database if site is not None else None, "the site profile"
    if found is None:
        raise UserError(f"{where} has no database", remedy=REMEDY)
    return found
