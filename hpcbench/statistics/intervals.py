"""Intervals of means and shares over samples that come in clusters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from hpcbench.statistics.clusters import (
    NO_SPREAD,
    ONE_CLUSTER,
    ROUNDING,
    Bounds,
    Interval,
    as_values,
    check_level,
    clip,
    codes_of,
    exact_sum,
    exact_sums,
    t_quantile,
)

if TYPE_CHECKING:
    from hpcbench.statistics.clusters import Array, Clusters, Values

CR1 = "t, clustered standard error CR1"

FEW = 10
"""Fewer right, or fewer wrong answers than this among the effective ones: the mean is not yet normal."""


def mean_interval(
    values: Values,
    clusters: Clusters = None,
    level: float = 0.95,
    *,
    bounds: Bounds | None = None,
    weights: Values | None = None,
) -> Interval:
    """Mean of values that come in clusters, with a t interval from the CR1 standard error.

    A share near 0 or 1 is no case for t: where the bounds are 0 and 1, all values are one or the other and
    the rarer kind makes up fewer than 10 effective samples, the interval is Wilson's with an effective
    sample size. That is n over the design effect (Kish 1965, *Survey Sampling*, section 8.2), as Korn &
    Graubard 1998 (Survey Methodology 24:193) do and Franco et al. 2019 (J. Surv. Stat. Methodol. 7:334)
    find to cover well; but few samples of a kind cannot tell whether they go together, so the design effect
    is taken as if one more cluster had gone wholly the other way. With none of a kind at all that leaves the
    number of clusters: each counts as one sample.

    Args:
        values: one per sample.
        clusters: the cluster of each value; None: each stands for itself.
        level: confidence, between 0 and 1.
        bounds: the metric's least and greatest value, to clip the interval to.
        weights: of the samples, 0 or more; the mean is the sum of weight × value over the sum of weights,
            its error that of a ratio (linearised). None: all alike.

    Returns:
        Ends are None for a single cluster, and where all cluster totals agree and are not all 0 or all 1:
        such data bear no trace of chance, and an interval of width 0 would claim certainty.

    Raises:
        ValueError: no values, unequal lengths, a value that is not finite, a level out of range, a negative
            weight or only zeros.
    """
    check_level(level)
    found = _spread(values, clusters, weights)
    mean, groups, n = found.mean, found.groups, len(found.values)
    if groups == 1:
        return Interval(mean, None, None, n, 1, ONE_CLUSTER, level)
    if bounds == (0, 1) and (share := _share_interval(found, level)) is not None:
        return share
    if found.nothing:
        return Interval(mean, None, None, n, groups, NO_SPREAD, level)
    half = t_quantile((1 + level) / 2, groups - 1) * found.error
    low, high = clip(mean - half, mean + half, bounds)
    return Interval(mean, low, high, n, groups, CR1, level, found.error)


def clustered_standard_error(
    values: Values, clusters: Clusters = None, weights: Values | None = None
) -> float | None:
    """CR1 standard error of the mean: sqrt(G/(G-1) * sum over clusters of (sum of residuals)²) / n.

    With one value per cluster this is the usual s / sqrt(n). With weights w, residuals are w * (value -
    weighted mean) and n is the sum of weights.

    Args:
        values: one per sample.
        clusters: the cluster of each value; None: each stands for itself.
        weights: of the samples; None: all alike.

    Returns:
        In the unit of the values; None for a single cluster.

    Raises:
        ValueError: no values, unequal lengths, a value that is not finite, a negative weight or only zeros.
    """
    found = _spread(values, clusters, weights)
    return found.error if found.groups > 1 else None


def proportion_interval(successes: int, n: int, level: float = 0.95) -> Interval:
    """Share of successes with Wilson's score interval (Wilson 1927), for independent samples.

    Args:
        successes: samples that are right.
        n: samples.
        level: confidence, between 0 and 1.

    Raises:
        ValueError: no samples, successes not between 0 and n, a level out of range.
    """
    check_level(level)
    if n <= 0:
        raise ValueError("an interval needs at least one sample")
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes among {n} samples cannot be")
    low, high = wilson(successes / n, n, NormalDist().inv_cdf((1 + level) / 2))
    return Interval(successes / n, low, high, n, n, "Wilson", level)


def wilson(share: float, n: float, z: float) -> tuple[float, float]:
    """Ends of Wilson's interval of a share of n samples, z standard errors away."""
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # The ends are exactly 0 and 1 there; the formula misses them by rounding.
    return 0.0 if share == 0 else middle - half, 1.0 if share == 1 else middle + half


@dataclass(frozen=True, slots=True)
class _Spread:
    """A mean with what its error is made of."""

    values: Array
    weights: Array | None
    codes: Array
    groups: int
    total: float
    """Sum of weights; samples where there are none."""
    mean: float
    squares: float
    """Sum over clusters of the squared sum of residuals."""

    @property
    def error(self) -> float:
        return math.sqrt(self.groups / (self.groups - 1) * self.squares) / self.total

    @property
    def nothing(self) -> bool:
        """Whether there is no more spread than rounding makes."""
        import numpy

        return self.error <= ROUNDING * float(numpy.abs(self.values).max())


def _spread(values: Values, clusters: Clusters, weights: Values | None) -> _Spread:
    import numpy

    numbers = as_values(values)
    codes, groups = codes_of(clusters, len(numbers))
    if weights is None:
        heavy, weighed, total = None, numbers, float(len(numbers))
        sizes = numpy.bincount(codes, minlength=groups).astype(numpy.float64)
    else:
        heavy = as_values(weights)
        if len(heavy) != len(numbers):
            raise ValueError(f"{len(numbers)} values do not fit {len(heavy)} weights")
        if heavy.min() < 0 or not heavy.any():
            raise ValueError("weights are 0 or more, and not all 0")
        weighed, total = numbers * heavy, exact_sum(heavy)
        sizes = exact_sums(heavy, codes, groups)
    mean = exact_sum(weighed) / total
    residuals = exact_sums(weighed, codes, groups) - mean * sizes
    return _Spread(numbers, heavy, codes, groups, total, mean, float(exact_sums(residuals**2)[0]))


def _share_interval(found: _Spread, level: float) -> Interval | None:
    """Wilson's interval of values that are all 0 or 1; None where they are not, or many are of each kind."""
    import numpy

    values, mean, n = found.values, found.mean, len(found.values)
    if not ((values == 0) | (values == 1)).all():
        return None
    weights = numpy.ones(n) if found.weights is None else found.weights
    sizes = exact_sums(weights, found.codes, found.groups)
    alike = mean in (0, 1)
    apart = found.groups == n
    # Design effect: variance with clusters over variance without, each with one more cluster of the usual
    # size (as a sample meets it) whose answers all go the other way.
    usual = float(exact_sums(sizes**2)[0]) / found.total
    heaviness = float(exact_sums(weights**2)[0]) / found.total
    together = found.squares * (1 if apart else found.groups / (found.groups - 1)) + usual**2
    alone = float(exact_sums((weights * (values - mean)) ** 2)[0]) + usual * heaviness
    effect = 1.0 if apart else max(1.0, together / alone)
    effective = found.total / heaviness / effect
    if effective * min(mean, 1 - mean) >= FEW * (1 - ROUNDING):
        return None
    # Nothing is estimated of independent samples, nor of clusters that count as one sample each.
    z = (
        NormalDist().inv_cdf((1 + level) / 2)
        if apart or alike
        else t_quantile((1 + level) / 2, found.groups - 1)
    )
    low, high = wilson(mean, effective, z)
    plain = apart and found.weights is None
    method = "Wilson" if plain else f"Wilson, effective sample size {effective:.4g}"
    return Interval(mean, low, high, n, found.groups, method, level)
