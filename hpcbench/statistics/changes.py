"""Where a series of measurements changed its level: change points, by a test without a form of
distribution.

E-divisive means (Matteson & James 2014, Journal of the American Statistical Association 109:334) as MongoDB
(Daly et al. 2020, "The use of change point detection to identify software performance regressions in a
continuous integration system", ICPE) and Hunter (Fleming et al. 2023, ICPE) use it for nightly
benchmarks: the series is cut where the energy distance between both sides is greatest, a permutation
test says whether that cut is more than chance, and both sides are looked at in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcbench.statistics.clusters import Array

LEAST = 3
"""Points on either side of a change: one or two that are off are outliers, no new level."""

PERMUTATIONS = 499


@dataclass(frozen=True, slots=True)
class Change:
    """A new level."""

    at: int
    """Place of the first point of the new level."""
    before: float
    """Mean from the change before it (or the first point) up to this one."""
    after: float
    """Mean from here up to the next change (or the last point)."""
    p_value: float
    """Chance of as great a distance if all points of the stretch had come in any order."""


def changes(
    values: Sequence[float],
    level: float = 0.05,
    *,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> list[Change]:
    """Change points of a series, in order.

    A cut into the first m and the other n of N points has the statistic m n / (m + n) times the energy
    distance 2 E|X - Y| - E|X - X'| - E|Y - Y'| with means over all pairs. The p-value is (1 + as great ones
    among random orders) / (1 + orders), so a series without a change, whatever its distribution, is said to
    have one in at most `level` of cases; points have to be exchangeable, so a slow drift is a change, too.
    Fewer than 8 points cannot show any at the usual level.

    Args:
        values: in order of time.
        level: chance of a false alarm in a series without a change, between 0 and 1.
        seed: of the random orders.
        permutations: how many.

    Raises:
        ValueError: a value that is not finite, a level out of range.
    """
    import numpy

    series = numpy.asarray(values, dtype=numpy.float64)
    if series.ndim != 1 or not numpy.isfinite(series).all():
        raise ValueError("a series holds finite numbers")
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; it lies between 0 and 1")
    if len(series) < 2 * LEAST:
        return []
    generator = numpy.random.Generator(numpy.random.PCG64(seed))
    found: dict[int, float] = {}
    waiting = [(0, len(series))]
    while waiting:
        begin, end = waiting.pop()
        if end - begin < 2 * LEAST:
            continue
        cut, p_value = _tested(series[begin:end], generator, permutations)
        if p_value <= level:
            found[begin + cut] = p_value
            waiting += [(begin, begin + cut), (begin + cut, end)]
    places = sorted(found)
    bounds = [0, *places, len(series)]
    means = [
        float(series[begin:end].mean()) for begin, end in zip(bounds, bounds[1:], strict=False)
    ]
    return [
        Change(place, means[number], means[number + 1], found[place])
        for number, place in enumerate(places)
    ]


def _tested(series: Array, generator: object, permutations: int) -> tuple[int, float]:
    """The best cut of a stretch, and its p-value."""
    import numpy

    assert isinstance(generator, numpy.random.Generator)
    distances = numpy.abs(series[:, None] - series[None, :])
    cut, seen = _best(distances)
    # What differs by rounding alone is as great.
    least = seen - 1e-9 * max(abs(seen), float(distances.max()))
    extreme = 0
    for _ in range(permutations):
        order = generator.permutation(len(series))
        extreme += _best(distances[numpy.ix_(order, order)])[1] >= least
    return cut, (1 + extreme) / (1 + permutations)


def _best(distances: Array) -> tuple[int, float]:
    """The cut with the greatest statistic of points whose distances are (N, N), and that."""
    import numpy

    size = len(distances)
    upto = numpy.cumsum(numpy.triu(distances, 1).sum(axis=0))  # pairs among the first m + 1 points
    whole = upto[-1]
    rows = numpy.cumsum(distances.sum(axis=1))  # of the first m + 1 points to all
    first = numpy.arange(LEAST, size - LEAST + 1)
    other = size - first
    within = upto[first - 1]
    between = rows[first - 1] - 2 * within
    beyond = whole - within - between
    found = (
        first * other / size
        * (2 * between / (first * other) - 2 * within / first**2 - 2 * beyond / other**2)
    )  # fmt: skip
    best = int(found.argmax())
    return int(first[best]), float(found[best])
