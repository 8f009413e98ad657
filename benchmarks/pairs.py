"""Statistics of ways that took turns: each value of one way has a neighbour of the other way."""

from __future__ import annotations

import random
import statistics


def bootstrap(over: list[float], under: list[float], draws: int = 4000) -> tuple[float, float]:
    """95 % percentile interval of sum(over) / sum(under), pairs drawn together."""
    rng = random.Random(0)
    pairs = list(zip(over, under, strict=True))
    ratios = []
    for _ in range(draws):
        drawn = rng.choices(pairs, k=len(pairs))
        ratios.append(sum(a for a, _ in drawn) / sum(b for _, b in drawn))
    ratios.sort()
    return ratios[int(draws * 0.025)], ratios[int(draws * 0.975)]


def median_interval(values: list[float]) -> tuple[float, float, float]:
    """The median and its 95 % interval, by order statistics: whatever the form of the values.

    Other work on the machine lengthens some values a lot, which moves a median less than a mean.
    """
    ordered, count = sorted(values), len(values)
    half = 0.98 * count**0.5  # 1.96 standard deviations of the binomial with p = 0.5
    low, high = max(0, int(count / 2 - half)), min(count - 1, int(count / 2 + half))
    return statistics.median(ordered), ordered[low], ordered[high]
