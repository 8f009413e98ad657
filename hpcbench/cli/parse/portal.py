"""The verb of the web portal."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from hpcbench.cli.parse.shared_options import (
    EXPERIMENT,
    Verb,
    adder,
    group,
    with_json,
)


def add(verb: Verb) -> None:
    """Add `portal` and its verbs."""
    portal = verb(
        "portal", "portal:portal", "watch, inspect and compare experiments in a browser",
        ("hpcbench portal", "in a terminal, tmux or screen; Ctrl-C ends it"),
        ("hpcbench portal --allow-edit --allow-submit --plans .", "it may also write and submit plans"),
        ("hpcbench portal --tcp", "if ssh forwards ports only"),
        ("hpcbench portal --tcp --port 8080 --listen 0.0.0.0 --proxy-address 10.0.0.7 "
         "--root-path /node/n1/8080", "behind Open OnDemand on host n1"),
        ("hpcbench portal url", "another link, for another browser or after 60 s"),
        note="The portal serves this account only, on a socket in a private folder. It prints the ssh\n"
        "command and the link for your laptop. Without --allow-edit and --allow-submit it\n"
        "changes nothing.",
    )  # fmt: skip
    portal.option(
        "--plans DIR", "folder of your plans and its registries/; default: this folder", type=Path
    )
    portal.flag("--allow-edit", "let the portal write plans")
    portal.flag("--allow-submit", "let the portal submit plans")
    portal.option(
        "--index URL", "database of the index, postgresql://…; default: SQLite on a local disk"
    )
    portal.option(
        "--idle-hours H", "end after this many hours without a request; default: %(default)g", type=float,
        default=8.0,
    )  # fmt: skip
    portal.flag("--keep", "keep the token of the command line from the last start")
    _network(portal)
    verbs = adder(
        portal.add_subparsers(metavar="VERB", title="verbs for the running portal"), "below"
    )
    with_json(
        verbs("url", "portal:url", "print the ssh command and a new link", "hpcbench portal url")
    )
    with_json(verbs(
        "status", "portal:status", "show whether a portal runs on this host, and how",
        "hpcbench portal status",
    ))  # fmt: skip
    verbs("stop", "portal:stop", "end the portal", "hpcbench portal stop")
    _bundle(verbs)
    _tokens(verbs)


def _bundle(verbs: Verb) -> None:
    bundle = verbs(
        "bundle", "portal:bundle", "write an experiment as a folder of pages for any file server",
        "hpcbench portal bundle @last --out pages.zip",
    )  # fmt: skip
    bundle.add_argument("experiment", help=EXPERIMENT)
    bundle.option("--out FOLDER|FILE.zip", "new folder or file", type=Path, required=True)
    bundle.flag("--images", "with images of samples")
    bundle.flag("--logs", "with logs of workers and jobs")
    bundle.option("--samples N", "full pages of N samples of each run task; default: all", type=int)
    with_json(bundle)


def _network(portal: ArgumentParser) -> None:
    network = portal.add_argument_group("connections")
    network.add_argument("--tcp", action="store_true", help="also listen on a port of 127.0.0.1")
    network.add_argument(
        "--port", type=int, metavar="N", help="port for --tcp; default: a free one"
    )
    network.add_argument(
        "--root-path", default="", metavar="P", help="path under which a proxy serves the portal"
    )
    network.add_argument(
        "--proxy-user", metavar="U", help="account of a proxy on this host that may connect"
    )
    network.add_argument(
        "--proxy-address", action="append", default=[], metavar="IP",
        help="address of a proxy on another host that may connect; may be repeated",
    )  # fmt: skip
    network.add_argument(
        "--listen", default="127.0.0.1", metavar="IP",
        help="address to listen on, with --tcp; others than 127.0.0.1 need --proxy-address",
    )  # fmt: skip


def _tokens(verbs: Verb) -> None:
    tokens = group(
        verbs, "token", "manage tokens for scripts: `Authorization: Bearer …`",
        "hpcbench portal token create nightly-plots --days 7",
    )  # fmt: skip
    create = tokens(
        "create", "portal:create_token", "make a token, and print it once",
        "hpcbench portal token create nightly-plots --scope read --days 7",
    )  # fmt: skip
    create.add_argument("name", help="purpose of the token")
    create.option(
        "--scope", "what the token permits; may be repeated; default: read", action="append",
        choices=["read", "plan-edit", "submit"],
    )  # fmt: skip
    create.option("--days N", "lifetime in days; default: %(default)g", type=float, default=30.0)
    with_json(create)
    with_json(
        tokens("list", "portal:list_tokens", "list the valid tokens", "hpcbench portal token list")
    )
    tokens(
        "revoke", "portal:revoke_token", "end a token", "hpcbench portal token revoke TOKEN"
    ).add_argument("token", help="id of the token from `hpcbench portal token list`")
