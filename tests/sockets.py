"""Unix sockets of servers that tests start."""

from __future__ import annotations

import socket
from pathlib import Path


def listens(path: Path) -> bool:
    """Whether a server takes connections: its file is there before."""
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(str(path)) == 0
