"""What all answers are made of: parts, pages of lists, faults."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

ItemT = TypeVar("ItemT")


class Model(BaseModel):
    """An answer, or a part of one."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Page(Model, Generic[ItemT]):
    """A part of a long list."""

    items: tuple[ItemT, ...]
    next: str | None = None
    """Give it as `after` to get what follows; None: this was the end."""
    total: int
    """How many there are in all, counted up to `counted_to`."""
    counted_to: int = 10_000
    """No further is counted: a total of so many means `so many or more`."""


class Fault(Model):
    """Why something was not done; every error has this body."""

    error: str
    """In one line."""
    remedy: str = ""
    """What to do about it."""
    code: str
    """A stable word: `not_found`, `not_signed_in`, `refused`, `bad_request`, `conflict`, `busy` …"""
    id: str = ""
    """Of this answer, in the portal's log too."""
    progress: float | None = None
    """Share that is done of what is still being made, 0 to 1, where that is known."""
