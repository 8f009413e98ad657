"""Plain data as every client can read it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hpcbench import secret

DEEPEST = 40
"""Objects within objects that are told."""


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
