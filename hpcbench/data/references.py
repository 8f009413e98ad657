"""Recognition of empty references, for all layouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_empty(reference: Any) -> bool:
    """Whether a reference is empty: None, NaN, blank text, an object without keys, or a list of only empty
    references. An object whose values are null is not empty: it says that they are not on the page.
    """
    if reference is None or reference != reference:  # NaN
        return True
    if isinstance(reference, str):
        return not reference.strip()
    if isinstance(reference, Mapping):
        return not reference
    return isinstance(reference, (list, tuple)) and all(map(is_empty, reference))
