"""From the samples' parts to a metric's interval, by the metric's own rule of aggregation.

This module uses only attributes of metrics (`hpcbench.metrics.base.Metric`): `aggregation`, `bounds` and, for
a corpus metric, `combine`. Parts are objects with `numerator` and `denominator`, or named counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpcbench.statistics.clusters import Interval, as_sums, cluster_sums
from hpcbench.statistics.intervals import mean_interval
from hpcbench.statistics.sums import ratio, sums_interval, values_of

if TYPE_CHECKING:
    from hpcbench.statistics.clusters import Array, Clusters
    from hpcbench.statistics.sums import Combine


def parts_table(
    metric: Any, parts: Sequence[Any], names: Sequence[str] | None = None
) -> tuple[Array, tuple[str, ...]]:
    """Parts as an array (n, K), and the names of its columns.

    Args:
        metric: K is 1 for a mean, 2 for a ratio, the number of different counts for a corpus metric.
        parts: one per sample.
        names: counts to take, for example those of two runs together; None: all that occur, sorted.

    Raises:
        ValueError: there are no parts.
    """
    import numpy

    if not parts:
        raise ValueError("an interval needs at least one value")
    if metric.aggregation == "mean":
        return numpy.array([[part.numerator] for part in parts], dtype=float), ("numerator",)
    if metric.aggregation == "ratio":
        pairs = [(part.numerator, part.denominator) for part in parts]
        return numpy.array(pairs, dtype=float), ("numerator", "denominator")
    known = tuple(names) if names is not None else names_of(parts)
    places = {name: place for place, name in enumerate(known)}
    table = numpy.zeros((len(parts), len(known)))
    for row, counts in enumerate(parts):
        for name, count in counts.items():
            table[row, places[name]] = count
    return table, known


def names_of(parts: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    """All names of counts that occur, sorted."""
    return tuple(sorted({name for counts in parts for name in counts}))


def combine_of(metric: Any, names: Sequence[str]) -> Combine | None:
    """Function from sums (R, K) to values (R,), for `sums_interval` and `compare`; None for a mean."""
    if metric.aggregation == "mean":
        return None
    if metric.aggregation == "ratio":
        return ratio

    def combine(sums: Array) -> Array:
        import numpy

        found = metric.combine({name: sums[:, place] for place, name in enumerate(names)})
        return numpy.broadcast_to(numpy.asarray(found, dtype=numpy.float64), (len(sums),))

    return combine


def table_interval(
    metric: Any,
    table: Array,
    names: Sequence[str] = (),
    clusters: Clusters = None,
    level: float = 0.95,
) -> Interval | None:
    """A metric's interval from its parts as a table (n, K): the array form of `parts_interval`.

    Args:
        metric: the metric.
        table: one row per sample, see `parts_table`.
        names: names of the columns, for a corpus metric.
        clusters: the cluster of each sample; None: each sample is a cluster.
        level: confidence.

    Returns:
        The interval; None where all denominators are 0, or a corpus metric has no value for another reason.

    Raises:
        ValueError: there are no samples, unequal lengths, or a part that is not finite.
    """
    rows = as_sums(table)
    combine = combine_of(metric, names)
    if combine is None:
        return mean_interval(rows[:, 0], clusters, level, bounds=metric.bounds)
    sums = cluster_sums(rows, clusters)
    if not abs(values_of(combine, sums.sum(axis=0)[None, :])[0]) < float("inf"):
        return None
    return sums_interval(sums, combine, level, bounds=metric.bounds, n=len(rows))


def parts_interval(
    metric: Any,
    parts: Sequence[Any],
    clusters: Clusters = None,
    level: float = 0.95,
) -> Interval | None:
    """A metric's interval over samples.

    Args:
        metric: the metric.
        parts: results of `metric.score`, one per sample.
        clusters: the cluster of each sample; None: each sample is a cluster.
        level: confidence.

    Returns:
        The interval; None where all denominators are 0.

    Raises:
        ValueError: there are no samples, unequal lengths, or a part that is not finite.
    """
    table, names = parts_table(metric, parts)
    return table_interval(metric, table, names, clusters, level)
