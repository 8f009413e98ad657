"""grpc without its support of forks: import it from here, and before any module that imports it itself.

With it, gRPC starts its threads again in every forked process. The process that becomes an engine closes all
its files before it executes the program, and such a thread then aborts it.
"""

from __future__ import annotations

from hpcbench.variables import variable

with variable("GRPC_ENABLE_FORK_SUPPORT", "0"):
    import grpc
    import grpc.aio

__all__ = ["grpc"]
