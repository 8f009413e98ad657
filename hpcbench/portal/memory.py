"""The memory of this process: how much it holds, and giving back what it does not need."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from pathlib import Path

_M_ARENA_MAX = -8
"""glibc's name for: in how many heaps threads take memory."""


def resident() -> int:
    """Bytes of memory that this process holds."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def share_heaps() -> None:
    """Have threads take memory from two heaps: what one of many gave back, others could not have."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def give_back() -> None:
    """Return to the system what Python and the C library keep for later; nobody gets a turn meanwhile."""
    gc.collect()
    trim()


def trim() -> None:
    """Return to the system what the C library keeps for later, beside all others."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
