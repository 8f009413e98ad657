"""Values of a plugin's options against their type hints, as a YAML definition writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, get_args, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation

from hpcbench.schema.forms import complaint


def misfits(declared: type, options: Mapping[str, Any]) -> dict[str, str]:
    """Option → what its value must be, where it is something else.

    A value must be of its type: `"5"` and `true` are no whole numbers, `1` is a number. Options without a
    hint, and hints that cannot be checked (a class of the plugin's own), allow any value.
    """
    hints = _hints(declared)
    found = {name: _misfit(hints[name], value) for name, value in options.items() if name in hints}
    return {name: what for name, what in found.items() if what}


def members(declared: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with each value of an enumeration as its member."""
    hints = _hints(declared)
    return {name: _member(hints.get(name), value) for name, value in options.items()}


@lru_cache(maxsize=256)
def _hints(declared: type) -> Mapping[str, Any]:
    try:
        return get_type_hints(declared)
    except Exception:  # noqa: BLE001 - foreign code: a name that exists only for type checkers
        return {}


def _misfit(hint: Any, value: Any) -> str:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
        text = json.dumps(value, default=str)
    except (
        PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError,
        TypeError, ValueError,
    ):  # fmt: skip
        return ""
    try:
        adapter.validate_json(text, strict=True)
    except ValidationError as error:
        said = (complaint(dict(one)).removeprefix("must be ") for one in error.errors())
        return f"must be {' or '.join(dict.fromkeys(said))}, not {_written(value)}"
    return ""


def _written(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _member(hint: Any, value: Any) -> Any:
    for kind in (hint, *get_args(hint)):
        if isinstance(kind, type) and issubclass(kind, Enum) and not isinstance(value, Enum):
            try:
                return kind(value)
            except ValueError:
                continue
    return value
