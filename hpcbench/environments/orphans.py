"""Processes that a container leaves when it is killed: FUSE helpers outlive Apptainer and hold its mounts."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HELPERS = ("squashfuse", "squashfuse_ll", "fuse-overlayfs", "fuse2fs", "gocryptfs")
"""What Apptainer starts to mount an image."""


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
