"""Repeated looks at a comparison, which stops at the first look that decides, at a stated risk.

A test at 5 % after every block that stops at the first p below it is wrong far more often than in 5 % of
cases. A *spending function* gives the risk that may be used when a share t of the planned samples has been
seen; each look gets the part of it that earlier looks have left. The number and times of the looks may be
unknown, but the times must not depend on the data seen.

Proof. With many clusters the estimates of successive looks, each the mean of all data so far, are those of a
Brownian motion B at the shares t of the information: increments of added clusters are independent of earlier
ones, whatever the metric (Scharfstein, Tsiatis & Robins 1997, JASA 92:1342, for all efficient estimates). If
nothing differs, B has no drift, and the risk spent at look k is the chance that B leaves its boundary there
and not before: the sum over all looks is alpha (Lan & DeMets 1983, Biometrika 70:659). The interval of look k
at level 1 - p(k) thus covers the true difference at all looks together with probability 1 - alpha: a
*repeated confidence interval* (Jennison & Turnbull 1989, J. R. Stat. Soc. B 51:305). It holds for a stop on
equivalence as for one on a difference, and for a stop by any user for any reason. For few clusters each
look's own p-value and its own t interval are used at the level p(k) instead of the normal ones (significance
level approach; Jennison & Turnbull 2000, Group Sequential Methods, section 3.8).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

from hpcbench.statistics.clusters import NO_SPREAD, Interval, check_level, check_share, t_quantile

if TYPE_CHECKING:
    from hpcbench.statistics.clusters import Array, Values

_NORMAL = NormalDist()
_POINTS = 401
"""Points of the grid for the density of comparisons that have not stopped: boundaries to four digits."""
_FARTHEST = 8.0
"""Standard deviations beyond which no value ever occurs."""


def spent(fraction: float, alpha: float = 0.05) -> float:
    """Share of the risk that may be used when a fraction of the planned samples has been seen.

    O'Brien & Fleming's, in the functional form of Lan & DeMets (1983): on either side
    2 - 2 Φ(z(1 - alpha/4) / √t). It is almost 0 at first, so that the last look is nearly the fixed test.

    Args:
        fraction: above 0, at most 1.
        alpha: two-sided, over all looks.

    Raises:
        ValueError: an argument is out of range.
    """
    check_share(alpha, "alpha")
    if not 0 < fraction <= 1:
        raise ValueError(f"a fraction is {fraction}; it must be between 0 and 1")
    z = _NORMAL.inv_cdf(1 - alpha / 4) / math.sqrt(fraction)
    return 2 * math.erfc(z / math.sqrt(2))


def nominal_levels(fractions: Sequence[float], alpha: float = 0.05) -> list[float]:
    """Two-sided p-value at or below which each look decides; the look's interval has level 1 - p.

    The method is numerical integration of the density of comparisons that have not stopped yet (Armitage,
    McPherson & Rowe 1969, J. R. Stat. Soc. A 132:235).

    Args:
        fractions: fraction of the planned samples seen at each look so far; rising, above 0, at most 1.
        alpha: two-sided, over all looks.

    Raises:
        ValueError: they do not increase, or are out of range.
    """
    if any(later <= earlier for earlier, later in zip(fractions, fractions[1:], strict=False)):
        raise ValueError(f"fractions {list(fractions)} must increase")
    found: list[float] = []
    used, before = 0.0, 0.0
    inside: tuple[Array, Array] | None = None
    for fraction in fractions:
        allowed = spent(fraction, alpha)
        boundary = _boundary(inside, fraction - before, fraction, (allowed - used) / 2)
        found.append(math.erfc(boundary / math.sqrt(2)))
        inside = _not_stopped(inside, fraction - before, boundary * math.sqrt(fraction))
        used, before = allowed, fraction
    return found


def crossover(differences: Values, first: Sequence[bool], level: float = 0.95) -> Interval:
    """Mean difference of two alternating treatments, without the order effect.

    Each pair gives one difference; the order within it may matter (a warm cache, a node that heats up). The
    mean over pairs of both orders, each order with weight one half, is free of this effect (Grizzle 1965,
    Biometrics 21:467; Hills & Armitage 1979, Br. J. Clin. Pharmacol. 8:7). Student's t with the pooled
    variance within orders and n - 2 degrees of freedom; where all pairs have one order it is the plain mean.

    Args:
        differences: (n,), one per pair.
        first: for each pair, whether the first treatment came first.
        level: confidence.

    Raises:
        ValueError: there are no pairs, unequal lengths, or a level out of range.
    """
    import numpy

    check_level(level)
    values = numpy.asarray(differences, dtype=numpy.float64)
    orders = numpy.asarray(first, dtype=bool)
    if not len(values) or len(values) != len(orders):
        raise ValueError(f"{len(values)} differences do not fit {len(orders)} orders")
    groups = [values[orders], values[~orders]]
    both = all(len(group) for group in groups)
    groups = groups if both else [values]
    n, degrees = len(values), len(values) - len(groups)
    estimate = float(numpy.mean([group.mean() for group in groups]))
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    method = "t over pairs, orders balanced" if both else "t over pairs of one order"
    if degrees < 1:
        return Interval(estimate, None, None, n, n, "undefined: too few pairs", level)
    scale = sum(1 / len(group) for group in groups) / len(groups) ** 2
    error = math.sqrt(squares / degrees * scale)
    if error <= 1e-12 * max(abs(estimate), 1e-300):
        return Interval(estimate, None, None, n, n, NO_SPREAD, level)
    half = t_quantile((1 + level) / 2, degrees) * error
    return Interval(estimate, estimate - half, estimate + half, n, n, method, level, error)


def _boundary(
    inside: tuple[Array, Array] | None, step: float, fraction: float, wanted: float
) -> float:
    """Boundary of Z that running comparisons leave on one side with the given chance."""
    low, high = 0.0, _FARTHEST
    for _ in range(50):
        middle = (low + high) / 2
        if _leaving(inside, step, middle * math.sqrt(fraction)) > wanted:
            low = middle
        else:
            high = middle
    return high


def _leaving(inside: tuple[Array, Array] | None, step: float, edge: float) -> float:
    """Chance to be above an edge after a step without an earlier stop."""
    from scipy.special import ndtr

    deviation = math.sqrt(step)
    if inside is None:
        return float(ndtr(-edge / deviation))
    places, weights = inside
    return float((weights * ndtr((places - edge) / deviation)).sum())


def _not_stopped(
    inside: tuple[Array, Array] | None, step: float, edge: float
) -> tuple[Array, Array]:
    """Values of B after a step within ± edge: places, and the density there times Simpson's weights."""
    import numpy

    places = numpy.linspace(-edge, edge, _POINTS)
    scale = 1 / math.sqrt(2 * math.pi * step)
    if inside is None:
        density = scale * numpy.exp(-(places**2) / (2 * step))
    else:
        before, weights = inside
        distance = places[:, None] - before[None, :]
        density = scale * (numpy.exp(-(distance**2) / (2 * step)) @ weights)
    simpson = numpy.full(_POINTS, 2.0)
    simpson[1::2] = 4.0
    simpson[[0, -1]] = 1.0
    width = 2 * edge / (_POINTS - 1)
    return places, density * simpson * width / 3
