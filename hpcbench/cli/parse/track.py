"""The verb that sends experiments to trackers."""

from __future__ import annotations

from hpcbench.cli.parse.shared_options import (
    EXPERIMENT,
    Verb,
    with_json,
    with_site,
)


def add(verb: Verb) -> None:
    """`track`."""
    track = verb(
        "track", "track:track",
        "send to MLflow, W&B or Phoenix what of an experiment is not there yet",
        "hpcbench track @last; hpcbench track @last --live; "
        "hpcbench track @last --tracker phoenix --option url=http://localhost:6006",
    )  # fmt: skip
    track.add_argument("experiment", nargs="?", default="@last", help=EXPERIMENT)
    track.add_argument(
        "--tracker", metavar="NAME",
        help="only this one; with --option also one that the plan does not name; none: the plan's",
    )  # fmt: skip
    track.add_argument(
        "--option", dest="options", action="append", default=[], metavar="KEY=VALUE",
        help="option of the tracker, over the plan's, see docs/trackers.md; may be repeated",
    )  # fmt: skip
    track.add_argument(
        "--live", action="store_true", help="go on with what comes, until the experiment has ended"
    )
    with_json(track)
    with_site(track)
