"""Helpers for other programs: read the output before a deadline, kill a program with its children."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


def printed(
    argv: Sequence[str], seconds: float, env: Mapping[str, str] | None = None
) -> str | None:
    """Output of a program; None: it does not exist, fails, or does not end in `seconds`."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=seconds, check=False, env=env,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


@dataclass(frozen=True, slots=True)
class Ended:
    """A program that ended, by itself or at its deadline."""

    out: bytes
    """Its output; if it was killed, its output until then."""
    late: bool
    """Whether it was killed at its deadline."""
    why: str
    """Its exit code and last message, as `why_it_ended`."""


def run_alone(argv: Sequence[str], seconds: float, given: bytes = b"") -> Ended:
    """Run a program in a session of its own, and kill the session when the program ends or is late.

    Args:
        argv: the program and its arguments.
        seconds: its deadline.
        given: its standard input.
    """
    pipe, late = subprocess.PIPE, False
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    try:
        out, errors = process.communicate(given, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        late, out, errors = True, error.stdout or b"", error.stderr or b""
    finally:
        kill_session(process)
    return Ended(out, late, why_it_ended(process, errors))


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a program that leads its own session, with all processes of that session, and close its pipes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):  # unwritten data is dropped
                pipe.close()


def why_it_ended(process: subprocess.Popen[bytes], errors: bytes | bytearray) -> str:
    """A program's exit code, and the last line of its standard error."""
    last = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it printed no message"]
    return f"ended with {process.returncode}: {last[0][-200:]}"
