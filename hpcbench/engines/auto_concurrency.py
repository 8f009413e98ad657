"""Number of concurrent requests to our engines under `concurrency: auto`.

The numbers depend on definitions alone, so a plan sends the same number on every machine. Requests beyond an
engine's capacity wait inside it. docs/what-to-set.md has the rule, docs/decisions/0066-auto-is-a-number.md
the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ON_GPUS = 64
"""For an engine on GPUs that adds requests to the running batch."""

ON_CPUS = 4
"""For such an engine on CPUs."""

ELSEWHERE = 8
"""For an endpoint elsewhere, whose capacity is unknown and which may have other users."""


def batched(options: Mapping[str, Any], gpus: int, limit: str) -> int:
    """The number for an engine that batches: its usual number, or its own limit if that is lower.

    Args:
        options: the model definition's `engine_options`.
        gpus: GPUs of the engine; 0: it runs on CPUs.
        limit: the option that limits its batch.
    """
    usual = ON_GPUS if gpus else ON_CPUS
    given = {name.replace("-", "_"): value for name, value in options.items()}.get(limit)
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        return usual
    return min(usual, given)
