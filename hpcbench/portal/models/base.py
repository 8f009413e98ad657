"""Building blocks of all answers: parts, pages of lists, faults."""

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
    """Give it as `after` to get the next page; None: this page is the last."""
    total: int
    """Number of items of the whole list, counted up to `counted_to`."""
    counted_to: int = 10_000
    """The portal counts no further: a `total` of this value means this number or more."""


class Fault(Model):
    """Error: every failed request has this body."""

    error: str
    """The mistake, in one line."""
    remedy: str = ""
    """The remedy."""
    code: str
    """A stable word: `not_found`, `not_signed_in`, `refused`, `bad_request`, `conflict`, `busy` …"""
    id: str = ""
    """Id of the answer; the portal's log has the same id."""
    progress: float | None = None
    """For a computation in progress: the share that is done, 0 to 1; None: unknown."""
