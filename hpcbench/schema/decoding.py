"""Dataclasses read back from the JSON that `dataclasses.asdict` wrote, as strictly as pydantic would.

`hpcbench status` reads a plan's work with it: the import of pydantic and a model's validator take longer
than all of its other work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

_T = TypeVar("_T")


def decoded(kind: type[_T], data: object) -> _T:
    """A dataclass whose fields are int, float, str, a dataclass, or `X | None`, `tuple[X, ...]` and
    `Mapping[str, X]` of these.

    Raises:
        ValueError: a member is unknown, missing or not of its type; the message names it.
    """
    found: _T = _value(kind, data, "")
    return found


def decoded_part(kind: type[_T], data: Mapping[str, object]) -> _T:
    """The same, of data that have further members."""
    members: Mapping[str, object] = _members(kind)[0]  # type: ignore[arg-type]  # classes are hashable
    return decoded(kind, {name: data[name] for name in members if name in data})


def _value(kind: Any, data: object, place: str) -> Any:
    form, inner = get_origin(kind), get_args(kind)
    if form is UnionType:
        return None if data is None else _value(inner[0], data, place)
    if form is tuple and isinstance(data, list | tuple):
        return tuple(_value(inner[0], one, f"{place}{n}.") for n, one in enumerate(data))
    if form is Mapping and isinstance(data, Mapping):
        return {name: _value(inner[1], one, f"{place}{name}.") for name, one in data.items()}
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(data, Mapping):
        types, required = _members(kind)
        for name in sorted((data.keys() - types.keys()) | (required - data.keys())):
            raise ValueError(f"{place}{name}: it is {'unknown' if name in data else 'missing'}")
        return kind(
            **{name: _value(types[name], one, f"{place}{name}.") for name, one in data.items()}
        )
    if kind is float and type(data) is int:
        return float(data)
    if type(data) is not kind:
        raise ValueError(f"{place[:-1] or 'it'}: not of its type: {data!r:.60}")
    return data


@cache
def _members(kind: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """Types of a dataclass's fields, and the names of those without a default."""
    required = (one.name for one in fields(kind) if one.default is MISSING is one.default_factory)
    return get_type_hints(kind), frozenset(required)
