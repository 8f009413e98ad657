"""Memory of large buffers, which the process keeps instead of giving it back to the kernel.

glibc gives buffers of a megabyte back as soon as they are free. The next page of a document then gets memory
that the kernel clears again, page by page, for each copy on its way: half of the processor time that the
wrapper takes to pass on a page of 0.95 MB (`benchmarks/grpc_plane.py`).
"""

from __future__ import annotations

import contextlib
import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc
_KEPT = 64 * 2**20
"""Bytes of free memory that stay with the process: those of some dozens of pages."""
_LARGEST = 32 * 2**20
"""Largest buffer that is taken from them, bytes: glibc takes no greater limit."""


def keep_buffers() -> None:
    """Keep freed buffers; without glibc there is no such setting, and nothing changes."""
    with contextlib.suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGEST)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
