"""Intervals of means and shares over samples that come in clusters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcbench.statistics.clusters import (
    NO_SPREAD,
    ONE_CLUSTER,
    ROUNDING,
    Bounds,
    Interval,
    as_values,
    check_level,
    codes_of,
    exact_sum,
    exact_sums,
    t_quantile,
)
from hpcbench.statistics.limits import CR1, EXACT, VALUE, Caution, limits

if TYPE_CHECKING:
    from hpcbench.statistics.clusters import Array, Clusters, Values


def mean_interval(
    values: Values,
    clusters: Clusters = None,
    level: float = 0.95,
    *,
    bounds: Bounds | None = None,
    weights: Values | None = None,
    caution: Caution = VALUE,
) -> Interval:
    """Mean of values that come in clusters.

    With a bound on either side the limits are those of `hpcbench.statistics.limits`, which also hold near the
    bound. Without bounds they are Student's t with the CR1 standard error.

    Args:
        values: one per sample.
        clusters: the cluster of each value; None: each value is a cluster.
        level: confidence, between 0 and 1.
        bounds: the metric's least and greatest value.
        weights: of the samples, 0 or more; the mean is the sum of weight × value over the sum of weights,
            its error is that of a ratio (linearised). None: equal weights.
        caution: weight of unseen values, see `limits`.

    Returns:
        Ends are None for a single cluster, and where all clusters agree and a side has no bound: such data
        show no chance, and an interval of width 0 would claim certainty.

    Raises:
        ValueError: there are no values, unequal lengths, a value that is not finite, a level out of range, a
            negative weight, or only zero weights.
    """
    check_level(level)
    found = _spread(values, clusters, weights)
    n = len(found.values)
    return sums_limits(
        found.over, found.under, found.mean, n, level, bounds, caution,
        error=found.error if found.groups > 1 else None,
        nothing=found.groups > 1 and found.nothing,
    )  # fmt: skip


def sums_limits(
    over: Array,
    under: Array,
    estimate: float,
    n: int,
    level: float,
    bounds: Bounds | None,
    caution: Caution,
    *,
    error: float | None,
    nothing: bool,
) -> Interval:
    """Interval of a ratio of sums by cluster whose estimate and error are known.

    Args:
        over: (G,) numerators by cluster.
        under: (G,) denominators by cluster.
        estimate: the ratio.
        n: samples.
        level: confidence.
        bounds: least and greatest value.
        caution: weight of unseen values.
        error: standard error.
        nothing: whether clusters differ only by rounding.
    """
    groups = len(over)
    least, greatest = bounds or (None, None)
    if groups == 1:
        return Interval(estimate, None, None, n, 1, ONE_CLUSTER, level)
    if nothing and (least is None or greatest is None):
        return Interval(estimate, None, None, n, groups, NO_SPREAD, level)
    if least is None and greatest is None:
        assert error is not None
        half = t_quantile((1 + level) / 2, groups - 1) * error
        return Interval(estimate, estimate - half, estimate + half, n, groups, CR1, level, error)
    found = limits(over, under, (least, greatest), level, caution)
    low, high = min(found.low, estimate), max(found.high, estimate)
    return Interval(estimate, low, high, n, groups, found.method, level, error)


def clustered_standard_error(values: Values, clusters: Clusters = None) -> float | None:
    """CR1 standard error of the mean: sqrt(G/(G-1) * sum over clusters of (sum of residuals)²) / n.

    With one value per cluster this is the usual s / sqrt(n).

    Args:
        values: one per sample.
        clusters: the cluster of each value; None: each value is a cluster.

    Returns:
        The error in the unit of the values; None for a single cluster.

    Raises:
        ValueError: there are no values, unequal lengths, or a value that is not finite.
    """
    found = _spread(values, clusters, None)
    return found.error if found.groups > 1 else None


def proportion_interval(successes: int, n: int, level: float = 0.95) -> Interval:
    """Share of successes of independent samples: Clopper and Pearson's interval (1934, Biometrika 26:404).

    Args:
        successes: correct samples.
        n: samples.
        level: confidence, between 0 and 1.

    Raises:
        ValueError: there are no samples, successes not between 0 and n, or a level out of range.
    """
    from scipy.special import betaincinv

    check_level(level)
    if n <= 0:
        raise ValueError("an interval needs at least one sample")
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes among {n} samples are impossible")
    tail, wrong = (1 - level) / 2, n - successes
    low = float(betaincinv(successes, wrong + 1, tail)) if successes else 0.0
    high = float(betaincinv(successes + 1, wrong, 1 - tail)) if wrong else 1.0
    return Interval(successes / n, low, high, n, n, EXACT, level)


@dataclass(frozen=True, slots=True)
class _Spread:
    """A mean with the sums that give its error."""

    values: Array
    over: Array
    """Sums of weight × value by cluster."""
    under: Array
    """Sums of weights by cluster; without weights, counts of samples."""
    total: float
    """Sum of weights."""
    mean: float
    squares: float
    """Sum over clusters of the squared sum of residuals."""

    @property
    def groups(self) -> int:
        return len(self.over)

    @property
    def error(self) -> float:
        return math.sqrt(self.groups / (self.groups - 1) * self.squares) / self.total

    @property
    def nothing(self) -> bool:
        """Whether the spread is no more than rounding error."""
        import numpy

        return self.error <= ROUNDING * float(numpy.abs(self.values).max())


def _spread(values: Values, clusters: Clusters, weights: Values | None) -> _Spread:
    import numpy

    numbers = as_values(values)
    codes, groups = codes_of(clusters, len(numbers))
    if weights is None:
        weighed, total = numbers, float(len(numbers))
        sizes = numpy.bincount(codes, minlength=groups).astype(numpy.float64)
    else:
        heavy = as_values(weights)
        if len(heavy) != len(numbers):
            raise ValueError(f"{len(numbers)} values do not fit {len(heavy)} weights")
        if heavy.min() < 0 or not heavy.any():
            raise ValueError("weights must be 0 or more, and not all 0")
        weighed, total = numbers * heavy, exact_sum(heavy)
        sizes = exact_sums(heavy, codes, groups)
    mean = exact_sum(weighed) / total
    sums = exact_sums(weighed, codes, groups)
    residuals = sums - mean * sizes
    return _Spread(numbers, sums, sizes, total, mean, float(exact_sums(residuals**2)[0]))
