"""Speed and memory of two runs side by side: ratios with their intervals, and whether they may be compared.

Times of two runs are comparable where machines and load were of one kind: GPUs, driver, CPU, requests in
flight or per second, samples. Where they differ, or this is unknown, the ratio is still shown, marked, with
the reason. The comparison is about the plan's intended changes (model, engine, options).

The interval of a ratio combines the two runs' own intervals, which contain the spread of times within a run.
Neither contains differences from one job to the next (another node, a warmer node, neighbours).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any, Literal

from hpcbench import statistics
from hpcbench.comparison.pairing import pair_name
from hpcbench.comparison.results import SpeedRatio
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.performance_json import Figure, Memory, Speed, performance_of
from hpcbench.number_format import few
from hpcbench.statistics.clusters import t_quantile

LATENCIES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "e2e_ms": "E2E", "e2e_due_ms": "E2E from due"}
PERCENTILES = ("mean", "p50", "p90", "p95", "p99")
RATES = {"answers_per_s": "answers", "tokens_per_s": "tokens", "good_per_s": "good answers"}
MEMORY = {
    "gpu_peak": "GPU peak",
    "torch_allocated": "allocated by PyTorch",
    "kv_peak": "KV cache used",
    "effective": "effective need",
    "host_held_peak": "host peak",
}

LENGTH_TOLERANCE = 0.05
"""Relative difference in the answers' length above which a note says so."""

_SOURCES = {"gpu_peak": "gpu_peak_source", "host_held_peak": "host_source"}
"""Figure of memory → the field of `performance.json` that says how it was measured."""

_LOAD = {
    "concurrency": "requests in flight",
    "rate": "requests per second",
    "arrival": "arrivals",
    "warm_up": "warm-up",
    "protocol": "protocol",
    "route": "route",
}


@dataclass(frozen=True, slots=True)
class Speeds:
    """The speed of two runs."""

    figures: tuple[SpeedRatio, ...]
    """Figures that both have."""
    notes: tuple[str, ...]
    """Notes for the reader, in words."""


def speed(
    baseline: Experiment,
    candidate: Experiment,
    pairs: Sequence[tuple[str, str]],
    other_samples: frozenset[tuple[str, str]] = frozenset(),
) -> Speeds:
    """Figures of speed and memory that both have.

    Args:
        baseline: the experiment to compare with.
        candidate: the experiment to compare.
        pairs: run tasks of either that belong together.
        other_samples: the pairs that have not asked the same samples.
    """
    tables = []
    for here in (baseline, candidate):
        try:
            tables.append(performance_of(here).run_tasks)
        except EnvironmentFault as fault:
            return Speeds((), (f"speed is not compared: {fault.message}",))
    figures: list[SpeedRatio] = []
    notes: dict[str, None] = {}
    for pair in pairs:
        one, other = (table.get(name) for table, name in zip(tables, pair, strict=True))
        if one is None or other is None:
            continue
        samples = ["the samples differ"] if pair in other_samples else []
        figures += _latencies_and_rates(pair, one, other, [*incomparable(one, other), *samples])
        figures += _memory(pair, one, other, samples)
        name = pair_name(*pair)
        notes |= dict.fromkeys(f"{name}: {text}" for text in _notes(one, other))
    return Speeds(tuple(figures), tuple(notes))


def incomparable(
    one: Speed, other: Speed, memory: str | None = None, *, machines: bool = True
) -> list[str]:
    """Why figures of two run tasks of `performance.json` cannot be compared; empty: they can.

    It does not check the samples.

    Args:
        one: a run task's table.
        other: another run task's table.
        memory: a figure of memory, which does not depend on the client's load but on how it was measured;
            None: figures of speed.
        machines: whether the machines must be of one kind.
    """
    why = [*(_other_machines(one, other) if machines else ()), *_other_load(one, other)]
    if memory is None:
        return [*why, *_client_bound(one, other)]
    return [*why, *_measured_otherwise(one, other, memory)]


def ratio_interval(one: Figure, other: Figure) -> tuple[float, float] | None:
    """Interval of other ÷ one, for two figures from independent runs, each with its own 95 % interval."""
    ends = [(figure.low, figure.value, figure.high) for figure in (one, other)]
    widths = statistics.log_widths(ends[:1], ends[1:])
    if widths is None or not one.value or not other.value:
        return None
    below, above = widths
    ratio = math.log(other.value / one.value)
    return math.exp(ratio - below), math.exp(ratio + above)


@dataclass(frozen=True, slots=True)
class MeasuredFigure:
    """One figure of one run."""

    value: float
    """In its unit, above 0."""
    low: float | None = None
    """Lower end of its interval; None: it has none."""
    high: float | None = None
    """Upper end."""


def ratio_of_runs(
    baseline: Sequence[MeasuredFigure], candidate: Sequence[MeasuredFigure], level: float = 0.95
) -> tuple[float, float | None, float | None]:
    """Candidate ÷ baseline with its interval, from the runs of either side.

    With one run on each side the figures' own intervals are combined; with several, the interval is Student's
    t over the runs' logarithms with pooled variance, unless the first is wider.

    Args:
        baseline: one or more, above 0; intervals of the confidence `level`, or none.
        candidate: the same.
        level: confidence of the interval between runs.

    Returns:
        The ratio of geometric means, and both ends; None where no data shows random variation.
    """
    logs = [[math.log(one.value) for one in some] for some in (baseline, candidate)]
    means = [math.fsum(some) / len(some) for some in logs]
    middle = means[1] - means[0]
    sides = [[(one.low, one.value, one.high) for one in some] for some in (baseline, candidate)]
    ends: list[tuple[float, float]] = []
    if (within := statistics.log_widths(*sides)) is not None:
        ends.append((middle - within[0], middle + within[1]))
    degrees = len(baseline) + len(candidate) - 2
    if degrees:
        squares = math.fsum(
            (one - mean) ** 2 for some, mean in zip(logs, means, strict=True) for one in some
        )
        error = math.sqrt(squares / degrees * (1 / len(baseline) + 1 / len(candidate)))
        half = t_quantile((1 + level) / 2, degrees) * error
        ends.append((middle - half, middle + half))
    return (
        math.exp(middle),
        math.exp(min(low for low, _ in ends)) if ends else None,
        math.exp(max(high for _, high in ends)) if ends else None,
    )


def middle_of(values: Sequence[MeasuredFigure]) -> float:
    """The geometric mean."""
    if len(values) == 1:
        return values[0].value
    return geometric_mean(one.value for one in values)


def _latencies_and_rates(
    pair: tuple[str, str], one: Speed, other: Speed, why: Sequence[str]
) -> Iterator[SpeedRatio]:
    under_rate = any(side.load.rate is not None for side in (one, other))
    for key, label in LATENCIES.items():
        # At a given concurrency a request is due when a place is free: both are then the same.
        if key == "e2e_due_ms" and not under_rate:
            continue
        for share in PERCENTILES:
            both = [
                found.figure(share) if (found := side.latency(key)) is not None else Figure()
                for side in (one, other)
            ]
            yield from _figure(pair, "speed", f"{key}.{share}", f"{label} {share}", "ms", both, why)
    for key, label in RATES.items():
        both = [side.rate(key) or Figure() for side in (one, other)]
        yield from _figure(pair, "speed", key, label, "1/s", both, why, higher=True)


def _memory(
    pair: tuple[str, str], one: Speed, other: Speed, why: Sequence[str]
) -> Iterator[SpeedRatio]:
    for key, label in MEMORY.items():
        unlike = incomparable(one, other, key)
        both = [Figure(value=(side.memory or Memory()).figure(key)) for side in (one, other)]
        yield from _figure(pair, "memory", f"memory.{key}", label, "bytes", both, [*unlike, *why])


def _figure(
    pair: tuple[str, str],
    kind: Literal["speed", "memory"],
    figure: str,
    label: str,
    unit: str,
    both: Sequence[Figure],
    why: Sequence[str],
    *,
    higher: bool = False,
) -> Iterator[SpeedRatio]:
    """The figure, where both have it."""
    one, other = (side.value for side in both)
    if one is None or other is None:
        return
    low, high = ratio_interval(both[0], both[1]) or (None, None)
    yield SpeedRatio(
        figure=figure,
        unit=unit,
        higher_is_better=higher,
        baseline=one,
        candidate=other,
        ratio=other / one if one else None,
        low=low,
        high=high,
        kind=kind,
        label=label,
        run_tasks=pair,
        why_not=tuple(why),
    )


def not_comparable(figures: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Why figures cannot be compared: one line for each reason, with the run tasks that have it.

    Args:
        figures: as `SpeedRatio.to_json` gives them.
    """
    found: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for one in figures:
        name = pair_name(one["baseline_task"], one["candidate_task"])
        for reason in filter(None, one["why_not"].split("; ")):
            kinds, names = found.setdefault(reason, ({}, {}))
            kinds[one["kind"]] = names[name] = None
    for reason, (kinds, names) in found.items():
        yield f"{' and '.join(kinds)} of {', '.join(names)} cannot be compared: {reason}"


# --- whether they may be compared ----------------------------------------------------------------------


def _other_machines(one: Speed, other: Speed) -> Iterator[str]:
    """Kinds of hardware or software that differ between the machines."""
    both = [side.hardware for side in (one, other)]
    unknown = [
        name for name, kinds in zip(("baseline", "candidate"), both, strict=True) if not kinds
    ]
    if unknown:
        yield f"the files do not show which GPUs the {' and the '.join(unknown)} ran on"
        return
    parts = {
        "gpus": "GPUs",
        "nodes_each": "nodes of an engine",
        "engines_each": "engines on a node",
        "engines_per_gpu": "engines on a GPU",
        "driver": "drivers",
        "cpu": "CPUs",
    }
    for part, label in parts.items():
        values = [sorted({_said(getattr(kind, part)) for kind in kinds or ()}) for kinds in both]
        if values[0] != values[1]:
            yield f"{label} differ: {' and '.join(values[0])} → {' and '.join(values[1])}"
        elif len(values[0]) > 1:
            yield f"several kinds of {label} in both: {', '.join(values[0])}"


def _said(value: object) -> str:
    """`2 × NVIDIA A100`, `none`."""
    if isinstance(value, tuple):
        counts = {name: value.count(name) for name in value}
        each = (f"{count} × {name}" if count > 1 else str(name) for name, count in counts.items())
        return " + ".join(each) or "none"
    return "none" if value is None else str(value)


def _other_load(one: Speed, other: Speed) -> Iterator[str]:
    loads = [side.load for side in (one, other)]
    for key, label in _LOAD.items():
        values = [load.at_once if key == "concurrency" else getattr(load, key) for load in loads]
        if values[0] != values[1]:
            yield f"the loads differ: {label} {_said(values[0])} → {_said(values[1])}"
        elif key == "route" and " and " in str(values[0]):  # in which shares is unknown
            yield f"several routes in both: {values[0]}"


def _measured_otherwise(one: Speed, other: Speed, memory: str) -> Iterator[str]:
    """Why a figure of memory does not come from one source on both sides."""
    if source := _SOURCES.get(memory):
        sources = [(side.memory or Memory()).source(source) for side in (one, other)]
        if sources[0] != sources[1]:
            yield f"measured in different ways: {sources[0]}, {sources[1]}"


def _client_bound(one: Speed, other: Speed) -> Iterator[str]:
    for name, side in (("baseline", one), ("candidate", other)):
        if not side.valid:
            yield f"the {name}'s client was too slow: the times are not the engine's"


def _notes(one: Speed, other: Speed) -> Iterator[str]:
    nodes = [
        sorted({node for kind in side.hardware or () for node in kind.nodes})
        for side in (one, other)
    ]
    if nodes[0] and nodes[1] and nodes[0] != nodes[1]:
        yield f"nodes differ: {few(nodes[0], 3)} → {few(nodes[1], 3)}"
    lengths = [_length(side) for side in (one, other)]
    if None not in lengths and lengths[0]:
        ratio = (lengths[1] or 0.0) / lengths[0]
        if abs(ratio - 1) > LENGTH_TOLERANCE:
            yield (
                f"the candidate's answers have {ratio:.2f} times as many tokens: this changes E2E latency "
                "and answers per second, too"
            )


def _length(side: Speed) -> float | None:
    """Mean number of tokens in an answer."""
    tokens, answered = side.completion_tokens, side.answered
    return tokens / answered if tokens is not None and answered else None
