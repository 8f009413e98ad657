"""Helpers for other programs: read the output before a deadline, kill a program with its children."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence


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
