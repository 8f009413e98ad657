"""The share of the spread that is between documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcbench.statistics.clusters import (
    ROUNDING,
    as_values,
    codes_of,
    exact_sum,
    exact_sums,
)

if TYPE_CHECKING:
    from hpcbench.statistics.clusters import Clusters, Values


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
