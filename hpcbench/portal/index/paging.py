"""Going on where a page ended, by the values of its last row: no row is skipped or told twice.

A list is sorted by a column and, where that is the same, by the row's key. What has no value comes last,
whichever end comes first; so a page may be put together from two questions, which both follow an index.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, or_

from hpcbench.portal.index import BadCursor, Order
from hpcbench.portal.index.text_keys import clean

LONGEST = 4_000
"""Characters of a cursor."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row stands in a list."""

    value: str | float | int | None
    """What it is sorted by."""
    key: tuple[str, ...]
    """What tells it from all others."""


def cursor(place: Place, of: str) -> str:
    """A place in a list as clients carry it.

    Args:
        place: the place.
        of: the list: its filters and order.
    """
    data = json.dumps([_digest(of), place.value, *place.key], ensure_ascii=False)
    return base64.urlsafe_b64encode(data.encode()).decode().rstrip("=")


def place_of(text: str, of: str, keys: int, kind: type) -> Place:
    """The place that a cursor says.

    Args:
        text: what a client sent.
        of: the list it is used for.
        keys: how many values a key has.
        kind: what the list is sorted by: str or float.

    Raises:
        BadCursor: it says none, or one of another list.
    """
    try:
        if len(text) > LONGEST:
            raise ValueError
        data = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        digest, value, *key = json.loads(data)
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise BadCursor from None
    if digest != _digest(of):
        raise BadCursor("`after` is of a list with other filters or another order")
    if (
        not (value is None or _is(value, kind))
        or len(key) != keys
        or not all(_is(one, str) for one in key)
    ):
        raise BadCursor
    return Place(value, tuple(key))


def _is(value: object, kind: type) -> bool:
    """Whether a value is of a kind that a column can be compared with."""
    if isinstance(value, str):
        return kind is str and clean(value) == value
    if isinstance(value, bool) or kind is not float:
        return False
    if isinstance(value, int):
        return abs(value) < 2**62
    return isinstance(value, float) and math.isfinite(value)


def pages(
    statement: Select[Any],
    column: ColumnElement[Any],
    keys: Sequence[ColumnElement[Any]],
    order: Order,
    after: Place | None,
) -> list[Select[Any]]:
    """The questions whose answers, one after the other, are what comes after a place.

    Args:
        statement: the list, without an order.
        column: what it is sorted by.
        keys: what tells rows with the same value apart.
        order: which end comes first.
        after: the place; None: the beginning.
    """
    turn = _down if order == "desc" else _up
    own = [key for key in keys if key is not column]
    valued = statement.where(column.is_not(None)).order_by(turn(column), *map(turn, own))
    empty = statement.where(column.is_(None)).order_by(*map(turn, keys))
    if after is None:
        return [valued, empty]
    rest = beyond(keys, after.key, order)
    if after.value is None:
        return [empty.where(rest)]
    return [valued.where(beyond([column, *keys], [after.value, *after.key], order)), empty]


def beyond(
    columns: Sequence[ColumnElement[Any]], values: Sequence[Any], order: Order
) -> ColumnElement[bool]:
    """Rows that come after these values: the first column decides, then the second …"""
    first, *more = columns
    value, *others = values
    past: ColumnElement[bool] = first < value if order == "desc" else first > value
    if not more:
        return past
    deeper = beyond(more, others, order)
    # With the range of the first column on its own, so that an index can be followed.
    within = first <= value if order == "desc" else first >= value
    return and_(within, or_(past, deeper))


def _up(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return column.asc()


def _down(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return column.desc()


def _digest(of: str) -> str:
    return hashlib.sha256(of.encode("utf-8", "replace")).hexdigest()[:12]
