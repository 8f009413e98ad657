"""HTTP over a Unix socket, for short questions to a server on this machine."""

from __future__ import annotations

import http.client
import os
import socket


class UnixConnection(http.client.HTTPConnection):
    """A connection to a server that listens on a Unix socket; also a context manager that closes it.

    Args:
        path: the socket, at most 107 bytes.
        timeout: seconds for each step.
    """

    def __init__(self, path: str | os.PathLike[str], timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = os.fspath(path)

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

    def __enter__(self) -> UnixConnection:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
