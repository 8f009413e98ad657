"""Other programs: what one prints before a deadline, and how one ends with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence


def printed(
    argv: Sequence[str], seconds: float, env: Mapping[str, str] | None = None
) -> str | None:
    """What a program prints; None: it is not there, fails, or has not ended in so many seconds."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=seconds, check=False, env=env,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a program that leads a session of its own, with what it started there, and close its pipes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was still to be written goes nowhere
                pipe.close()


def why_it_ended(process: subprocess.Popen[bytes], errors: bytes | bytearray) -> str:
    """Its exit code, and the last line of what it wrote to its standard error."""
    last = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
    return f"ended with {process.returncode}: {last[0][-200:]}"
