"""The verb of the web portal."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from hpcbench.cli.parse.shared_options import (
    EXPERIMENT,
    Verb,
    sub,
    with_json,
)

_EPILOG = """\
It serves this account alone, on a socket in a folder of its own, and prints the ssh line and the link for
your laptop. It changes nothing unless it is told that it may.

examples:
  hpcbench portal                      in a terminal, tmux or screen; Ctrl-C ends it
  hpcbench portal --allow-edit --allow-submit --plans ~/plans
  hpcbench portal --tcp                where ssh forwards ports only
  hpcbench portal url                  another link, for another browser or after 60 s
  hpcbench portal token create --scope read --days 7 nightly-plots
  hpcbench portal --tcp --port 8080 --listen 0.0.0.0 --proxy-address 10.0.0.7 \\
      --root-path /node/$(hostname)/8080      behind Open OnDemand
"""


def add(verb: Verb) -> None:
    """`portal` and its verbs."""
    portal = verb("portal", "portal:portal", "watch, look and compare in a browser", "")
    portal.formatter_class = RawDescriptionHelpFormatter
    portal.epilog = _EPILOG
    portal.add_argument(
        "--plans", type=Path, metavar="DIR",
        help="folder of your plans, with its registries/ (this folder)",
    )  # fmt: skip
    portal.add_argument("--allow-edit", action="store_true", help="plans may be written")
    portal.add_argument("--allow-submit", action="store_true", help="plans may be submitted")
    portal.add_argument(
        "--index", metavar="URL",
        help="database of the index, postgresql://…; none: SQLite on a local disk",
    )  # fmt: skip
    portal.add_argument(
        "--idle-hours", type=float, default=8.0, metavar="H",
        help="end after so long without a request (8)",
    )  # fmt: skip
    portal.add_argument(
        "--keep", action="store_true", help="keep the command line's token from the last start"
    )
    _network(portal)
    verbs = portal.add_subparsers(metavar="VERB", title="verbs, for the portal that runs")
    with_json(sub(verbs, "url", "portal:url", "print the ssh line and a fresh link"))
    with_json(sub(verbs, "status", "portal:status", "say whether one runs on this host, and how"))
    sub(verbs, "stop", "portal:stop", "end it")
    _bundle(verbs)
    _tokens(verbs)


def _bundle(verbs: Any) -> None:
    text = "write an experiment as a folder that any file server can hand out"
    bundle = sub(verbs, "bundle", "portal_bundle:bundle", text)
    bundle.add_argument("experiment", help=EXPERIMENT)
    bundle.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER|FILE.zip", help="where to; not there yet"
    )
    bundle.add_argument("--images", action="store_true", help="with images of samples")
    bundle.add_argument("--logs", action="store_true", help="with logs of workers and jobs")
    bundle.add_argument(
        "--samples", type=int, metavar="N", help="so many samples of each run task in full (all)"
    )
    with_json(bundle)


def _network(portal: ArgumentParser) -> None:
    group = portal.add_argument_group("how it is reached")
    group.add_argument("--tcp", action="store_true", help="listen on a port of 127.0.0.1, too")
    group.add_argument("--port", type=int, metavar="N", help="which, with --tcp (a free one)")
    group.add_argument(
        "--root-path", default="", metavar="P", help="path under which a proxy serves it"
    )
    group.add_argument(
        "--proxy-user", metavar="U", help="account of a proxy on this host that may connect"
    )
    group.add_argument(
        "--proxy-address", action="append", default=[], metavar="IP",
        help="address of a proxy on another host that may connect; may be repeated",
    )  # fmt: skip
    group.add_argument(
        "--listen", default="127.0.0.1", metavar="IP",
        help="address to listen on, with --tcp; others than 127.0.0.1 need --proxy-address",
    )  # fmt: skip


def _tokens(verbs: Any) -> None:
    token = sub(verbs, "token", "", "tokens for scripts: `Authorization: Bearer …`")
    tokens = token.add_subparsers(metavar="VERB", required=True)
    create = sub(tokens, "create", "portal:create_token", "make a token, and print it this once")
    create.add_argument("name", help="what it is for")
    create.add_argument(
        "--scope", action="append", choices=["read", "plan-edit", "submit"],
        help="what it is good for; may be repeated (read)",
    )  # fmt: skip
    create.add_argument("--days", type=float, default=30.0, metavar="N", help="how long (30)")
    with_json(create)
    with_json(sub(tokens, "list", "portal:list_tokens", "list those that have not ended"))
    sub(tokens, "revoke", "portal:revoke_token", "end a token").add_argument(
        "token", help="its id, as `hpcbench portal token list` shows it"
    )
