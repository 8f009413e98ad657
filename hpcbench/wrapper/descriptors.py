"""How many files and connections a process may have open."""

from __future__ import annotations

import contextlib
import resource

_MOST = 65536
"""More than anybody asks at once; programs that look at each possible descriptor do so in milliseconds."""


def allow_many() -> None:
    """Raise the soft limit as far as is allowed, for this process and all it starts.

    Login shells leave it at 1024 or less, and each request in flight takes one descriptor of the client,
    two of the wrapper and one of the engine.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # refused: it stays as it was
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
