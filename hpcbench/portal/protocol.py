"""uvicorn's protocols, with the doorkeeper before them: a stranger's connection ends before any HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.auto import AutoWebSocketsProtocol

from hpcbench.portal.guard import PEER
from hpcbench.portal.peers import Doorkeeper, Peer

MOST_CONNECTIONS = 32
"""Connections at once."""

SLOWEST_HEAD_SECONDS = 30.0
"""A connection that has not sent a whole request's head by then is closed: it takes a place from others."""

_FAULT = b'{"error":"too many connections","remedy":"close tabs","code":"busy","id":""}'
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 5\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(_FAULT), _FAULT)
)


def guarded_http(doorkeeper: Doorkeeper) -> type[asyncio.Protocol]:
    """A protocol class for uvicorn that only lets in whom the doorkeeper knows."""

    class Guarded(HttpToolsProtocol):
        def connection_made(self, transport: Any) -> None:
            # It counts among the connections from here on; losing it takes it off.
            super().connection_made(transport)
            try:
                peer = doorkeeper.judge(transport.get_extra_info("socket"))
            except Exception as bug:  # noqa: BLE001 - whatever goes wrong here must not open the door
                doorkeeper.warn(f"cannot tell who connects: {bug!r}")
                peer = None
            if peer is None:
                transport.abort()
                return
            if len(self.connections) > MOST_CONNECTIONS:
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
            self._impatience = self.loop.call_later(SLOWEST_HEAD_SECONDS, self._give_up)

        def on_headers_complete(self) -> None:
            self._impatience.cancel()
            super().on_headers_complete()

        def _give_up(self) -> None:
            if not self.transport.is_closing():
                self.transport.close()

    return Guarded


def web_socket_protocol() -> Callable[..., asyncio.Protocol]:
    """uvicorn's protocol for WebSockets."""
    assert AutoWebSocketsProtocol is not None
    return AutoWebSocketsProtocol


def _naming(app: Any, peer: Peer) -> Any:
    """An application whose requests say who is at the other end."""

    async def named(scope: Any, receive: Any, send: Any) -> None:
        scope[PEER] = peer
        await app(scope, receive, send)

    return named
