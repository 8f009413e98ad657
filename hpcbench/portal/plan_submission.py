"""Submitting a plan: `hpcbench submit` as a process of its own, which lives on whoever goes away.

Each submission is a folder `HOME/portal/submissions/ID` of the user alone: what was asked, what the command
said, how it ended. One document is submitted once at a time.
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
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from hpcbench import secret
from hpcbench.errors import EnvironmentFault
from hpcbench.files.atomic import read_json, write_atomic, write_json
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.models.plans import Submitted
from hpcbench.portal.user_documents import Documents, File

KEPT = 50
"""Folders of so many submissions stay."""

SHOWN_BYTES = 65_536
"""The end of a log that is shown."""

SHOWN_LINES = 500
"""Lines of it at most."""

AT_ONCE = 4
"""Submissions at the same time."""

_ID = re.compile(r"[0-9a-f]{16}")
_SUBMITTED = re.compile(r"^submitted ([A-Za-z0-9][A-Za-z0-9._-]*)", re.MULTILINE)
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)

# Run so and not by `-m`, the working directory is no place that modules are imported from.
_START = "import sys; sys.path[:1] = []; from hpcbench.portal.plan_submission import main; main()"

_audit = logging.getLogger("hpcbench.portal.audit")


class Submissions:
    """Submissions of one portal.

    Args:
        folder: where each has a folder; made with the first.
        documents: where plans are.
        umask: the user's own.
        environment: what the command finds; none: what the portal itself was started with.
    """

    def __init__(
        self,
        folder: Path,
        documents: Documents,
        *,
        umask: int = 0o077,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder, self._documents, self._umask = folder, documents, umask
        self._environment = started_with() if environment is None else dict(environment)
        self._lock = threading.Lock()
        self._running: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}

    def begin(self, file: File, expected: str) -> str:
        """Start to submit a plan as it was looked at; returns the submission's id.

        Raises:
            PortalFault: it is no plan, another by now (412), or being submitted already (409).
        """
        if file.kind != "plans" or file.origin != "own":
            raise PortalFault(422, "bad_request", f"'{file.name}' is no plan of yours")
        text, now = self._documents.read(file)
        if now != expected:
            what = f"'{file.name}' is not the text that you looked at any more"
            raise PortalFault(412, "conflict", what, "look at it again, and submit then")
        _remember_secrets(text, self._environment)
        with self._lock:
            self._running = {key: one for key, one in self._running.items() if _lives(one[1])}
            if file.id in self._running:
                what = f"'{file.name}' is being submitted already"
                raise PortalFault(409, "conflict", what, "wait until that has ended")
            if len(self._running) >= AT_ONCE:
                raise PortalFault(503, "busy", "other plans are being submitted", "try again soon")
            identity = secrets.token_hex(8)
            self._running[file.id] = identity, self._started(identity, file, now)
        _audit.info("submission %s of %s (%s)", identity, shlex.quote(file.name), now)
        return identity

    def look(self, identity: str) -> Submitted:
        """How far a submission is.

        Raises:
            PortalFault: there is none of that id.
        """
        folder = self._folder / identity
        try:
            if not _ID.fullmatch(identity):
                raise FileNotFoundError
            asked = read_json(folder / "request.json")
        except (OSError, ValueError):
            raise PortalFault(404, "not_found", "no such submission") from None
        text = _tail(folder / "log")
        named = _SUBMITTED.search(text)
        return Submitted(
            submission=identity,
            document=asked["document"],
            name=asked["name"],
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
        lives = _lives(mine[0]) if mine else _alive(asked.get("pid"), folder)
        with contextlib.suppress(OSError):  # it may have ended while we looked
            return "done" if (folder / "code").read_text() == "0" else "failed"
        return "running" if lives else "failed"

    def _started(self, identity: str, file: File, etag: str) -> subprocess.Popen[bytes]:
        self._forget_old()
        folder = self._folder / identity
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        # A plan may be called `-x.yaml`: with its folder before it, it is no option.
        argv = [sys.executable, "-c", _START, str(folder), "submit", f"./{'/'.join(file.parts)}"]
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        log = os.open(folder / "log", flags, 0o600)
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=file.root,
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
        # Takes note of its end, whoever looks or does not.
        threading.Thread(target=process.wait, daemon=True).start()
        request = {"document": file.id, "name": file.name, "etag": etag, "time": time.time()}
        write_json(folder / "request.json", {**request, "pid": process.pid})
        return process

    def _forget_old(self) -> None:
        try:
            known = [one for one in self._folder.iterdir() if (one / "code").is_file()]
            for old in sorted(known, key=lambda one: one.stat().st_mtime)[:-KEPT]:
                shutil.rmtree(old, ignore_errors=True)
        except OSError:
            return


def started_with() -> dict[str, str]:
    """The environment this process was started with: it reaches jobs, and what the portal set since must not.

    The portal holds its own libraries to few threads; an experiment on a compute node has better to do.
    """
    try:
        held = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return dict(os.environ)
    pairs = (os.fsdecode(one).partition("=") for one in held if b"=" in one)
    return {name: value for name, _, value in pairs}


def _remember_secrets(text: str, environment: Mapping[str, str]) -> None:
    """What the plan refers to, and what the environment holds, never shows in the log."""
    for name, value in environment.items():
        if secret.written_out(name, value):
            secret.remember(value)
    for match in secret.REFERENCE.finditer(text):
        with contextlib.suppress(EnvironmentFault):
            secret.reveal(match[0])


def _tail(path: Path) -> str:
    """The end of a log: no secrets, no control characters."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - SHOWN_BYTES))
            data = file.read(SHOWN_BYTES)
    except OSError:
        return ""
    if size > SHOWN_BYTES:
        data = data.partition(b"\n")[2]
    return _CONTROL.sub("", secret.mask(data.decode("utf-8", "replace").replace("\r\n", "\n")))


def _lives(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None


def _alive(pid: object, folder: Path) -> bool:
    """Whether a process that an earlier portal started is still there: its command names the folder."""
    try:
        words = Path(f"/proc/{int(str(pid))}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return False
    return os.fsencode(folder) in words


def main() -> None:
    """`FOLDER VERB …`: run a command of hpcbench, and write how it ended where later portals find it, too."""
    folder, code = Path(sys.argv.pop(1)), 1
    try:
        runpy.run_module("hpcbench.cli.main", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        raise
    finally:
        write_atomic(folder / "code", str(code))
