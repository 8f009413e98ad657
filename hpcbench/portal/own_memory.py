"""The memory of this process: its size, and the return of unused memory to the system."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os

from hpcbench.process_table import process

_M_ARENA_MAX = -8
"""glibc's number of the parameter for the most heaps of threads."""

OF_POLARS = "background_thread:true,dirty_decay_ms:500,muzzy_decay_ms:0,narenas:2"
"""Settings of polars' own allocator, jemalloc: by default it keeps the pages of all that was ever read, in
eight heaps on two processors."""


def resident() -> int:
    """Bytes of memory that this process holds."""
    own = process(os.getpid())
    return own.rss_bytes if own else 0


def share_heaps() -> None:
    """Limit threads to two heaps: memory that one thread frees in its own heap is lost to the others.

    It has no effect on polars where polars is loaded already.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)
    os.environ.setdefault("_RJEM_MALLOC_CONF", OF_POLARS)


def collect_little() -> None:
    """Have Python collect garbage among few young objects at a time, and among all only in `give_back`.

    All threads pause meanwhile: 2,000 objects take some 0.5 ms, the 200,000 of our commands 100 ms, and all
    objects of a busy portal a quarter of a second.
    """
    gc.set_threshold(2_000, 10, 1 << 30)
    gc.freeze()


def give_back(*, thoroughly: bool = False) -> None:
    """Return unused memory of Python and the C library to the system; all threads pause meanwhile.

    Args:
        thoroughly: collect garbage among all objects, not only those since the last collection.
    """
    if thoroughly:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
    trim()


def trim() -> None:
    """Return unused memory of the C library to the system, without pausing other threads."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
