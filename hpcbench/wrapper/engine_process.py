"""An engine as a child process: its start, its end, and the report of its failure.

The process says whether it lives, never the text of its log; the log only has the reason.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import signal
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import aiohttp

from hpcbench.plugins import Command
from hpcbench.wrapper import exit_causes, process_tree
from hpcbench.wrapper.engine_output import Log
from hpcbench.wrapper.shared_memory import SharedMemory

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
GIVE_UP = 30.0
"""Seconds after SIGKILL until surviving processes are reported as `not_gone`."""

RECENT = 60.0
"""For an engine that served, only the last seconds of its log explain its end."""

_BASE = {"PYTHONUNBUFFERED": "1"}  # its last output must be in the log when it crashes
_TAIL_LINES = 40


@dataclass(eq=False)
class EngineFailed(Exception):
    """The engine did not become ready, or ended; has all details for a user to find the reason."""

    kind: str
    """engine_exited, engine_error, engine_zombie, stalled, stopped, timeout, bad_engine or not_gone."""
    message: str
    """One line that names the cause."""
    cause: str = "unknown"
    """A key of `causes.REMEDIES`."""
    remedy: str = exit_causes.REMEDIES["unknown"]
    """The action for the user."""
    exit_code: int | None = None
    """Its exit code, if it ended by itself."""
    signal: str | None = None
    """Signal that ended it."""
    log: str = ""
    """Path of its log."""
    tail: tuple[str, ...] = ()
    """Last lines of the log."""

    @classmethod
    def of(cls, kind: str, message: str, cause: str) -> EngineFailed:
        """A failure without a process."""
        return cls(kind, message, cause, exit_causes.REMEDIES[cause])

    def to_json(self) -> dict[str, Any]:
        """The form of `/status`."""
        return {**asdict(self), "tail": list(self.tail)}


class Child:
    """A running engine with all processes it started."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        mark: str,
        log: Log,
        guard: process_tree.Guard | None,
        shared_memory: SharedMemory,
    ) -> None:
        self._process, self.mark, self._log, self._guard = process, mark, log, guard
        self.pid = process.pid
        self._shared_memory = shared_memory
        self.ended = asyncio.ensure_future(process.wait())
        """Done when the engine's first process has ended."""

    @classmethod
    async def start(
        cls,
        command: Command,
        env: Mapping[str, str],
        log: Log,
        guard: process_tree.Guard | None = None,
    ) -> Child:
        """Start it in its own session, with its output going to the log.

        Raises:
            EngineFailed: the program cannot be started, or its log cannot be written.
        """
        mark, shared_memory = secrets.token_hex(8), SharedMemory()
        try:
            output = log.open(f"starts {shlex.join(command.argv)}")
        except OSError as error:
            text = f"the log {log.path} cannot be written: {error.strerror or error}"
            cause = exit_causes.classify([text])
            raise EngineFailed.of("bad_engine", text, cause.name if cause else "unknown") from None
        try:
            process = await asyncio.create_subprocess_exec(
                *command.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, **_BASE, **command.env, **env, process_tree.MARK: mark},
                start_new_session=True,
                preexec_fn=process_tree.die_with_parent(),
            )
        except (OSError, ValueError) as error:  # ValueError: a null byte in an argument
            text = f"{command.argv[0]} cannot be started: {getattr(error, 'strerror', '') or error}"
            known = "missing_package" if isinstance(error, FileNotFoundError) else "bad_option"
            raise EngineFailed.of("bad_engine", text, known) from None
        finally:
            os.close(output)
        if guard is not None:
            guard.watch(process.pid, mark)
        return cls(process, mark, log, guard, shared_memory)

    async def ready(self, session: aiohttp.ClientSession, timeout: float) -> None:
        """Wait until `/health` answers 200.

        Raises:
            EngineFailed: it ended, or did not answer in time.
        """
        deadline, pause = time.monotonic() + timeout, 0.02
        while not self.ended.done():
            if await healthy(session):
                return
            if time.monotonic() > deadline:
                text = f"engine was not ready after {timeout:g} s"
                raise await self.failure("timeout", text, "timeout")
            await asyncio.wait({self.ended}, timeout=pause)
            pause = min(pause * 1.5, 0.5)
        raise await self.exited("while loading")

    async def stop(self) -> None:
        """End it and all processes it started; returns when they are gone.

        Raises:
            EngineFailed: something survived SIGKILL (a driver that hangs).
        """
        kill_at = time.monotonic() + GRACE
        give_up = kill_at + GIVE_UP
        self.see_shared_memory()
        process_tree.send(self.pid, self.mark, signal.SIGTERM)
        while left := self.members():
            now = time.monotonic()
            if now > give_up:
                pids = ", ".join(map(str, sorted(left)))
                raise await self.failure("not_gone", f"processes survived SIGKILL: {pids}")
            if now > kill_at:
                process_tree.kill(self.pid, self.mark, kill_at)
            await asyncio.sleep(0.05)
        await self.ended
        self._shared_memory.remove()
        if self._guard is not None:
            self._guard.release()

    def members(self) -> set[int]:
        """Its live processes."""
        return process_tree.members(self.pid, self.mark)

    def see_shared_memory(self) -> None:
        """Record its processes' files in /dev/shm: after their end this is unknown."""
        self._shared_memory.look(self.members())

    def is_zombie(self) -> bool:
        """Whether its first process has ended but cannot be reaped: its threads live on."""
        return not self.ended.done() and process_tree.state(self.pid) == "Z"

    def is_stopped(self) -> bool:
        """Whether a process of it is stopped, as by SIGSTOP."""
        return any(process_tree.state(pid) == "T" for pid in self.members())

    async def exited(self, when: str, since: float = 0.0, *, follows: bool = False) -> EngineFailed:
        """The failure after an unrequested end; `since` and `follows`: see `failure`."""
        code = self._process.returncode
        if code is not None and code < 0:
            known = {one.value: one.name for one in signal.Signals}
            name = known.get(-code, f"signal {-code}")
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            return await self.failure(
                "engine_exited",
                f"engine was ended by {name}{hint} {when}",
                signal_name=name,
                since=since,
                follows=follows,
            )
        how = f"engine ended with exit code {code} {when}"
        return await self.failure(
            "engine_exited", how, exit_code=code, since=since, follows=follows
        )

    async def complaint(self) -> EngineFailed | None:
        """An error that it has written lately, although it lives; None: none that is its own."""
        since = time.monotonic() - RECENT
        await self._log.settle()
        if self.ended.done() or (said := exit_causes.first_error(self._log.tail(since))) is None:
            return None
        found = await self.failure("engine_error", f"engine reported {said}", since=since)
        return replace(found, message=f"engine reported {said}")

    async def failure(
        self,
        kind: str,
        how: str,
        cause: str = "unknown",
        *,
        exit_code: int | None = None,
        signal_name: str | None = None,
        since: float = 0.0,
        follows: bool = False,
    ) -> EngineFailed:
        """A failure of this engine, with the explanation from its log.

        Args:
            kind: see `EngineFailed`.
            how: the failure in words.
            cause: the cause if the log has no better one.
            exit_code: its exit code, if it ended by itself.
            signal_name: the signal that ended it.
            since: only log lines from this time of the monotonic clock on may explain the cause.
            follows: whether it is a further rank, whose own error comes before that of a lost connection.
        """
        await self._log.settle()
        lines, recent = self._log.tail(), self._log.tail(since)
        found = exit_causes.classify(recent, exit_code, signal_name)
        said = found.line if found else None
        if kind == "engine_exited":
            said = said or exit_causes.telling(recent)
            if follows and said and exit_causes.LEFT.search(said):
                said = exit_causes.first_error(self._log.tail(time.monotonic() - RECENT)) or said
            lately = f" in its last {RECENT:.0f} s" if lines else ""
            how += f": {said}" if said else f"; it wrote nothing{lately}"
        elif said:
            how += f": {said}"
        return EngineFailed(
            kind,
            how,
            found.name if found else cause,
            found.remedy if found else exit_causes.REMEDIES[cause],
            exit_code,
            signal_name,
            str(self._log.path),
            tuple(lines[-_TAIL_LINES:]),
        )


async def healthy(session: aiohttp.ClientSession, timeout: float = 5) -> bool:
    """Whether the engine accepts requests."""
    try:
        async with session.get(
            "http://engine/health", timeout=aiohttp.ClientTimeout(total=timeout)
        ) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, OSError, asyncio.TimeoutError):  # noqa: UP041 (Python 3.10)
        return False
