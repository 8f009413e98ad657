"""The application: all routes, the client's files, faults in one form, and the guard around them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio.to_thread
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware

import hpcbench
from hpcbench import secret
from hpcbench.errors import EnvironmentFault
from hpcbench.portal.context import Portal
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.guard import API, HEALTH, IDENTITY, PLAIN, Access, Asgi, Guard
from hpcbench.portal.models.base import Fault
from hpcbench.portal.results_database import database_of
from hpcbench.portal.routes import (
    cluster,
    compare,
    experiments,
    export,
    figures,
    live,
    plain,
    plans,
    playground,
    regressions,
    run_tasks,
    samples,
    session,
    stored,
    values,
)
from hpcbench.portal.static import Client
from hpcbench.schema.forms import complaint

THREADS = 3
"""Requests that may use files at once: more would compete for the interpreter, and all would be late."""

ROOMS: tuple[APIRouter, ...] = (
    session.router, live.router,
    export.router,  # before routes that would match `export` as an id
    experiments.router, run_tasks.router, figures.router, samples.router, compare.router,
    regressions.router, values.router, stored.router, plans.router, playground.router,
    cluster.router,
)  # fmt: skip
"""All routes of the API, in the order of matching."""

_CODES = {401: "not_signed_in", 403: "refused", 404: "not_found", 405: "refused", 409: "conflict",
          412: "conflict", 413: "too_large", 503: "busy"}  # fmt: skip

_LATER = {"Retry-After": "2"}


def build(portal: Portal, access: Access) -> Asgi:
    """The whole portal as an ASGI application, behind its guard."""
    app = application(portal)
    app.state.access = access
    app.router.routes.extend(plain.router.routes)
    client = Client()
    app.router.routes.extend(client.router().routes)
    return Guard(cast(Asgi, app), portal, access, client.paths | {HEALTH})


def application(portal: Portal | None) -> FastAPI:
    """The API's routes, unguarded; without a portal they only serve the description."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield
        if portal is not None and (database := database_of(portal)) is not None:
            await database.close()

    app = FastAPI(
        title="hpcbench portal",
        version=hpcbench.__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{API}/openapi.json",
        redirect_slashes=False,  # a redirect would go to the host in the Host header
        lifespan=life,
    )
    app.state.portal = portal
    app.add_api_route(HEALTH, _health, include_in_schema=False, response_class=PlainTextResponse)
    for room in ROOMS:
        app.router.routes.extend(room.routes)
    app.add_middleware(_Packed, minimum_size=1024, compresslevel=1)
    app.add_exception_handler(PortalFault, _portal_fault)
    app.add_exception_handler(EnvironmentFault, _unreadable)
    app.add_exception_handler(OSError, _unreadable)
    app.add_exception_handler(RequestValidationError, _bad_request)
    app.add_exception_handler(HTTPException, _http_fault)
    app.add_exception_handler(Exception, _bug)
    return app


class _Packed(GZipMiddleware):
    """Compresses answers at a low level; not the event stream, which would wait in the compressor."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == f"{API}/events":
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


async def _health() -> str:
    """Whether the portal is up; no other information."""
    return "ok\n"


def answer(
    request: Request,
    status: int,
    code: str,
    error: str,
    remedy: str = "",
    progress: float | None = None,
) -> Response:
    """The response for a fault."""
    fault = Fault(
        error=secret.mask(error),
        remedy=secret.mask(remedy),
        code=code,
        id=str(request.scope.get(IDENTITY, "")),
        progress=progress,
    )
    if request.scope["path"].startswith(PLAIN):
        return PlainTextResponse(f"{fault.error}\n{fault.remedy}\n", status)
    return JSONResponse(
        fault.model_dump(exclude_none=True), status, _LATER if code == "busy" else None
    )


async def _portal_fault(request: Request, error: Exception) -> Response:
    assert isinstance(error, PortalFault)
    return answer(request, error.status, error.code, error.error, error.remedy, error.progress)


async def _unreadable(request: Request, error: Exception) -> Response:
    """A file that is damaged, or that the portal's user may not read."""
    if isinstance(error, OSError) and error.filename is not None:
        error = EnvironmentFault(f"{error.filename} cannot be read: {error.strerror}")
    if not isinstance(error, EnvironmentFault):
        raise error
    return answer(request, 500, "unreadable", error.message, error.remedy or "")


async def _http_fault(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, "bad_request")
    return answer(request, error.status_code, code, str(error.detail).lower())


async def _bad_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # The message does not repeat the input, which may be long or secret.
    said = [f"{'.'.join(map(str, one['loc']))}: {complaint(one)}" for one in error.errors()[:5]]
    return answer(request, 422, "bad_request", "; ".join(said))


async def _bug(request: Request, _: Exception) -> Response:
    number = request.scope.get(IDENTITY, "")
    return answer(
        request,
        500,
        "bug",
        "hpcbench has a bug",
        f"report it with the traceback: the portal's log has it under {number}",
    )
