"""Distributions: means and percentiles of latencies, and of the gaps between chunks and tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hpcbench import statistics

SHARES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
"""Percentiles of every latency."""

SHAPE = 41
"""Number of quantiles that show the shape of a latency's distribution: one every 2.5 %."""

BATCHES = 20
"""Consecutive batches for the intervals of means and rates: neighbouring requests are dependent."""


def latency(values: Any) -> dict[str, Any] | None:
    """Mean and percentiles of a latency over answered requests, in the order of sending."""
    import numpy

    if not len(values):
        return None
    mean = statistics.mean_interval(values, _batches(len(values)))
    if mean.low is not None:
        mean = replace(mean, low=max(0.0, mean.low))
    ordered = numpy.sort(values)
    return {
        "n": len(values),
        "mean": entry(mean),
        **{name: _percentile(ordered, share) for name, share in SHARES.items()},
        "quantiles": quantiles(ordered),
        "min": round(float(ordered[0]), 3),
        "max": round(float(ordered[-1]), 3),
    }


def quantiles(values: Any) -> list[float]:
    """The shape of a distribution: all values if they are few, else evenly spaced ones."""
    import numpy

    levels = numpy.linspace(0, 1, min(len(values), SHAPE))
    found = numpy.quantile(values, levels, method="inverted_cdf")
    return [round(float(one), 3) for one in found]


def _percentile(values: Any, share: float) -> dict[str, Any]:
    """A percentile with its interval and MLPerf's bound, or the number of requests that it needs."""
    needs = statistics.fewest_for_quantile(share)
    if len(values) < needs:
        return {"value": None, "low": None, "high": None, "needs": needs}
    bound = statistics.early_stopping_estimate(values, share)
    return {
        **entry(statistics.quantile_interval(values, share)),
        "bound": None if bound is None else round(bound, 3),
    }


def _batches(n: int) -> Any:
    """Batch of each of n values in order; up to `BATCHES` values are a batch each."""
    import numpy

    return numpy.arange(n) * BATCHES // n if n > BATCHES else None


Gaps = tuple[Any, Any, Any]
"""Gaps of several answers one after the other, and each answer's sum and number of gaps: numpy arrays."""


def differences(flat: Any, sizes: Any) -> tuple[Any, Any]:
    """Differences between neighbours within each of several sequences, and their number per sequence.

    Args:
        flat: the sequences one after the other.
        sizes: length of each sequence.

    Returns:
        The differences, sequence after sequence, and their number for each sequence that has any.
    """
    import numpy

    sizes = sizes[sizes > 0]
    within = numpy.ones(len(flat), dtype=bool)
    within[numpy.cumsum(sizes)[:-1]] = False  # from the last of one to the first of the next
    return numpy.diff(flat)[within[1:]], sizes[sizes > 1] - 1


def chunk_gaps(gaps: Any, sizes: Any) -> Gaps:
    """Gaps between the chunks of answers, ns, with their sums."""
    return _with_sums(gaps / 1e6, sizes)


def token_gaps(gaps: Any, sizes: Any, counts: Any) -> Gaps:
    """Gaps between tokens: a gap between chunks over the tokens in the chunk after it, once for each token.

    Args:
        gaps: gaps between chunks, ns.
        sizes: number of gaps of each answer.
        counts: tokens in the chunk after each gap.
    """
    import numpy

    counts = numpy.maximum(counts, 0)
    each = numpy.repeat(gaps / 1e6 / numpy.maximum(counts, 1), counts)
    ends = numpy.cumsum(sizes)
    before = numpy.concatenate([[0], numpy.cumsum(counts)])
    return _with_sums(each, before[ends] - before[ends - sizes])


def _with_sums(gaps: Any, sizes: Any) -> Gaps:
    """Gaps with their sums, for answers that have any."""
    import numpy

    sizes = sizes[sizes > 0]
    starts = numpy.cumsum(sizes) - sizes
    sums = numpy.add.reduceat(gaps, starts) if len(sizes) else numpy.empty(0)
    return gaps, sums, sizes


def pooled(pieces: Sequence[Gaps]) -> dict[str, Any] | None:
    """Gaps between chunks or tokens.

    Inter-token latency: the gap before a chunk over the tokens in it, once for each token. Gaps of one answer
    are dependent, so the mean's interval is by answers, percentiles have no interval, and a percentile needs
    as many *answers* as that of any other latency.
    """
    import numpy

    if not sum(len(sizes) for _, _, sizes in pieces):
        return None
    gaps, sums, sizes = (numpy.concatenate(parts) for parts in zip(*pieces, strict=True))
    mean = statistics.ratio_interval(sums, sizes)
    shown: dict[str, Any] = {"n": len(gaps), "answers": len(sizes), "mean": entry(mean)}
    values = numpy.quantile(gaps, list(SHARES.values()))
    for (name, share), value in zip(SHARES.items(), values, strict=True):
        needs = statistics.fewest_for_quantile(share)
        if len(sizes) >= needs:
            shown[name] = {"value": round(float(value), 3), "low": None, "high": None}
        else:
            shown[name] = {"value": None, "low": None, "high": None, "needs": needs}
    return {**shown, "max": round(float(gaps.max()), 3)}


def entry(interval: statistics.Interval, digits: int = 3) -> dict[str, Any]:
    """An estimate and the ends of its interval, rounded."""
    ends = (("value", interval.estimate), ("low", interval.low), ("high", interval.high))
    return {name: None if end is None else round(end, digits) for name, end in ends}
