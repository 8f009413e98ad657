"""Changes of level in a series that is read every night.

A test at 5 % that is repeated every night shows a false change in half of all flat series within three
months; correlated nights increase this share. So the series is monitored: each night gives one decision from
the nights so far, and no decision is revoked. At most a share `level` of series without a change ever
shows one, for any length of the series and any number of readings.

The method is a sequential change-point model with rank statistics (Hawkins & Deng 2010, Journal of Quality
Technology 42:165; Ross, Tasoulis & Adams 2011, Technometrics 53:379):

1. *Whitening.* Night t counts as x(t) - φ x(t-1), which removes autocorrelation of the first order and keeps
   a new level at 1 - φ of its height. φ is 0, 0.1, 0.2 or 0.3. It is estimated from ranks, by mean squared
   differences of nights one and two apart, 1 + φ = D(2) / D(1), and rounded up. A new level hardly affects
   such differences (Hall & Van Keilegom 2003, J. R. Stat. Soc. B 65:443).
2. *Ranks.* Each cut of the t whitened nights into m and n is judged by the Mann-Whitney statistic S, pairs
   that rose minus pairs that fell. Its distribution does not depend on the nights' distribution, skewed,
   bounded or heavy-tailed; ties only make S smaller.
3. *Spending.* A cut shows a change at night t if the chance of such an S is at most 0.3 level / t². The sum
   over all nights is finite. The factor 0.3 comes from simulation: all cuts of all nights together keep a
   flat series below `level` (`benchmarks/calibration_series.py`).
4. *Restart.* From the cut, monitoring begins again with the new level only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcbench.statistics.clusters import Array

LEAST = 3
"""Fewest points on either side of a change: one or two deviating points are outliers, no new level."""

STEP = 0.1
"""Step between the assumed autocorrelations."""
STEPS = 3
"""Number of steps above 0: the promise holds up to 0.3."""

SHARE = 0.3
"""Share of the level, over t²: the chance at or below which a cut shows a change at night t."""

PARTS, EXCHANGES = 25, 400
"""Most nights on the shorter side, and most exchanges, for which orders are counted; beyond, bounds agree."""


@dataclass(frozen=True, slots=True)
class Change:
    """A new level."""

    at: int
    """Place of the first point of the new level, by the nights up to `seen`."""
    before: float
    """Mean from the previous change (or the first point) up to this one."""
    after: float
    """Mean from this change up to the next one (or the last point)."""
    seen: int
    """Place of the point that showed it. Later points change neither `at` nor `seen`."""


def changes(values: Sequence[float], level: float = 0.05) -> list[Change]:
    """Change points of a series, in order.

    `changes(values[:t])` has exactly the changes of `changes(values)` with `seen < t`: a shown change stays.
    A flat series is one whose nights have the same distribution and an autocorrelation of the first order
    from 0 to 0.3; a slow drift is also a change. Fewer than 18 points cannot show any at the usual level.

    Args:
        values: (N,) in order of time.
        level: chance that a flat series, read after every point, ever shows a change; between 0 and 1.

    Raises:
        ValueError: a value is not finite, or a level is out of range.
    """
    import numpy

    series = numpy.asarray(values, dtype=numpy.float64)
    if series.ndim != 1 or not numpy.isfinite(series).all():
        raise ValueError("a series must contain only finite numbers")
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; it must be between 0 and 1")
    places, seen = [0], [0]
    while found := _first(series[places[-1] :], level):
        seen.append(max(seen[-1], places[-1] + found[1]))
        places.append(places[-1] + found[0])
    bounds = [*places, len(series)]
    means = [
        float(series[begin:end].mean()) for begin, end in zip(bounds, bounds[1:], strict=False)
    ] if len(series) else []  # fmt: skip
    return [
        Change(places[number], means[number - 1], means[number], seen[number])
        for number in range(1, len(places))
    ]


def _first(series: Array, level: float) -> tuple[int, int] | None:
    """Place of a series' first change, and the night that shows it; None: no night shows any."""
    import numpy

    nights = len(series)
    share = STEP * numpy.arange(STEPS + 1)[:, None]
    white = series[1:] - share * series[:-1]
    ranks = numpy.zeros(nights)  # nights below minus nights above
    balance = numpy.zeros((STEPS + 1, nights))  # S of the cut before each whitened night
    for night in range(1, nights):
        above = numpy.sign(series[night] - series[:night])
        ranks[:night] -= above
        ranks[night] = above.sum()
        last = night - 1
        rose = numpy.sign(white[:, last:night] - white[:, :last])
        balance[:, 1:night] += numpy.cumsum(rose, axis=1)
        if night < 2 * LEAST:
            continue
        seen = balance[_autocorrelation(ranks[: night + 1]), LEAST : night - LEAST + 1]
        clear = numpy.abs(seen) / _wanted(night, level)
        cut = int(clear.argmax())
        if clear[cut] >= 1:
            return LEAST + cut + 1, night
    return None


def _autocorrelation(ranks: Array) -> int:
    """Autocorrelation of neighbouring nights in `STEP`s, rounded up, between 0 and `STEPS`."""
    next_, second = ranks[1:] - ranks[:-1], ranks[2:] - ranks[:-2]
    near, far = float(next_ @ next_) / len(next_), float(second @ second) / len(second)
    if near == 0:  # all values are equal
        return STEPS
    return min(STEPS, max(0, math.ceil((far / near - 1) / STEP - 1e-9)))


@lru_cache(maxsize=1024)
def _wanted(nights: int, level: float) -> Array:
    """The least |S| that shows a change, for each cut of whitened nights with `LEAST` nights on either side.

    The chance of a given S has two upper bounds, and the smaller one counts. One is the normal limit, whose
    tails are heavier. For the other, S = m n - 2 d is d exchanges of neighbours away from two sides that do
    not overlap. Among the C(m + n, m) orders, the number as near as that is the number of partitions of at
    most d into at most min(m, n) parts; this is exact up to d = max(m, n).
    """
    import numpy
    from scipy.special import gammaln, ndtri

    chance = SHARE * level / nights**2
    one = numpy.arange(LEAST, nights - LEAST + 1)
    other = nights - one
    wanted: Array = -ndtri(chance) * numpy.sqrt(one * other * (nights + 1) / 3)
    short = one[: min(len(one), PARTS - LEAST + 1)]
    long = nights - short
    orders = gammaln(nights + 1) - gammaln(short + 1) - gammaln(long + 1)
    near = _partitions()[numpy.minimum(short, long)] <= (math.log(chance) + orders + 1e-9)[:, None]
    exchanges = near.sum(axis=1) - 1
    # -1: even sides that do not overlap are not rare enough.
    counted = numpy.where(exchanges >= 0, short * long - 2 * exchanges, numpy.inf)
    wanted[: len(short)] = numpy.minimum(wanted[: len(short)], counted)
    wanted[-len(short) :] = numpy.minimum(wanted[-len(short) :], counted[::-1])
    return wanted


@lru_cache(maxsize=1)
def _partitions() -> Array:
    """(s, d): logarithm of the number of partitions of numbers up to d into at most s parts."""
    import numpy

    count = numpy.zeros((PARTS + 1, EXCHANGES + 1))
    count[:, 0] = 1
    for most in range(1, PARTS + 1):
        count[most] = count[most - 1]
        for whole in range(most, EXCHANGES + 1):
            count[most, whole] += count[most, whole - most]
    upto: Array = numpy.log(count.cumsum(axis=1))
    return upto
