"""The wrapper's HTTP face: control plane in FastAPI, data plane beside it, a key before both.

| | |
|---|---|
| `POST /v1/model/load` | start an engine; answers 202 at once |
| `POST /v1/model/unload` | end it; answers when it is gone |
| `GET /status`, `GET /events` | state, why, how far; now, and at every change |
| `GET /healthz`, `GET /metrics` | the wrapper lives; Prometheus' text, the engine's behind ours |
| `/v1/chat/completions`, `/v1/models` | passed on (hpcbench.wrapper.proxy) |

Every error has OpenAI's form and a stable code. docs/wrapper.md tells it to users.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from hpcbench.wrapper.process import EngineFailed
from hpcbench.wrapper.proxy import PATHS, Proxy, Receive, Scope, Send, error_body, refuse
from hpcbench.wrapper.supervisor import Busy, Load, Supervisor

BODY_LIMIT = 64 * 2**20
"""Largest request, bytes."""

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Wrapper:
    """The whole application: checks the key, then picks the plane."""

    def __init__(self, supervisor: Supervisor, key: str, body_limit: int = BODY_LIMIT) -> None:
        self._key = key.encode()
        self._control = control_plane(supervisor)
        self._proxy = Proxy(supervisor, body_limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # lifespan and WebSockets: nothing here uses them
            return
        given = next((value for name, value in scope["headers"] if name == b"x-api-key"), b"")
        if not hmac.compare_digest(given, self._key):
            await refuse(send, 401, "wrong_key", "X-API-Key is missing or wrong")
        elif scope["path"] in PATHS:
            await self._proxy(scope, receive, send)
        else:
            await self._control(scope, receive, send)


class Unload(BaseModel):
    """What `POST /v1/model/unload` may take."""

    model_config = ConfigDict(extra="forbid")

    drain_seconds: float = Field(default=0, ge=0)
    """How long requests in flight may go on."""


def control_plane(supervisor: Supervisor) -> FastAPI:
    """Routes that start, end and describe the engine."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @app.post("/v1/model/load", status_code=202)
    async def load(ask: Load) -> dict[str, str]:
        supervisor.load(ask)
        return {"state": "loading"}

    @app.post("/v1/model/unload")
    async def unload(ask: Unload | None = None) -> dict[str, str]:
        await supervisor.unload(ask.drain_seconds if ask else 0)
        return {"state": supervisor.state}

    @app.get("/status")
    async def status() -> dict[str, Any]:
        return supervisor.status()

    @app.get("/events")
    async def events() -> Response:
        return StreamingResponse(_events(supervisor), media_type="text/event-stream")

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics")
    async def metrics() -> Response:
        own = supervisor.meter.text(supervisor.state)
        return PlainTextResponse(own + await _engines_metrics(supervisor), media_type=_PROMETHEUS)

    app.add_exception_handler(EngineFailed, _engine_failed)
    app.add_exception_handler(Busy, _busy)
    app.add_exception_handler(RequestValidationError, _bad_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _bug)
    return app


async def _events(supervisor: Supervisor) -> AsyncIterator[bytes]:
    async for status in supervisor.news():
        yield b"data: " + json.dumps(status).encode() + b"\n\n"


async def _engines_metrics(supervisor: Supervisor) -> str:
    """The engine's own text; empty without an engine, or if it has none."""
    if (route := supervisor.route) is None:
        return ""
    try:
        async with route.session.get(
            "http://engine/metrics", timeout=aiohttp.ClientTimeout(total=5)
        ) as answer:
            return await answer.text() if answer.status == 200 else ""
    except (aiohttp.ClientError, OSError, asyncio.TimeoutError, UnicodeError):  # noqa: UP041 (Python 3.10)
        return ""


async def _engine_failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, EngineFailed)
    return _error(500, error.kind, **error.to_json())


async def _busy(request: Request, error: Exception) -> Response:
    return _error(409, "busy", str(error))


async def _bad_request(request: Request, error: Exception) -> Response:
    """Places and reasons only: FastAPI's own answer repeats the input, which may hold tokens."""
    assert isinstance(error, RequestValidationError)
    problems = (f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}" for e in error.errors())
    return _error(422, "bad_request", "; ".join(problems))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes = {404: "not_found", 405: "method_not_allowed"}
    return _error(error.status_code, codes.get(error.status_code, "http_error"), str(error.detail))


async def _bug(request: Request, error: Exception) -> Response:
    """The traceback is in the wrapper's log; what it holds is nobody else's business."""
    return _error(500, "internal_error", f"a bug of the wrapper: {type(error).__name__}")


def _error(status: int, code: str, message: str, **more: Any) -> Response:
    return JSONResponse(error_body(status, code, message, **more), status)
