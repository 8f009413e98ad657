"""`--site NAME`: run verbs on a cluster's login node from a laptop; and the part that answers there."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from packaging.version import Version

import hpcbench
from hpcbench.cli.output import print_json, say, transfer_bar
from hpcbench.cli.parse import words_of
from hpcbench.data.progress import Progress, size_text
from hpcbench.errors import EnvironmentFault, HpcbenchError, RunFailed, UserError
from hpcbench.experiment.layout import home
from hpcbench.files.atomic import write_atomic
from hpcbench.registry.catalog import Catalog, run_mode, user_dir
from hpcbench.registry.settings import read_settings
from hpcbench.registry.source import Source, validate
from hpcbench.remote import server
from hpcbench.remote.login_node import LoginNode
from hpcbench.remote.pipe_transfer import fetch, send
from hpcbench.remote.plan_bundle import Bundle, bundle
from hpcbench.schema.names import id_of
from hpcbench.schema.site import Site
from hpcbench.ssh.login import Host
from hpcbench.ssh.remote_command import Dropped, NoCommand, Running

ResultT = TypeVar("ResultT")

OURS = ("site", "to", "wait")
"""Options that stay on this machine."""

ASKING = ("dry_run", "estimate")
"""Options of submit that only print."""

USUAL_PLACES = ("hpcbench", "~/hpcbench-env/bin/hpcbench")
"""Commands to try on the login node: in the PATH of a login shell, and at the path in the guide."""


def elsewhere(arguments: argparse.Namespace) -> int:
    """Run a verb with `--site NAME`."""
    site = Catalog(project=False).get(Site, arguments.site)
    if site.ssh is None:
        return _here(site, arguments)
    _refuse_questions(arguments)
    _refuse_files(site, arguments)
    with LoginNode(site.ssh) as there:
        if arguments.verb == "submit":
            return _submit(there, site, arguments)
        if arguments.verb == "rerun":
            return _rerun(there, site, arguments)
        if arguments.verb == "report":
            return _report(there, site, arguments)
        words = [arguments.verb, *words_of(arguments, leave=OURS)]
        if getattr(arguments, "wait", False):
            code = _stream(there, words)
            return code or _finish(there, site, arguments.experiment, as_json=arguments.json)
        follow = arguments.verb == "watch" or getattr(arguments, "follow", False)
        return _stream(there, words, follow=follow)


def _refuse_questions(arguments: argparse.Namespace) -> None:
    """Refuse a verb that asks first: no user can answer there."""
    if arguments.verb == "gc" and not (arguments.yes or arguments.dry_run):
        remedy = "--dry-run lists what it would remove, --yes removes it"
        raise UserError("gc with --site cannot ask for your consent", remedy=remedy)


def _refuse_files(site: Site, arguments: argparse.Namespace) -> None:
    """Refuse definitions for cache verbs: only `submit` sends definitions."""
    if not getattr(arguments, "caches", False):
        return
    for name in ("plan", "registry"):
        if getattr(arguments, name, None):
            what = f"--{name} names a file of this machine, which this verb does not send to {site.name}"
            remedy = "give names that the cluster knows, or use `hpcbench submit --site`, which sends files"
            raise UserError(what, remedy=remedy)


def answer(arguments: argparse.Namespace) -> int:
    """`hpcbench remote …`: called by a laptop on the login node."""
    return server.answer(arguments.what)


def _here(site: Site, arguments: argparse.Namespace) -> int:
    """Run a verb for a profile of this very machine."""
    if getattr(arguments, "caches", False):
        module, function = str(arguments.run).split(":")
        return int(getattr(importlib.import_module(module), function)(arguments))
    if arguments.verb != "submit":
        what = f"the profile of site '{site.name}' has no `ssh:`, so it describes this machine"
        raise UserError(what, remedy="leave --site out")
    from hpcbench.cli.submit import submit

    arguments.settings.append(f"site={site.name}")
    return submit(arguments)


# --- submit --------------------------------------------------------------------------------------------


def _submit(there: LoginNode, site: Site, arguments: argparse.Namespace) -> int:
    mode = run_mode()
    made = bundle(
        arguments.plan,
        arguments.registry,
        arguments.settings,
        mode,
        root=_hello(there)["root"],
        present=lambda paths: _hello(there, paths)["present"],
        cache=home() / "cache" / "sent-hashes.json",
    )
    for path in made.stay:
        say(f"{path}: using the one on {there.host.name}")
    with transfer_bar() as progress:
        sent = there.persist(lambda: _sent(there, made, progress), say)
    say(f"sent {size_text(sent)} of {size_text(made.size)} to {there.host.name}")
    words = ["submit", made.plan]
    words += [word for path in made.registries for word in ("--registry", path)]
    words += [word for text in made.settings for word in ("--set", text)]
    rest = words_of(arguments, leave=(*OURS, "plan", "registry", "settings", "json"))
    if any(getattr(arguments, name, False) for name in ASKING):
        return _stream(there, [*words, *rest, *(["--json"] if arguments.json else [])])
    return _submitted(there, site, arguments, [*words, *rest], mode, made.here)


def _rerun(there: LoginNode, site: Site, arguments: argparse.Namespace) -> int:
    words = ["rerun", *words_of(arguments, leave=(*OURS, "json"))]
    if arguments.dry_run:
        return _stream(there, [*words, *(["--json"] if arguments.json else [])])
    return _submitted(there, site, arguments, words, run_mode(), {})


def _submitted(
    there: LoginNode,
    site: Site,
    arguments: argparse.Namespace,
    words: Sequence[str],
    mode: str,
    here: Mapping[str, str],
) -> int:
    """Run a submitting verb on the login node, and print or follow its experiment."""
    code, out = _submission(there, [*words, "--json"], mode, here)
    result = _parsed(out)
    if code or result is None:
        if arguments.json or not code:
            print(_as_here(out, here), end="")
        return code
    if arguments.wait:
        say(f"submitted {result['id']} on {site.name}")
        return _finish(there, site, str(result["id"]), as_json=arguments.json)
    if arguments.json:
        print_json({**result, "site": site.name})
    else:
        print(
            f"submitted {result['id']} on {site.name}\n"
            f"  hpcbench watch {result['id']} --site {site.name}"
        )
    return 0


def _sent(there: LoginNode, made: Bundle, progress: Progress) -> int:
    return _call(there, "receive", lambda wire: send(wire, made.parcels, made.contents, progress))


def _submission(
    there: LoginNode, argv: Sequence[str], mode: str, here: Mapping[str, str]
) -> tuple[int, str]:
    """Run `hpcbench ARGV` on the login node, even across broken connections; its exit code and output."""
    asked = {"key": secrets.token_hex(12), "argv": list(argv), "mode": mode, "told": 0}

    def follow(wire: Running) -> tuple[int, str]:
        wire.write(_line(asked))
        while line := wire.readline():
            message = json.loads(line)
            if "code" in message:
                return int(message["code"]), str(message["out"])
            asked["told"] = message["told"]
            sys.stderr.write(_as_here(message["err"], here))
            sys.stderr.flush()
        raise EnvironmentFault(
            f"{there.host.name}: the submission ended without a result",
            remedy="`hpcbench list --site NAME` shows whether the experiment is there",
        )

    try:
        return there.persist(lambda: _call(there, "submit", follow), say)
    except KeyboardInterrupt:
        say(f"the submission continues on {there.host.name}: `hpcbench list --site NAME` shows it")
        raise


def _as_here(text: str, here: Mapping[str, str]) -> str:
    """A text with paths as this machine names them."""
    for path in sorted(here, key=len, reverse=True):
        text = text.replace(path, here[path])
    return text


def _parsed(out: str) -> dict[str, Any] | None:
    """Output of `submit --json`, if it describes an experiment."""
    try:
        data = json.loads(out)
    except ValueError:
        return None
    return data if isinstance(data, dict) and "id" in data else None


def _finish(there: LoginNode, site: Site, experiment: str, *, as_json: bool) -> int:
    """Follow an experiment to its end and fetch its report."""
    code = _stream(there, ["watch", experiment], follow=True, silent=as_json)
    try:
        place = _fetched(there, site, experiment, None)
    except (EnvironmentFault, RunFailed) as error:
        say(str(error))
        code = code or error.exit_code
    else:
        say(f"report on this machine: {place}")
    if as_json:
        code = _stream(there, ["status", experiment, "--json"]) or code
    return code


# --- report --------------------------------------------------------------------------------------------


def _report(there: LoginNode, site: Site, arguments: argparse.Namespace) -> int:
    prints = arguments.methods or arguments.latex or arguments.to == Path("-")
    leave = [name for name in OURS if not (prints and name == "to")]
    code = _stream(there, ["report", *words_of(arguments, leave=leave)])
    if code == 0 and not prints:
        place = _fetched(there, site, arguments.experiment, arguments.to)
        say(f"report on this machine: {place}")
    return code


def _fetched(there: LoginNode, site: Site, experiment: str, to: Path | None) -> Path:
    """Fetch an experiment's report; returns its path here."""

    def bring(wire: Running) -> Path:
        wire.write(_line({"experiment": experiment}))
        name = Path(json.loads(wire.readline() or b'{"id": ""}')["id"]).name
        place = to or home() / "remote" / id_of(site.name) / name / "report"
        with transfer_bar() as progress:
            fetch(wire, place, progress)
        return place

    return there.persist(lambda: _call(there, "send", bring), say)


# --- init ----------------------------------------------------------------------------------------------


def init(arguments: argparse.Namespace) -> int:
    """`hpcbench init --site NAME --ssh [USER@]HOST[:PORT]`."""
    name = arguments.site
    if not name or not arguments.ssh:
        what = "a profile of a cluster elsewhere needs --site and --ssh"
        raise UserError(what, remedy="--site NAME --ssh HOST")
    path = user_dir() / "sites" / f"{name}.yaml"
    if path.exists() and not arguments.force and not arguments.dry_run:
        raise UserError("this site profile exists already", file=path, remedy="--force replaces it")
    given = Host.read(arguments.ssh)
    written = {"host": given.name, "user": given.user, "port": given.port}
    ssh = {key: value for key, value in written.items() if value is not None}
    text = f"hpcbench on {given.name}, from elsewhere"
    source = Source(
        path, {"schema_version": 1, "name": name, "description": text, "ssh": dict(ssh)}
    )
    for setting in read_settings(arguments.settings):
        source = setting.applied(source)
    site = validate(Site, source)
    if site.ssh is None:
        raise UserError("--set removes `ssh` from the profile", remedy="leave that --set out")
    command, version = _found(site)
    if command != "hpcbench":
        source.data["ssh"]["hpcbench"] = command
    say(f"{given.name}: hpcbench {version}")
    with contextlib.suppress(EnvironmentFault):
        _check_version(version, given.name)
    data = yaml.safe_dump(source.data, sort_keys=False, allow_unicode=True)
    if arguments.dry_run:
        print(data, end="")
        return 0
    write_atomic(path, data)
    print(f"wrote {path}; next: hpcbench submit plan.yaml --site {name}")
    return 0


def _found(site: Site) -> tuple[str, str]:
    """The hpcbench command on the login node, and its version."""
    assert site.ssh is not None
    asked = [site.ssh.hpcbench] if "hpcbench" in site.ssh.model_fields_set else USUAL_PLACES
    fault: NoCommand | None = None
    for command in asked:
        with LoginNode(site.ssh.model_copy(update={"hpcbench": command})) as there:
            try:
                version = _version(there)
            except NoCommand as error:
                fault = fault or error
                continue
        return command, version or "?"
    assert fault is not None
    raise fault


# --- calls ---------------------------------------------------------------------------------------------


def _hello(there: LoginNode, paths: Sequence[str] = ()) -> Any:
    """First exchange with hpcbench on the login node.

    Raises:
        EnvironmentFault: its version is incompatible.
    """

    def ask(wire: Running) -> Any:
        wire.write(_line({"paths": list(paths)}))
        return json.loads(wire.readline() or b"{}")

    try:
        reply = _call(there, "hello", ask)
    except UserError as error:  # it has no such verb
        if version := _version(there):
            _check_version(version, there.host.name)
        raise EnvironmentFault(f"{there.host.name}: {error}") from error
    _check_version(reply["hpcbench"], there.host.name)
    return reply


def _version(there: LoginNode) -> str:
    """The hpcbench version on the login node; empty: it reports none."""
    with there.hpcbench("--version") as running:
        words = b"".join(iter(running.read, b"")).decode("utf-8", "replace").split()
        running.code()
    return words[-1] if words else ""


def _check_version(there: str, host: str) -> None:
    """Require equal versions except for the last number: then both ends agree on plans and protocol."""
    here = hpcbench.__version__
    with contextlib.suppress(ValueError):
        if Version(here).release[:2] == Version(there).release[:2]:
            return
    raise EnvironmentFault(
        f"hpcbench is {here} here and {there} on {host}",
        remedy="install the same version on both; hpcbench does not install itself on a cluster",
    )


def _call(there: LoginNode, what: str, work: Callable[[Running], ResultT]) -> ResultT:
    """Exchange messages with `hpcbench remote WHAT`.

    Raises:
        HpcbenchError: the error that it reports.
        Dropped: the connection broke.
    """
    with there.hpcbench("remote", what) as running:
        try:
            result = work(running)
        except (EnvironmentFault, ValueError) as error:
            code = running.verdict()
            if code is None:
                raise
            raise _failure(there, code, running.errors()) from error
        running.end_input()
        if code := running.code():
            raise _failure(there, code, running.errors())
        return result


def _failure(there: LoginNode, code: int, errors: bytes) -> HpcbenchError:
    """The error with which hpcbench on the login node ended."""
    lines = errors.decode("utf-8", "replace").strip().splitlines() or [
        f"hpcbench ended with exit code {code}"
    ]
    text = f"{there.host.name}: {lines[-1].removeprefix('hpcbench: ')}"
    if code == UserError.exit_code:
        return UserError(text)
    return RunFailed(text) if code == RunFailed.exit_code else EnvironmentFault(text)


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


# --- streaming -----------------------------------------------------------------------------------------


class Unseen:
    """Output of a restarted command, without its first lines that were already shown."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._rest = b""
        self._again = False

    def again(self) -> None:
        """Note that the command starts again."""
        self._again, self._rest = True, b""

    def of(self, data: bytes) -> bytes:
        """The part of the output to show; an incomplete last line waits."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        shown: list[bytes] = []
        for line in lines:
            mark = hash(line)
            if self._again and mark in self._seen:
                continue
            self._again = False
            self._seen.add(mark)
            shown.append(line + b"\n")
        return b"".join(shown)

    def end(self) -> bytes:
        """The output after the last end of line."""
        rest, self._rest = self._rest, b""
        return rest


def _stream(
    there: LoginNode, words: Sequence[str], *, follow: bool = False, silent: bool = False
) -> int:
    """Run `hpcbench WORDS` on the login node and show its output as it arrives; returns its exit code.

    Args:
        there: the cluster.
        words: verb and arguments.
        follow: whether to start it again after a broken connection.
        silent: whether to hide its output.
    """
    terminal = sys.stdout.isatty() and not silent
    unseen = Unseen() if follow and not (terminal and words[0] == "watch") else None

    def show(data: bytes) -> None:
        data = unseen.of(data) if unseen is not None else data
        if not silent:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def run() -> int:
        with there.hpcbench(*words, terminal=terminal) as running:
            try:
                return _shown(running, show)
            except KeyboardInterrupt:
                if terminal:
                    with contextlib.suppress(Dropped):
                        running.write(b"\x03")
                raise
            except Dropped:
                if unseen is not None:
                    unseen.again()
                raise

    code = there.persist(run, say) if follow else run()
    if unseen is not None and not silent:
        sys.stdout.buffer.write(unseen.end())
    return code


def _shown(running: Running, show: Callable[[bytes], None]) -> int:
    """Show a command's output, errors on stderr; returns its exit code."""
    while True:
        ready = running.ready(0.5)
        running.resize()
        sys.stderr.buffer.write(running.errors())
        sys.stderr.buffer.flush()
        if ready:
            data = running.read()
            if not data:
                break
            show(data)
    code = running.code()
    sys.stderr.buffer.write(running.errors())
    sys.stderr.buffer.flush()
    return code
