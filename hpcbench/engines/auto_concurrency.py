"""How many requests our engines are asked at once under `concurrency: auto`.

The numbers depend on documents alone, so a plan asks as many on every machine. What an engine has no room for
waits inside it. docs/what-to-set.md has the rule, docs/decisions/0066-auto-is-a-number.md the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ON_GPUS = 64
"""Of an engine on GPUs that adds requests to the batch while others are being answered."""

ON_CPUS = 4
"""Of such an engine on CPUs."""

ELSEWHERE = 8
"""Of an endpoint elsewhere, whose capacity is not known and which others may use, too."""


def batched(options: Mapping[str, Any], gpus: int, limit: str) -> int:
    """For an engine that batches: its usual number, or its own limit where that is lower.

    Args:
        options: the model document's `engine_options`.
        gpus: GPUs of the engine; 0: it runs on CPUs.
        limit: the option that limits its batch.
    """
    usual = ON_GPUS if gpus else ON_CPUS
    given = {name.replace("-", "_"): value for name, value in options.items()}.get(limit)
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        return usual
    return min(usual, given)
