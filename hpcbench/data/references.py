"""What is no reference, in any layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_empty(reference: Any) -> bool:
    """Whether there is nothing to score an answer against: nothing, blank text, no number, no keys, or a list
    of such things alone. An object whose keys are null is something: it says that they are not on the page.
    """
    if reference is None or reference != reference:  # NaN
        return True
    if isinstance(reference, str):
        return not reference.strip()
    if isinstance(reference, Mapping):
        return not reference
    return isinstance(reference, (list, tuple)) and all(map(is_empty, reference))
