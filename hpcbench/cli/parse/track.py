"""The verb that sends experiments to trackers."""

from __future__ import annotations

from hpcbench.cli.parse.shared_options import (
    EXPERIMENT,
    Verb,
    also,
    with_json,
    with_site,
)


def add(verb: Verb) -> None:
    """Add `track`."""
    track = verb(
        "track", "track:track", "send an experiment's new results to MLflow, W&B or Phoenix",
        ("hpcbench track @last", "send them to the trackers of the plan"),
        ("hpcbench track @last --live", "send results until the experiment has ended"),
        "hpcbench track @last --tracker phoenix --option url=http://localhost:6006",
    )  # fmt: skip
    track.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    track.option(
        "--tracker NAME",
        "only this tracker, with --option also one that the plan lacks; default: all of the plan",
    )  # fmt: skip
    track.several(
        "--option KEY=VALUE",
        "option of the tracker, instead of the plan's, see docs/trackers.md; may be repeated", dest="options",
    )  # fmt: skip
    track.flag("--live", "continue with new results until the experiment has ended")
    also(track, with_json, with_site)
