"""The verb `portal`: start it, and query a running one."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.cli.output import print_json, say
from hpcbench.data.progress import size_text
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.experiment.layout import find, home
from hpcbench.installed import install_hint
from hpcbench.number_format import seconds
from hpcbench.registry.catalog import user_site
from hpcbench.schema.forms import complaint

if TYPE_CHECKING:
    from hpcbench.portal.access_tokens import Tokens
    from hpcbench.portal.local_client import Caller


def portal(arguments: argparse.Namespace) -> int:
    """`hpcbench portal`: runs until Ctrl-C."""
    _need()
    say("starting the portal")
    from hpcbench.portal import serve
    from hpcbench.portal.context import Options

    site = user_site()
    if arguments.port is not None and not 0 < arguments.port < 2**16:
        raise UserError(f"there is no port {arguments.port}", remedy="--port 1 to 65535")
    if arguments.idle_hours <= 0:
        raise UserError(
            f"--idle-hours {arguments.idle_hours:g} is not more than 0",
            remedy="for example --idle-hours 8",
        )
    plans = (arguments.plans or Path.cwd()).expanduser().absolute()
    if not plans.is_dir():
        raise UserError(f"--plans {plans}: no such folder", remedy="name the folder of your plans")
    options = Options(
        plans=plans,
        may_edit=arguments.allow_edit,
        may_submit=arguments.allow_submit,
        root_path=arguments.root_path.rstrip("/"),
    )
    settings = serve.Settings(
        home=home(site),
        options=options,
        site=site.name if site and site.name != "default" else "",
        index=_database(arguments.index),
        database=site.database if site is not None else None,
        tcp=arguments.tcp,
        port=arguments.port,
        listen=arguments.listen,
        proxy_user=arguments.proxy_user,
        proxy_addresses=tuple(arguments.proxy_address),
        idle_hours=arguments.idle_hours,
        keep=arguments.keep,
    )
    return serve.run(settings, _tell)


def url(arguments: argparse.Namespace) -> int:
    """`hpcbench portal url`: a fresh link."""
    caller = _running()
    from hpcbench.portal.addresses import how_to_reach, links

    code = caller.code()
    if arguments.json:
        print_json(links(caller.state, code))
    else:
        print(how_to_reach(caller.state, code))
    return 0


def status(arguments: argparse.Namespace) -> int:
    """`hpcbench portal status`: whether a portal runs here; exit code 1 if none does."""
    from hpcbench.portal import runtime_dir
    from hpcbench.portal.local_client import Caller

    caller = Caller.find(runtime_dir.find())
    if arguments.json:
        print_json({"running": caller is not None, **(caller.state if caller else {})})
    elif caller is None:
        print("no portal of yours runs on this host")
    else:
        state = caller.state
        allowed = [word for word in ("edit", "submit") if state[f"may_{word}"]]
        since = seconds(max(0.0, time.time() - state["started"]))
        print(f"has run for {since} on {state['host']} as pid {state['pid']}")
        print(
            f"shows {state['home']}; {'may ' + ' and '.join(allowed) if allowed else 'read-only'}"
        )
        print(f"log: {state['log']}")
    return 0 if caller else 1


def stop(arguments: argparse.Namespace) -> int:
    """`hpcbench portal stop`."""
    caller = _running()
    if not caller.stop():
        raise EnvironmentFault(
            f"the portal (pid {caller.state['pid']}) does not end",
            remedy=f"kill {caller.state['pid']}",
        )
    print("the portal has ended")
    return 0


def create_token(arguments: argparse.Namespace) -> int:
    """`hpcbench portal token create`."""
    tokens = _tokens()
    from pydantic import ValidationError

    from hpcbench.portal.faults import PortalFault
    from hpcbench.portal.models.sessions import NewToken

    try:
        wanted = NewToken(
            name=arguments.name, scopes=tuple(arguments.scope or ["read"]), days=arguments.days
        )
    except ValidationError as error:
        first: dict[str, Any] = dict(error.errors()[0])
        raise UserError(f"{first['loc'][0]}: {complaint(first)}") from None
    try:
        made = tokens.create(wanted)
    except PortalFault as fault:
        remedy = f"{fault.remedy}: `hpcbench portal token list` lists the ids"
        raise UserError(fault.error, remedy=remedy) from None
    if arguments.json:
        print_json(made.model_dump(mode="json"))
    else:
        until = time.strftime("%Y-%m-%d", time.localtime(made.row.expires))
        say(
            f"token {made.row.id}, {', '.join(made.row.scopes)}, until {until}; hpcbench shows it only now:"
        )
        print(made.token)
    return 0


def list_tokens(arguments: argparse.Namespace) -> int:
    """`hpcbench portal token list`."""
    rows = _tokens().rows()
    if arguments.json:
        print_json([row.model_dump(mode="json") for row in rows])
        return 0
    for row in rows:
        until = time.strftime("%Y-%m-%d", time.localtime(row.expires))
        print(f"{row.id}  {until}  {','.join(row.scopes):24}  {row.name}")
    if not rows:
        print("no tokens")
    return 0


def revoke_token(arguments: argparse.Namespace) -> int:
    """`hpcbench portal token revoke`."""
    if not _tokens().revoke(arguments.token):
        what = f"no token has the id {arguments.token}"
        raise UserError(what, remedy="`hpcbench portal token list` lists the ids")
    print("revoked")
    return 0


def bundle(arguments: argparse.Namespace) -> int:
    """`hpcbench portal bundle EXPERIMENT --out FOLDER|FILE.zip`."""
    if arguments.samples is not None and arguments.samples < 0:
        raise UserError(f"--samples {arguments.samples} is negative", remedy="give 0 or more")
    experiment = find(home(user_site()), arguments.experiment)
    from hpcbench.portal.static_export import Wanted, write

    wanted = Wanted(images=arguments.images, logs=arguments.logs, samples=arguments.samples)
    tell = say if sys.stderr.isatty() else lambda line: None
    written = write(experiment, arguments.out, wanted, tell)
    if arguments.json:
        summary = {"out": str(arguments.out), "files": written.files, "bytes": written.bytes}
        print_json({**summary, "left_out": written.left_out})
        return 0
    for line in written.left_out[:10]:
        say(f"left out: {line}")
    if len(written.left_out) > 10:
        say(f"… and {len(written.left_out) - 10} more")
    print(f"wrote {arguments.out}: {written.files} files, {size_text(written.bytes)}")
    print("any file server can serve it, for example: python -m http.server --directory FOLDER")
    return 0


def _database(url: str | None) -> str | None:
    """The index's address; its password must not be in the command, which `ps` shows to every user."""
    from urllib.parse import urlsplit

    from hpcbench import secret

    if url is None:
        return None
    try:
        password = urlsplit(url).password or ""
    except ValueError as error:
        what = f"--index is not the address of a database: {error}"
        raise UserError(what, remedy="for example postgresql://HOST/DATABASE") from None
    if password and not password.startswith("${"):
        raise UserError(
            "--index contains a password, which `ps` shows to every user",
            remedy="replace it by ${file:PATH}, or put it into ~/.pgpass",
        )
    return secret.reveal(url)


def _need() -> None:
    """Report missing packages by name."""
    from importlib.util import find_spec

    names = ("fastapi", "uvicorn", "httptools", "websockets", "sqlalchemy", "PIL")
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise EnvironmentFault(
            f"the portal needs {', '.join(missing)}", remedy=install_hint("portal")
        )


def _running() -> Caller:
    from hpcbench.portal import runtime_dir
    from hpcbench.portal.local_client import Caller

    _need()
    caller = Caller.find(runtime_dir.find())
    if caller is None:
        raise EnvironmentFault(
            "no portal of yours runs on this host",
            remedy="`hpcbench portal` starts one; yours may run on another login node",
        )
    return caller


def _tokens() -> Tokens:
    _need()
    os.umask(0o077)
    from hpcbench.portal import runtime_dir
    from hpcbench.portal.access_tokens import Tokens

    return Tokens(runtime_dir.records() / "tokens.json")


def _tell(line: str) -> None:
    print(line, flush=True)
