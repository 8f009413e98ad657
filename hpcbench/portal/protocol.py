"""uvicorn's protocols behind the doorkeeper: a stranger's connection is closed before any HTTP."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.auto import AutoWebSocketsProtocol

from hpcbench.portal import headers as rules
from hpcbench.portal.guard import PEER
from hpcbench.portal.peer_accounts import Doorkeeper, Peer

MOST_CONNECTIONS = 32
"""Connections at once."""

SLOWEST_HEAD_SECONDS = 10.0
"""A connection is closed that takes longer to send a whole head, or the rest of a request that has its
answer: it takes a place from others."""

STUCK_SECONDS = 5.0
"""A connection that has accepted no byte of its answer for so long may lose its place to another."""

_FAULT = b'{"error":"too many connections","remedy":"close tabs","code":"busy","id":""}'
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 5\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(_FAULT), _FAULT)
)


class Guarded(HttpToolsProtocol):
    """A connection that serves only peers that the doorkeeper accepts, and only while it does its part."""

    doorkeeper: ClassVar[Doorkeeper]
    _impatience: asyncio.TimerHandle | None = None
    _since: float = 0.0
    _stuck: float | None = None

    def connection_made(self, transport: Any) -> None:
        # From here on this connection counts as open; `connection_lost` removes it.
        super().connection_made(transport)
        try:
            peer = self.doorkeeper.judge(transport.get_extra_info("socket"))
        except Exception as bug:  # noqa: BLE001 - no fault here may let a stranger in
            self.doorkeeper.warn(f"refused a connection, because its account is unknown: {bug!r}")
            peer = None
        if peer is None:
            transport.abort()
            return
        if len(self.connections) > MOST_CONNECTIONS and not self._make_room():
            transport.write(_FULL)
            transport.close()
            return
        self.app = _naming(self.app, peer)
        make = self.ws_protocol_class

        def make_web_socket(**given: Any) -> Any:
            assert make is not None
            made: Any = make(**given)
            made.app = _naming(made.app, peer)
            return made

        self.ws_protocol_class = make_web_socket  # type: ignore[assignment]
        self._await()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await()

    def on_headers_complete(self) -> None:
        self._have()
        # A whole address is for proxies; its host could differ from the host that is checked.
        if not self.url.startswith(b"/"):
            raise ValueError("the target of a request must be a path")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._have()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since = time.monotonic()
        # A peer that has its answer and still sends would never be idle.
        if self.cycle.more_body:
            self._await()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = time.monotonic()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stuck = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._have()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        identity = secrets.token_hex(6)
        body = json.dumps({"error": msg, "remedy": "", "code": "bad_request", "id": identity})
        given = (b"application/json", b"close", str(len(body)).encode())
        pairs = zip((b"content-type", b"connection", b"content-length"), given, strict=True)
        headers = rules.finish(pairs, api=True, identity=identity)
        head = b"".join(b"%s: %s\r\n" % pair for pair in headers)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head + b"\r\n" + body.encode())
        self.transport.close()

    def _await(self) -> None:
        """Start the timer: the other end has to send more soon."""
        self._have()
        self._since = time.monotonic()
        self._impatience = self.loop.call_later(SLOWEST_HEAD_SECONDS, self._give_up)

    def _have(self) -> None:
        """Stop the timer: the other end has sent enough."""
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def waits(self) -> tuple[int, float] | None:
        """Rank of a connection by its need for a place, least first; None: a request is in progress."""
        if self._impatience is not None or (self.cycle and self.cycle.more_body):
            return 0, self._since
        if self.cycle is None or self.cycle.response_complete:
            return 1, self._since
        if self._stuck is not None and time.monotonic() - self._stuck > STUCK_SECONDS:
            return 2, self._stuck
        return None

    def _make_room(self) -> bool:
        """Close the other connection with the least need for a place; False: all serve requests."""
        others = [one for one in self.connections if one is not self]
        waiting = [(one.waits(), one) for one in others if isinstance(one, Guarded)]
        found = [(rank, one) for rank, one in waiting if rank is not None]
        if not found:
            return False
        _, victim = min(found, key=lambda pair: pair[0])
        self.connections.discard(victim)
        victim.transport.abort()
        return True


def guarded_http(doorkeeper: Doorkeeper) -> type[asyncio.Protocol]:
    """The protocol class for uvicorn, which makes an object of it for each connection."""
    found: type[asyncio.Protocol] = type("Guarded", (Guarded,), {"doorkeeper": doorkeeper})
    return found


def web_socket_protocol() -> Callable[..., asyncio.Protocol]:
    """uvicorn's protocol for WebSockets."""
    assert AutoWebSocketsProtocol is not None
    return AutoWebSocketsProtocol


def _naming(app: Any, peer: Peer) -> Any:
    """An application whose requests carry the peer."""

    async def named(scope: Any, receive: Any, send: Any) -> None:
        scope[PEER] = peer
        await app(scope, receive, send)

    return named
