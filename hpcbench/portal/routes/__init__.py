"""Routes of the portal, one module per kind of page."""

from __future__ import annotations

from fastapi import APIRouter

from hpcbench.portal.guard import API
from hpcbench.portal.models.base import Fault


def room(tag: str) -> APIRouter:
    """A router for a module's routes of the API.

    Each route has its whole path: FastAPI would create every route of an included router a second time, while
    the first page waits.
    """
    fault = {"model": Fault, "description": "The error."}
    return APIRouter(prefix=API, tags=[tag], responses={"default": fault})
