"""One process at a time submits an experiment, or concludes it."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from hpcbench.errors import RunFailed
from hpcbench.experiment.access import use_umask
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import create_exclusive, read_lines
from hpcbench.files.lease import beating, is_dead, this_process

LOCK_SECONDS = 600
"""A lock that showed no beat for so long was left behind by a kill on another host; clocks differ by less."""


def submitting(experiment: Experiment) -> bool:
    """Whether a process holds the submission lock and lives."""
    path = experiment.path / "submission.lock"
    return path.exists() and _stale(experiment) is None


@contextlib.contextmanager
def alone(experiment: Experiment, patience: float = 0.0) -> Iterator[None]:
    """Only one process submits an experiment at a time.

    Raises:
        RunFailed: another one does, for longer than `patience` seconds.
    """
    use_umask(experiment.resolved.site)
    path, token = experiment.path / "submission.lock", secrets.token_hex(4)
    me = {**this_process(), "token": token, "time": time.time()}
    deadline = time.monotonic() + patience
    while not create_exclusive(path, me):
        if token_of_dead := _stale(experiment):
            _clear(path, token_of_dead)
        elif time.monotonic() >= deadline:
            raise RunFailed(f"{experiment.id}: another hpcbench is submitting it right now")
        else:
            time.sleep(0.5)
    try:
        with beating(path):
            yield
    finally:
        if next(read_lines(path), {}).get("token") == token:
            path.unlink(missing_ok=True)


def wait_for_others(experiment: Experiment, patience: float) -> None:
    """Wait until whoever submits or concludes it has let go, at most `patience` seconds.

    Who concludes says first how it ended and then tells trackers and notifiers.
    """
    deadline = time.monotonic() + patience
    while (experiment.path / "submission.lock").exists() and time.monotonic() < deadline:
        if _stale(experiment):
            return
        time.sleep(0.1)


def _clear(lock: Path, token: str) -> None:
    """Remove the lock of somebody who is gone: of several who want to, one may, and once.

    The right to do so is a file of that lock's own name; it stays, so that nobody who looked earlier takes a
    later lock for this one.
    """
    right = lock.with_name(f"{lock.name}.{token}")
    if create_exclusive(right, {"time": time.time()}) or _age(right) > LOCK_SECONDS:
        lock.unlink(missing_ok=True)


def _stale(experiment: Experiment) -> str | None:
    """The token of a lock whose holder is gone; None: it lives, or there is no lock."""
    path = experiment.path / "submission.lock"
    holder = next(read_lines(path), None)
    if holder is None:
        return None if _age(path) < LOCK_SECONDS else "torn"
    age = _age(path)
    gone = is_dead(holder, int((time.time() - age) * 1e9))
    if gone is None:
        gone = age > LOCK_SECONDS
    return str(holder.get("token", "none")) if gone else None


def _age(path: Path) -> float:
    """Seconds since a file was changed; 0 if it is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
