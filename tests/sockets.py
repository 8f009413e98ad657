"""Unix sockets of servers that tests start."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path


def listens(path: Path) -> bool:
    """Whether a server takes connections: its file is there before."""
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(str(path)) == 0


@contextlib.contextmanager
def full_queue(folder: str, answer: bytes | None) -> Iterator[str]:
    """The socket of a server whose queue of connections is full.

    Half a second later it gives each connection this answer to its first bytes; None: it never takes one.
    """
    path = f"{folder}/full"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(1)
        for _ in range(2):
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(path)

        def serve(text: bytes) -> None:
            time.sleep(0.5)
            with contextlib.suppress(OSError):  # it was shut
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        if connection.recv(2**12):
                            connection.sendall(text)

        serving = threading.Thread(target=serve, args=(answer or b"",))
        if answer is not None:
            serving.start()
        try:
            yield path
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            if answer is not None:
                serving.join()
