"""Quantiles: an interval, the number of values needed, and a bound."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpcbench.statistics.clusters import (
    ONE_CLUSTER,
    Interval,
    as_values,
    check_level,
    check_share,
    codes_of,
)
from hpcbench.statistics.intervals import mean_interval

if TYPE_CHECKING:
    from hpcbench.statistics.clusters import Clusters, Values


ORDER_STATISTICS = "order statistics"
BY_CLUSTERS = "order statistics by documents"


def quantile_interval(values: Values, share: float, level: float = 0.95) -> Interval:
    """Quantile with an interval of two order statistics (David & Nagaraja 2003, section 7.1).

    The number of values below the true quantile, out of n, is binomial (n, share) for any distribution. So
    the ends are the values of ranks that are each on the wrong side with a chance of at most (1 - level) / 2.
    The estimate is linear between order statistics (numpy's and every serving benchmark's default).

    Args:
        values: independent values, in any order; for dependent values the interval is too narrow.
        share: share of the values below the quantile, between 0 and 1.
        level: confidence, between 0 and 1.

    Returns:
        The interval; an end is None where n values are too few for it.

    Raises:
        ValueError: there are no values, a value that is not finite, or a share or level out of range.
    """
    import numpy
    from scipy.special import bdtr  # the binomial's distribution function

    check_level(level)
    check_share(share)
    ordered = numpy.sort(as_values(values))
    n = len(ordered)

    def below(k: int) -> float:
        """Chance that at most k values are below the quantile."""
        return float(bdtr(float(k), n, share))

    low = bisect_right(range(n + 1), (1 - level) / 2, key=below)
    high = bisect_left(range(n + 1), (1 + level) / 2, key=below) + 1
    estimate = float(numpy.quantile(ordered, share))
    # With few values, the estimate between two of them may be beyond a rank: the end is moved to it.
    least = min(ordered[low - 1], estimate) if low >= 1 else None
    most = max(ordered[high - 1], estimate) if high <= n else None
    return Interval(estimate, least, most, n, n, ORDER_STATISTICS, level)


def clustered_quantile_interval(
    values: Values, clusters: Clusters, share: float, level: float = 0.95
) -> Interval:
    """Quantile of dependent values with an interval of two order statistics (Woodruff 1952).

    The share of the values up to the estimate has an interval for clustered samples; the values at its ends
    are the ends for the quantile (Woodruff, "Confidence intervals for medians and other position measures",
    Journal of the American Statistical Association 47:635). Where every value is a cluster of its own, it is
    `quantile_interval`.

    Args:
        values: the values, in any order.
        clusters: the cluster of each value, as for `mean_interval`.
        share: share of the values below the quantile, between 0 and 1.
        level: confidence, between 0 and 1.

    Returns:
        The interval; both ends are None for one cluster, an end where the values are too few for it.

    Raises:
        ValueError: there are no values, a value that is not finite, or a share or level out of range.
    """
    import numpy

    found = as_values(values)
    check_level(level)
    check_share(share)
    _, count = codes_of(clusters, len(found))
    if count == len(found):
        return quantile_interval(values, share, level)
    estimate = float(numpy.quantile(found, share))
    ordered, n = numpy.sort(found), len(found)
    if count == 1:
        return Interval(estimate, None, None, n, 1, ONE_CLUSTER, level)
    under, tied = found < estimate, found == estimate
    # Values that equal the estimate are below it in part, so that the share of all is the quantile's.
    part = (share * n - under.sum()) / max(1, tied.sum())
    portions = numpy.where(under, 1.0, numpy.where(tied, min(1.0, max(0.0, part)), 0.0))
    below = mean_interval(portions, clusters, level, bounds=(0.0, 1.0))
    low, high = below.low, below.high
    least = None if low is None or low <= 0 else float(ordered[math.ceil(low * n) - 1])
    most = None if high is None or high >= 1 else float(ordered[math.floor(high * n)])
    return Interval(
        estimate,
        None if least is None else min(least, estimate),
        None if most is None else max(most, estimate),
        n,
        count,
        BY_CLUSTERS,
        level,
    )


def fewest_for_quantile(share: float, confidence: float = 0.99) -> int:
    """Fewest values of which at least one is above the quantile with this confidence: 1 - share^n.

    With fewer, the quantile may be beyond all values seen: 459 for the 99th percentile, 90 for the
    95th, 44 for the 90th, 7 for the median.
    """
    check_share(share)
    check_level(confidence)
    return math.ceil(math.log(1 - confidence) / math.log(share))


def early_stopping_estimate(
    values: Sequence[float], share: float, confidence: float = 0.99
) -> float | None:
    """A value that the quantile does not exceed with this confidence: MLPerf's early-stopping estimate.

    Let t be the largest number for which I_share(n - t, t + 1) <= 1 - confidence holds for n values (I: the
    regularised incomplete beta function). The t - 1 highest values are dropped and the highest of the others
    is returned (MLPerf inference rules, "early stopping", d = 0). Below 64 values for share 0.9 and 662 for
    0.99 there is no such t.

    Returns:
        The estimate; None for too few values.

    Raises:
        ValueError: there are no values, a value that is not finite, or a share or confidence out of range.
    """
    import numpy
    from scipy.special import betainc

    check_level(confidence)
    check_share(share)
    ordered = numpy.sort(as_values(values))
    n = len(ordered)

    def chance(t: int) -> float:
        """The chance grows with t."""
        return float(betainc(float(n - t), t + 1.0, share))

    passed = bisect_right(range(1, n), 1 - confidence, key=chance)
    return ordered[n - passed] if passed else None
