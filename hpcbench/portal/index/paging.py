"""Continues a list after a page, by the values of the page's last row: no row is skipped or repeated.

A list is sorted by a column and, for equal values, by the row's key. Rows without a value come last in both
orders; so a page may combine the rows of two queries, which both use an index.
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
"""Longest cursor, characters."""


@dataclass(frozen=True, slots=True)
class RowPosition:
    """The position of a row in a list."""

    value: str | float | int | None
    """Value of the sort column."""
    key: tuple[str, ...]
    """Key of the row."""


def cursor(place: RowPosition, of: str) -> str:
    """A place in a list as text for clients.

    Args:
        place: the place.
        of: filters and order of the list.
    """
    data = json.dumps([_digest(of), place.value, *place.key], ensure_ascii=False)
    return base64.urlsafe_b64encode(data.encode()).decode().rstrip("=")


def position_of(text: str, of: str, keys: int, kind: type) -> RowPosition:
    """The place of a cursor.

    Args:
        text: the cursor from a client.
        of: filters and order of the requested list.
        keys: number of values in a key.
        kind: type of the sort column: str or float.

    Raises:
        BadCursor: the text is no cursor, or a cursor of another list.
    """
    try:
        if len(text) > LONGEST:
            raise ValueError
        data = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        digest, value, *key = json.loads(data)
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise BadCursor from None
    if digest != _digest(of):
        raise BadCursor("`after` comes from a list with other filters or another order")
    if (
        not (value is None or _is(value, kind))
        or len(key) != keys
        or not all(_is(one, str) for one in key)
    ):
        raise BadCursor
    return RowPosition(value, tuple(key))


def _is(value: object, kind: type) -> bool:
    """Whether a value has a type that can be compared with the column."""
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
    after: RowPosition | None,
) -> list[Select[Any]]:
    """Queries whose rows, one query after the other, follow a place.

    Args:
        statement: the list, without an order.
        column: the sort column.
        keys: columns that order rows with the same value.
        order: the sort order.
        after: the place; None: the start of the list.
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
    """Condition for rows after these values: the first column decides, then the second …"""
    first, *more = columns
    value, *others = values
    past: ColumnElement[bool] = first < value if order == "desc" else first > value
    if not more:
        return past
    deeper = beyond(more, others, order)
    # A separate condition for the range of the first column lets the database use an index.
    within = first <= value if order == "desc" else first >= value
    return and_(within, or_(past, deeper))


def _up(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return column.asc()


def _down(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return column.desc()


def _digest(of: str) -> str:
    return hashlib.sha256(of.encode("utf-8", "replace")).hexdigest()[:12]
