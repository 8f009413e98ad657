"""Making something expensive once, however many processes and hosts ask for it at the same time."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

from hpcbench.experiment.files import create_exclusive, read_lines

STALE_HOURS = 6.0
"""A lock older than this is from a host that died: no image takes so long."""

_log = logging.getLogger(__name__)


def make_once(target: Path, build: Callable[[Path], None], poll: float = 0.2) -> bool:
    """Have `target` made by one of all those who want it; the others wait.

    The lock saves work; what makes it right is that each builder writes to a name of its own, which is
    renamed when whole. So a lock that was taken for stale too early does no harm.

    Args:
        target: file or folder.
        build: makes it at the path it is given, in the target's folder.
        poll: seconds between looks at another's lock.

    Returns:
        Whether this call made it.
    """
    lock = target.with_name(f"{target.name}.lock")
    me = {"host": socket.gethostname(), "pid": os.getpid(), "token": secrets.token_hex(8)}
    spoken = 0.0
    while not target.exists():
        if create_exclusive(lock, {**me, "time": time.time()}):
            try:
                return _build(target, build)
            finally:
                if (_holder(lock) or {}).get("token") == me["token"]:
                    lock.unlink(missing_ok=True)
        holder = _holder(lock)
        if holder is not None and _stale(holder):
            lock.unlink(missing_ok=True)
            continue
        if holder is not None and time.monotonic() - spoken > 30:
            spoken = time.monotonic()
            _log.warning(_waiting(target, lock, holder))
        time.sleep(poll)
    return False


def _build(target: Path, build: Callable[[Path], None]) -> bool:
    if target.exists():  # made between our look and our lock
        return False
    # The ending stays: Apptainer tells an image from a folder by it.
    temporary = target.with_name(f"tmp-{secrets.token_hex(4)}-{target.name}")
    try:
        build(temporary)
        try:
            temporary.rename(target)
        except OSError:
            if not target.is_dir():  # else: a folder that somebody else finished first
                raise
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)
    return True


def _holder(lock: Path) -> dict[str, object] | None:
    return next(read_lines(lock), None)


def _stale(holder: dict[str, object]) -> bool:
    if time.time() - float(str(holder["time"])) > STALE_HOURS * 3600:
        return True
    if holder["host"] != socket.gethostname():
        return False
    try:
        os.kill(int(str(holder["pid"])), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # it lives, as another user
    return False


def _waiting(target: Path, lock: Path, holder: dict[str, object]) -> str:
    minutes = (time.time() - float(str(holder["time"]))) / 60
    return (
        f"waiting for {target.name}: process {holder['pid']} on {holder['host']} has been making it "
        f"for {minutes:.0f} min (if it is gone, remove {lock})"
    )
