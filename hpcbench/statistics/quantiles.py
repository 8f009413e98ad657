"""Quantiles: an interval, the number of values needed, and a bound."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from hpcbench.statistics.clusters import Interval, as_values, check_level, check_share


def quantile_interval(values: Sequence[float], share: float, level: float = 0.95) -> Interval:
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
    return Interval(estimate, least, most, n, n, "order statistics", level)


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
