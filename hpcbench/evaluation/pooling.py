"""Parts of many samples become a value with its interval. Pure functions from arrays to plain data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcbench import statistics
from hpcbench.metrics.base import Parts, divide
from hpcbench.number_format import percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

DENSE = 20_000_000
"""Most numbers of a corpus metric that are stored densely, also for samples without the count."""

NOTHING = "undefined: empty references"
"""Method of a ratio whose denominators add up to 0."""


@dataclass(frozen=True, slots=True)
class Addends:
    """The samples' parts of a metric: K named numbers per sample; only their sums matter."""

    names: tuple[str, ...]
    """Numerator and denominator; for a corpus metric the names of its counts."""
    size: int
    """Samples, n."""
    columns: Mapping[str, tuple[NDArray[Any] | None, NDArray[Any]]]
    """Name → the samples that have it (None: all, in order), and their numbers."""

    def column(self, name: str) -> NDArray[Any]:
        """Numbers of one name, (n,)."""
        import numpy

        rows, numbers = self.columns[name]
        if rows is None:
            return numbers
        whole = numpy.zeros(self.size)
        whole[rows] = numbers
        return whole

    def of(self, chosen: NDArray[Any]) -> Addends:
        """The addends of the samples with these numbers."""
        return Addends(
            self.names,
            len(chosen),
            {name: (None, self.column(name)[chosen]) for name in self.names},
        )

    def times(self, weights: NDArray[Any] | None) -> Addends:
        """Each sample's numbers times its weight."""
        if weights is None:
            return self
        return Addends(
            self.names,
            self.size,
            {name: (None, self.column(name) * weights) for name in self.names},
        )

    def by_cluster(self, clusters: NDArray[Any]) -> NDArray[Any]:
        """Sums of each cluster, (G, K)."""
        import numpy

        sums = [statistics.cluster_sums(self.column(name), clusters) for name in self.names]
        return numpy.concatenate(sums, axis=1)

    def sums(self) -> dict[str, float]:
        """Sums over all samples, rounded once."""
        return {name: math.fsum(self.columns[name][1].tolist()) for name in self.names}


def of_parts(numerators: NDArray[Any], denominators: NDArray[Any]) -> Addends:
    """Addends of a mean or ratio metric."""
    columns = {"numerator": (None, numerators), "denominator": (None, denominators)}
    return Addends(("numerator", "denominator"), len(numerators), columns)


def of_counts(counts: Iterable[str], size: int) -> Addends:
    """Addends of a corpus metric, from the JSON of each sample's counts."""
    import numpy

    rows: dict[str, list[int]] = {}
    numbers: dict[str, list[float]] = {}
    for row, text in enumerate(counts):
        for name, count in json.loads(text).items():
            rows.setdefault(name, []).append(row)
            numbers.setdefault(name, []).append(count)
    names = tuple(sorted(rows))
    sparse = {
        name: (numpy.array(rows[name], dtype=numpy.int64), numpy.array(numbers[name]))
        for name in names
    }
    found = Addends(names, size, sparse)
    if size * len(names) > DENSE:
        return found
    return Addends(names, size, {name: (None, found.column(name)) for name in names})


def value_of_sums(metric: Any, sums: Mapping[str, float]) -> float:
    """The value of a set of samples from the sums of their parts."""
    if metric.aggregation == "corpus":
        return float(metric.combine(sums))
    if metric.aggregation == "mean":  # by definition, whatever its `aggregate` returns for one sum
        return divide(sums["numerator"], sums["denominator"])
    return float(metric.aggregate([Parts(sums["numerator"], sums["denominator"])]))


def value(metric: Any, addends: Addends) -> float | None:
    """The value of a set of samples; None for an empty set, and for a percentile of too few samples."""
    if metric.aggregation == "quantile":
        found = _quantile(metric, addends, None)
        return None if found is None else found["value"]
    return value_of_sums(metric, addends.sums()) if addends.size else None


def estimate(
    metric: Any,
    addends: Addends,
    clusters: NDArray[Any],
    weights: NDArray[Any] | None = None,
) -> dict[str, Any] | None:
    """Value with its interval; None without samples.

    Args:
        metric: the metric of the addends.
        addends: one per sample.
        clusters: the document of each, (n,) whole numbers.
        weights: the weight of each, (n,); None: equal weights.
    """
    if not addends.size or (weights is not None and not weights.any()):
        return None
    if metric.aggregation == "quantile":
        return _quantile(metric, addends, clusters)
    weighed = addends.times(weights)
    found = value(metric, weighed)
    assert found is not None
    return _entry(metric, found, _interval(metric, addends, weighed, clusters, weights))


def _quantile(
    metric: Any, addends: Addends, clusters: NDArray[Any] | None
) -> dict[str, Any] | None:
    """A percentile of the samples' values with its interval by documents; None for an empty set.

    It has no value of so few samples that it may be beyond all of them (`fewest_for_quantile`).
    """
    if not addends.size:
        return None
    values, needs = addends.column("numerator"), statistics.fewest_for_quantile(metric.share)
    found = statistics.clustered_quantile_interval(values, clusters, metric.share)
    entry = _entry(metric, found.estimate, found)
    if addends.size < needs:
        share = percent(metric.share)
        why = f"a percentile of {share} needs {needs} answers, and {addends.size} have a value"
        return {**entry, "value": None, "low": None, "high": None, "method": why}
    return entry


def macro(
    metric: Any, groups: Sequence[Addends], clusters: Sequence[NDArray[Any]]
) -> dict[str, Any] | None:
    """Mean of the values of groups with equal weights; None without groups.

    The sampling unit is the document, over all groups together: a document with samples in several groups
    leaves them all at once. A group that is empty without a document does not count in the mean.
    """
    import numpy

    groups, clusters = _filled(groups, clusters)
    if not groups:
        return None
    sums = [one.sums() for one in groups]
    found = math.fsum(value_of_sums(metric, one) for one in sums) / len(groups)
    codes = numpy.concatenate(list(clusters))
    columns, at = [], 0
    for one in groups:
        for name in one.names:
            whole = numpy.zeros(len(codes))
            whole[at : at + one.size] = one.column(name)
            columns.append(statistics.cluster_sums(whole, codes))
        present = numpy.zeros(len(codes))
        present[at : at + one.size] = 1
        columns.append(statistics.cluster_sums(present, codes))
        at += one.size
    combine = _mean_of_groups(metric, [one.names for one in groups])
    interval = statistics.sums_interval(
        numpy.concatenate(columns, axis=1), combine, bounds=metric.bounds, n=len(codes)
    )
    return {**_entry(metric, found, interval), "average": "macro", "groups": len(groups)}


def _filled(
    groups: Sequence[Addends], clusters: Sequence[NDArray[Any]]
) -> tuple[list[Addends], list[NDArray[Any]]]:
    kept = [pair for pair in zip(groups, clusters, strict=True) if pair[0].size]
    return [one for one, _ in kept], [one for _, one in kept]


def _interval(
    metric: Any,
    addends: Addends,
    weighed: Addends,
    clusters: NDArray[Any],
    weights: NDArray[Any] | None,
) -> statistics.Interval | None:
    """The interval that fits a metric; None where there is no value."""
    if metric.aggregation == "corpus":
        if not weighed.names:
            return None
        return statistics.sums_interval(
            weighed.by_cluster(clusters),
            _combine(metric, weighed.names),
            bounds=metric.bounds,
            n=addends.size,
        )
    denominators = addends.column("denominator")
    if metric.aggregation == "mean" and (denominators == 1).all():
        return statistics.mean_interval(
            addends.column("numerator"), clusters, bounds=metric.bounds, weights=weights
        )
    if not denominators.any():
        return None
    return statistics.ratio_interval(
        weighed.column("numerator"),
        weighed.column("denominator"),
        clusters,
        bounds=metric.bounds,
    )


def _combine(metric: Any, names: Sequence[str]) -> Callable[[Any], Any]:
    """Values (R,) of R rows of sums, in the order of `names`; for a mean the sums include its divisors."""
    return statistics.combine_of(metric, names) or statistics.ratio


def _mean_of_groups(metric: Any, names: Sequence[Sequence[str]]) -> Callable[[Any], Any]:
    """Mean over groups for R rows: each group gives its sums, then its number of samples."""

    def combine(sums: Any) -> Any:
        import numpy

        values, at = [], 0
        for some in names:
            own = sums[:, at : at + len(some)]
            there = sums[:, at + len(some)] > 0
            with numpy.errstate(divide="ignore", invalid="ignore"):
                values.append(numpy.where(there, _combine(metric, some)(own), numpy.nan))
            at += len(some) + 1
        table = numpy.stack(values)
        counted = numpy.isfinite(table)
        total = numpy.where(counted, table, 0).sum(axis=0)
        several = counted.sum(axis=0)
        return numpy.where(several > 0, total / numpy.maximum(several, 1), numpy.nan)

    return combine


def _entry(metric: Any, found: float, interval: statistics.Interval | None) -> dict[str, Any]:
    return {
        "value": found,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "level": interval.level if interval else None,
        "n": interval.n if interval else 0,
        "clusters": interval.clusters if interval else 0,
        "method": interval.method if interval else NOTHING,
        "average": "micro",
        "signature": metric.signature,
        "higher_is_better": metric.higher_is_better,
    }
