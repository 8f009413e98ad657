"""Routes of the portal, one module per kind of page."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter

from hpcbench.portal.guard import API
from hpcbench.portal.models.base import Fault

_ANY: TypeAdapter[Any] = TypeAdapter(Any)


def new_router(tag: str) -> APIRouter:
    """A router for a module's routes of the API.

    Each route has its whole path: FastAPI would create every route of an included router a second time, while
    the first page waits.
    """
    fault = {"model": Fault, "description": "The error."}
    return APIRouter(prefix=API, tags=[tag], responses={"default": fault}, route_class=_DirectRoute)


def json_of(answer: Any) -> str | bytes:
    """JSON directly from the models, without another validation: the portal itself creates the models."""
    return answer.model_dump_json() if isinstance(answer, BaseModel) else _ANY.dump_json(answer)


class _DirectRoute(APIRoute):
    """A route that reads: its thread writes the JSON, too; FastAPI would take another turn of a thread."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if options.get("methods") == ["GET"]:
            endpoint = _direct(endpoint)
        super().__init__(path, endpoint, **options)


def _direct(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    def sent(answer: Any, given: Mapping[str, Any]) -> Response:
        if isinstance(answer, Response):
            return answer
        preset = given.get("response")  # with headers, where a route asks for it
        headers = preset.headers if isinstance(preset, Response) else None
        return Response(json_of(answer), headers=headers, media_type="application/json")

    if inspect.iscoroutinefunction(endpoint):

        @functools.wraps(endpoint)
        async def later(**given: Any) -> Response:
            return sent(await endpoint(**given), given)

        return later

    @functools.wraps(endpoint)
    def now(**given: Any) -> Response:
        return sent(endpoint(**given), given)

    return now
