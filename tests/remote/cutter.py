"""A wire that can be cut: forwards TCP connections and ends each after so many bytes of answers."""

from __future__ import annotations

import contextlib
import socket
import threading


class Cutter:
    """Listens on `port`; say where to with `to`, and `cut_after` how many bytes a connection breaks."""

    def __init__(self) -> None:
        self.to = 0
        self.cut_after: int | None = None
        self.cuts = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]

    def __enter__(self) -> Cutter:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            threading.Thread(target=self._pump, args=(near, far, None), daemon=True).start()
            threading.Thread(
                target=self._pump, args=(far, near, self.cut_after), daemon=True
            ).start()

    def _pump(self, source: socket.socket, sink: socket.socket, most: int | None) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if most is not None and passed + len(data) > most:
                    sink.sendall(data[: most - passed])
                    self.cuts += 1
                    break
                passed += len(data)
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
