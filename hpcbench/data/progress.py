"""How far a transfer is, told while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moved:
    """How far a transfer is."""

    what: str
    """What is going on, for people."""
    bytes: int = 0
    """Bytes that are here, those of an earlier try or version included."""
    of_bytes: int = 0
    """Bytes in all."""
    files: int = 0
    """Files that are whole."""
    of_files: int = 0
    """Files in all; 0 while nothing is counted."""


Progress = Callable[[Moved], None]
"""Told how far it is, several times a second."""


def silent(moved: Moved) -> None:
    """Tells nobody."""


def verifying(of_bytes: int, of_files: int, progress: Progress) -> Callable[[int], None]:
    """Tells how far a look at files is; told how many bytes were read, by any number of threads."""
    done, told = 0, 0.0
    lock = threading.Lock()

    def count(size: int) -> None:
        nonlocal done, told
        with lock:
            done += size
            if (now := time.monotonic()) - told > 0.1 or done == of_bytes:
                told = now
                progress(Moved("verifying", done, of_bytes, 0, of_files))

    return count


def size_text(size: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
