"""grpc without its support of forks: import it from here, and before any module that imports it itself.

With it, gRPC starts its threads again in every forked process. The process that becomes an engine closes all
its files before it executes the program, and such a thread then aborts it.
"""

from __future__ import annotations

import os

_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"

_before = os.environ.get(_SUPPORT)
os.environ[_SUPPORT] = "0"
try:
    import grpc  # reads the variable when it is imported
    import grpc.aio
finally:
    if _before is None:
        del os.environ[_SUPPORT]
    else:
        os.environ[_SUPPORT] = _before

__all__ = ["grpc"]
