"""Error bars for scores of samples that come in documents; imports nothing else of hpcbench.

Questions about one document (or page, or photo series) are not independent: an interval that takes them so
is too narrow, up to threefold (Miller 2024, "Adding Error Bars to Evals", arXiv 2411.00640). So each value
has a cluster, the document it belongs to, and documents are the unit of chance:

- a mean (ANLS, accuracy): cluster-robust standard error CR1, i.e. with the factor G/(G-1) for G clusters as
  in Inspect and NeMo Evaluator (lmms-eval and Miller's formula leave it out), and Student's t with G-1
  degrees of freedom;
- a share of right answers without clusters: Wilson's score interval, good near 0 and 1;
- a ratio of sums (corpus CER and WER, micro F1), where the mean's formula does not hold: percentile
  bootstrap that draws whole clusters;
- a quantile (the 95th percentile of a latency): order statistics, which suppose no form of distribution.

Where the data cannot tell, `low` and `high` are None and `method` says why; no number is made up. Values
are added with `math.fsum`, which rounds once, and clusters are put in an order of their own before random
numbers meet them: the same data in another order, or with other cluster names, gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

Bounds = tuple[float | None, float | None]
"""Least and greatest possible value; None: no limit."""

ONE_CLUSTER = "undefined: one cluster"
NO_SPREAD = "undefined: no spread between clusters"

_ROUNDING = 1e-12
"""Spread below this share of the estimate is rounding, not chance."""
_BLOCK = 1_000_000
"""Cluster draws held in memory at a time by the bootstrap."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval."""

    estimate: float
    """The mean, share or ratio."""
    low: float | None
    """Lower end; None where undefined."""
    high: float | None
    """Upper end; None where undefined."""
    n: int
    """Samples."""
    clusters: int
    """Clusters they came in."""
    method: str
    """How the ends were found, or why not."""
    level: float = 0.95
    """Confidence."""


def mean_interval(
    values: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    level: float = 0.95,
    *,
    bounds: Bounds | None = None,
) -> Interval:
    """Mean of values that come in clusters, with a t interval from the CR1 standard error.

    Args:
        values: one per sample.
        clusters: the cluster of each value; None: each stands for itself.
        level: confidence, between 0 and 1.
        bounds: the metric's least and greatest value, to clip the interval to.

    Returns:
        Ends are None for a single cluster, and where all cluster totals agree (all answers right, say):
        such data bear no trace of chance, and an interval of width 0 would claim certainty.

    Raises:
        ValueError: no values, unequal lengths, a value that is not finite, a level out of range.
    """
    error = clustered_standard_error(values, clusters)
    _check_level(level)
    n = len(values)
    groups = len(set(clusters)) if clusters is not None else n
    estimate = math.fsum(values) / n
    if error is None:
        return Interval(estimate, None, None, n, groups, ONE_CLUSTER, level)
    if error <= _ROUNDING * max(1.0, abs(estimate)):
        return Interval(estimate, None, None, n, groups, NO_SPREAD, level)
    half = _t_quantile((1 + level) / 2, groups - 1) * error
    low, high = _clip(estimate - half, estimate + half, bounds)
    return Interval(estimate, low, high, n, groups, "t, clustered standard error CR1", level)


def clustered_standard_error(
    values: Sequence[float], clusters: Sequence[Hashable] | None = None
) -> float | None:
    """CR1 standard error of the mean: sqrt(G/(G-1) * sum over clusters of (sum of residuals)²) / n.

    With one value per cluster this is the usual s / sqrt(n).

    Args:
        values: one per sample.
        clusters: the cluster of each value; None: each stands for itself.

    Returns:
        In the unit of the values; None for a single cluster.

    Raises:
        ValueError: no values, unequal lengths, a value that is not finite.
    """
    _check_values(values)
    n = len(values)
    mean = math.fsum(values) / n
    residuals: dict[Hashable, list[float]] = {}
    for value, cluster in zip(values, _labels(n, clusters), strict=True):
        residuals.setdefault(cluster, []).append(value - mean)
    groups = len(residuals)
    if groups == 1:
        return None
    squares = math.fsum(math.fsum(group) ** 2 for group in residuals.values())
    return math.sqrt(groups / (groups - 1) * squares) / n


def proportion_interval(successes: int, n: int, level: float = 0.95) -> Interval:
    """Share of successes with Wilson's score interval (Wilson 1927), for independent samples.

    Args:
        successes: samples that are right.
        n: samples.
        level: confidence, between 0 and 1.

    Raises:
        ValueError: no samples, successes not between 0 and n, a level out of range.
    """
    _check_level(level)
    if n <= 0:
        raise ValueError("an interval needs at least one sample")
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes among {n} samples cannot be")
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = successes / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # The ends are exactly 0 and 1 there; the formula misses them by rounding.
    low = 0.0 if successes == 0 else middle - half
    high = 1.0 if successes == n else middle + half
    return Interval(share, low, high, n, n, "Wilson", level)


def ratio_interval(
    numerators: Sequence[float],
    denominators: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    level: float = 0.95,
    seed: int = 0,
    resamples: int = 2000,
    *,
    bounds: Bounds | None = None,
) -> Interval:
    """Ratio of sums with a percentile bootstrap interval over clusters (Efron & Tibshirani 1993, ch. 13).

    Each resample draws G of the G clusters with replacement and divides the sums; resamples whose
    denominators sum to 0 are left out. With few clusters (below about 20) the interval is too narrow,
    like every percentile bootstrap. Random numbers come from numpy's PCG64, so equal seeds give equal
    bytes (under one version of numpy: it does not promise streams across versions).

    Args:
        numerators: one per sample, e.g. errors.
        denominators: one per sample, 0 or more, e.g. lengths of references.
        clusters: the cluster of each sample; None: each stands for itself.
        level: confidence, between 0 and 1.
        seed: of the random numbers, 0 or more.
        resamples: how often to draw; 2000 suffices for two digits of the ends.
        bounds: the metric's least and greatest value, to clip the interval to.

    Returns:
        Ends are None for a single cluster, and where all clusters have the same ratio.

    Raises:
        ValueError: no samples, unequal lengths, a value that is not finite, a negative denominator or
            only zeros, a level out of range, no resamples.
    """
    _check_values(numerators)
    _check_values(denominators)
    _check_level(level)
    n = len(numerators)
    if len(denominators) != n:
        raise ValueError(f"{n} numerators do not fit {len(denominators)} denominators")
    if min(denominators) < 0:
        raise ValueError("a denominator is negative")
    if resamples < 1:
        raise ValueError("the bootstrap needs at least one resample")
    total = math.fsum(denominators)
    if not total:
        raise ValueError("all denominators are 0, there is no ratio")
    estimate = math.fsum(numerators) / total

    sums = _cluster_sums(numerators, denominators, _labels(n, clusters))
    if len(sums) == 1:
        return Interval(estimate, None, None, n, 1, ONE_CLUSTER, level)
    scale = _ROUNDING * max(1.0, abs(estimate)) * total
    if all(abs(over - estimate * under) <= scale for over, under in sums):
        return Interval(estimate, None, None, n, len(sums), NO_SPREAD, level)
    low, high = _clip(*_bootstrap(sums, level, seed, resamples), bounds)
    return Interval(estimate, low, high, n, len(sums), "percentile bootstrap of clusters", level)


def quantile_interval(values: Sequence[float], share: float, level: float = 0.95) -> Interval:
    """Quantile with an interval of two order statistics (David & Nagaraja 2003, section 7.1).

    The number of n values below the true quantile is binomial (n, share), whatever the distribution, so the
    ends are the values of such ranks that each lies on the wrong side with a chance of (1 - level) / 2 at
    most. The estimate is linear between order statistics (numpy's and every serving benchmark's default).

    Args:
        values: independent ones, in any order; where they are not, the interval is too narrow.
        share: of the values that lie below, between 0 and 1.
        level: confidence, between 0 and 1.

    Returns:
        An end is None where n values are too few for it.

    Raises:
        ValueError: no values, a value that is not finite, a share or level out of range.
    """
    import numpy
    from scipy.special import bdtr  # the binomial's distribution function

    _check_values(values)
    _check_level(level)
    _check_share(share)
    ordered = sorted(values)
    n = len(ordered)
    below = bdtr(numpy.arange(n + 1, dtype=float), n, share)  # chance that at most k lie below
    low = int(numpy.searchsorted(below, (1 - level) / 2, side="right"))
    high = int(numpy.searchsorted(below, (1 + level) / 2)) + 1
    estimate = float(numpy.quantile(ordered, share))
    # Of a handful of values the estimate, which lies between two, may lie beyond a rank: it is held.
    least = min(ordered[low - 1], estimate) if low >= 1 else None
    most = max(ordered[high - 1], estimate) if high <= n else None
    return Interval(estimate, least, most, n, n, "order statistics", level)


def fewest_for_quantile(share: float, confidence: float = 0.99) -> int:
    """Fewest values of which at least one lies above the quantile with that confidence: 1 - share^n.

    With fewer, the quantile may well lie beyond all that was seen: 459 for the 99th percentile, 90 for the
    95th, 44 for the 90th, 7 for the median.
    """
    _check_share(share)
    _check_level(confidence)
    return math.ceil(math.log(1 - confidence) / math.log(share))


def early_stopping_estimate(
    values: Sequence[float], share: float, confidence: float = 0.99
) -> float | None:
    """A value that the quantile does not exceed with that confidence: MLPerf's early-stopping estimate.

    With t the most of n values of which I_share(n - t, t + 1) <= 1 - confidence holds (I: the regularised
    incomplete beta function), the t - 1 highest are dropped and the highest of the others is told
    (MLPerf inference rules, "early stopping", d = 0). Below 64 values for share 0.9 and 662 for 0.99 there
    is no such t.

    Returns:
        None for too few values.

    Raises:
        ValueError: no values, a value that is not finite, a share or confidence out of range.
    """
    import numpy
    from scipy.special import betainc

    _check_values(values)
    _check_level(confidence)
    _check_share(share)
    n = len(values)
    over = numpy.arange(1, n, dtype=float)
    passed = int((betainc(n - over, over + 1, share) <= 1 - confidence).sum())
    return sorted(values)[n - passed] if passed else None


def _cluster_sums(
    numerators: Sequence[float], denominators: Sequence[float], labels: Sequence[Hashable]
) -> list[tuple[float, float]]:
    """(numerator, denominator) of each cluster, sorted by these numbers: names and arrival do not matter."""
    members: dict[Hashable, list[int]] = {}
    for index, label in enumerate(labels):
        members.setdefault(label, []).append(index)
    return sorted(
        (math.fsum(numerators[i] for i in group), math.fsum(denominators[i] for i in group))
        for group in members.values()
    )


def _bootstrap(
    sums: Sequence[tuple[float, float]], level: float, seed: int, resamples: int
) -> tuple[float, float]:
    """Percentiles of the ratio over resampled clusters, in blocks so that memory stays bounded."""
    import numpy

    generator = numpy.random.Generator(numpy.random.PCG64(seed))
    over, under = numpy.array(sums, dtype=numpy.float64).T
    groups, rows = len(sums), max(1, _BLOCK // len(sums))
    ratios = []
    for start in range(0, resamples, rows):
        size = (min(rows, resamples - start), groups)
        drawn = generator.integers(groups, size=size)
        top, bottom = over[drawn].sum(axis=1), under[drawn].sum(axis=1)
        ratios.append(top[bottom > 0] / bottom[bottom > 0])
    kept = numpy.concatenate(ratios)
    if not len(kept):
        raise ValueError("no resample has a denominator above 0; draw more")
    low, high = numpy.quantile(kept, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _t_quantile(probability: float, degrees: int) -> float:
    from scipy.special import stdtrit  # scipy.stats.t.ppf is this, but takes long to import

    return float(stdtrit(degrees, probability))


def _clip(low: float, high: float, bounds: Bounds | None) -> tuple[float, float]:
    least, greatest = bounds or (None, None)
    if least is not None:
        low = max(low, least)
    if greatest is not None:
        high = min(high, greatest)
    return low, high


def _labels(n: int, clusters: Sequence[Hashable] | None) -> Sequence[Hashable]:
    if clusters is None:
        return range(n)
    if len(clusters) != n:
        raise ValueError(f"{n} values do not fit {len(clusters)} clusters")
    return clusters


def _check_values(values: Sequence[float]) -> None:
    if not len(values):
        raise ValueError("an interval needs at least one value")
    if not all(math.isfinite(value) for value in values):
        raise ValueError("a value is not a finite number")


def _check_share(share: float) -> None:
    if not 0 < share < 1:
        raise ValueError(f"share is {share}; it lies between 0 and 1")


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; it lies between 0 and 1")
