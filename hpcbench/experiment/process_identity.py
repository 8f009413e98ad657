"""Which process something was, so that a later process of the same number is not taken for it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcbench.files.lease import is_dead, this_process


def identity(pid: int) -> dict[str, Any]:
    """What is to be written down of a process of this machine.

    Returns:
        `host`; `space`: the boot of the machine and the PID namespace; `pid`; `began`: its start, in ticks
        since the boot; `time`: now, seconds since the epoch.
    """
    return {**this_process(), "pid": pid, "began": started(pid), "time": time.time()}


def lives(who: Mapping[str, Any]) -> bool | None:
    """Whether a process runs whose `identity` this is; None: it cannot be seen from here.

    It can be seen on the machine that it ran on, and after a restart of that machine.
    """
    dead = is_dead(who, int(who["time"] * 1e9))
    if dead is None:
        return None
    return not dead and who["began"] is not None and started(int(who["pid"])) == who["began"]


def started(pid: int) -> str | None:
    """When a process of this machine began, in ticks since the boot; None: there is none, or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]
