"""How many cases a campaign takes: all of them in `make test-full` and `make search`, a share in `make test`.

Both run the same tests. The share is the first cases of the same series.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

SEARCH = os.environ.get("HPCBENCH_SEARCH") == "1"
FULL = SEARCH or os.environ.get("HPCBENCH_FULL") == "1"


def cases(count: int) -> int:
    """Number of cases to run, of `count` that a test makes itself."""
    return count if FULL else max(1, count // 20)


def first(count: int, params: Iterable[Any]) -> list[Any]:
    """Parameters of a test of which the first so many show the behaviour, and the others are its campaign."""
    return [one if place < count else _campaign(one) for place, one in enumerate(params)]


def _campaign(param: Any) -> Any:
    if isinstance(param, type(pytest.param())):
        return pytest.param(*param.values, id=param.id, marks=(*param.marks, pytest.mark.campaign))
    values = param if isinstance(param, tuple) else (param,)
    return pytest.param(*values, marks=pytest.mark.campaign)


def examples(count: int) -> int:
    """Number of examples to run, of `count` that Hypothesis draws for a test."""
    return count if FULL else max(5, count // 4)
