"""The verbs for a database of results."""

from __future__ import annotations

from pathlib import Path

from hpcbench.cli.parse.shared_options import (
    EXPERIMENT,
    Verb,
    also,
    group,
    with_json,
    with_site,
)


def add(verb: Verb) -> None:
    """Add `database`."""
    database = group(
        verb, "database", "make a database of results, send experiments to it, show what it has",
        "hpcbench database sync @last",
    )  # fmt: skip
    init = database(
        "init", "database:init", "make the tables, or bring them to this version",
        "hpcbench database init",
        ("hpcbench database init --plan PLAN", "in the database of a plan"),
    )  # fmt: skip
    sync = database(
        "sync", "database:sync", "send what the database lacks of experiments",
        ("hpcbench database sync @last", "running experiments, too"),
        ("hpcbench database sync --all", "every experiment of this home"),
    )  # fmt: skip
    sync.add_argument("experiments", nargs="*", help=f"{EXPERIMENT}; default: @last")
    sync.flag("--all", "every experiment of this home")
    status = database(
        "status", "database:status", "show which of the newest experiments the database has",
        "hpcbench database status",
    )  # fmt: skip
    for one in (init, status):
        one.option(
            "--plan FILE", "the database of this plan; default: that of the site profile", type=Path
        )
    for one in (init, sync, status):
        also(one, with_json, with_site)
