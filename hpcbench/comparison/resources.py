"""Resource metrics of two sides: values, difference and interval, or why they cannot be compared.

Times of two runs do not pair by sample: near saturation, requests share a queue. So each side counts with the
value and interval that it has alone, and the interval of the ratio combines them (`speed.ratio_of_runs`). The
difference is that of the values; its interval is that of the ratio, times the baseline's value. One run on
each side does not show what differs from job to job; several runs (repeats) do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import cast

from hpcbench import statistics
from hpcbench.comparison.speed import MeasuredFigure, incomparable, middle_of, ratio_of_runs
from hpcbench.experiment.view.metrics_json import Measured, MetricValue, Scores
from hpcbench.experiment.view.performance_json import Speed
from hpcbench.statistics import Interval

NO_INTERVAL = "no interval: one value of each side"
"""`p_method` where no data shows random variation."""

ONE_JOB_EACH = (
    "resource metrics: each side is one run, so their intervals lack what differs from job to job"
)

_METHOD = "intervals of both sides, combined on logarithms"


@dataclass(frozen=True, slots=True)
class ResourceValue:
    """A resource metric of one run."""

    measured: Measured
    """Its unit and basis, and why it has no value."""
    entry: MetricValue | None
    """Its value; None: it has none."""
    speed: Speed | None
    """The run's speed, with machines and load."""


def resource_of(name: str, scores: Scores | None, speed: Speed | None) -> ResourceValue | None:
    """A metric of a run; None: the run has no resource metric of this name."""
    if scores is None or name not in scores.measured:
        return None
    return ResourceValue(scores.measured[name], scores.metrics.get(name), speed)


def why_not(
    name: str, baseline: Sequence[ResourceValue], candidate: Sequence[ResourceValue]
) -> str:
    """Why values of two sides cannot be compared; empty: they can."""
    for side, values in (("baseline", baseline), ("candidate", candidate)):
        for one in values:
            if one.entry is None:
                return f"'{name}' has no value in the {side}: {one.measured.why}"
    first, *others = [*baseline, *candidate]
    assert first.entry is not None
    for other in others:
        assert other.entry is not None
        if other.entry.signature != first.entry.signature:
            return (
                f"'{name}' is {first.entry.signature} in one, {other.entry.signature} in the other"
            )
    return "; ".join(dict.fromkeys(_unlike(first, others)))


def _unlike(first: ResourceValue, others: Iterable[ResourceValue]) -> Iterator[str]:
    """Differences in what the values depend on."""
    basis = first.measured.basis
    if basis == "answers":
        return
    for other in others:
        yield from incomparable(
            first.speed or Speed(),
            other.speed or Speed(),
            "gpu_peak" if basis == "memory" else None,
            machines=basis != "machine",
        )


def difference(
    baseline: Sequence[ResourceValue],
    candidate: Sequence[ResourceValue],
    margin: float | None = None,
    level: float = 0.95,
) -> statistics.Comparison:
    """Both sides with the difference and its interval.

    Args:
        baseline: the metric in the runs of the baseline, one or more, each with a value.
        candidate: the same of the candidate.
        margin: difference that does not matter.
        level: confidence of the interval between runs.
    """
    entries = [cast(MetricValue, one.entry) for one in (*baseline, *candidate)]
    ours = [_figure(one) for one in baseline]
    theirs = [_figure(one) for one in candidate]
    higher = entries[0].higher_is_better
    low = high = None
    if all(one.value > 0 for one in (*ours, *theirs)):
        values = middle_of(ours), middle_of(theirs)
        _, least, most = ratio_of_runs(ours, theirs, level)
        if least is not None and most is not None:
            low, high = values[0] * (least - 1), values[0] * (most - 1)
    else:
        values = _mean(ours), _mean(theirs)
    found = values[1] - values[0]
    n, clusters = min(one.n for one in entries), min(one.clusters for one in entries)
    method = NO_INTERVAL if low is None else _METHOD
    p_value = 1.0 if low is None or high is None else _p_value(found, low, high, level)
    comparison = statistics.Comparison(
        n=n,
        clusters=clusters,
        only_baseline=0,
        only_candidate=0,
        baseline=values[0],
        candidate=values[1],
        interval=Interval(found, low, high, n, clusters, method, level),
        wins=0,
        losses=0,
        ties=0,
        p_value=p_value,
        p_method=method,
        p_adjusted=None,
        effect_size=None,
        effective_n=None,
        odds=None,
        detectable=None,
        reach=None,
        margin=margin,
        higher_is_better=higher,
        non_inferior=None,
        verdict="inconclusive",
    )
    return statistics.judged(comparison)


def _figure(one: ResourceValue) -> MeasuredFigure:
    entry = cast(MetricValue, one.entry)
    return MeasuredFigure(float(entry.value), entry.low, entry.high)


def _mean(values: Sequence[MeasuredFigure]) -> float:
    return sum(one.value for one in values) / len(values)


def _p_value(found: float, low: float, high: float, level: float) -> float:
    """Two-sided p-value of no difference: that of the interval whose end is 0, by the normal distribution."""
    width = found - low if found > 0 else high - found
    if not width:
        return 0.0 if found else 1.0
    normal = NormalDist()
    return 2 * (1 - normal.cdf(abs(found) / width * normal.inv_cdf((1 + level) / 2)))
