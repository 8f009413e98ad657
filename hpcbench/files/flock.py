"""Locks of open files: the kernel releases one however its holder ends.

They exclude processes of one machine; `lease` excludes those of several, over any file system.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def lock(descriptor: int, *, wait: bool = False, shared: bool = False) -> bool:
    """Lock an open file until it is closed, alone or `shared`; False: another process holds it.

    Raises:
        OSError: its file system has no locks.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold the lock of a file, which is made if need be; False: another process holds it.

    Raises:
        OSError: the file cannot be opened, or is a link; its file system has no locks.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        yield lock(descriptor, wait=wait)
    finally:
        os.close(descriptor)
