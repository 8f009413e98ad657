"""Intervals put together from those of independent runs, where nothing but their ends is known."""

from __future__ import annotations

import math
from collections.abc import Sequence

Ends = tuple[float | None, float | None, float | None]
"""Lower end, value and upper end of one run; None where it has none."""


def log_widths(baseline: Sequence[Ends], candidate: Sequence[Ends]) -> tuple[float, float] | None:
    """How far the interval of candidate ÷ baseline reaches below and above it, on logarithms.

    The ratio is that of geometric means over each side's runs. The method of variance estimates recovery
    (Zou & Donner 2008, "Construction of confidence limits about effect measures: a general approach",
    Statistics in Medicine 27:1693): the distances from estimate to limit of the two are added in squares,
    each end by the limits that bear on it.

    Args:
        baseline: one or more runs.
        candidate: one or more runs, independent of those and with intervals of the same confidence.

    Returns:
        Both distances; None where any run has no interval, or one that logarithms cannot take.
    """
    sides = [_distances(runs) for runs in (baseline, candidate)]
    if sides[0] is None or sides[1] is None:
        return None
    (down0, up0), (down1, up1) = sides[0], sides[1]
    return math.hypot(down1, up0), math.hypot(up1, down0)


def _distances(runs: Sequence[Ends]) -> tuple[float, float] | None:
    """From the mean logarithm of several runs to its ends."""
    down = up = 0.0
    for low, value, high in runs:
        if low is None or value is None or high is None:
            return None
        if not all(0 < end < math.inf for end in (low, value, high)):
            return None
        down += math.log(value / low) ** 2
        up += math.log(high / value) ** 2
    return math.sqrt(down) / len(runs), math.sqrt(up) / len(runs)
