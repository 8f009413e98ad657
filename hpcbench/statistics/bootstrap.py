"""Intervals of whatever is made of sums: corpus CER and WER, micro F1, BLEU, macro F1; and differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeAlias

from hpcbench.statistics.clusters import (
    MANY_CLUSTERS,
    NO_SPREAD,
    ONE_CLUSTER,
    ROUNDING,
    Bounds,
    Interval,
    as_sums,
    as_values,
    check_level,
    clip,
    cluster_sums,
    exact_sum,
    exact_sums,
    sorted_clusters,
    t_quantile,
)

if TYPE_CHECKING:
    from hpcbench.statistics.clusters import Array, Clusters, Values

    Combine: TypeAlias = Callable[[Array], Array]
    """(R, K) sums → (R,) values; NaN where there is none, as over a denominator of 0."""

BCA = "BCa bootstrap of clusters"
PERCENTILE = "percentile bootstrap of clusters"
JACKKNIFE = "t, jackknife of clusters"

FEW_CLUSTERS = 20
"""Below, resamples of clusters are too much alike, and `method` says so."""

_BLOCK = 1_000_000
"""Numbers held in memory at a time, in each of a few arrays."""


def sums_interval(
    sums: Array,
    combine: Combine,
    level: float = 0.95,
    seed: int = 0,
    resamples: int = 2000,
    *,
    bounds: Bounds | None = None,
    n: int | None = None,
    scale: float | None = None,
) -> Interval:
    """Interval of a value that is made of sums over clusters, by drawing whole clusters anew.

    Below 5,000 clusters: the bias-corrected and accelerated bootstrap, BCa (Efron 1987, JASA 82:171; Efron &
    Tibshirani 1993, section 14.3), acceleration from the jackknife over clusters. Resamples without a value
    are left out, and `method` says how many. Where BCa is undefined the ends are plain percentiles, and
    `method` says why. With few clusters such intervals are too narrow, like every bootstrap: of skewed error
    rates in 15 documents they held the truth 88 times of 100 (`benchmarks/calibration.py`).

    From 5,000 clusters on: Student's t with the delete-one-cluster jackknife's standard error (Efron &
    Tibshirani 1993, chapter 11), which for a ratio is the linearised one; resampling as many would take long
    and find the same.

    Random numbers come from numpy's PCG64, so equal seeds give equal bytes (under one version of numpy: it
    does not promise streams across versions).

    Args:
        sums: (G, K), the sums of each cluster, see `cluster_sums`.
        combine: makes values (R,) of R rows of K sums; NaN where there is none.
        level: confidence, between 0 and 1.
        seed: of the random numbers, 0 or more.
        resamples: how often to draw; 2000 suffices for two digits of the ends.
        bounds: the least and greatest value, to clip the interval to.
        n: samples, to be told; None: as many as clusters.
        scale: size of the numbers the value is a difference of; None: of the value itself. Spread below 1e-12
            of it is rounding.

    Returns:
        Ends are None for a single cluster, and where no cluster makes a difference.

    Raises:
        ValueError: no clusters, a sum that is not finite, no value of all sums, a level out of range, no
            resamples.
    """
    import numpy

    table = as_sums(sums)
    check_level(level)
    if resamples < 1:
        raise ValueError("the bootstrap needs at least one resample")
    groups = len(table)
    n = groups if n is None else n
    total = numpy.array([float(exact_sums(column)[0]) for column in table.T])
    estimate = float(values_of(combine, total[None, :])[0])
    if not numpy.isfinite(estimate):
        raise ValueError("these sums have no value")
    if groups == 1:
        return Interval(estimate, None, None, n, 1, ONE_CLUSTER, level)
    left_out = values_of(combine, total - table)
    jackknife = _jackknife(left_out)
    if jackknife and jackknife.error <= ROUNDING * max(abs(estimate), scale or 0.0):
        return Interval(estimate, None, None, n, groups, NO_SPREAD, level)
    if jackknife and groups >= MANY_CLUSTERS:
        half = t_quantile((1 + level) / 2, groups - 1) * jackknife.error
        low, high, method = estimate - half, estimate + half, JACKKNIFE
    else:
        drawn = _resample(sorted_clusters(table), combine, seed, resamples)
        low, high, method = _ends(drawn, estimate, jackknife, level)
        if groups < FEW_CLUSTERS:
            method += f", narrow for fewer than {FEW_CLUSTERS} clusters"
    low, high = clip(low, high, bounds)
    error = jackknife.error if jackknife else None
    return Interval(estimate, low, high, n, groups, method, level, error)


def ratio_interval(
    numerators: Values,
    denominators: Values,
    clusters: Clusters = None,
    level: float = 0.95,
    seed: int = 0,
    resamples: int = 2000,
    *,
    bounds: Bounds | None = None,
) -> Interval:
    """Ratio of sums with the interval of `sums_interval`.

    Args:
        numerators: one per sample, e.g. errors.
        denominators: one per sample, 0 or more, e.g. lengths of references.
        clusters: the cluster of each sample; None: each stands for itself.
        level: confidence, between 0 and 1.
        seed: of the random numbers, 0 or more.
        resamples: how often to draw.
        bounds: the metric's least and greatest value, to clip the interval to.

    Returns:
        Ends are None for a single cluster, and where all clusters have the same ratio.

    Raises:
        ValueError: no samples, unequal lengths, a value that is not finite, a negative denominator or
            only zeros, a level out of range, no resamples.
    """
    import numpy

    over, under = as_values(numerators), as_values(denominators)
    if len(under) != len(over):
        raise ValueError(f"{len(over)} numerators do not fit {len(under)} denominators")
    if under.min() < 0:
        raise ValueError("a denominator is negative")
    if not under.any():
        raise ValueError("all denominators are 0, there is no ratio")
    sums = cluster_sums(numpy.stack([over, under], axis=1), clusters)
    return sums_interval(sums, ratio, level, seed, resamples, bounds=bounds, n=len(over))


def ratio(sums: Array) -> Array:
    """First sum over second of each row; NaN over 0."""
    import numpy

    over, under = sums[:, 0], sums[:, 1]
    found: Array = numpy.full(len(sums), numpy.nan)
    return numpy.divide(over, under, out=found, where=under > 0)


def values_of(combine: Combine, sums: Array) -> Array:
    """Values (R,) of R rows of sums; what divides by 0 on the way warns nobody."""
    import numpy

    with numpy.errstate(all="ignore"):
        found = numpy.asarray(combine(sums), dtype=numpy.float64)
    if found.shape != (len(sums),):
        raise ValueError(f"combine makes values of shape {found.shape} of {len(sums)} rows")
    return found


@dataclass(frozen=True, slots=True)
class _Jackknife:
    """What leaving out one cluster at a time tells."""

    error: float
    """Standard error."""
    acceleration: float
    """How fast the standard error changes with the value; NaN where all is alike."""


def _jackknife(left_out: Array) -> _Jackknife | None:
    """None where the value does not exist without some cluster."""
    import numpy

    groups = len(left_out)
    if not numpy.isfinite(left_out).all():
        return None
    apart = exact_sum(left_out) / groups - left_out
    squares = float(exact_sums(apart**2)[0])
    # The cubes of differences of, say, 1e-8 are still far from the least float.
    cubes = float(exact_sums(apart**3)[0])
    error = float(numpy.sqrt((groups - 1) / groups * squares))
    return _Jackknife(error, cubes / (6 * squares**1.5) if squares else float("nan"))


def _resample(table: Array, combine: Combine, seed: int, resamples: int) -> Array:
    """Values of resamples of as many clusters, in blocks so that memory stays bounded.

    A resample is how often each cluster was drawn: its sums are counts times sums. Where these are whole
    numbers, as errors and lengths are, they are exact on every machine.
    """
    import numpy

    generator = numpy.random.Generator(numpy.random.PCG64(seed))
    groups = len(table)
    rows = max(1, _BLOCK // max(table.shape))
    found = []
    for size in block_sizes(resamples, rows):
        drawn = generator.integers(groups, size=(size, groups))
        drawn += (numpy.arange(size) * groups)[:, None]
        counts = numpy.bincount(drawn.ravel(), minlength=size * groups).reshape(size, groups)
        found.append(values_of(combine, counts.astype(numpy.float64) @ table))
    return numpy.concatenate(found)


def block_sizes(count: int, rows: int) -> Iterator[int]:
    """Sizes of blocks of at most `rows` that make up `count`."""
    for start in range(0, count, rows):
        yield min(rows, count - start)


def _ends(
    drawn: Array, estimate: float, jackknife: _Jackknife | None, level: float
) -> tuple[float, float, str]:
    """Ends of BCa, or of plain percentiles where that is undefined; and how they were found."""
    import numpy

    kept = drawn[numpy.isfinite(drawn)]
    if not len(kept):
        raise ValueError("no resample has a value; draw more")
    normal = NormalDist()
    shares = ((1 - level) / 2, (1 + level) / 2)
    below = float((kept < estimate).mean() + (kept <= estimate).mean()) / 2
    method, reason = BCA, ""
    if not 0 < below < 1:
        reason = "all resamples lie on one side"
    elif jackknife is None:
        reason = "one cluster holds all"
    elif not numpy.isfinite(jackknife.acceleration):
        reason = "no cluster makes a difference"
    else:
        bias = normal.inv_cdf(below)
        moved = [bias + normal.inv_cdf(share) for share in shares]
        stretch = [1 - jackknife.acceleration * one for one in moved]
        if min(stretch) <= 0:
            reason = "the acceleration is too large"
        else:
            low, high = (one / by for one, by in zip(moved, stretch, strict=True))
            shares = normal.cdf(bias + low), normal.cdf(bias + high)
    if reason:
        method = f"{PERCENTILE} (BCa undefined: {reason})"
    if missing := len(drawn) - len(kept):
        method += f", {missing} of {len(drawn)} resamples without a value left out"
    ends = numpy.quantile(kept, shares)
    return float(ends[0]), float(ends[1]), method
