"""Processes of this machine, as the kernel shows them in /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    """One process, as seen at one moment."""

    pid: int
    name: str
    state: str
    """R, S, D, T, Z … of proc(5)."""
    parent: int
    session: int
    start_ticks: int
    """Ticks after boot: together with the pid, a unique name of the process."""
    cpu_seconds: float
    """User and system time of all its threads."""
    threads: int
    rss_bytes: int

    @property
    def lives(self) -> bool:
        """Whether it runs: also if only its first thread has ended, which makes its state Z."""
        return self.state != "X" and (self.state != "Z" or self.threads > 1)


def process(pid: int) -> Process | None:
    """Read one process; None: there is no process with that number."""
    # `PID (NAME) STATE PPID PGRP SESSION …`; a name may contain any character, parentheses too.
    head, _, rest = kernel_file(f"/proc/{pid}/stat").decode(errors="replace").rpartition(")")
    fields = rest.split()
    if len(fields) < 22:
        return None
    return Process(
        pid=pid,
        name=head.partition("(")[2],
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
        cpu_seconds=(int(fields[11]) + int(fields[12])) / TICKS,
        threads=int(fields[17]),
        rss_bytes=int(fields[21]) * PAGE,
    )


def pids() -> set[int]:
    """Numbers of all processes that this process can see."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208 (half the cost)


def own_pids() -> Iterator[int]:
    """Numbers of this user's processes."""
    user = os.geteuid()
    for pid in pids():
        try:
            if os.stat(f"/proc/{pid}").st_uid == user:  # noqa: PTH116 (thousands)
                yield pid
        except OSError:  # it has already ended
            continue


def command(pid: int) -> list[bytes]:
    """Command line of a process; empty: it is gone, or it is the kernel's."""
    return _words(f"/proc/{pid}/cmdline")


def environment(pid: int) -> list[bytes]:
    """`NAME=VALUE` of a process at its start; empty: it is gone, or another user's."""
    return _words(f"/proc/{pid}/environ")


def kernel_file(path: str | Path) -> bytes:
    """A small file of the kernel's; empty: it is gone or not readable for us."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 (unbuffered: half the cost)
            return b"".join(iter(lambda: file.read(65536), b""))
    except OSError:
        return b""


def _words(path: str) -> list[bytes]:
    return [word for word in kernel_file(path).split(b"\0") if word]
