"""The server side on the login node: `hpcbench remote …` calls this for a laptop's hpcbench.

HOME/remote/
  files/, HASH/           sent files (`exchange.py`)
  submissions/KEY/        one `submit` of a laptop: request.json, runner.json, out, err, code

A submission is independent of the connection: preparing images may take longer than a laptop stays awake. It
runs in its own session, and a call with its key follows it; a second call does not start it again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import hpcbench
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.experiment.layout import find, home
from hpcbench.files.atomic import (
    create_exclusive,
    read_json,
    write_atomic,
    write_json,
)
from hpcbench.registry.catalog import user_site
from hpcbench.remote.pipe_transfer import receive, serve

SUBMISSIONS = "submissions"
"""Folder of the submissions' output."""

KEPT_DAYS = 14
"""Days that the output of a submission is kept."""

POLL_SECONDS = 0.2
"""Interval of polling a running submission."""

# The exit code is written whatever happens to the connection; `sh` has no other task.
KEEPER = 'd=$1; shift; "$@" >"$d/out" 2>"$d/err"; echo $? >"$d/.code"; mv "$d/.code" "$d/code"'


class Pipes:
    """Standard input and output as the wire of an exchange."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._in, self._out = source, sink

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._out.write(data)
        self._out.flush()

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, at least one; empty: the laptop has gone."""
        return self._in.read(size)

    def readline(self) -> bytes:
        """A line."""
        return self._in.readline()


def root() -> Path:
    """Folder of all files of laptops."""
    return home(user_site()) / "remote"


def answer(what: str) -> int:
    """Answer a laptop's request; returns the exit code.

    Args:
        what: `hello`, `receive`, `send` or `submit`; the rest is read from standard input.

    Raises:
        HpcbenchError: the request cannot be served.
    """
    pipes = Pipes(sys.stdin.buffer, sys.stdout.buffer)
    if what == "receive":
        receive(pipes, root())
        return 0
    asked = _request(pipes.readline())
    if what == "hello":
        pipes.write(json.dumps(hello(asked)).encode() + b"\n")
        return 0
    if what == "send":
        experiment = find(home(user_site()), asked["experiment"])
        if not experiment.report_dir.is_dir():
            raise EnvironmentFault(f"{experiment.id} has no report yet")
        pipes.write(json.dumps({"id": experiment.id}).encode() + b"\n")
        serve(pipes, experiment.report_dir)
        return 0
    return submit(asked, pipes)


def _request(line: bytes) -> Any:
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError):
        asked = None
    if isinstance(asked, dict):
        return asked
    raise UserError(
        "no request on standard input",
        remedy="run `hpcbench --site NAME VERB` on a laptop: it sends one",
    )


def hello(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Version and root folder here, and which of some paths exist."""
    present = [path for path in asked.get("paths", ()) if os.access(path, os.R_OK)]
    return {"hpcbench": hpcbench.__version__, "root": str(root()), "present": present}


# --- submissions ---------------------------------------------------------------------------------------


def submit(asked: Mapping[str, Any], wire: Pipes) -> int:
    """Run `hpcbench ARGV` once for a key, or follow the running one.

    Args:
        asked: `key`, `argv`, `mode`, and `told`, the number of bytes of errors that the laptop has seen.
        wire: receives lines `{err, told}` while it runs, then `{out, code}`.
    """
    submissions = root() / SUBMISSIONS
    _remove_old(submissions)
    folder = submissions / str(asked["key"])
    folder.mkdir(parents=True, exist_ok=True)
    request = {"argv": asked["argv"], "mode": asked["mode"]}
    if create_exclusive(folder / "request.json", request) or _died(folder):
        _run(folder, asked["argv"], asked["mode"])
    for message in _follow(folder, int(asked.get("told", 0))):
        wire.write(json.dumps(message).encode() + b"\n")
    return 0


def _run(folder: Path, argv: Sequence[str], mode: str) -> None:
    """Start the submission in a session of its own."""
    for old in ("out", "err"):
        write_atomic(folder / old, b"")
    runner = subprocess.Popen(
        ["sh", "-c", KEEPER, "keeper", str(folder)]
        + [sys.executable, "-m", "hpcbench.cli.main", *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "RUN_MODE": mode, "PYTHONUNBUFFERED": "1"},
    )
    write_json(folder / "runner.json", {"host": socket.gethostname(), "pid": runner.pid})


def _died(folder: Path) -> bool:
    """Whether it ended without an exit code, as at a reboot; unknown, thus false, for another login node."""
    if (folder / "code").exists():
        return False
    try:
        runner = read_json(folder / "runner.json")
    except FileNotFoundError:
        return True  # the process that requested it was killed before the start
    if runner["host"] != socket.gethostname():
        return False
    try:
        os.kill(runner["pid"], 0)
    except ProcessLookupError:
        return not (folder / "code").exists()
    except PermissionError:
        return True  # another user's process has the number now
    return False


def _follow(folder: Path, offset: int) -> Iterator[dict[str, Any]]:
    """Output of a submission until its end."""
    while True:
        ended = (folder / "code").exists()
        with contextlib.suppress(FileNotFoundError), (folder / "err").open("rb") as err:
            err.seek(offset)
            for line in err:
                if not line.endswith(b"\n") and not ended:
                    break
                offset += len(line)
                yield {"err": line.decode("utf-8", "replace"), "told": offset}
        if ended:
            break
        if _died(folder):
            raise EnvironmentFault("the submission ended without a message", remedy="submit again")
        time.sleep(POLL_SECONDS)
    out = (folder / "out").read_text(encoding="utf-8", errors="replace")
    yield {"out": out, "code": int((folder / "code").read_text(encoding="ascii"))}


def _remove_old(submissions: Path) -> None:
    oldest = time.time() - 86400 * KEPT_DAYS
    for folder in submissions.glob("*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder)
