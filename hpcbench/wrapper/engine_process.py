"""An engine as a child process: its start, its end, and what is to be said of it.

Whether it lives is taken from the process, never from the text of its log; the log only says why.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import signal
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import aiohttp

from hpcbench.plugins import Command
from hpcbench.wrapper import exit_causes, process_tree
from hpcbench.wrapper.log import Log
from hpcbench.wrapper.shared_memory import SharedMemory

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
GIVE_UP = 30.0
"""Seconds after SIGKILL until what still lives is told as `not_gone`."""

RECENT = 60.0
"""Of an engine that served, what it said in its last so many seconds tells why it ended."""

_BASE = {"PYTHONUNBUFFERED": "1"}  # what it said last must be in the log when it crashes
_TAIL_LINES = 40


@dataclass(eq=False)
class EngineFailed(Exception):
    """The engine did not become ready, or ended; everything a person needs to see why."""

    kind: str
    """engine_exited, engine_zombie, stalled, timeout, bad_engine or not_gone."""
    message: str
    """One line that names the cause."""
    cause: str = "unknown"
    """A key of `causes.REMEDIES`."""
    remedy: str = exit_causes.REMEDIES["unknown"]
    """What to do about it."""
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
        """As `/status` tells it."""
        return {**asdict(self), "tail": list(self.tail)}


class Child:
    """A running engine with everything it started."""

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
        """Start it in a session of its own, its output going to the log.

        Raises:
            EngineFailed: the program cannot be started, or its log not be written.
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
        """End it and all it started; returns when they are gone.

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
        """Those of its processes that live."""
        return process_tree.members(self.pid, self.mark)

    def see_shared_memory(self) -> None:
        """Remember what its processes keep in /dev/shm: nobody can be asked once they are gone."""
        self._shared_memory.look(self.members())

    def is_zombie(self) -> bool:
        """Whether its first process is over although it cannot be waited for: threads of it live on."""
        return not self.ended.done() and process_tree.state(self.pid) == "Z"

    async def exited(self, when: str, since: float = 0.0) -> EngineFailed:
        """What is to be said once it ended although nobody asked it to; `since`: see `failure`."""
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
            )
        how = f"engine ended with exit code {code} {when}"
        return await self.failure("engine_exited", how, exit_code=code, since=since)

    async def failure(
        self,
        kind: str,
        how: str,
        cause: str = "unknown",
        *,
        exit_code: int | None = None,
        signal_name: str | None = None,
        since: float = 0.0,
    ) -> EngineFailed:
        """A failure of this engine, with what its log says of it.

        Args:
            kind: see `EngineFailed`.
            how: what is to be said of it.
            cause: the cause where the log does not know better.
            exit_code: its exit code, if it ended by itself.
            signal_name: the signal that ended it.
            since: only what its log said from this time of the monotonic clock on tells the cause.
        """
        await self._log.settle()
        lines, recent = self._log.tail(), self._log.tail(since)
        found = exit_causes.classify(recent, exit_code, signal_name)
        said = found.line if found else None
        if kind == "engine_exited":
            said = said or exit_causes.telling(recent)
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
    """Whether the engine says that requests can be sent."""
    try:
        async with session.get(
            "http://engine/health", timeout=aiohttp.ClientTimeout(total=timeout)
        ) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, OSError, asyncio.TimeoutError):  # noqa: UP041 (Python 3.10)
        return False
