"""A tracker in its own process: `python -m hpcbench.tracking.tracker_process`, its job on stdin.

Clients of trackers are foreign code that waits, retries, starts threads and further processes, and prints.
This process isolates them: it is ended when it takes too long or is silent for too long, and together with
its parent. Secrets come on its standard input, never in arguments or on disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from hpcbench import plugins, secret
from hpcbench.errors import EnvironmentFault, HpcbenchError
from hpcbench.experiment.access import use_umask
from hpcbench.experiment.layout import Experiment
from hpcbench.installed import this_python
from hpcbench.oauth.bearer import Bearer, ServerAuth
from hpcbench.subprocesses import kill_session, why_it_ended
from hpcbench.tracking.feed import Sending, SentCounts, Sink
from hpcbench.tracking.sent import Notes, notes_file, notes_on
from hpcbench.variables import past_proxies

STARTUP_SECONDS = 120.0
"""Longest silence beyond the tracker's own: importing a client from a slow file system takes time."""

PATIENCE = 20.0
"""Longest wait for another process that is sending to the same destination, seconds."""


class ServerOptions(BaseModel):
    """Options of all trackers of servers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    timeout: float = Field(default=30.0, gt=0)
    """Longest wait for one answer, seconds."""
    limit: float = Field(default=300.0, gt=0)
    """Longest time taken after a run, seconds; what is not sent by then, `hpcbench track` sends."""
    samples: int | None = Field(default=None, ge=0)
    """Prompts and responses of each run task that are sent, from the first; none: all; 0: none of them."""
    ca_file: str | None = None
    """Certificates of the server's authority, a PEM file; none: the system's."""


class TokenOptions(ServerOptions):
    """Options of trackers whose servers take a bearer token."""

    auth: ServerAuth | None = None
    """Tokens of a token server, as `auth` of a model elsewhere."""

    def bearer(self) -> Bearer | None:
        """The tokens; None: there is no token server.

        Raises:
            EnvironmentFault: a secret is missing.
        """
        return None if self.auth is None else Bearer(self.auth)


class ServerTracker:
    """Base of trackers with servers: they send from their own process."""

    api: ClassVar[int] = 1
    keeps_references: ClassVar[frozenset[str]] = frozenset({"auth"})
    Options: ClassVar[type[ServerOptions]] = ServerOptions

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.given = dict(options)
        self.options = self.Options.model_validate(self.given)

    def log(self, tables: Mapping[str, Any]) -> None:
        """Send all data of an ended experiment, or as much as the time limit allows.

        Raises:
            HpcbenchError: unsent data, and why.
        """
        self.track(Path(tables["path"]), limit=self.options.limit)

    def track(
        self,
        path: Path,
        *,
        live: bool = False,
        limit: float | None = None,
        tell: Callable[[SentCounts], None] = lambda sent: None,
    ) -> SentCounts:
        """Send an experiment's missing data.

        Args:
            path: the experiment.
            live: until it has ended, else once.
            limit: longest time, seconds; None: no limit.
            tell: receives the counts of sent data.

        Raises:
            HpcbenchError: unsent data, and why; it contains no secret.
        """
        job = {
            "experiment": str(path),
            "plugin": f"{type(self).__module__}:{type(self).__qualname__}",
            "options": self.given,
            "live": live,
        }
        return _run(job, limit, STARTUP_SECONDS + 4 * self.options.timeout, tell)

    def destination(self, experiment: Experiment) -> Mapping[str, Any]:
        """Fields that identify the place: address, project. No secrets."""
        raise NotImplementedError

    def sink(self, experiment: Experiment, notes: Notes) -> Sink:
        """The experiment at this tracker; only in the separate process."""
        raise NotImplementedError


# --- the parent process --------------------------------------------------------------------------------


def _run(
    job: Mapping[str, Any], limit: float | None, silence: float, tell: Callable[[SentCounts], None]
) -> SentCounts:
    child = subprocess.Popen(
        [*this_python(), "-m", "hpcbench.tracking.tracker_process"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    errors = bytearray()
    try:
        assert child.stdin is not None
        # The pipe stays open: when the parent is gone, the child reads its end and exits, too.
        child.stdin.write(json.dumps(job).encode() + b"\n")
        child.stdin.flush()
        for line in _lines(child, limit, silence, errors):
            message = _message(line)
            if "sent" in message:
                sent = SentCounts(**message["sent"])
                sent.fault = secret.mask(sent.fault) if sent.fault else None
                tell(sent)
            elif "done" in message:
                return SentCounts(**message["done"])
            elif "fault" in message:
                raise EnvironmentFault(secret.mask(message["fault"]), remedy=message.get("remedy"))
    except BrokenPipeError:
        pass
    finally:
        _end(child)
    raise EnvironmentFault(secret.mask(why_it_ended(child.returncode, errors)))


def _lines(
    child: subprocess.Popen[bytes], limit: float | None, silence: float, errors: bytearray
) -> Iterator[bytes]:
    """Lines of the child's output until it ends.

    Raises:
        EnvironmentFault: it takes too long, or is silent for too long.
    """
    assert child.stdout is not None
    assert child.stderr is not None
    started, heard, rest = time.monotonic(), time.monotonic(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        selector.register(child.stderr, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select(1.0):
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fileobj)
                elif key.fileobj is child.stderr:
                    errors += data
                    del errors[:-4096]
                else:
                    heard = time.monotonic()
                    *whole, rest = (rest + data).split(b"\n")
                    yield from whole
            now = time.monotonic()
            remedy = "`hpcbench track` sends the rest"
            if limit is not None and now - started > limit:
                raise EnvironmentFault(
                    f"sending took longer than {limit:g} s and is incomplete", remedy=remedy
                )
            if now - heard > silence:
                raise EnvironmentFault(
                    f"the tracker sent no answer for {silence:g} s", remedy=remedy
                )


def _message(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _end(child: subprocess.Popen[bytes]) -> None:
    """Let the child end by itself for a moment, then kill it."""
    assert child.stdin is not None
    with contextlib.suppress(OSError):
        child.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(2.0)
    kill_session(child)


# --- the child process ---------------------------------------------------------------------------------


def main() -> None:
    """Do the job on standard input, and report progress on standard output."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a client's output is no message of this process
    job = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # For clients that do not know that a server on this machine needs no proxy.
    os.environ.update(past_proxies("localhost,127.0.0.1,::1"))

    def say(**message: Any) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    try:
        sent = _send(job, lambda sent: say(sent=asdict(sent)))
    except EnvironmentFault as fault:
        say(fault=_line(fault.message), remedy=fault.remedy)
    except HpcbenchError as error:
        say(fault=_line(str(error)))
    except Exception as error:  # noqa: BLE001 - foreign code: any error is reported in a line
        say(fault=_line(f"{type(error).__name__}: {error}"))
    else:
        say(done=asdict(sent))
    os._exit(0)  # clients leave threads behind; do not wait for them


def _send(job: Mapping[str, Any], beat: Callable[[SentCounts], None]) -> SentCounts:
    experiment = Experiment(Path(job["experiment"]))
    use_umask(experiment.resolved.site)
    experiment.use_packages()
    tracker = plugins.load("trackers", job["plugin"])(job["options"])
    name = type(tracker).__name__.removesuffix("Tracker").lower()
    with notes_on(notes_file(experiment, name, tracker.destination(experiment)), PATIENCE) as notes:
        sink = tracker.sink(experiment, notes)
        sending = Sending(experiment, sink, notes, tracker.options.samples, beat)
        return sending.follow() if job["live"] else sending.once()


def _line(text: str) -> str:
    said = " ".join(secret.mask(text).split())  # this process alone knows the tokens it got
    return said if len(said) <= 400 else f"{said[:400]} …"


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
