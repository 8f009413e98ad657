"""Progress of a transfer, reported while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moved:
    """Progress of a transfer at one moment."""

    what: str
    """The current step, for people."""
    bytes: int = 0
    """Number of arrived bytes, including those of an earlier attempt or version."""
    of_bytes: int = 0
    """Number of all bytes."""
    files: int = 0
    """Number of whole files."""
    of_files: int = 0
    """Number of all files; 0 while files are not counted."""


Progress = Callable[[Moved], None]
"""Receives the progress, several times a second."""


def silent(moved: Moved) -> None:
    """Ignore the progress."""


def verifying(of_bytes: int, of_files: int, progress: Progress) -> Callable[[int], None]:
    """A counter of read bytes that reports the progress of a verification; many threads may call it."""
    done, reported_at = 0, 0.0
    lock = threading.Lock()

    def count(size: int) -> None:
        nonlocal done, reported_at
        with lock:
            done += size
            if (now := time.monotonic()) - reported_at > 0.1 or done == of_bytes:
                reported_at = now
                progress(Moved("verifying", done, of_bytes, 0, of_files))

    return count


def size_text(size: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
