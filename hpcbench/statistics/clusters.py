"""Values and their clusters as arrays, and sums that do not depend on order."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    Values: TypeAlias = Sequence[float] | Array
    Clusters: TypeAlias = Sequence[Hashable] | Array | None

Bounds = tuple[float | None, float | None]
"""Least and greatest possible value; None: no limit."""

ONE_CLUSTER = "undefined: one cluster"
NO_SPREAD = "undefined: no spread between clusters"

ROUNDING = 1e-12
"""Spread below this share of the values is rounding error, not chance."""
MANY_CLUSTERS = 5_000
"""From this number of clusters, the normal theory of many clusters replaces resampling."""

_FOLDS = 3
"""Folds of `exact_sums`: with a million values each holds 31 bits, all together more than a float has."""
_LARGEST = 1e280


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
    """Clusters of these samples."""
    method: str
    """Method of the ends, or the reason why there are none."""
    level: float = 0.95
    """Confidence."""
    error: float | None = None
    """Standard error, in the unit of the estimate; None where undefined or not used."""


def as_values(values: Values) -> Array:
    """Numbers as an array (n,) of floats.

    Raises:
        ValueError: there are no values, more than one dimension, or a value that is not finite or beyond
            1e280.
    """
    import numpy

    found = numpy.asarray(values, dtype=numpy.float64)
    if found.ndim != 1:
        raise ValueError(f"values have {found.ndim} dimensions; they must have one")
    if not len(found):
        raise ValueError("an interval needs at least one value")
    check_finite(found)
    return found


def as_sums(sums: Any) -> Array:
    """Sums as an array (clusters, K) of floats; one dimension means K = 1.

    Raises:
        ValueError: there are no sums, another number of dimensions, or a sum that is not finite or beyond
            1e280.
    """
    import numpy

    found = numpy.asarray(sums, dtype=numpy.float64)
    if found.ndim == 1:
        found = found[:, None]
    if found.ndim != 2:
        raise ValueError(f"sums have {found.ndim} dimensions; they must have two, clusters × K")
    if not len(found):
        raise ValueError("an interval needs at least one value")
    check_finite(found)
    return found


def codes_of(clusters: Clusters, n: int) -> tuple[Array, int]:
    """Index of each value's cluster, 0 … G - 1, and G.

    Args:
        clusters: labels, one per value; arrays of integers are quick (no loop in Python); None: each value is
            a cluster.
        n: number of values.

    Raises:
        ValueError: there are not n labels.
    """
    import numpy

    if clusters is None:
        return numpy.arange(n), n
    if len(clusters) != n:
        raise ValueError(f"{n} values do not fit {len(clusters)} clusters")
    if isinstance(clusters, numpy.ndarray) and clusters.dtype.kind in "iu":
        if clusters.min() >= 0 and clusters.max() < 4 * n + 1000:
            numbers = numpy.cumsum(numpy.bincount(clusters) > 0) - 1
            return numbers[clusters], int(numbers[-1]) + 1
        found, codes = numpy.unique(clusters, return_inverse=True)
        return codes, len(found)
    seen: dict[Hashable, int] = {}
    labels: Iterable[Hashable] = (
        clusters.tolist() if isinstance(clusters, numpy.ndarray) else clusters
    )
    codes = numpy.fromiter((seen.setdefault(one, len(seen)) for one in labels), numpy.int64, n)
    return codes, len(seen)


def cluster_sums(parts: Any, clusters: Clusters = None) -> Array:
    """Sums of parts by cluster: the input of intervals and comparisons of ratio and corpus metrics.

    Args:
        parts: (n, K), the parts of each sample; (n,) means K = 1.
        clusters: the cluster of each sample; None: each sample is a cluster.

    Returns:
        (G, K); the same clusters always have the same order, which has no other meaning.

    Raises:
        ValueError: there are no samples, unequal lengths, or a part that is not finite.
    """
    import numpy

    table = as_sums(parts)
    codes, groups = codes_of(clusters, len(table))
    return numpy.stack([exact_sums(column, codes, groups) for column in table.T], axis=1)


def exact_sums(values: Array, codes: Array | None = None, groups: int = 1) -> Array:
    """Sums by group that do not depend on the order of values, to about their last bit.

    Each value is cut into pieces on grids so coarse that the sum of all pieces of a grid is exact
    (reproducible summation: Rump, Ogita & Oishi 2008, SIAM J. Sci. Comput. 31:189; Demmel & Nguyen 2013,
    ARITH 21). Whole numbers need one grid.

    Args:
        values: (n,), finite.
        codes: (n,), the group of each value, 0 … groups - 1; None: one group.
        groups: number of groups.

    Returns:
        (groups,)
    """
    import numpy

    n = len(values)
    if codes is not None and groups == n:  # nothing to add
        alone = numpy.empty(n)
        alone[codes] = values
        return alone
    sums = numpy.zeros(groups)
    rest = values
    for _ in range(_FOLDS):
        largest = float(numpy.abs(rest).max())
        if not largest:
            break
        # Sums of n pieces, each a multiple of this power's last place, need no more than 53 bits.
        power = math.ldexp(1.0, math.frexp(largest)[1] + n.bit_length() + 1)
        pieces = (rest + power) - power
        rest = rest - pieces
        if codes is None:
            sums += pieces.sum()
        else:
            sums += numpy.bincount(codes, weights=pieces, minlength=groups)
    return sums


def exact_sum(values: Array) -> float:
    """Sum rounded once, like `math.fsum`'s."""
    return math.fsum(values.tolist())


def sorted_clusters(sums: Array) -> Array:
    """Rows sorted by their numbers, so that names and order of clusters do not affect random draws."""
    import numpy

    return sums[numpy.lexsort(sums.T[::-1])]


def t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t."""
    from scipy.special import stdtrit  # equals scipy.stats.t.ppf, which takes long to import

    return float(stdtrit(degrees, probability))


def check_finite(values: Array) -> None:
    """Refuse values that cannot be added.

    Raises:
        ValueError: a number is not finite or beyond 1e280.
    """
    import numpy

    largest = numpy.abs(values).max()
    if not numpy.isfinite(largest):
        raise ValueError("a value is not a finite number")
    if largest > _LARGEST:
        raise ValueError(f"a value is beyond {_LARGEST:g}")


def check_share(share: float, what: str = "share") -> None:
    """Refuse a number that is no share.

    Raises:
        ValueError: it is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise ValueError(f"{what} is {share}; it must be between 0 and 1")


def check_level(level: float) -> None:
    """Refuse a number that is no confidence.

    Raises:
        ValueError: it is not between 0 and 1.
    """
    check_share(level, "level")
