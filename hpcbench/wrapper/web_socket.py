"""The data plane over WebSocket, for browsers: many requests on one connection, all of it JSON text.

A browser cannot set headers, so the first message may have the key. After it, each message is a request, or
the end of one; answers carry the `id` of their request:

    → {"key": KEY}                                    unless a header has it
    → {"id": "1", "request": {…}}                     OpenAI's chat request
    ← {"id": "1", "status": 200, "headers": {…}}
    ← {"id": "1", "chunk": {…}}                       the engine's, as they come; or its whole answer
    ← {"id": "1", "final": true}                      or {"id", "status", "error": {…}, "final": true}
    → {"id": "1", "cancel": true}                     ends the engine's work on it
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from uvicorn.config import WS_PROTOCOLS

from hpcbench.event_stream import as_object
from hpcbench.wrapper.bodies import TOO_DEEP
from hpcbench.wrapper.proxy import WRONG_KEY, Admits, Proxy, Receive, Scope, Send
from hpcbench.wrapper.request import Exchange, message_of

PATH = "/v1/stream"
"""Where it is served."""

KEY_SECONDS = 10.0
"""Time that a client has to send the key."""

FIRST_BYTES = 2**20
"""Most that a client may send before it has shown the key: anyone who reaches the port may be one."""

_ADMITTED = "hpcbench.admitted"
"""Extension of the scope: to be called when a client has shown the key."""

CLOSED_WRONG_KEY, CLOSED_BAD_MESSAGE, CLOSED_TOO_LARGE = 4401, 4400, 1009
"""Codes of a closed connection, the first two from the range for applications (RFC 6455, section 7.4)."""


def reader_of_frames() -> Any:
    """The reader of frames for uvicorn; with versions before 0.35 `FIRST_BYTES` is not kept."""
    if "websockets-sansio" not in WS_PROTOCOLS:
        return "auto"
    from uvicorn.protocols.utils import ClientDisconnected
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    class Reader(WebSocketsSansIOProtocol):
        _left: float = FIRST_BYTES
        _failed = False

        def handle_connect(self, event: Any) -> None:
            super().handle_connect(event)
            if not self.close_sent:
                extensions: dict[str, Any] = self.scope["extensions"]
                extensions[_ADMITTED] = self._admitted

        def data_received(self, data: bytes) -> None:
            if self._failed:
                return None
            self._left -= len(data)
            if self._left >= 0:
                return super().data_received(data)
            if not self.close_sent:
                text = f"more than {FIRST_BYTES} bytes without the key"
                self.conn.fail(CLOSED_TOO_LARGE, text)
                self.handle_parser_exception()
            return None

        def handle_parser_exception(self) -> None:
            """Say why, then read until the client has heard it: an end with unread data would be a reset,
            which may reach the client before the reason."""
            self._failed = self.close_sent = True
            assert self.conn.close_sent is not None
            code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
            self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.write_eof()
            self.close_timer = self.loop.call_later(self.close_timeout, self.transport.abort)

        async def send(self, message: Any) -> None:
            gone = self.transport.is_closing() and message["type"] == "websocket.send"
            if gone or self._failed:
                raise ClientDisconnected  # each write would be a line of the log
            await super().send(message)

        def keepalive_timeout(self) -> None:
            super().keepalive_timeout()
            self.transport.abort()  # else it waits until the client reads what was written

        def _admitted(self) -> None:
            self._left = math.inf

    return Reader


class WebSocketPlane:
    """Serves WebSocket connections; a plain ASGI application.

    Args:
        admits: whether headers have the key.
        proxy: the data plane.
    """

    def __init__(self, admits: Admits, proxy: Proxy) -> None:
        self._admits, self._proxy = admits, proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        if scope["path"] != PATH:
            await send({"type": "websocket.close"})  # answered with 403: nothing was accepted
            return
        await send({"type": "websocket.accept"})
        if not self._admits(scope["headers"]) and not await self._is_greeted(receive):
            await _close(send, CLOSED_WRONG_KEY, WRONG_KEY)
            return
        if (admitted := scope["extensions"].get(_ADMITTED)) is not None:
            admitted()
        await _Connection(self._proxy, receive, send).serve()

    async def _is_greeted(self, receive: Receive) -> bool:
        """Whether the first message has the key."""
        try:
            message = await asyncio.wait_for(receive(), KEY_SECONDS)
        except asyncio.TimeoutError:  # noqa: UP041 (another class in Python 3.10)
            return False
        key = as_object(message.get("text") or "").get("key")
        return isinstance(key, str) and self._admits([(b"x-api-key", _bytes(key))])


class _Connection:
    """One connection that has shown the key."""

    def __init__(self, proxy: Proxy, receive: Receive, send: Send) -> None:
        self._proxy, self._receive, self._send = proxy, receive, send
        self._running: dict[str, asyncio.Task[None]] = {}
        self._left: set[asyncio.Task[None]] = set()
        """All that have not ended; a cancelled one is no longer among those that run."""

    async def serve(self) -> None:
        """Take requests until the client leaves, which ends the engine's work on them."""
        try:
            while (message := await self._receive())["type"] == "websocket.receive":
                frame = as_object(message.get("text") or "")
                name = frame.get("id")
                if not isinstance(name, str) or not ("request" in frame or frame.get("cancel")):
                    text = 'send {"id": TEXT, "request": {…}}, or {"id": TEXT, "cancel": true}'
                    return await _close(self._send, CLOSED_BAD_MESSAGE, text)
                if "request" in frame:
                    await self._begin(name, frame["request"])
                elif (task := self._running.pop(name, None)) is not None:
                    task.cancel()
        finally:
            left = list(self._left)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        return None

    async def _begin(self, name: str, request: object) -> None:
        exchange = _Frames(name, self._tell)
        if name in self._running:
            return await _refuse(exchange, "this id has a request in flight")
        try:
            body = _text(request).encode()
        except RecursionError:
            return await _refuse(exchange, TOO_DEEP)
        task = asyncio.ensure_future(exchange.run(self._proxy, body, []))
        self._running[name] = task
        self._left.add(task)
        task.add_done_callback(lambda done: self._ended(name, done))
        return None

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        self._left.discard(task)
        if self._running.get(name) is task:
            del self._running[name]

    async def _tell(self, frame: dict[str, Any]) -> None:
        message = {"type": "websocket.send", "text": _text(frame)}
        try:
            await self._send(message)
        except (OSError, RuntimeError):  # uvicorn's words for a closed connection
            raise asyncio.CancelledError from None


class _Frames(Exchange):
    """An answer in frames."""

    streams = True

    def __init__(self, name: str, tell: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        super().__init__()
        self._name, self._tell = name, tell

    async def begin(self) -> None:
        frame = {"id": self._name, "status": self.status, "headers": dict(self.headers)}
        await self._tell(frame)

    async def take(self, texts: Sequence[str], *, last: bool) -> None:
        for text in texts:
            await self._tell({"id": self._name, "chunk": _json(text)})
        if last:
            await self._tell({"id": self._name, "final": True})

    async def fail(self, body: bytes) -> None:
        error = as_object(body).get("error") or {"message": message_of(body)}
        await self._tell({"id": self._name, "status": self.status, "error": error, "final": True})


async def _refuse(exchange: Exchange, text: str) -> None:
    """Refuse a request; a connection that is closed meanwhile ends this request alone."""
    await asyncio.wait({asyncio.ensure_future(exchange.refuse(400, "bad_request", text))})


async def _close(send: Send, code: int, reason: str) -> None:
    await send({"type": "websocket.close", "code": code, "reason": reason})


def _bytes(key: str) -> bytes:
    """A key as a header would have it; JSON may escape half of a character, which no right key has."""
    return key.encode("utf-8", "surrogatepass")


def _text(value: object) -> str:
    """JSON; half of a character, which an engine or a client may send, stays an escape."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
