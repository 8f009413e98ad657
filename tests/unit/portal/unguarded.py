"""The API on a real port of the loopback, without its guard: for tests of what routes do."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn

from hpcbench.portal.app import application
from hpcbench.portal.context import Portal


@dataclass(frozen=True)
class Answer:
    """Status, headers and body of an answer."""

    status: int
    body: Any
    headers: dict[str, str]


@dataclass(frozen=True)
class Unguarded:
    """A running API."""

    port: int

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request; `_` in names of headers are dashes."""
        found = self.raw(method, path, body, **headers)
        return Answer(found.status, json.loads(found.body) if found.body else None, found.headers)

    def raw(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """The same; the answer's body as bytes."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        return self._asked(method, path, data, sent)

    def sent(self, path: str, data: bytes) -> Answer:
        """A POST of bytes; the answer's body as bytes."""
        return self._asked("POST", path, data, {"Content-Type": "application/octet-stream"})

    def _asked(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> Answer:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            line.request(method, f"/api/v1/{path}", data, headers)
            found = line.getresponse()
            raw = found.read()
            names = {name.lower(): value for name, value in found.getheaders()}
            return Answer(found.status, raw, names)
        finally:
            line.close()


@contextlib.contextmanager
def unguarded(portal: Portal) -> Iterator[Unguarded]:
    """Serve a portal's routes as long as the context lasts."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application(portal), log_level="critical", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield Unguarded(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
