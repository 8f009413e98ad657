"""Run other programs with a deadline."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Ended:
    """A program that ended, by itself or at its deadline."""

    code: int
    """Its exit code; a signal's number, negative, if that killed it."""
    out: bytes
    """Its output; if it was killed, its output until then."""
    errors: bytes
    """Its standard error, likewise."""
    late: bool
    """Whether it was killed at its deadline."""

    @property
    def failed(self) -> bool:
        """Whether it was killed or has another exit code than 0."""
        return self.late or self.code != 0

    @property
    def text(self) -> str:
        """Its output as text."""
        return self.out.decode("utf-8", "replace")

    @property
    def messages(self) -> str:
        """Its standard error as text."""
        return self.errors.decode("utf-8", "replace")

    @property
    def message(self) -> str:
        """The last line of its standard error."""
        return last_line(self.messages)

    @property
    def why(self) -> str:
        """See `why_it_ended`."""
        return why_it_ended(self.code, self.errors)


def run(
    argv: Sequence[str],
    seconds: float | None,
    *,
    given: bytes | str = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    alone: bool = False,
) -> Ended:
    """Run a program to its end, or kill it at its deadline.

    Args:
        argv: the program and its arguments.
        seconds: its deadline; None: it has none.
        given: its standard input.
        env: its whole environment; None: ours.
        cwd: its working folder; None: ours.
        alone: run it in a session of its own, which is killed when the program ends: nothing that it started
            remains. A session of this process no longer contains it.

    Raises:
        OSError: it cannot be started.
    """
    pipe, late = subprocess.PIPE, False
    process = subprocess.Popen(
        argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=cwd, start_new_session=alone
    )
    try:
        data = given.encode() if isinstance(given, str) else given
        out, errors = process.communicate(data, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        late, out, errors = True, error.stdout or b"", error.stderr or b""
    finally:
        kill_session(process) if alone else _kill(process)
    return Ended(process.returncode, out, errors, late)


def printed(
    argv: Sequence[str], seconds: float, env: Mapping[str, str] | None = None
) -> str | None:
    """Output of a program; None: it does not exist, fails, or does not end in `seconds`."""
    try:
        ended = run(argv, seconds, env=env)
    except OSError:
        return None
    return None if ended.failed else ended.text


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a program that leads its own session, with all processes of that session, and close its pipes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program unless it has ended, and close its pipes, which its children may still hold."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):  # unwritten data is dropped
                pipe.close()


def why_it_ended(code: int, errors: bytes | bytearray) -> str:
    """A program's exit code, and the last line of its standard error."""
    return f"ended with {code}: {last_line(errors.decode('utf-8', 'replace'))}"


def last_line(messages: str) -> str:
    """The last line with content of a program's messages, in at most 200 characters."""
    return (messages.strip().splitlines()[-1:] or ["it printed no message"])[0].strip()[-200:]
