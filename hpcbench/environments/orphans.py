"""Leftovers of killed processes on a node: helper processes of containers, which hold mounts, and folders.

A worker's folder is locked while the worker lives: the kernel releases a lock however its holder ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hpcbench.errors import EnvironmentFault
from hpcbench.files import flock
from hpcbench.files.removal import remove_tree
from hpcbench.process_table import Process, own_pids, process

HELPERS = ("squashfuse", "squashfuse_ll", "fuse-overlayfs", "fuse2fs", "gocryptfs")
"""Programs that Apptainer starts to mount an image."""


PREFIX, LOCK = "hpcbench-", "lock"
"""Prefix of the name of a worker's folder on a node, and the locked file in it."""

_NAME = re.compile(re.escape(PREFIX) + r"[a-z0-9_]{8}")

REAPERS = ("systemd", "slurmstepd")
"""Processes that, beside process 1, become the parent of a process whose own parent ended."""


def end_session(leader: int) -> list[str]:
    """Kill the remaining processes of a session whose leader ended; returns their names.

    A helper has its own process group, so a signal to Apptainer's group does not reach it; both share the
    session.
    """
    left = [one for one in _own_processes() if one.session == leader]
    _kill(left)
    return [one.name for one in left]


def reap() -> list[str]:
    """Kill helpers of this user whose container ended, as after `kill -9`; returns their names.

    A container ended if the helper's parent died and its session has no leader: the parent of a running
    container's helper is Apptainer.
    """
    processes = _own_processes()
    parents = {one.pid for one in processes if one.pid != 1 and one.name not in REAPERS}
    leaders = {one.pid for one in processes}
    orphans = [
        one
        for one in processes
        if one.name in HELPERS and one.session not in leaders and one.parent not in parents
    ]
    _kill(orphans)
    return [one.name for one in orphans]


def scratch(wanted: str | None) -> str:
    """A node-local folder that keeps the sockets' paths below the kernel's 107 bytes."""
    for candidate in (wanted, "$SLURM_TMPDIR", "$TMPDIR"):
        path = os.path.expandvars(candidate) if candidate else ""
        if path and "$" not in path and len(path) < 60 and os.access(path, os.W_OK):
            return path
    if os.access("/tmp", os.W_OK):
        return "/tmp"
    raise EnvironmentFault(
        "no writable node-local folder", remedy="set `scratch` in the site profile"
    )


@contextlib.contextmanager
def held_folder(near: str) -> Iterator[Path]:
    """A private folder in `near`, of mode 0700; removed at the end, or by `reap_folders`."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=near))
    try:
        with (folder / "locking").open("w") as lock:
            lock.write(socket.gethostname())
            lock.flush()
            # On a file system without locks, the folder stays unlocked, and no other process removes it.
            with contextlib.suppress(OSError):
                flock.lock(lock.fileno())
                Path(lock.name).rename(folder / LOCK)  # no process may see it unlocked
            yield folder
    finally:
        remove_tree(folder)


def reap_folders(near: str) -> list[str]:
    """Remove folders of this user whose worker on this node ended; returns their paths."""
    try:
        found = sorted(one for one in Path(near).iterdir() if _NAME.fullmatch(one.name))
    except OSError:
        return []
    return [str(folder) for folder in found if _is_abandoned(folder)]


def _is_abandoned(folder: Path) -> bool:
    """Whether no process holds a folder of ours; the folder is then removed while we hold it."""
    try:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        with os.fdopen(os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)) as lock:
            if lock.read() != socket.gethostname():
                return False  # on a shared file system: its lock may be invisible here
            if not flock.lock(lock.fileno()):
                return False
            remove_tree(folder)
    except OSError:  # already removed, or not removable
        return False
    return True


def _own_processes() -> list[Process]:
    return [one for one in map(process, own_pids()) if one is not None and one.state != "Z"]


def _kill(processes: list[Process]) -> None:
    for one in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)
