"""A portal in a thread, on a real port of the loopback and a real Unix socket, and raw requests to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from hpcbench.portal import peer_accounts
from hpcbench.portal.access_tokens import Desk, Sessions, Tokens
from hpcbench.portal.app import build
from hpcbench.portal.audit_log import Journal
from hpcbench.portal.broadcast import Hub
from hpcbench.portal.context import Options, Portal
from hpcbench.portal.guard import Access
from hpcbench.portal.protocol import guarded_http, web_socket_protocol
from hpcbench.portal.serve import listening_tcp


@dataclass
class Answer:
    """An answer, unchanged."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        """A header's value; empty: it is not there."""
        return ", ".join(value for key, value in self.headers if key == name.lower())

    @property
    def data(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def fault(self) -> str:
        """Code of the fault."""
        return str(self.data["code"])

    @property
    def cookies(self) -> dict[str, str]:
        """Cookies that it sets."""
        pairs = [value.split(";")[0] for key, value in self.headers if key == "set-cookie"]
        return dict(pair.split("=", 1) for pair in pairs)


@dataclass
class Clock:
    """Time that a test moves."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Served:
    """A running portal."""

    portal: Portal
    access: Access
    port: int
    socket: Path
    clock: Clock
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """Host header that a browser would send."""
        return f"localhost:{self.port}"

    @property
    def owner(self) -> dict[str, str]:
        """Headers of the command line."""
        return {"Authorization": f"Bearer {self.access.desk.owner}", "X-Hpcbench": "1"}

    @property
    def browser(self) -> dict[str, str]:
        """Headers of a browser's script on our page, signed in if `sign_in` was called."""
        headers = {
            "X-Hpcbench": "1",
            "Origin": f"http://{self.host}",
            "Sec-Fetch-Site": "same-origin",
        }
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return headers

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: Any = None
    ) -> Answer:
        """An answer over TCP; the body as JSON unless it is bytes."""
        connection = http.client.HTTPConnection("localhost", self.port, timeout=20)
        given = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body, given["Content-Type"] = json.dumps(body).encode(), "application/json"
        try:
            connection.request(method, path, body, given)
            found = connection.getresponse()
            pairs = [(name.lower(), value) for name, value in found.getheaders()]
            return Answer(found.status, pairs, found.read())
        finally:
            connection.close()

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Answer to the command line's token; with headers, to them."""
        return self.ask("GET", path, self.owner if headers is None else headers)

    def sign_in(self) -> Answer:
        """As the client does with the fragment's code; keeps the cookies."""
        code = self.access.desk.sessions.code()
        found = self.ask("POST", "/api/v1/session", self.browser, {"code": code})
        self.cookies.update(found.cookies)
        return found

    def raw(self, text: bytes, *, unix: bool = False) -> bytes:
        """Whatever comes for these bytes until the other end closes."""
        with socket.socket(socket.AF_UNIX if unix else socket.AF_INET, socket.SOCK_STREAM) as line:
            line.settimeout(20)
            line.connect(str(self.socket) if unix else ("127.0.0.1", self.port))
            received = bytearray()
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                line.sendall(text)
                while part := line.recv(65536):
                    received += part
        return bytes(received)


def new_desk(folder: Path, clock: Clock) -> Desk:
    """As after a start: no user is signed in."""
    tokens = folder / "tokens.json"
    tokens.unlink(missing_ok=True)
    return Desk("o" * 43, Tokens(tokens, clock), Sessions(clock))


@contextlib.contextmanager
def served(
    folder: Path,
    *,
    home: Path | None = None,
    options: Options | None = None,
    index: Any = None,
    doorkeeper: peer_accounts.Doorkeeper | None = None,
    hosts: frozenset[str] = frozenset(),
    journal: Journal | None = None,
) -> Iterator[Served]:
    """A portal for one test.

    Args:
        folder: an empty folder of the test's, for the portal's own files.
        home: folder of the experiments; none: `folder/home`.
        options: what the user allowed.
        index: what is known of the experiments; None: nothing asks it.
        doorkeeper: decides about connections; none: our own account may connect.
        hosts: further names of ours.
        journal: where it writes; none: nowhere.
    """
    clock = Clock()
    access = Access(new_desk(folder, clock), journal or Journal(None), hosts)
    portal = Portal(
        home or folder / "home",
        options or Options(plans=folder / "plans"),
        index,
        Hub(),
        "ssh -L …",
    )
    config = uvicorn.Config(
        build(portal, access),
        http=guarded_http(doorkeeper or peer_accounts.Doorkeeper(os.geteuid())),
        ws=web_socket_protocol(),  # type: ignore[arg-type]
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    tcp = listening_tcp("127.0.0.1", None)
    unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path = folder / "p.sock"
    unix.bind(str(path))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [tcp, unix]}, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        yield Served(portal, access, tcp.getsockname()[1], path, clock)
    finally:
        portal.hub.close()
        server.should_exit = True
        thread.join(20)
        tcp.close()
        unix.close()
        access.journal.close()
