"""Commands that the portal runs for its user, each a process of its own that survives portal and browser.

They are `hpcbench submit` of a plan, `pause`, `resume`, `cancel` and `score` of an experiment, and `serve` of
a model in a job. Each has a folder `HOME/portal/submissions/ID` that only the user can read: the request, the
command's output, the exit code. A plan, an experiment or a model has at most one running command.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import runpy
import secrets
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from hpcbench import secret
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json, write_atomic, write_json
from hpcbench.files.tail import last_bytes
from hpcbench.planning import clock
from hpcbench.portal.faults import PortalFault, missing
from hpcbench.portal.models.plans import Action, Submitted
from hpcbench.portal.user_definitions import Definitions, File
from hpcbench.process_table import command, environment
from hpcbench.submit.serve_job import serve_jobs

KEPT = 50
"""Folders of ended commands that are kept."""

SHOWN_BYTES = 65_536
"""Bytes of a log's end that are shown."""

SHOWN_LINES = 500
"""Most lines of a log that are shown."""

AT_ONCE = 4
"""Commands at the same time."""

_ID = re.compile(r"[0-9a-f]{16}")
_SUBMITTED = re.compile(r"^submitted ([A-Za-z0-9][A-Za-z0-9._+-]*)", re.MULTILINE)
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)

# With `-m`, Python would import modules from the working directory.
_START = "import sys; sys.path[:1] = []; from hpcbench.portal.user_commands import main; main()"

_audit = logging.getLogger("hpcbench.portal.audit")


class UserCommands:
    """Commands of one portal.

    Args:
        home: folder of experiments and caches.
        definitions: the user's definitions, plans among them.
        umask: the user's own.
    """

    def __init__(
        self,
        home: Path,
        definitions: Definitions,
        *,
        umask: int = 0o077,
    ) -> None:
        self._folder = home / "portal" / "submissions"
        self._definitions, self._umask = definitions, umask
        self._environment = started_with()
        self._lock = threading.Lock()
        self._running: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}

    def begin(self, file: File, expected: str) -> str:
        """Start to submit a plan as the user saw it; returns the submission's id.

        Raises:
            PortalFault: it is no plan, has changed (412), or is being submitted already (409).
        """
        if file.kind != "plans" or file.origin != "own":
            raise PortalFault(422, "bad_request", f"'{file.name}' is not a plan of your folder")
        text, now = self._definitions.read(file)
        if now != expected:
            what = f"'{file.name}' has changed since you opened it"
            raise PortalFault(412, "conflict", what, "open it again, then submit")
        _remember_secrets(text, self._environment)
        # A plan may be named `-x.yaml`: with a folder before its name, it is no option.
        words = ("submit", f"./{'/'.join(file.parts)}")
        request = {"definition": file.id, "name": file.name, "etag": now}
        return self._begin(file.id, words, file.root, request)

    def act(self, experiment: Experiment, action: Action) -> str:
        """Start to pause, resume, cancel or score an experiment; returns the command's id.

        Raises:
            PortalFault: a command of this experiment runs already (409).
        """
        request = {"definition": None, "name": experiment.id}
        words = (action, str(experiment.path))
        return self._begin(experiment.id, words, self._folder.parent, request)

    def serve(self, model: str, minutes: int) -> str:
        """Start a job that serves a model; returns the command's id.

        Raises:
            PortalFault: a command for this model runs already (409).
        """
        words = ("serve", model, "--job", "--time-limit", clock(60 * minutes))
        return self._for_serving(model, words)

    def end_serving(self, job: str) -> str:
        """Start to end a job that serves a model; returns the command's id.

        Raises:
            PortalFault: there is no such job, or a command for it runs already (409).
        """
        found = [one for one in serve_jobs(self._folder.parent.parent) if one.id == job]
        if not found:
            raise missing("no job serves this model any more")
        return self._for_serving(job, ("serve", job, "--stop"), found[0].model)

    def _for_serving(self, key: str, words: Sequence[str], model: str | None = None) -> str:
        # The folder of plans: its registries are the project's.
        request = {"definition": None, "name": model or key}
        return self._begin(f"serve {key}", words, self._definitions.plans, request)

    def _begin(
        self, key: str, words: Sequence[str], folder: Path, request: Mapping[str, Any]
    ) -> str:
        """Start a command in a folder, if no command with this key runs; returns its id."""
        name = request["name"]
        with self._lock:
            self._running = {
                one: held for one, held in self._running.items() if held[1].poll() is None
            }
            if key in self._running:
                what = f"a command for '{name}' is already running"
                raise PortalFault(409, "conflict", what, "wait until it ends")
            if len(self._running) >= AT_ONCE:
                raise PortalFault(503, "busy", "too many commands are running", "try again soon")
            identity = secrets.token_hex(8)
            started = self._started(identity, words, folder, {**request, "verb": words[0]})
            self._running[key] = identity, started
        _audit.info("command %s: %s", identity, shlex.join(words))
        return identity

    def look(self, identity: str) -> Submitted:
        """State of a command.

        Raises:
            PortalFault: no command has this id.
        """
        folder = self._folder / identity
        try:
            if not _ID.fullmatch(identity):
                raise FileNotFoundError
            asked = read_json(folder / "request.json")
        except (OSError, ValueError):
            raise missing("there is no such command") from None
        text = _tail(folder / "log")
        verb = asked.get("verb", "submit")
        named = _SUBMITTED.search(text) if verb == "submit" else None
        return Submitted(
            submission=identity,
            # "document": requests of versions before this one.
            definition=asked.get("definition") or asked.get("document"),
            name=asked["name"],
            verb=verb,
            started=asked["time"],
            id=named[1] if named else None,
            log=tuple(text.splitlines()[-SHOWN_LINES:]),
            state=self._state(folder, identity, asked),
        )

    def _state(
        self, folder: Path, identity: str, asked: Mapping[str, Any]
    ) -> Literal["running", "done", "failed"]:
        with contextlib.suppress(OSError):
            return "done" if (folder / "code").read_text() == "0" else "failed"
        with self._lock:
            mine = [one for number, one in self._running.values() if number == identity]
        lives = mine[0].poll() is None if mine else _alive(asked.get("pid"), folder)
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            return "done" if (folder / "code").read_text() == "0" else "failed"
        return "running" if lives else "failed"

    def _started(
        self, identity: str, words: Sequence[str], cwd: Path, request: Mapping[str, Any]
    ) -> subprocess.Popen[bytes]:
        self._forget_old()
        folder = self._folder / identity
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        argv = [sys.executable, "-c", _START, str(folder), *words]
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        log = os.open(folder / "log", flags, 0o600)
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=cwd,
                env={
                    **self._environment,
                    "PYTHONUNBUFFERED": "1",
                    "NO_COLOR": "1",
                    "COLUMNS": "110",
                },
                umask=self._umask,
                start_new_session=True,
            )
        finally:
            os.close(log)
        # Reaps the process at its end, even without a reader.
        threading.Thread(target=process.wait, daemon=True).start()
        write_json(folder / "request.json", {**request, "time": time.time(), "pid": process.pid})
        return process

    def _forget_old(self) -> None:
        try:
            known = [one for one in self._folder.iterdir() if (one / "code").is_file()]
            for old in sorted(known, key=lambda one: one.stat().st_mtime)[:-KEPT]:
                shutil.rmtree(old, ignore_errors=True)
        except OSError:
            return


def started_with() -> dict[str, str]:
    """The environment at the start of this process: jobs inherit it, without the portal's later settings.

    The portal limits its own libraries to few threads; an experiment on a compute node needs more.
    """
    pairs = (os.fsdecode(one).partition("=") for one in environment(os.getpid()) if b"=" in one)
    return {name: value for name, _, value in pairs} or dict(os.environ)


def _remember_secrets(text: str, environment: Mapping[str, str]) -> None:
    """Mask the values that the plan refers to, and secrets of the environment, in the log."""
    for name, value in environment.items():
        if secret.written_out(name, value):
            secret.remember(value)
    for match in secret.REFERENCE.finditer(text):
        with contextlib.suppress(EnvironmentFault):
            secret.reveal(match[0])


def _tail(path: Path) -> str:
    """The end of a log: no secrets, no control characters."""
    try:
        data = last_bytes(path, SHOWN_BYTES + 1)
    except OSError:
        return ""
    if len(data) > SHOWN_BYTES:
        data = data[1:].partition(b"\n")[2]
    return _CONTROL.sub("", secret.mask(data.decode("utf-8", "replace").replace("\r\n", "\n")))


def _alive(pid: object, folder: Path) -> bool:
    """Whether a process of an earlier portal still runs: its command line contains the folder."""
    return isinstance(pid, int) and os.fsencode(folder) in command(pid)


def main() -> None:
    """`FOLDER VERB …`: run a command of hpcbench, and write its exit code where later portals find it."""
    folder, code = Path(sys.argv.pop(1)), 1
    try:
        runpy.run_module("hpcbench.cli.main", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        raise
    finally:
        write_atomic(folder / "code", str(code))
