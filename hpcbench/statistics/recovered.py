"""Intervals combined from the intervals of independent runs, of which only the ends are known."""

from __future__ import annotations

import math
from collections.abc import Sequence

Ends = tuple[float | None, float | None, float | None]
"""Lower end, value and upper end of one run; None where it has none."""


def log_widths(baseline: Sequence[Ends], candidate: Sequence[Ends]) -> tuple[float, float] | None:
    """Distances of the interval's ends below and above candidate ÷ baseline, on a logarithmic scale.

    The ratio is that of geometric means over each side's runs. The method of variance estimates recovery
    (Zou & Donner 2008, "Construction of confidence limits about effect measures: a general approach",
    Statistics in Medicine 27:1693): the distances from estimate to limit of both sides are added in squares,
    with the limits that affect each end.

    Args:
        baseline: one or more runs.
        candidate: one or more runs, independent of the baseline's and with intervals of the same confidence.

    Returns:
        Both distances; None where any run has no interval, or an interval without logarithms.
    """
    sides = [_distances(runs) for runs in (baseline, candidate)]
    if sides[0] is None or sides[1] is None:
        return None
    (down0, up0), (down1, up1) = sides[0], sides[1]
    return math.hypot(down1, up0), math.hypot(up1, down0)


def _distances(runs: Sequence[Ends]) -> tuple[float, float] | None:
    """Distances from the mean logarithm of several runs to its ends."""
    down = up = 0.0
    for low, value, high in runs:
        if low is None or value is None or high is None:
            return None
        if not all(0 < end < math.inf for end in (low, value, high)):
            return None
        down += math.log(value / low) ** 2
        up += math.log(high / value) ** 2
    return math.sqrt(down) / len(runs), math.sqrt(up) / len(runs)
