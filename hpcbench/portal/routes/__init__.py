"""What the portal answers, a module a kind of page."""

from __future__ import annotations

from fastapi import APIRouter

from hpcbench.portal.guard import API
from hpcbench.portal.models.base import Fault


def room(tag: str) -> APIRouter:
    """Where a module's routes of the API go.

    Each knows its whole path: of a router that the application includes FastAPI would make every route a
    second time, while the first page waits.
    """
    fault = {"model": Fault, "description": "Why it was not done."}
    return APIRouter(prefix=API, tags=[tag], responses={"default": fault})
