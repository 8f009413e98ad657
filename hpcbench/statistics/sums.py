"""Intervals of values from sums (corpus CER and WER, micro and macro F1, BLEU), and of differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from hpcbench.statistics.clusters import (
    ROUNDING,
    Bounds,
    Interval,
    as_sums,
    as_values,
    check_level,
    cluster_sums,
    exact_sum,
    exact_sums,
)
from hpcbench.statistics.intervals import sums_limits
from hpcbench.statistics.limits import OPEN_CHANGE, VALUE, Caution

if TYPE_CHECKING:
    from hpcbench.statistics.clusters import Array, Clusters, Values

    Combine: TypeAlias = Callable[[Array], Array]
    """(R, K) sums → (R,) values; NaN where there is none, for example with a denominator of 0."""

ONE_HOLDS_ALL = "undefined: no value without one of the clusters"


def sums_interval(
    sums: Array,
    combine: Combine,
    level: float = 0.95,
    *,
    bounds: Bounds | None = None,
    n: int | None = None,
    scale: float | None = None,
    caution: Caution = VALUE,
) -> Interval:
    """Interval of a value that is computed from sums over clusters.

    The limits are those of `hpcbench.statistics.limits`: for a ratio those of its sums; for any other value
    those of the mean of its jackknife pseudo-values G v - (G - 1) v(without the cluster) (Efron & Tibshirani
    1993, chapter 11), which assumes that the value is linear in the change by one cluster. Where it is not,
    a limit may lie beyond a bound: it is cut there, since no value is beyond it. Without bounds the limits
    are Student's t with the standard error.

    Args:
        sums: (G, K), the sums of each cluster, see `cluster_sums`.
        combine: computes values (R,) of R rows of K sums; NaN where there is none.
        level: confidence, between 0 and 1.
        bounds: the least and greatest value. With the caution `OPEN_CHANGE`: the greatest change that one
            sample can make, and no limit is cut.
        n: samples, for the record; None: as many as clusters.
        scale: size of the numbers whose difference the value is; None: size of the value itself. Spread below
            1e-12 of it is rounding error.
        caution: weight of unseen values, see `limits`.

    Returns:
        Ends are None for a single cluster, where no cluster changes the value and a side has no bound, and
        where the value is undefined without one of the clusters.

    Raises:
        ValueError: there are no clusters, a sum that is not finite, no value of all sums, or a level out of
            range.
    """
    import numpy

    table = as_sums(sums)
    check_level(level)
    groups = len(table)
    n = groups if n is None else n
    total = numpy.array([float(exact_sums(column)[0]) for column in table.T])
    estimate = float(values_of(combine, total[None, :])[0])
    if not numpy.isfinite(estimate):
        raise ValueError("these sums have no value")
    if combine is ratio:
        if groups > 1 and (table != 0).any(axis=1).sum() == 1:
            return Interval(estimate, None, None, n, groups, ONE_HOLDS_ALL, level)
        over, under, whole = table[:, 0], table[:, 1], float(total[1])
        squares = float(exact_sums((over - estimate * under) ** 2)[0])
    else:
        left_out = values_of(combine, total - table)
        if groups > 1 and not numpy.isfinite(left_out).all():
            return Interval(estimate, None, None, n, groups, ONE_HOLDS_ALL, level)
        apart = exact_sum(left_out) / groups - left_out if groups > 1 else numpy.zeros(1)
        over, under = estimate + (groups - 1) * apart, numpy.ones(groups)
        squares, whole = (groups - 1) ** 2 * float(exact_sums(apart**2)[0]), float(groups)
    error = math.sqrt(groups / (groups - 1) * squares) / whole if groups > 1 else None
    found = sums_limits(
        over, under, estimate, n, level, bounds, caution,
        error=error,
        nothing=error is not None and error <= ROUNDING * max(abs(estimate), scale or 0.0),
    )  # fmt: skip
    return found if bounds is None or caution == OPEN_CHANGE else _within(found, bounds)


def _within(found: Interval, bounds: Bounds) -> Interval:
    """The same, with its ends cut at bounds; the estimate stays inside."""
    least, greatest = bounds
    low, high = found.low, found.high
    if low is not None and least is not None:
        low = min(max(low, least), found.estimate)
    if high is not None and greatest is not None:
        high = max(min(high, greatest), found.estimate)
    return replace(found, low=low, high=high)


def ratio_interval(
    numerators: Values,
    denominators: Values,
    clusters: Clusters = None,
    level: float = 0.95,
    *,
    bounds: Bounds | None = None,
    caution: Caution = VALUE,
) -> Interval:
    """Ratio of sums with the interval of `sums_interval`.

    Args:
        numerators: one per sample, e.g. errors.
        denominators: one per sample, 0 or more, e.g. lengths of references.
        clusters: the cluster of each sample; None: each sample is a cluster.
        level: confidence, between 0 and 1.
        bounds: the metric's least and greatest value; None: at least 0 where no numerator is negative.
        caution: weight of unseen values, see `limits`.

    Returns:
        Ends are None for a single cluster, and where all clusters have the same ratio and a side has no
        bound.

    Raises:
        ValueError: there are no samples, unequal lengths, a value that is not finite, a negative denominator,
            only zero denominators, or a level out of range.
    """
    import numpy

    over, under = as_values(numerators), as_values(denominators)
    if len(under) != len(over):
        raise ValueError(f"{len(over)} numerators do not fit {len(under)} denominators")
    if under.min() < 0:
        raise ValueError("a denominator is negative")
    if not under.any():
        raise ValueError("all denominators are 0, so there is no ratio")
    if bounds is None and over.min() >= 0:
        bounds = (0, None)
    sums = cluster_sums(numpy.stack([over, under], axis=1), clusters)
    return sums_interval(sums, ratio, level, bounds=bounds, n=len(over), caution=caution)


def ratio(sums: Array) -> Array:
    """First sum over second of each row; NaN over 0."""
    import numpy

    over, under = sums[:, 0], sums[:, 1]
    found: Array = numpy.full(len(sums), numpy.nan)
    return numpy.divide(over, under, out=found, where=under > 0)


def values_of(combine: Combine, sums: Array) -> Array:
    """Values (R,) of R rows of sums, without warnings about divisions by 0."""
    import numpy

    with numpy.errstate(all="ignore"):
        found = numpy.asarray(combine(sums), dtype=numpy.float64)
    if found.shape != (len(sums),):
        raise ValueError(f"combine makes values of shape {found.shape} of {len(sums)} rows")
    return found
