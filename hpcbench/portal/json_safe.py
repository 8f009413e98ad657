"""Plain data in a form that every client can read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hpcbench import secret

DEEPEST = 40
"""Greatest depth of nesting in an answer; deeper values become `…`."""


def sound(value: Any, depth: int = 0) -> Any:
    """Plain data as JSON can hold it: secrets masked, halves of surrogate pairs as escapes, no NaN."""
    if isinstance(value, str):
        return secret.mask(value.encode("utf-8", "backslashreplace").decode())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int)):
        return value
    if depth > DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return {sound(str(name)): sound(one, depth + 1) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [sound(one, depth + 1) for one in value]
    return f"({len(value)} bytes)" if isinstance(value, bytes) else sound(str(value))


def finite(value: object) -> float | None:
    """A number that JSON can express; None for every other value."""
    if type(value) is float:  # most values are
        return value if math.isfinite(value) else None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None
