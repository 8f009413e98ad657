"""Limits of open files and connections of a process."""

from __future__ import annotations

import contextlib
import resource

_MOST = 65536
"""More than any load needs; programs that scan all possible descriptors do so in milliseconds."""


def allow_many() -> None:
    """Raise the soft limit as far as allowed, for this process and its children.

    Login shells set it to 1024 or less, and each request in flight takes one descriptor of the client,
    two of the wrapper and one of the engine.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # refused: the limit is unchanged
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
