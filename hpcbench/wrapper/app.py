"""The wrapper's HTTP server: the control plane, the data plane beside it, a key before both.

| | |
|---|---|
| `POST /v1/model/load` | start an engine; answers 202 at once |
| `POST /v1/model/unload` | end the engine; answers when it is gone |
| `GET /status`, `GET /events` | state, reason, progress; now, and at every change |
| `GET /healthz`, `GET /metrics` | the wrapper lives; Prometheus' text, the engine's after ours |
| `/v1/chat/completions`, `/v1/models` | forwarded (hpcbench.wrapper.proxy) |
| `/v1/stream` | the same over WebSocket (hpcbench.wrapper.web_socket), if it is served |
| `POST /v1/model/fail` | for the worker on this node: end the engine, as its other nodes failed |
| `POST /v1/direct` | for clients on this node: the engine's socket; their reports (hpcbench.wrapper.direct) |

Every error has OpenAI's form and a stable code. docs/wrapper.md is the users' reference.

Both planes are plain ASGI: importing a framework for six routes takes longer than importing the rest of the
wrapper, at every start of every worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

import aiohttp
from prometheus_client import generate_latest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hpcbench.wrapper.bodies import BODY_LIMIT
from hpcbench.wrapper.direct import Report
from hpcbench.wrapper.engine_process import EngineFailed
from hpcbench.wrapper.proxy import (
    PATHS,
    WRONG_KEY,
    Disconnected,
    Proxy,
    Receive,
    Scope,
    Send,
    admit,
    answer,
    left,
    read_body,
    refuse,
    too_large,
    unreachable,
    why_no_model,
)
from hpcbench.wrapper.supervisor import Busy, Load, Supervisor

_JSON = b"application/json"
_PROMETHEUS = b"text/plain; version=0.0.4; charset=utf-8"

Answering = Callable[[bytes, Receive, Send], Awaitable[None]]
"""A route: takes the request's body and the ASGI channels for the answer."""


class Wrapper:
    """The whole application: checks the key, then chooses the plane."""

    def __init__(self, supervisor: Supervisor, key: str, body_limit: int = BODY_LIMIT) -> None:
        self._key = key.encode()
        self._control = ControlPlane(supervisor, body_limit)
        self._proxy = Proxy(supervisor, body_limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            from hpcbench.wrapper.web_socket import WebSocketPlane

            await WebSocketPlane(self.admits, self._proxy)(scope, receive, send)
        elif not self.admits(scope["headers"]):
            await refuse(send, 401, "wrong_key", WRONG_KEY)
        elif scope["path"] in PATHS:
            # Cancelled where the server ends and its client does not read.
            with contextlib.suppress(asyncio.CancelledError):
                await self._proxy(scope, receive, send)
        else:
            await self._control(scope, receive, send)

    def admits(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a header has the key; each is compared in constant time."""
        right = [hmac.compare_digest(key, self._key) for key in _keys(headers)]
        return any(right)


def _keys(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """Candidates for a request's key: `X-API-Key`, or the token of `Authorization: Bearer`."""
    for name, value in headers:
        if name == b"x-api-key":
            yield value
        elif name == b"authorization":
            scheme, _, token = value.strip().partition(b" ")
            if scheme.lower() == b"bearer":
                yield token.strip()


class Unload(BaseModel):
    """Body of `POST /v1/model/unload`."""

    model_config = ConfigDict(extra="forbid")

    drain_seconds: float = Field(default=0, ge=0)
    """Seconds for which requests in flight may continue."""


class Fail(BaseModel):
    """Body of `POST /v1/model/fail`, for the worker of an engine with several nodes."""

    model_config = ConfigDict(extra="forbid")

    kind: str
    """As in the error of a failed engine."""
    message: str
    """One line that names rank and node."""
    cause: str
    """A key of `exit_causes.REMEDIES`."""


class ControlPlane:
    """Routes that start, end and describe the engine."""

    def __init__(self, supervisor: Supervisor, body_limit: int) -> None:
        self._supervisor, self._body_limit = supervisor, body_limit
        self._routes: dict[str, tuple[str, Answering]] = {
            "/v1/model/load": ("POST", self._load),
            "/v1/model/unload": ("POST", self._unload),
            "/status": ("GET", self._status),
            "/events": ("GET", self._events),
            "/healthz": ("GET", self._healthz),
            "/metrics": ("GET", self._metrics),
        }
        self._local_routes: dict[str, tuple[str, Answering]] = {
            "/v1/model/fail": ("POST", self._fail),
            "/v1/direct": ("POST", self._direct),
            "/v1/direct/error": ("POST", self._direct_error),
        }
        """Routes for clients on the wrapper's Unix socket alone: TCP may bring others."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        routes = self._routes
        if scope.get("client") is None:  # uvicorn names the address of a client on TCP
            routes = {**routes, **self._local_routes}
        method, route = routes.get(scope["path"], ("", None))
        if route is None:
            return await refuse(send, 404, "not_found", "there is no such route")
        if scope["method"] != method:
            return await refuse(send, 405, "method_not_allowed", f"use {method}")
        try:
            body = await read_body(receive, self._body_limit)
            if body is None:
                return await refuse(send, 413, "too_large", too_large(self._body_limit))
            await route(body, receive, send)
        except Disconnected:
            return None
        except ValidationError as error:
            await refuse(send, 422, "bad_request", _mistakes(error))
        except Busy as busy:
            await refuse(send, 409, "busy", str(busy))
        except EngineFailed as error:
            await refuse(send, 500, error.kind, **error.to_json())
        except Exception as error:
            await admit(send, error)
            raise

    async def _load(self, body: bytes, receive: Receive, send: Send) -> None:
        self._supervisor.load(Load.model_validate_json(body))
        await _answer_json(send, {"state": "loading"}, 202)

    async def _unload(self, body: bytes, receive: Receive, send: Send) -> None:
        ask = Unload() if body.strip() in (b"", b"null") else Unload.model_validate_json(body)
        await self._supervisor.unload(ask.drain_seconds)
        await _answer_json(send, {"state": self._supervisor.state})

    async def _fail(self, body: bytes, receive: Receive, send: Send) -> None:
        ask = Fail.model_validate_json(body)
        await self._supervisor.fail(ask.kind, ask.message, ask.cause)
        await _answer_json(send, {"state": self._supervisor.state})

    async def _status(self, body: bytes, receive: Receive, send: Send) -> None:
        await _answer_json(send, self._supervisor.status())

    async def _healthz(self, body: bytes, receive: Receive, send: Send) -> None:
        await _answer_json(send, {"status": "ok"})

    async def _metrics(self, body: bytes, receive: Receive, send: Send) -> None:
        own = generate_latest(self._supervisor.meter)
        engines = await _engines_metrics(self._supervisor)
        await answer(send, 200, _PROMETHEUS, own + engines.encode())

    async def _direct(self, body: bytes, receive: Receive, send: Send) -> None:
        """Take a client's report; name the engine's socket, or say what became of the engine."""
        report, supervisor = Report.model_validate_json(body), self._supervisor
        meter, route = supervisor.meter, supervisor.route
        meter.report(report)
        broken, gone = report.broken, route is None
        if route is not None and broken is not None:
            # of an earlier engine: the client's next try comes to this one
            gone = str(route.socket) == report.socket and await supervisor.lost(route, 1.0)
        if route is None or gone:
            meter.codes[503] += broken is not None
            text, more = await why_no_model(supervisor)
            return await refuse(send, 503, "no_model", text, **more)
        if broken is not None:
            meter.codes[502] += 1
            return await refuse(send, 502, "engine_unreachable", unreachable(broken))
        if report.socket is None:
            meter.direct.offered(str(route.socket))
        offer = {"socket": str(route.socket), "body_limit": self._body_limit}
        return await _answer_json(send, {**offer, **route.bodies.to_json()})

    async def _direct_error(self, body: bytes, receive: Receive, send: Send) -> None:
        """An error of the engine without secrets, for a client that got it from the engine itself."""
        await answer(send, 200, _JSON, self._supervisor.masked(body))

    async def _events(self, body: bytes, receive: Receive, send: Send) -> None:
        """Send news until they end, or the client leaves."""
        telling = asyncio.ensure_future(_tell(self._supervisor.news(), send))
        leaving = asyncio.ensure_future(left(receive))
        try:
            await asyncio.wait({telling, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            telling.cancel()
            await asyncio.wait({telling})
        if not telling.cancelled():
            telling.result()


async def _tell(news: AsyncIterator[dict[str, Any]], send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async for status in news:
        event = b"data: " + json.dumps(status).encode() + b"\n\n"
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _answer_json(send: Send, data: dict[str, Any], status: int = 200) -> None:
    await answer(send, status, _JSON, json.dumps(data).encode())


async def _engines_metrics(supervisor: Supervisor) -> str:
    """The engine's own metrics; empty without an engine, or if the engine has none.

    While it loads, an engine may listen and not answer.
    """
    route = supervisor.route
    session = supervisor.session if route is None else route.session
    if session is None:
        return ""
    patience = aiohttp.ClientTimeout(total=0.5 if route is None else 5)
    try:
        async with session.get("http://engine/metrics", timeout=patience) as said:
            return await said.text() if said.status == 200 else ""
    except (aiohttp.ClientError, OSError, asyncio.TimeoutError, UnicodeError):  # noqa: UP041 (Python 3.10)
        return ""


def _mistakes(error: ValidationError) -> str:
    """Only places and reasons: the input may contain tokens."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    mistakes = ((".".join(map(str, one["loc"])), one["msg"]) for one in found)
    return "; ".join(f"{place}: {what}" if place else what for place, what in mistakes)
