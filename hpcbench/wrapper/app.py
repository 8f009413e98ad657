"""The wrapper's HTTP face: control plane in FastAPI, data plane beside it, a key before both.

| | |
|---|---|
| `POST /v1/model/load` | start an engine; answers when it is ready, or says why it is not |
| `POST /v1/model/unload` | end it; answers when it is gone |
| `GET /status` | state, counts, last error |
| `/v1/chat/completions`, `/v1/models`, `/metrics` | passed on (hpcbench.wrapper.proxy) |
"""

from __future__ import annotations

import hmac
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from hpcbench.wrapper.process import EngineFailed
from hpcbench.wrapper.proxy import PATHS, Proxy, Receive, Scope, Send, refuse
from hpcbench.wrapper.supervisor import Busy, Load, Supervisor

BODY_LIMIT = 64 * 2**20
"""Largest request, bytes."""


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


def control_plane(supervisor: Supervisor) -> FastAPI:
    """Routes that start, end and describe the engine."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @app.post("/v1/model/load")
    async def load(ask: Load) -> dict[str, Any]:
        return await supervisor.load(ask)

    @app.post("/v1/model/unload")
    async def unload() -> dict[str, Any]:
        await supervisor.unload()
        return {"state": supervisor.state}

    @app.get("/status")
    async def status() -> dict[str, Any]:
        return supervisor.status()

    app.add_exception_handler(EngineFailed, _engine_failed)
    app.add_exception_handler(Busy, _busy)
    app.add_exception_handler(RequestValidationError, _bad_request)
    return app


async def _engine_failed(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, EngineFailed)
    return JSONResponse(error.to_json(), 504 if error.kind == "timeout" else 500)


async def _busy(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": {"kind": "busy", "message": str(error)}}, 409)


async def _bad_request(request: Request, error: Exception) -> JSONResponse:
    """Places and reasons only: FastAPI's own answer repeats the input, which may hold tokens."""
    assert isinstance(error, RequestValidationError)
    problems = (f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}" for e in error.errors())
    return JSONResponse({"error": {"kind": "bad_request", "message": "; ".join(problems)}}, 422)
