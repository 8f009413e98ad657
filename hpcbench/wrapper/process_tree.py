"""No engine outlives its wrapper: finds and ends every process that an engine started.

Three nets, because each has a hole: the engine gets its own session, which a grandchild can leave; a mark in
the environment, which a process that rewrites its title can lose; and a parent-death signal, which only
reaches the engine itself. A small guard process closes the last gap: a wrapper killed with SIGKILL.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable

from hpcbench.process_table import command, environment, pids, process

MARK = "HPCBENCH_ENGINE_MARK"
"""Environment variable of an engine and all its descendants."""

TRACKER_SECONDS = 2.0
"""Seconds for which a tracker of shared memory may outlive the processes it tracks."""

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)  # loaded here: between fork and exec no import is allowed


def die_with_parent() -> Callable[[], None]:
    """A `preexec_fn` that makes the kernel kill the child when the thread that forked it ends."""
    parent = os.getpid()

    def set_signal() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent ended before the line above took effect
            os._exit(1)

    return set_signal


def members(leader: int, mark: str) -> set[int]:
    """Live processes of the session `leader` or with `mark` in their environment.

    A zombie counts as gone, unless its first thread ended and other threads live on.
    """
    mine = f"{MARK}={mark}".encode()
    living = (one for one in map(process, pids()) if one is not None and one.lives)
    return {one.pid for one in living if one.session == leader or mine in environment(one.pid)}


def send(leader: int, mark: str, number: signal.Signals) -> set[int]:
    """Signal every member; returns their ids."""
    found = members(leader, mark)
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return found


def kill(leader: int, mark: str, since: float) -> set[int]:
    """Kill every member, with `since` the start of the killing; returns their ids.

    Python's trackers of shared memory unlink it after all its users are gone: they get a moment for that.
    """
    found = members(leader, mark)
    spared = time.monotonic() - since < TRACKER_SECONDS
    for pid in found:
        if not (spared and any(b"multiprocessing.resource_tracker" in one for one in command(pid))):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    return found


class Guard:
    """A forked process that kills the engine's family when this process is gone, however it ended.

    Create it while the process has a single thread.
    """

    def __init__(self) -> None:
        reader, self._writer = os.pipe()
        if os.fork() == 0:
            _stand_guard(reader)
        os.close(reader)

    def watch(self, leader: int, mark: str) -> None:
        """From now on, kill this family when this process ends."""
        self._say(f"{leader} {mark}\n")

    def release(self) -> None:
        """The family has ended: another process may soon have its number."""
        self._say("0 -\n")

    def _say(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._writer, line.encode())


def _stand_guard(reader: int) -> None:
    try:
        os.setsid()  # a signal to the wrapper's group must not reach the guard
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.dup2(reader, 3)
        os.closerange(4, 4096)  # close all pipes and files of the wrapper
        for standard in (0, 1, 2):
            os.close(standard)
        last = "0 -"
        with open(3, encoding="ascii") as lines:
            for line in lines:
                last = line
        leader, mark = last.split()
        started = time.monotonic()
        while leader != "0" and kill(int(leader), mark, started):
            if time.monotonic() > started + 30:
                break
            time.sleep(0.05)
    finally:
        os._exit(0)


def state(pid: int) -> str | None:
    """R, S, D, T, Z … of proc(5); None: there is no such process."""
    found = process(pid)
    return found.state if found else None
