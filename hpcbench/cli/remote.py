"""`--site NAME`: the verbs on a cluster's login node, from a laptop; and what answers them there."""

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
from hpcbench.errors import EnvironmentFault, HpcbenchError, Problem, RunFailed, UserError
from hpcbench.experiment.layout import home
from hpcbench.files.atomic import write_atomic
from hpcbench.registry.catalog import Catalog, run_mode, user_dir
from hpcbench.registry.settings import read_settings
from hpcbench.registry.source import Source, validate
from hpcbench.remote import server
from hpcbench.remote.exchange import fetch, send
from hpcbench.remote.plan_bundle import Bundle, bundle
from hpcbench.remote.ssh import Connection, Dropped, NoCommand, Running
from hpcbench.remote.ssh_config import Hop
from hpcbench.schema.documents import Site

ResultT = TypeVar("ResultT")

OURS = ("site", "to", "wait")
"""Options that are not passed on."""

ASKING = ("dry_run", "estimate")
"""Options of submit with which nothing is submitted."""

USUAL_PLACES = ("hpcbench", "~/hpcbench-env/bin/hpcbench")
"""Where hpcbench is looked for there: the PATH of a login shell, and where the guide puts it."""


def elsewhere(arguments: argparse.Namespace) -> int:
    """A verb with `--site NAME`."""
    site = Catalog(project=False).get(Site, arguments.site)
    if site.ssh is None:
        return _here(site, arguments)
    _refuse_questions(arguments)
    _refuse_files(site, arguments)
    with Connection(site.ssh) as there:
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
    """What asks before it does something has nobody to ask there."""
    deletes = arguments.verb == "gc" and arguments.older is not None
    if deletes and not (arguments.yes or arguments.dry_run):
        remedy = "`--dry-run` shows what would be deleted, `--yes` means it"
        raise UserError(Problem("gc --older cannot ask from elsewhere", remedy=remedy))


def _refuse_files(site: Site, arguments: argparse.Namespace) -> None:
    """What looks after caches sends no documents: only `submit` does."""
    if not getattr(arguments, "caches", False):
        return
    for name in ("plan", "registry"):
        if getattr(arguments, name, None):
            what = (
                f"--{name} names a file of this machine, and nothing of it is sent to {site.name}"
            )
            remedy = "name what is there, or `hpcbench submit --site`, which sends documents"
            raise UserError(Problem(what, remedy=remedy))


def answer(arguments: argparse.Namespace) -> int:
    """`hpcbench remote …`: what a laptop calls on the login node."""
    return server.answer(arguments.what)


def _here(site: Site, arguments: argparse.Namespace) -> int:
    """A profile of this very machine."""
    if getattr(arguments, "caches", False):
        module, function = str(arguments.run).split(":")
        return int(getattr(importlib.import_module(module), function)(arguments))
    if arguments.verb != "submit":
        what = f"site '{site.name}' has no `ssh:`, so it is this machine"
        raise UserError(Problem(what, remedy="leave --site out"))
    from hpcbench.cli.submit import submit

    arguments.settings.append(f"site={site.name}")
    return submit(arguments)


# --- submit --------------------------------------------------------------------------------------------


def _submit(there: Connection, site: Site, arguments: argparse.Namespace) -> int:
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
        say(f"{path}: the one of {there.host}")
    with transfer_bar() as progress:
        sent = there.persist(lambda: _sent(there, made, progress), say)
    say(f"sent {size_text(sent)} of {size_text(made.size)} to {there.host}")
    words = ["submit", made.plan]
    words += [word for path in made.registries for word in ("--registry", path)]
    words += [word for text in made.settings for word in ("--set", text)]
    rest = words_of(arguments, leave=(*OURS, "plan", "registry", "settings", "json"))
    if any(getattr(arguments, name, False) for name in ASKING):
        return _stream(there, [*words, *rest, *(["--json"] if arguments.json else [])])
    return _submitted(there, site, arguments, [*words, *rest], mode, made.here)


def _rerun(there: Connection, site: Site, arguments: argparse.Namespace) -> int:
    words = ["rerun", *words_of(arguments, leave=(*OURS, "json"))]
    if arguments.dry_run:
        return _stream(there, [*words, *(["--json"] if arguments.json else [])])
    return _submitted(there, site, arguments, words, run_mode(), {})


def _submitted(
    there: Connection,
    site: Site,
    arguments: argparse.Namespace,
    words: Sequence[str],
    mode: str,
    here: Mapping[str, str],
) -> int:
    """Run a verb there that submits, and tell or follow what it submitted."""
    code, out = _submission(there, [*words, "--json"], mode, here)
    told = _parsed(out)
    if code or told is None:
        if arguments.json or not code:
            print(_as_here(out, here), end="")
        return code
    if arguments.wait:
        say(f"submitted {told['id']} on {site.name}")
        return _finish(there, site, str(told["id"]), as_json=arguments.json)
    if arguments.json:
        print_json({**told, "site": site.name})
    else:
        print(
            f"submitted {told['id']} on {site.name}\n  hpcbench watch {told['id']} --site {site.name}"
        )
    return 0


def _sent(there: Connection, made: Bundle, progress: Progress) -> int:
    return _call(there, "receive", lambda wire: send(wire, made.parcels, made.contents, progress))


def _submission(
    there: Connection, argv: Sequence[str], mode: str, here: Mapping[str, str]
) -> tuple[int, str]:
    """Run `hpcbench ARGV` there, whatever becomes of the connection; its exit code and output."""
    asked = {"key": secrets.token_hex(12), "argv": list(argv), "mode": mode, "told": 0}

    def follow(wire: Running) -> tuple[int, str]:
        wire.write(_line(asked))
        while line := wire.readline():
            told = json.loads(line)
            if "code" in told:
                return int(told["code"]), str(told["out"])
            asked["told"] = told["told"]
            sys.stderr.write(_as_here(told["err"], here))
            sys.stderr.flush()
        raise EnvironmentFault(f"{there.host}: the submission said no more")

    try:
        return there.persist(lambda: _call(there, "submit", follow), say)
    except KeyboardInterrupt:
        say(f"what was begun on {there.host} goes on there: `hpcbench list --site …` shows it")
        raise


def _as_here(text: str, here: Mapping[str, str]) -> str:
    """A text with paths as they are called here."""
    for path in sorted(here, key=len, reverse=True):
        text = text.replace(path, here[path])
    return text


def _parsed(out: str) -> dict[str, Any] | None:
    """What `submit --json` says, if it is about an experiment."""
    try:
        told = json.loads(out)
    except ValueError:
        return None
    return told if isinstance(told, dict) and "id" in told else None


def _finish(there: Connection, site: Site, experiment: str, *, as_json: bool) -> int:
    """Follow an experiment to its end and bring its report."""
    code = _stream(there, ["watch", experiment], follow=True, silent=as_json)
    try:
        place = _fetched(there, site, experiment, None)
    except (EnvironmentFault, RunFailed) as error:
        say(str(error))
        code = code or error.exit_code
    else:
        say(f"report here: {place}")
    if as_json:
        code = _stream(there, ["status", experiment, "--json"]) or code
    return code


# --- report --------------------------------------------------------------------------------------------


def _report(there: Connection, site: Site, arguments: argparse.Namespace) -> int:
    code = _stream(there, ["report", *words_of(arguments, leave=OURS)])
    if code == 0:
        say(f"report here: {_fetched(there, site, arguments.experiment, arguments.to)}")
    return code


def _fetched(there: Connection, site: Site, experiment: str, to: Path | None) -> Path:
    """Bring an experiment's report; returns where it lies."""

    def bring(wire: Running) -> Path:
        wire.write(_line({"experiment": experiment}))
        name = Path(json.loads(wire.readline() or b'{"id": ""}')["id"]).name
        place = to or home() / "remote" / site.name / name / "report"
        with transfer_bar() as progress:
            fetch(wire, place, progress)
        return place

    return there.persist(lambda: _call(there, "send", bring), say)


# --- init ----------------------------------------------------------------------------------------------


def init(arguments: argparse.Namespace) -> int:
    """`hpcbench init --site NAME --ssh [USER@]HOST[:PORT]`."""
    name = arguments.site
    if not name or not arguments.ssh:
        raise UserError(Problem("a cluster elsewhere needs both", remedy="--site NAME --ssh HOST"))
    path = user_dir() / "sites" / f"{name}.yaml"
    if path.exists() and not arguments.force and not arguments.dry_run:
        raise UserError(Problem("there is a site profile already", str(path), remedy="--force"))
    hop = Hop.read(arguments.ssh)
    written = {"host": hop.host, "user": hop.user, "port": hop.port}
    ssh = {key: value for key, value in written.items() if value is not None}
    text = f"hpcbench on {hop.host}, from elsewhere"
    source = Source(
        path, {"schema_version": 1, "name": name, "description": text, "ssh": dict(ssh)}
    )
    for setting in read_settings(arguments.settings):
        source = setting.applied(source)
    site = validate(Site, source)
    if site.ssh is None:
        raise UserError("--set takes `ssh` away")
    command, version = _found(site)
    if command != "hpcbench":
        source.data["ssh"]["hpcbench"] = command
    say(f"{hop.host}: hpcbench {version}")
    with contextlib.suppress(EnvironmentFault):
        _check_version(version, hop.host)
    data = yaml.safe_dump(source.data, sort_keys=False, allow_unicode=True)
    if arguments.dry_run:
        print(data, end="")
        return 0
    write_atomic(path, data)
    print(f"wrote {path}; next: hpcbench submit plan.yaml --site {name}")
    return 0


def _found(site: Site) -> tuple[str, str]:
    """Which command there is hpcbench, and its version."""
    assert site.ssh is not None
    asked = [site.ssh.hpcbench] if "hpcbench" in site.ssh.model_fields_set else USUAL_PLACES
    fault: NoCommand | None = None
    for command in asked:
        with Connection(site.ssh.model_copy(update={"hpcbench": command})) as there:
            try:
                with there.hpcbench("--version") as running:
                    told = b"".join(iter(running.read, b"")).decode("utf-8", "replace")
                    running.code()
            except NoCommand as error:
                fault = fault or error
                continue
        return command, told.split()[-1] if told.split() else "?"
    assert fault is not None
    raise fault


# --- calls ---------------------------------------------------------------------------------------------


def _hello(there: Connection, paths: Sequence[str] = ()) -> Any:
    """Who is there.

    Raises:
        EnvironmentFault: its version is another in a way that matters.
    """

    def ask(wire: Running) -> Any:
        wire.write(_line({"paths": list(paths)}))
        return json.loads(wire.readline() or b"{}")

    try:
        told = _call(there, "hello", ask)
    except UserError as error:  # it does not know the verb
        with there.hpcbench("--version") as running:
            version = b"".join(iter(running.read, b"")).decode("utf-8", "replace").split()[-1:]
        if version:
            _check_version(version[0], there.host)
        raise EnvironmentFault(f"{there.host}: {error}") from error
    _check_version(told["hpcbench"], there.host)
    return told


def _check_version(there: str, host: str) -> None:
    """The same but for the last number: plans mean the same then, and both ends speak alike."""
    here = hpcbench.__version__
    with contextlib.suppress(ValueError):
        if Version(here).release[:2] == Version(there).release[:2]:
            return
    raise EnvironmentFault(
        f"hpcbench is {here} here and {there} on {host}",
        remedy="install the same on both; nothing is installed there from here",
    )


def _call(there: Connection, what: str, work: Callable[[Running], ResultT]) -> ResultT:
    """Talk with `hpcbench remote WHAT`.

    Raises:
        HpcbenchError: what it says when it fails.
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


def _failure(there: Connection, code: int, told: bytes) -> HpcbenchError:
    """The error that hpcbench there ended with."""
    lines = told.decode("utf-8", "replace").strip().splitlines() or [f"it ended with {code}"]
    text = f"{there.host}: {lines[-1].removeprefix('hpcbench: ')}"
    if code == UserError.exit_code:
        return UserError(text)
    return RunFailed(text) if code == RunFailed.exit_code else EnvironmentFault(text)


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


# --- streaming -----------------------------------------------------------------------------------------


class Unseen:
    """Lines of a command that is started again, without those at its beginning that were shown before."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._rest = b""
        self._again = False

    def again(self) -> None:
        """The command starts anew."""
        self._again, self._rest = True, b""

    def of(self, data: bytes) -> bytes:
        """What of its output is to be shown; the last line only when it is whole."""
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
        """What came without an end of line."""
        rest, self._rest = self._rest, b""
        return rest


def _stream(
    there: Connection, words: Sequence[str], *, follow: bool = False, silent: bool = False
) -> int:
    """Run `hpcbench WORDS` there and show its output as it comes; returns its exit code.

    Args:
        there: the cluster.
        words: verb and arguments.
        follow: whether to start it again when the connection broke.
        silent: whether to show nothing of its output.
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
    """Show what a command says, errors as errors; returns its exit code."""
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
