"""Identity of a process, so that a later process with the same number is not mistaken for it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from hpcbench.files.lease import is_dead, this_process
from hpcbench.process_table import process


def identity(pid: int) -> dict[str, Any]:
    """The identity of a process of this machine, to be written to a file.

    Returns:
        `host`; `space`: the boot of the machine and the PID namespace; `pid`; `began`: the process's start,
        in ticks since the boot; `time`: now, seconds since the epoch.
    """
    return {**this_process(), "pid": pid, "began": started(pid), "time": time.time()}


def lives(who: Mapping[str, Any]) -> bool | None:
    """Whether the process with this `identity` runs; None: this machine cannot see it.

    The machine that the process ran on can see it, also after a restart.
    """
    dead = is_dead(who, int(who["time"] * 1e9))
    if dead is None:
        return None
    return not dead and who["began"] is not None and started(int(who["pid"])) == who["began"]


def started(pid: int) -> str | None:
    """Start of a process of this machine, in ticks since the boot; None: no such process, or a zombie."""
    found = process(pid)
    return None if found is None or found.state in "ZX" else str(found.start_ticks)
