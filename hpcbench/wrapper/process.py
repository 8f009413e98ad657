"""An engine as a child process: its start, its log, its end.

Whether it lives is taken from the process, never from the text of its log; the log only says why.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp

from hpcbench.plugins import Command
from hpcbench.wrapper import family

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""

_BASE = {"PYTHONUNBUFFERED": "1"}  # what it said last must be in the log when it crashes
_TAIL_BYTES = 256 * 1024
_TAIL_LINES = 40
_CAUSE = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Fault): \S.*)$")
_ELSEWHERE = ("See root cause above", "See stack trace above")  # vLLM's parent about its child
_SECRET_NAME = re.compile(r"TOKEN|KEY|SECRET|PASS", re.IGNORECASE)


@dataclass(eq=False)
class EngineFailed(Exception):
    """The engine did not become ready, or ended; everything a person needs to see why."""

    kind: str
    """engine_exited, timeout, bad_engine, stopped or not_gone."""
    message: str
    """One line that names the cause."""
    exit_code: int | None = None
    """Its exit code, if it ended by itself."""
    signal: str | None = None
    """Signal that ended it."""
    log: str = ""
    """Path of its log."""
    tail: tuple[str, ...] = ()
    """Last lines of the log."""

    def to_json(self) -> dict[str, Any]:
        """The body of an error answer."""
        return {"error": {**asdict(self), "tail": list(self.tail)}}


class Log:
    """One engine's part of a log file that is only appended to."""

    def __init__(self, path: Path, hidden: Iterable[str] = ()) -> None:
        self.path = path
        self._hidden = sorted(set(hidden), key=len, reverse=True)
        self._begin = 0

    def start_here(self) -> None:
        """What was written so far is not this engine's."""
        self._begin = self.path.stat().st_size

    def mask(self, text: str) -> str:
        """`text` without the values that nobody may read."""
        for value in self._hidden:
            text = text.replace(value, "***")
        return text

    def tail(self) -> list[str]:
        """Its last lines, masked."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._begin, size - _TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return []
        lines = (line.rstrip() for line in self.mask(text).splitlines())
        return [line[:1000] for line in lines if line]

    def cause(self) -> str | None:
        """The last line that looks like an exception; without one, the last line.

        With it the next line where that is indented: pydantic, for one, says only there what is wrong.
        """
        lines = self.tail()
        for number in reversed(range(len(lines))):
            found = _CAUSE.search(lines[number])
            if found and not any(phrase in lines[number] for phrase in _ELSEWHERE):
                more = [
                    line.strip() for line in lines[number + 1 : number + 2] if line[0].isspace()
                ]
                return ": ".join([found.group(1), *more])[:500]
        return lines[-1].strip() if lines else None


def hidden_values(given: Mapping[str, str], inherited: Mapping[str, str]) -> list[str]:
    """Values of environment variables that must not be seen.

    All that were given, but for short ones (`1`, `true`) and existing paths: hiding those would only
    spoil error messages. Of the inherited ones, those with a telling name.
    """
    named = [value for name, value in {**inherited, **given}.items() if _SECRET_NAME.search(name)]
    others = [value for value in given.values() if len(value) >= 8 and not Path(value).exists()]
    return [value for value in (*named, *others) if len(value) >= 4]


class Child:
    """A running engine with everything it started."""

    def __init__(
        self, process: asyncio.subprocess.Process, mark: str, log: Log, guard: family.Guard | None
    ) -> None:
        self._process, self._mark, self._log, self._guard = process, mark, log, guard
        self.pid = process.pid
        self.ended = asyncio.ensure_future(process.wait())
        """Done when the engine's first process has ended."""

    @classmethod
    async def start(
        cls, command: Command, env: Mapping[str, str], log: Log, guard: family.Guard | None = None
    ) -> Child:
        """Start it in a session of its own, output appended to the log.

        Raises:
            EngineFailed: the program cannot be started.
        """
        mark = secrets.token_hex(8)
        with log.path.open("ab") as output:
            output.write(log.mask(f"-- hpcbench starts {' '.join(command.argv)}\n").encode())
            output.flush()
            log.start_here()
            try:
                process = await asyncio.create_subprocess_exec(
                    *command.argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=asyncio.subprocess.STDOUT,
                    env={**os.environ, **_BASE, **command.env, **env, family.MARK: mark},
                    start_new_session=True,
                    preexec_fn=family.die_with_parent(),
                )
            except OSError as error:
                text = f"{command.argv[0]} cannot be started: {error.strerror or error}"
                raise EngineFailed("bad_engine", text, log=str(log.path)) from None
        if guard is not None:
            guard.watch(process.pid, mark)
        return cls(process, mark, log, guard)

    async def ready(self, session: aiohttp.ClientSession, timeout: float) -> None:
        """Wait until `/health` answers 200.

        Raises:
            EngineFailed: it ended, or did not answer in time.
        """
        deadline, pause = time.monotonic() + timeout, 0.02
        while not self.ended.done():
            if await _healthy(session):
                return
            if time.monotonic() > deadline:
                raise self._failed("timeout", f"engine was not ready after {timeout:g} s")
            await asyncio.wait({self.ended}, timeout=pause)
            pause = min(pause * 1.5, 0.5)
        raise self.failure("while loading")

    async def stop(self, grace: float = GRACE) -> None:
        """End it and all it started; returns when they are gone.

        Raises:
            EngineFailed: something survived SIGKILL (a driver that hangs).
        """
        kill_at = time.monotonic() + grace
        give_up = kill_at + 30
        family.send(self.pid, self._mark, signal.SIGTERM)
        while left := family.members(self.pid, self._mark):
            now = time.monotonic()
            if now > give_up:
                pids = ", ".join(map(str, sorted(left)))
                raise self._failed("not_gone", f"processes survived SIGKILL: {pids}")
            if now > kill_at:
                family.send(self.pid, self._mark, signal.SIGKILL)
            await asyncio.sleep(0.05)
        await self.ended
        if self._guard is not None:
            self._guard.release()

    def failure(self, when: str) -> EngineFailed:
        """What is to be said once it ended although nobody asked it to."""
        code = self._process.returncode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            how = f"engine was ended by {name}{hint} {when}"
        else:
            name, how = None, f"engine ended with exit code {code} {when}"
        cause = self._log.cause()
        text = f"{how}: {cause}" if cause else f"{how}; it wrote nothing"
        exit_code = code if name is None else None
        return self._failed("engine_exited", text, exit_code, name)

    def _failed(
        self, kind: str, message: str, code: int | None = None, name: str | None = None
    ) -> EngineFailed:
        tail = tuple(self._log.tail()[-_TAIL_LINES:])
        return EngineFailed(kind, message, code, name, str(self._log.path), tail)


async def _healthy(session: aiohttp.ClientSession) -> bool:
    try:
        async with session.get(
            "http://engine/health", timeout=aiohttp.ClientTimeout(total=5)
        ) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, OSError, asyncio.TimeoutError):  # noqa: UP041 (Python 3.10)
        return False
