"""Making something expensive once, however many processes and hosts ask for it at the same time."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hpcbench.experiment.files import create_exclusive, read_lines

BEAT_SECONDS = 15.0
"""How often a holder shows that it lives, by the lock file's time of change."""

STALE_SECONDS = 120.0
"""A lock that showed no beat for so long, on the watcher's own clock, is from a process that died."""

_log = logging.getLogger(__name__)


def make_once(
    target: Path, build: Callable[[Path], None], poll: float = 0.2, *, resume: bool = False
) -> bool:
    """Have `target` made by one of all those who want it; the others wait.

    The lock saves work; what makes it right is that `target` appears by one rename, when it is whole. So a
    lock that was taken for stale too early does no harm.

    Args:
        target: file or folder.
        build: makes it at the path it is given, in the target's folder.
        poll: seconds between looks at another's lock.
        resume: build at `TARGET.partial` and keep it when that fails, so that the next one can go on.

    Returns:
        Whether this call made it.
    """
    lock = target.with_name(f"{target.name}.lock")
    watched: tuple[object, float] | None = None
    spoken = 0.0
    while not target.exists():
        with _taken(lock) as mine:
            if mine:
                return _build(target, build, resume=resume)
        holder, beat = next(read_lines(lock), {}), _beat(lock)
        if beat is None:  # it was given up between our two looks
            continue
        now = time.monotonic()
        if watched is None or watched[0] != (holder, beat):
            watched = ((holder, beat), now)
        if _dead(holder) or now - watched[1] > STALE_SECONDS:
            lock.unlink(missing_ok=True)
            continue
        if now - spoken > 30:
            spoken = now
            _log.warning(_waiting(target, lock, holder))
        time.sleep(poll)
    return False


@contextlib.contextmanager
def _taken(lock: Path) -> Iterator[bool]:
    """The lock while inside, if nobody else has it; a thread shows meanwhile that we live."""
    token = secrets.token_hex(8)
    me = {"host": socket.gethostname(), "pid": os.getpid(), "token": token, "time": time.time()}
    if not create_exclusive(lock, me):
        yield False
        return
    done = threading.Event()

    def show() -> None:
        while not done.wait(BEAT_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(lock)

    thread = threading.Thread(target=show, name="lock", daemon=True)
    thread.start()
    try:
        yield True
    finally:
        done.set()
        thread.join()
        if (next(read_lines(lock), None) or {}).get("token") == token:
            lock.unlink(missing_ok=True)


def _build(target: Path, build: Callable[[Path], None], *, resume: bool) -> bool:
    if target.exists():  # made between our look and our lock
        return False
    # The ending stays: Apptainer tells an image from a folder by it.
    temporary = target.with_name(f"tmp-{secrets.token_hex(4)}-{target.name}")
    if resume:
        temporary = target.with_name(f"{target.name}.partial")
    try:
        build(temporary)
        try:
            temporary.rename(target)
        except OSError:
            if not target.is_dir():  # else: a folder that somebody else finished first
                raise
    finally:
        if not resume or target.exists():
            if temporary.is_dir():
                shutil.rmtree(temporary, ignore_errors=True)
            else:
                temporary.unlink(missing_ok=True)
    return True


def _beat(lock: Path) -> int | None:
    try:
        return lock.stat().st_mtime_ns
    except OSError:
        return None


def _dead(holder: dict[str, object]) -> bool:
    """Whether the holder ran on this machine and is gone; of other machines only the beats tell."""
    if holder.get("host") != socket.gethostname():
        return False
    try:
        os.kill(int(str(holder["pid"])), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # it lives, as another user
    return False


def _waiting(target: Path, lock: Path, holder: dict[str, object]) -> str:
    minutes = (time.time() - float(str(holder.get("time", time.time())))) / 60
    return (
        f"waiting for {target.name}: process {holder.get('pid')} on {holder.get('host')} has been making it "
        f"for {minutes:.0f} min (if it is gone, remove {lock})"
    )
