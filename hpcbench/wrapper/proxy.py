"""The data plane: bytes from the client to the engine and back, as they come.

A plain ASGI application: a stream is forwarded block by block as it arrives, unparsed unless it has an error
(`stream_errors`). An answer in one piece is read whole, so that its head can have its duration. An answer
that breaks off at the engine breaks off at the client, too: it never looks complete.
"""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import aiohttp

from hpcbench.wrapper.bodies import Refused
from hpcbench.wrapper.meter import CLIENT_LEFT, Meter
from hpcbench.wrapper.stream_errors import StreamErrors
from hpcbench.wrapper.supervisor import Route, Supervisor

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

Admits = Callable[[Iterable[tuple[bytes, bytes]]], bool]
"""Whether headers have the key."""

WRONG_KEY = "the key is missing or wrong: send X-API-Key: KEY, or Authorization: Bearer KEY"

CHAT = "/v1/chat/completions"
PATHS = {CHAT: "POST", "/v1/models": "GET"}
"""Forwarded paths and their methods."""

_HOP_BY_HOP = frozenset(
    b"authorization connection expect keep-alive proxy-authenticate proxy-authorization te trailer "
    b"transfer-encoding upgrade host content-length x-api-key x-metrics date server".split()
)
_NOT_FROM_ENGINE = _HOP_BY_HOP | {b"x-latency-ms", b"x-peak-memory-mb"}
"""Headers of an answer that are not forwarded; the last two are set here, and the engine may be a wrapper."""
_COPY_BYTES = 2**20  # above this size aiohttp asks for a file instead of bytes
_DONE = (b"data: [DONE]", b"data:[DONE]")


class Disconnected(Exception):
    """The client left before its request was complete."""


class Proxy:
    """Forwards the requests of `PATHS` to the engine of a supervisor."""

    def __init__(self, supervisor: Supervisor, body_limit: int) -> None:
        self._supervisor, self._body_limit = supervisor, body_limit
        self._meter = supervisor.meter

    @property
    def meter(self) -> Meter:
        """The counts of its requests."""
        return self._meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = PATHS[scope["path"]]
        if scope["method"] != method:
            return await self._refuse(send, 405, "method_not_allowed", f"use {method}")
        try:
            body = await read_body(receive, self._body_limit)
        except Disconnected:
            return None
        if body is None:
            return await self._refuse(send, 413, "too_large", too_large(self._body_limit))
        self._meter.bytes_in += len(body)
        route = self._supervisor.route
        if route is None:
            return await self._no_model(send)
        self._meter.begin()
        try:
            await self._guarded(_Exchange(self._meter, route, scope, send), body, receive)
        finally:
            self._meter.in_flight -= 1
        return None

    async def _guarded(self, exchange: _Exchange, body: bytes, receive: Receive) -> None:
        """One exchange; a client that leaves cancels it, and with it the engine's work."""
        task = asyncio.current_task()
        assert task is not None
        leaving = asyncio.ensure_future(left(receive))
        leaving.add_done_callback(lambda done: done.cancelled() or task.cancel())
        try:
            await self._answered(exchange, body)
        except asyncio.CancelledError:
            if not leaving.done() or leaving.cancelled():
                raise
            if not exchange.started:
                self._meter.codes[CLIENT_LEFT] += 1
        finally:
            leaving.cancel()

    async def _answered(self, exchange: _Exchange, body: bytes) -> None:
        """One exchange, with all its failures handled."""
        try:
            await exchange.run(body)
        except Refused as refused:
            await self._refuse(exchange.send, 400, refused.code, refused.message)
        except Exception as error:
            # after the start, an end without the last part makes uvicorn cut the connection
            lost = _is_broken_off(error)
            if lost and not exchange.started:
                await self._unreachable(exchange, error)
            elif not lost:
                if not exchange.started:
                    self._meter.codes[500] += 1
                    await admit(exchange.send, error)
                raise

    async def _unreachable(self, exchange: _Exchange, error: Exception) -> None:
        if await self._supervisor.lost(exchange.route, 1.0):
            return await self._no_model(exchange.send)
        why = str(error) or type(error).__name__
        return await self._refuse(exchange.send, 502, "engine_unreachable", unreachable(why))

    async def _no_model(self, send: Send) -> None:
        text, more = await why_no_model(self._supervisor)
        await self._refuse(send, 503, "no_model", text, **more)

    async def _refuse(self, send: Send, status: int, code: str, message: str, **more: Any) -> None:
        self._meter.codes[status] += 1
        await refuse(send, status, code, message, **more)


class _Exchange:
    """One request and its answer."""

    def __init__(self, meter: Meter, route: Route, scope: Scope, send: Send) -> None:
        self._meter, self.route, self._scope, self._send = meter, route, scope, send
        self.started = False
        """Whether the answer's head was sent to the client."""
        self._begin = time.perf_counter()
        self._first_byte = 0.0

    async def run(self, body: bytes) -> None:
        """Send the request to the engine, forward its answer.

        Raises:
            Refused: the request must not reach the engine.
        """
        scope = self._scope
        if scope["path"] == CHAT:
            body = self.route.bodies.prepared(body)
        async with self.route.session.request(
            scope["method"],
            "http://engine" + _target(scope),
            data=body if len(body) <= _COPY_BYTES else io.BytesIO(body),
            headers=_forwarded(scope["headers"]),
            allow_redirects=False,
        ) as answer:
            kind = answer.headers.get("Content-Type", "")
            if kind.startswith("text/event-stream") and answer.status < 400:
                await self._stream(answer)
            else:
                await self._whole(answer)

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Forward; returns when the client has read enough that the buffer has space."""
        meter = self._meter
        meter.unread += 1
        try:
            await self._send(message)
        finally:
            meter.unread -= 1
            meter.last_byte = time.monotonic()  # until now the engine's output was not read

    async def _stream(self, answer: aiohttp.ClientResponse) -> None:
        with_metrics = (b"x-metrics", b"1") in self._scope["headers"]
        await self._start(answer, None)  # its length may change, and its end shows anyway
        content = answer.content
        blocks = self._with_metrics(answer) if with_metrics else content.iter_any()
        send, heard, errors = self.send, self._heard, StreamErrors(self.route.mask)
        async for block in blocks:
            heard(block)
            last = (
                content.at_eof() and not with_metrics
            )  # then the rest of a block is still to come
            shown = errors.feed(block, last=last)
            if last:
                return await self._end(shown)
            if shown:
                await send({"type": "http.response.body", "body": shown, "more_body": True})
        return await self._end(errors.feed(b"", last=True))

    async def _whole(self, answer: aiohttp.ClientResponse) -> None:
        blocks = []
        async for block in answer.content.iter_any():
            self._heard(block)
            blocks.append(block)
        body = b"".join(blocks)
        if answer.status >= 400:  # it may show the engine's environment, and goes into records
            body = self.route.mask.answer(body)
        json_type = answer.headers.get("Content-Type", "").startswith("application/json")
        if json_type and answer.status == 200 and self._scope["path"] == CHAT:
            body = _spliced(body, self._metrics())
        await self._start(answer, len(body))
        await self._end(body)

    async def _end(self, block: bytes = b"") -> None:
        """Forward the last block of a complete answer: its end does not need a message of its own."""
        self._meter.served += 1
        await self.send({"type": "http.response.body", "body": block})

    def _heard(self, block: bytes) -> None:
        """Count a block of the answer's body."""
        meter = self._meter
        self._see_first()
        meter.last_byte = time.monotonic()
        meter.bytes_out += len(block)

    def _see_first(self) -> None:
        """Note the time of the first byte."""
        if not self._first_byte:
            self._first_byte = time.perf_counter() - self._begin
            self._meter.first_byte(self._first_byte)

    async def _with_metrics(self, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """The stream line by line, with an event of ours before its last."""
        rest = b""
        async for block in answer.content.iter_any():
            self._see_first()  # before the metrics are written: all may come in one block
            *lines, rest = (rest + block).split(b"\n")
            if lines:
                yield b"".join(self._led(line) + b"\n" for line in lines)
        yield self._led(rest)

    def _led(self, line: bytes) -> bytes:
        if line.strip() not in _DONE:
            return line
        event = json.dumps({"choices": [], "metrics": self._metrics()})
        return f"data: {event}\n\n".encode() + line

    async def _start(self, answer: aiohttp.ClientResponse, length: int | None) -> None:
        self._meter.last_byte = time.monotonic()
        self._meter.codes[answer.status] += 1
        headers = [
            (name.lower(), value)
            for name, value in answer.raw_headers
            if name.lower() not in _NOT_FROM_ENGINE
        ]
        if length is not None:
            headers.append((b"content-length", b"%d" % length))
        headers.append((b"x-latency-ms", b"%.3f" % self._since_begin()))
        peaks = self.route.peaks
        if (peak := peaks.gpus if peaks.on_gpus else peaks.host) is not None:
            headers.append((b"x-peak-memory-mb", b"%.1f" % (peak / 2**20)))
        self.started = True
        await self.send(
            {"type": "http.response.start", "status": answer.status, "headers": headers}
        )

    def _metrics(self) -> dict[str, float | None]:
        peaks = self.route.peaks
        metrics = {
            "latency_ms": round(self._since_begin(), 3),
            "ttfb_ms": round(self._first_byte * 1e3, 3),
            "peak_memory_mb": _mib(peaks.host),
        }
        if peaks.on_gpus:
            metrics["peak_gpu_memory_mb"] = _mib(peaks.gpus)
        return metrics

    def _since_begin(self) -> float:
        """Milliseconds since the complete request arrived."""
        return (time.perf_counter() - self._begin) * 1e3


async def why_no_model(supervisor: Supervisor) -> tuple[str, dict[str, Any]]:
    """Why no engine takes requests, for people, and the fields that say it to programs."""
    await supervisor.explained()
    error = supervisor.error() or {}
    why = f": {error['message']}" if error else ""
    more: dict[str, Any] = {
        name: error[name] for name in ("kind", "cause", "remedy") if name in error
    }
    return f"no model is ready ({supervisor.state}){why}", more


def too_large(limit: int) -> str:
    """The message of a 413."""
    remedy = "raise request_mb in the model's definition, or the wrapper's --request-limit"
    return f"the request is larger than {limit} bytes: {remedy}"


def unreachable(why: str) -> str:
    """The message of a 502."""
    return f"the connection to the engine broke before it answered: {why}"


async def read_body(receive: Receive, limit: int) -> bytes | None:
    """The whole body; None if it is too large (read to its end, so that the client gets the reason).

    Raises:
        Disconnected: the client left.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part = message.get("body", b"")
        size += len(part)
        if size <= limit:
            parts.append(part)
        else:
            parts.clear()
        if not message.get("more_body", False):
            return b"".join(parts) if size <= limit else None


async def answer(send: Send, status: int, content_type: bytes, body: bytes) -> None:
    """Send an answer in one piece."""
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def admit(send: Send, bug: Exception) -> None:
    """Answer that a bug occurred. Its message only goes to the wrapper's log."""
    text = f"a bug in the wrapper: {type(bug).__name__}"
    await refuse(send, 500, "internal_error", text)


async def refuse(send: Send, status: int, code: str, message: str, **more: Any) -> None:
    """Answer with an error in OpenAI's form."""
    body = json.dumps(error_body(status, code, message, **more)).encode()
    await answer(send, status, b"application/json", body)


def error_body(status: int, code: str, message: str, **more: Any) -> dict[str, Any]:
    """An error in OpenAI's form."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "code": code, **more}}


async def left(receive: Receive) -> None:
    """Wait until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _is_broken_off(error: Exception) -> bool:
    """Whether the connection to the engine was lost."""
    # aiohttp raises a plain RuntimeError if the connection is lost before it waits for more of the body
    lost = isinstance(error, RuntimeError) and str(error) == "Connection closed."
    return lost or isinstance(error, aiohttp.ClientError | OSError)


def _mib(size: int | None) -> float | None:
    return None if size is None else round(size / 2**20, 1)


def _target(scope: Scope) -> str:
    query: bytes = scope.get("query_string", b"")
    path: str = scope["path"]
    return f"{path}?{query.decode('ascii')}" if query else path


def _forwarded(headers: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in headers
        if name not in _HOP_BY_HOP
    ]


def _spliced(body: bytes, metrics: dict[str, float | None]) -> bytes:
    """A JSON object with these `metrics` and no others as its last name; any other body unchanged."""
    end = body.rstrip()
    if b'"metrics"' in body:
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            return body
        if isinstance(data, dict) and "metrics" in data:
            del data["metrics"]
            end = json.dumps(data).encode()
    if not (end.startswith(b"{") and end.endswith(b"}")):
        return body
    inner = end[:-1].rstrip()
    comma = b"" if inner == b"{" else b","
    return b"".join((inner, comma, b'"metrics":', json.dumps(metrics).encode(), b"}"))
