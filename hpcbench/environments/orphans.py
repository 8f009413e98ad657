"""What is left on a node when something was killed: helpers of containers, which hold mounts, and folders.

A worker's folder is locked as long as the worker lives: the kernel lets a lock go whatever ended its holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HELPERS = ("squashfuse", "squashfuse_ll", "fuse-overlayfs", "fuse2fs", "gocryptfs")
"""What Apptainer starts to mount an image."""


PREFIX, LOCK = "hpcbench-", "lock"
"""Of a worker's folder on a node: how its name begins, and the file in it that is locked."""

_NAME = re.compile(re.escape(PREFIX) + r"[a-z0-9_]{8}")

REAPERS = ("systemd", "slurmstepd")
"""Who becomes the parent of a process whose own has died, beside process 1."""


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    name: str
    parent: int
    session: int


def end_session(leader: int) -> list[str]:
    """Kill what is left of a session whose leader has ended; returns the names.

    A helper has a process group of its own, so that a signal to Apptainer's group does not reach it; the
    session they share.
    """
    left = [process for process in _own_processes() if process.session == leader]
    _kill(left)
    return [process.name for process in left]


def reap() -> list[str]:
    """Kill helpers of this user whose container is gone, as after `kill -9`; returns their names.

    Those are gone whose parent died and whose session has no leader any more: a living container's helper
    has Apptainer for its parent.
    """
    processes = list(_own_processes())
    parents = {one.pid for one in processes if one.pid != 1 and one.name not in REAPERS}
    leaders = {process.pid for process in processes}
    orphans = [
        process
        for process in processes
        if process.name in HELPERS
        and process.session not in leaders
        and process.parent not in parents
    ]
    _kill(orphans)
    return [process.name for process in orphans]


@contextlib.contextmanager
def held_folder(near: str) -> Iterator[Path]:
    """A folder of our own below `near`, of mode 0700, that is removed at the end, or by `reap_folders`."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=near))
    try:
        with (folder / "locking").open("w") as lock:
            lock.write(socket.gethostname())
            lock.flush()
            # Where a file system knows no locks, the folder stays without one, and nobody else removes it.
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                Path(lock.name).rename(folder / LOCK)  # it is never to be seen unlocked
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def reap_folders(near: str) -> list[str]:
    """Remove folders of this user whose worker on this node is gone; returns their paths."""
    try:
        found = sorted(one for one in Path(near).iterdir() if _NAME.fullmatch(one.name))
    except OSError:
        return []
    return [str(folder) for folder in found if _is_abandoned(folder)]


def _is_abandoned(folder: Path) -> bool:
    """Whether nobody holds a folder of ours; it is removed then, while we hold it."""
    try:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        with os.fdopen(os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)) as lock:
            if lock.read() != socket.gethostname():
                return False  # on a shared file system: its lock may not be seen here
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
    except OSError:  # held, gone meanwhile, or not to be removed
        return False
    return True


def _own_processes() -> Iterator[_Process]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
            if entry.stat().st_uid != os.getuid():
                continue
            # `PID (NAME) STATE PPID PGRP SESSION …`; a name may hold anything, parentheses too.
            head, _, rest = (entry / "stat").read_text(errors="replace").rpartition(")")
            state, parent, _, session, *_ = rest.split()
            if state != "Z":
                name = head.partition("(")[2]
                yield _Process(int(entry.name), name, int(parent), int(session))


def _kill(processes: list[_Process]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
