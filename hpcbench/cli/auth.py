"""`hpcbench auth`: tokens of OAuth2 for models elsewhere."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hpcbench.cli.output import console, print_json, say, table
from hpcbench.errors import EnvironmentFault, RunFailed, UserError
from hpcbench.oauth import token_check, token_file
from hpcbench.oauth.keeper import TokenFailed, TokenRefused
from hpcbench.oauth.options import AuthOptions
from hpcbench.registry.resolve import load_model


def status(arguments: argparse.Namespace) -> int:
    """`hpcbench auth status`: the tokens in the user's files; asks no server.

    Raises:
        EnvironmentFault: a file is not private; raised when the others are shown.
    """
    found, faults = [], []
    for kept in token_file.stores():
        try:
            record = kept.read()
            if record is not None or kept.damaged():
                found.append(_described(kept, record))
        except EnvironmentFault as fault:
            faults.append(fault)
    _show(found, json=arguments.json, alone=not faults)
    if faults:
        raise faults[0]
    return 0


def _show(found: Sequence[Mapping[str, Any]], *, json: bool, alone: bool) -> None:
    """Print the tokens; `alone`: no further line follows."""
    if json:
        print_json(found)
        return
    if not found:
        if alone:
            print("no tokens: `hpcbench auth login MODEL` gets one")
        return
    shown = table("SERVER", "CLIENT", "GRANT", "TOKEN", "ENDS IN", "REFRESH TOKEN")
    for one in found:
        left = one["left_seconds"]
        shown.add_row(
            one["server"] or one["file"], one["client"], one["grant"], one["token"],
            "–" if left is None else f"{max(0, left):.0f} s", one["refresh_token"],
        )  # fmt: skip
    console().print(shown)


def login(arguments: argparse.Namespace) -> int:
    """`hpcbench auth login MODEL`: a new token now."""
    options, allow_http = _credential(arguments)
    token_file.Store(options.key)  # a token without a place is of no use to later runs
    refresh = ""
    if options.grant_type == "refresh_token" and options.refresh_token is None:
        refresh = _read_refresh_token(options)
    try:
        granted = token_check.get(options, say, allow_http=allow_http, renew=True, refresh=refresh)
    except TokenRefused as error:
        raise UserError(str(error), remedy="correct `auth` in the model's engine_options") from None
    except TokenFailed as error:
        raise EnvironmentFault(str(error), remedy="try it again later") from None
    say(f"{options.server} gave a token that lives {granted.token.lifetime:g} s")
    return 0


def forget(arguments: argparse.Namespace) -> int:
    """`hpcbench auth forget MODEL`: the token's file goes; that needs no secret."""
    options, _ = _credential(arguments, needs_secrets=False)
    if not token_file.Store(options.key).forget():
        raise RunFailed(f"there is no token of {options.server} for client {options.client_id}")
    say("forgotten; the server may accept the token until it ends")
    if options.grant_type == "refresh_token":
        how = "`hpcbench auth login MODEL` asks for a new one"
        if options.refresh_token is not None:
            how = f"put a new one into {options.refresh_token} before the next run"
        say(f"its refresh token is forgotten, too: {how}")
    return 0


def _credential(
    arguments: argparse.Namespace, *, needs_secrets: bool = True
) -> tuple[AuthOptions, bool]:
    model = load_model(arguments.model, arguments.registry, needs_secrets=needs_secrets)
    options = token_check.credential(model.engine, model.engine_options)
    if options is None:
        raise UserError(
            f"model '{model.name}' asks no token server",
            remedy="name a model with `engine: remote` and `auth` in its engine_options",
        )
    return options, bool(model.engine_options.get("allow_http"))


def _read_refresh_token(options: AuthOptions) -> str:
    """A refresh token from the terminal, or from a pipe."""
    if sys.stdin.isatty():
        found = getpass.getpass(f"refresh token of {options.client_id} at {options.server}: ")
    else:
        found = sys.stdin.readline()
    if not found.strip():
        raise UserError("no refresh token was given", remedy="pipe it in, or type it")
    return found.strip()


def _described(kept: token_file.Store, record: token_file.Record | None) -> dict[str, Any]:
    if record is None:
        return {
            "server": None, "client": None, "grant": None, "token": "damaged", "left_seconds": None,
            "refresh_token": None, "file": str(kept.path),
        }  # fmt: skip
    token, now = kept.token(record), token_file.now()
    refresh = "none" if record.refresh is None else "ready"
    if record.sent and record.rotates is not False:
        refresh = "its answer is lost: log in"
    return {
        "server": record.server,
        "client": record.client,
        "grant": record.grant,
        "token": "unknown age" if token is None and record.access else "none",
        **({} if token is None else {"token": token.state(now)}),
        "left_seconds": None if token is None else round(token.expires - now, 1),
        "refresh_token": refresh,
        "file": str(kept.path),
    }
