"""A tracker in a process of its own: `python -m hpcbench.tracking.tracker_process`, its job on stdin.

Clients of trackers are foreign code that waits, retries, starts threads and further processes, and prints.
Here it does so apart: it is ended when it takes too long or says nothing for too long, and with whoever
started it. Secrets come on its standard input, never in arguments or on disk.
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
from hpcbench.subprocesses import kill_session, why_it_ended
from hpcbench.tracking.feed import Sending, Sent, Sink
from hpcbench.tracking.sent import Notes, notes_file, notes_on

STARTUP_SECONDS = 120.0
"""Longest silence beside the tracker's own: a client is imported from a slow file system."""

PATIENCE = 20.0
"""Longest wait for another process that is sending there, seconds."""

_NO_PROXY = "localhost,127.0.0.1,::1"


class ServerOptions(BaseModel):
    """What all trackers of servers have."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    timeout: float = Field(default=30.0, gt=0)
    """Longest wait for one answer, seconds."""
    limit: float = Field(default=300.0, gt=0)
    """Longest time taken after a run, seconds; what is not sent by then, `hpcbench track` sends."""
    samples: int | None = Field(default=None, ge=0)
    """Prompts and responses of each run task that are sent, from the first; none: all; 0: none of them."""
    ca_file: str | None = None
    """Certificates of the server's authority, a PEM file; none: the system's."""


class ServerTracker:
    """What trackers of servers have in common: they send from a process of their own."""

    api: ClassVar[int] = 1
    Options: ClassVar[type[ServerOptions]] = ServerOptions

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.given = dict(options)
        self.options = self.Options.model_validate(self.given)

    def log(self, tables: Mapping[str, Any]) -> None:
        """Send all of an experiment that has ended, or as much as the limit of time allows.

        Raises:
            HpcbenchError: what was not sent, and why.
        """
        self.track(Path(tables["path"]), limit=self.options.limit)

    def track(
        self,
        path: Path,
        *,
        live: bool = False,
        limit: float | None = None,
        tell: Callable[[Sent], None] = lambda sent: None,
    ) -> Sent:
        """Send what of an experiment is not there yet.

        Args:
            path: the experiment.
            live: until it has ended, else once.
            limit: longest time, seconds; None: as long as it goes on.
            tell: is told what was sent by then.

        Raises:
            HpcbenchError: what was not sent, and why; no secret is in it.
        """
        job = {
            "experiment": str(path),
            "plugin": f"{type(self).__module__}:{type(self).__qualname__}",
            "options": self.given,
            "live": live,
        }
        return _run(job, limit, STARTUP_SECONDS + 4 * self.options.timeout, tell)

    def destination(self, experiment: Experiment) -> Mapping[str, Any]:
        """What makes another place of it: address, project. No secrets."""
        raise NotImplementedError

    def sink(self, experiment: Experiment, notes: Notes) -> Sink:
        """The experiment at this tracker; only in a process apart."""
        raise NotImplementedError


# --- who starts it -------------------------------------------------------------------------------------


def _run(
    job: Mapping[str, Any], limit: float | None, silence: float, tell: Callable[[Sent], None]
) -> Sent:
    child = subprocess.Popen(
        [*this_python(), "-m", "hpcbench.tracking.tracker_process"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    errors = bytearray()
    try:
        assert child.stdin is not None
        # It stays open: when we are gone, the child reads its end and goes, too.
        child.stdin.write(json.dumps(job).encode() + b"\n")
        child.stdin.flush()
        for line in _lines(child, limit, silence, errors):
            told = _message(line)
            if "sent" in told:
                sent = Sent(**told["sent"])
                sent.fault = secret.mask(sent.fault) if sent.fault else None
                tell(sent)
            elif "done" in told:
                return Sent(**told["done"])
            elif "fault" in told:
                raise EnvironmentFault(secret.mask(told["fault"]), remedy=told.get("remedy"))
    except BrokenPipeError:
        pass
    finally:
        _end(child)
    raise EnvironmentFault(secret.mask(why_it_ended(child, errors)))


def _lines(
    child: subprocess.Popen[bytes], limit: float | None, silence: float, errors: bytearray
) -> Iterator[bytes]:
    """Lines of its output until it ends.

    Raises:
        EnvironmentFault: it takes too long, or says nothing for too long.
    """
    assert child.stdout is not None
    assert child.stderr is not None
    begun, heard, rest = time.monotonic(), time.monotonic(), b""
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
            remedy = "`hpcbench track` sends what is missing"
            if limit is not None and now - begun > limit:
                raise EnvironmentFault(f"not all was sent in {limit:g} s", remedy=remedy)
            if now - heard > silence:
                raise EnvironmentFault(f"no answer for {silence:g} s", remedy=remedy)


def _message(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _end(child: subprocess.Popen[bytes]) -> None:
    """Let it end by itself for a moment, then kill it."""
    assert child.stdin is not None
    with contextlib.suppress(OSError):
        child.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(2.0)
    kill_session(child)


# --- the process apart ---------------------------------------------------------------------------------


def main() -> None:
    """Do the job on standard input, and say on standard output how it goes."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a client prints is no message of ours
    job = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _avoid_proxies()

    def say(**message: Any) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    try:
        sent = _send(job, lambda sent: say(sent=asdict(sent)))
    except EnvironmentFault as fault:
        say(fault=_line(fault.message), remedy=fault.remedy)
    except HpcbenchError as error:
        say(fault=_line(str(error)))
    except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises is told in a line
        say(fault=_line(f"{type(error).__name__}: {error}"))
    else:
        say(done=asdict(sent))
    os._exit(0)  # clients leave threads behind that are not to be waited for


def _send(job: Mapping[str, Any], beat: Callable[[Sent], None]) -> Sent:
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
    said = " ".join(text.split())
    return said if len(said) <= 400 else f"{said[:400]} …"


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _avoid_proxies() -> None:
    """No proxy between us and a server on this machine, for clients that do not know better."""
    for name in ("no_proxy", "NO_PROXY"):
        known = os.environ.get(name)
        if known != "*":
            os.environ[name] = f"{known},{_NO_PROXY}" if known else _NO_PROXY


if __name__ == "__main__":
    main()
