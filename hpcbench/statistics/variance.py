"""Sources of spread: documents, samples, or the model's own chance in repeated answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcbench.statistics.clusters import (
    ROUNDING,
    Bounds,
    Interval,
    as_values,
    check_finite,
    codes_of,
    exact_sum,
    exact_sums,
)
from hpcbench.statistics.intervals import mean_interval

if TYPE_CHECKING:
    from hpcbench.statistics.clusters import Array, Clusters, Values


@dataclass(frozen=True, slots=True)
class Repeats:
    """Repeated answers to the same samples: the share of the spread that is the model's own chance."""

    interval: Interval
    """Interval of the mean over all repeats, by cluster: repeats of a sample stay together."""
    runs: int
    """Number of repeats."""
    means: tuple[float, ...]
    """Mean of each repeat, in their order."""
    run_deviation: float | None
    """Standard deviation of these means; None for one repeat."""
    within: float | None
    """Variance of a sample's value between repeats; None for one repeat."""
    between: float | None
    """Variance of samples' true values, 0 or more; None for one repeat or one sample."""
    reliability: float | None
    """Share of a single answer's variance that is between samples, ICC(1,1); None without variance."""
    reliability_of_mean: float | None
    """The same for the mean over the repeats, ICC(1,R)."""
    chance_error: float | None
    """Standard error of the mean from repeated answers, sqrt(within / (R n)): two repetitions of the whole
    are hardly closer than this. More repeats shrink it, more documents shrink the interval.
    """


def repeats(
    values: Array,
    clusters: Clusters = None,
    level: float = 0.95,
    *,
    bounds: Bounds | None = None,
) -> Repeats:
    """Variance components of R repeats of n samples, from the one-way random-effects analysis of variance.

    Shrout & Fleiss 1979 (Psychological Bulletin 86:420), case 1: with B the mean square between samples and
    W that within, between = (B - W) / R, held at 0; ICC(1,1) = between / (between + within), ICC(1,R) =
    between / (between + within / R). The mean's interval takes each sample's mean over repeats (Miller
    2024, arXiv 2411.00640, section 3.1) and is clustered by document.

    Args:
        values: (R, n), one row per repeat, samples in the same order.
        clusters: the cluster of each of the n samples; None: each sample is a cluster.
        level: confidence of the interval.
        bounds: the metric's least and greatest value.

    Raises:
        ValueError: there are not two dimensions, no values, a value that is not finite, or not n clusters.
    """
    import numpy

    table = numpy.asarray(values, dtype=numpy.float64)
    if table.ndim != 2 or not table.size:
        raise ValueError(f"repeats are a table (repeats, samples), not {table.shape}")
    check_finite(table)
    runs, n = table.shape
    # Sorted by value, so that the order of repeats does not affect a sample's mean.
    per_sample = numpy.sort(table, axis=0).mean(axis=0)
    interval = mean_interval(per_sample, clusters, level, bounds=bounds)
    means = tuple(exact_sum(row) / n for row in table)
    if runs == 1:
        return Repeats(interval, 1, means, None, None, None, None, None, None)
    squares = numpy.sort((table - per_sample) ** 2, axis=0).sum(axis=0)
    within = exact_sum(squares) / (n * (runs - 1))
    tiny = (ROUNDING * float(numpy.abs(table).max())) ** 2
    between = None
    if n > 1:
        spread = float(exact_sums((per_sample - interval.estimate) ** 2)[0]) / (n - 1)
        between = max(0.0, spread - within / runs)

    def share_between(noise: float) -> float | None:
        known = between is not None and between + noise > tiny
        return between / (between + noise) if between is not None and known else None

    middle = math.fsum(means) / runs
    deviation = math.sqrt(math.fsum((mean - middle) ** 2 for mean in means) / (runs - 1))
    return Repeats(
        interval=interval,
        runs=runs,
        means=means,
        run_deviation=deviation,
        within=within,
        between=between,
        reliability=share_between(within),
        reliability_of_mean=share_between(within / runs),
        chance_error=math.sqrt(within / (runs * n)),
    )


def intraclass_correlation(values: Values, clusters: Clusters) -> float | None:
    """Similarity of values within a cluster: the share of the variance between clusters.

    Analysis-of-variance estimator for clusters of unequal size (Donner 1986, Int. Stat. Review 54:67):
    (B - W) / (B + (m - 1) W) with B and W the mean squares between and within clusters and m the size of
    clusters, (n - sum of sizes² / n) / (G - 1). It may be negative.

    Returns:
        The share; None where it is undefined: one cluster, no cluster of two values, or all values equal.

    Raises:
        ValueError: there are no values, unequal lengths, or a value that is not finite.
    """
    import numpy

    numbers = as_values(values)
    codes, groups = codes_of(clusters, len(numbers))
    n = len(numbers)
    if groups in (1, n):
        return None
    sizes = numpy.bincount(codes, minlength=groups)
    means = exact_sums(numbers, codes, groups) / sizes
    mean = exact_sum(numbers) / n
    between = float(exact_sums(sizes * (means - mean) ** 2)[0]) / (groups - 1)
    within = float(exact_sums((numbers - means[codes]) ** 2)[0]) / (n - groups)
    size = (n - float((sizes.astype(float) ** 2).sum()) / n) / (groups - 1)
    whole = between + (size - 1) * within
    tiny = (ROUNDING * float(numpy.abs(numbers).max())) ** 2
    return (between - within) / whole if whole > tiny else None
