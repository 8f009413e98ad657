"""Figures of speed and memory, from `performance.json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hpcbench import number_format as form
from hpcbench.experiment.view import performance_json as measured
from hpcbench.experiment.view.metrics_json import MetricValue, Scores
from hpcbench.experiment.view.performance_json import Latency, Speed, Sweep
from hpcbench.reporting.charts.figure_names import stem
from hpcbench.reporting.figures import Axis, Figure, Scale, Series
from hpcbench.reporting.printed_tables import first_metric

CURVES = 12
"""Most distributions drawn as curves; more become medians with ranges."""

MOST = 12
"""Figures of quality and speed in a report."""

MEMORY = {
    "gpu_peak": "GPU",
    "torch_allocated": "PyTorch",
    "kv_peak": "KV cache",
    "effective": "effective need",
    "host_held_peak": "host",
}
"""Figures of memory: name in `performance.json` → label."""


def tradeoffs(scores: Mapping[str, Scores], speeds: Mapping[str, Speed]) -> Iterator[Figure]:
    """Quality over speed of run tasks with the same question, by the kind of machine that ran them.

    A run task is on the Pareto front if no other on the same machine and load is at least as good in both and
    better in one: speed on another machine says nothing about a model.

    Args:
        scores: run task → its scores.
        speeds: run task → its speed.
    """
    groups: dict[tuple[str, str, str | None, str], list[str]] = {}
    for name, table in scores.items():
        metric = first_metric(table)
        if name in speeds and _rate(speeds[name]).value is not None and metric is not None:
            key = table.ml_task, table.dataset, table.split, metric
            groups.setdefault(key, []).append(name)
    several = [(key, names) for key, names in groups.items() if len(names) > 1]
    for (ml_task, dataset, split, metric), names in several[:MOST]:
        where = f"{dataset}, {split}" if split else dataset
        entries = {name: scores[name].values[metric] for name in names}
        tables = {name: speeds[name] for name in names}
        better_up = next(iter(entries.values())).higher_is_better
        machines: dict[str, list[str]] = {}
        for name in names:
            machines.setdefault(machine(tables[name]), []).append(name)
        notes = [
            "Pareto front: no other run task on the same machine is at least as good and as fast, and better "
            "in one of the two."
        ]
        if len(machines) > 1:
            notes.append(
                "The run tasks ran on different machines: compare speeds within one colour only."
            )
        if any(not tables[name].valid for name in names):
            notes.append("The client limited some run tasks: their measured speed is too low.")
        yield Figure(
            stem("tradeoff", ml_task, where, metric),
            f"Quality and speed on {where}",
            "scatter",
            Axis("answers per second of one engine", low=0.0),
            Axis(f"{metric} {form.arrow(higher_is_better=better_up)} with 95 % interval"),
            tuple(
                _traded(kind, some, entries, tables, better_up) for kind, some in machines.items()
            ),
            notes=tuple(notes),
            marked="Pareto front",
        )


def _traded(
    kind: str,
    names: Sequence[str],
    entries: Mapping[str, MetricValue],
    tables: Mapping[str, Speed],
    better_up: bool,
) -> Series:
    rates = [_rate(tables[name]) for name in names]
    some = [entries[name] for name in names]
    sign = 1.0 if better_up else -1.0
    points = [
        (float(rate.value or 0.0), sign * entry.value)
        for rate, entry in zip(rates, some, strict=True)
    ]
    return Series(
        kind or "run tasks",
        _values(rates),
        tuple(entry.value for entry in some),
        tuple(entry.low for entry in some),
        tuple(entry.high for entry in some),
        labels=tuple(names),
        highlight=front(points),
        x_low=tuple(rate.low for rate in rates),
        x_high=tuple(rate.high for rate in rates),
    )


def _rate(table: Speed) -> measured.Figure:
    return table.answers_per_s or measured.Figure()


def _values(figures: Iterable[measured.Figure]) -> tuple[float, ...]:
    """Values of the figures that have one."""
    return tuple(one.value for one in figures if one.value is not None)


def machine(table: Speed) -> str:
    """The GPUs that a run task of `performance.json` ran on, `2 × NVIDIA H100`; empty where unknown."""
    kinds = []
    for one in table.hardware or ():
        gpus = one.gpus or ()
        counted = {gpu: gpus.count(gpu) for gpu in gpus}
        kind = ", ".join(f"{n} × {gpu}" if n > 1 else gpu for gpu, n in counted.items())
        kinds.append(f"{kind} on {one.nodes_each} nodes" if kind and one.nodes_each > 1 else kind)
    return " and ".join(dict.fromkeys(filter(None, kinds)))


def front(points: Sequence[tuple[float, float]]) -> tuple[bool, ...]:
    """Which points are on the Pareto front: no other is at least as great in both, and greater in one."""
    return tuple(
        not any(
            other[0] >= one[0] and other[1] >= one[1] and (other[0] > one[0] or other[1] > one[1])
            for other in points
        )
        for one in points
    )


def sweep(name: str, swept: Sweep, run_tasks: Mapping[str, Speed]) -> Figure | None:
    """Latency over throughput, one point for each load, both kinds of knee ringed; None below two points.

    Args:
        name: the sweep's name.
        swept: a sweep of `performance.json`.
        run_tasks: run tasks of `performance.json`.
    """
    points = [
        one
        for one in swept.points
        if _rate(run_tasks[one]).value is not None and run_tasks[one].e2e_due_ms is not None
    ]
    if len(points) < 2:
        return None
    paced = [one for one in points if run_tasks[one].load.rate is not None]
    kept = [one for one in points if one not in paced]
    series = [
        _loads(title, some, run_tasks, knee)
        for title, some, knee in (
            ("fixed requests in flight", kept, swept.knee),
            ("fixed requests per second", paced, swept.rate_knee),
        )
        if some
    ]
    late = [one for one in points if not run_tasks[one].valid]
    notes: tuple[str, ...] = ()
    if late:
        crosses = _loads("client-bound: not valid", late, run_tasks, None)
        series.append(Series(crosses.name, crosses.x, crosses.y, mark="point"))
        notes = ("Client-bound: the client was too slow, so the figures are not the engine's.",)
    return Figure(
        stem("sweep", name),
        f"Latency over throughput: {name}",
        "scatter",
        Axis("answers per second", low=0.0),
        Axis("E2E from due, mean", "s", low=0.0),
        tuple(series),
        notes=notes,
        marked="knee",
    )


def _loads(
    title: str, names: Sequence[str], tables: Mapping[str, Speed], knee: str | None
) -> Series:
    rates = [_rate(tables[name]) for name in names]
    means = [(tables[name].e2e_due_ms or Latency()).mean for name in names]
    loads = [tables[name].load for name in names]
    return Series(
        title,
        _values(rates),
        tuple(_seconds(mean.value) for mean in means),
        tuple(_seconds(mean.low) for mean in means),
        tuple(_seconds(mean.high) for mean in means),
        tuple(f"{load.concurrency}" if load.rate is None else f"{load.rate:g}/s" for load in loads),
        "line",
        tuple(name == knee for name in names) if knee in names else None,
        tuple(rate.low for rate in rates),
        tuple(rate.high for rate in rates),
    )


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def latencies(speeds: Mapping[str, Speed]) -> Iterator[Figure]:
    """Distributions of TTFT and E2E of run tasks: cumulated; for many run tasks medians with ranges.

    Args:
        speeds: run task → its speed.
    """
    for key, title in (("ttft_ms", "TTFT"), ("e2e_due_ms", "E2E from due")):
        found = {
            name: latency
            for name, table in speeds.items()
            if (latency := table.latency(key)) is not None and latency.quantiles
        }
        if not found:
            continue
        where = stem("latency", key.removesuffix("_ms"))
        values = {name: latency.quantiles for name, latency in found.items()}
        axis = Axis(title, "ms", scale=_scale(values))
        if len(found) > CURVES:
            yield _ranges(where, f"{title} by run task", axis, values)
            continue
        yield Figure(
            where, f"{title}: cumulative distribution", "ecdf", axis,
            Axis("share of answers"),
            tuple(Series(name, some, _cumulated(found[name])) for name, some in values.items()),
        )  # fmt: skip


def tokens(speeds: Mapping[str, Speed]) -> Iterator[Figure]:
    """Lengths of each run task's answers: a line over its answers, from the shortest to the longest.

    The line shows what a mean hides: how many answers are short, where the tail starts, and, as a level end,
    how many were cut at the same greatest length. Many run tasks are drawn as medians with ranges.
    Measurements of an older version contain only sums, and are drawn as tokens of a mean answer.

    Args:
        speeds: run task → its speed.
    """
    each = {name: table.tokens_each.get("completion_tokens") for name, table in speeds.items()}
    found = {name: tuple(map(float, counts)) for name, counts in each.items() if counts}
    if found:
        axis = Axis("tokens per answer", scale=_scale(found))
        if len(found) > CURVES:
            yield _ranges("tokens", "Tokens per answer, by run task", axis, found)
            return
        yield Figure(
            "tokens", "Tokens of each answer, from the shortest to the longest", "line",
            Axis("answers, shortest first", "%", low=0.0, high=100.0), axis,
            tuple(
                Series(name, tuple(100 * share for share in _levels(some)), some)
                for name, some in found.items()
            ),
        )  # fmt: skip
        return
    means = {
        name: table.completion_tokens / table.answered
        for name, table in speeds.items()
        if table.answered and table.completion_tokens
    }
    if means:
        yield Figure(
            "tokens", "Mean tokens per answer", "bar", Axis("run task", scale="category"),
            Axis("tokens", low=0.0), (Series("answer", tuple(means), tuple(means.values())),),
        )  # fmt: skip


def _levels(quantiles: Sequence[float]) -> list[float]:
    """The share, from 0 to 1, of each of evenly spaced quantiles."""
    last = max(1, len(quantiles) - 1)
    return [place / last for place in range(len(quantiles))]


def _cumulated(latency: Latency) -> tuple[float, ...]:
    """Share of values at or below each of a latency's `quantiles`, which are all values, or a selection."""
    count = len(latency.quantiles)
    if count == latency.n:
        return tuple((place + 1) / count for place in range(count))
    least = 1 / latency.n
    return tuple(max(least, level) for level in _levels(latency.quantiles))


def _scale(found: Mapping[str, Sequence[float]]) -> Scale:
    """Logarithmic where the greatest is more than thirty times the least."""
    values = [value for some in found.values() for value in some]
    return "log" if min(values) > 0 and max(values) > 30 * min(values) else "linear"


def _ranges(name: str, title: str, axis: Axis, found: Mapping[str, Sequence[float]]) -> Figure:
    def at(share: float) -> tuple[float, ...]:
        return tuple(some[round(share * (len(some) - 1))] for some in found.values())

    return Figure(
        name, title, "interval", Axis("run task", scale="category"), axis,
        (Series("median", tuple(found), at(0.5), at(0.05), at(0.95)),),
        notes=("Dot: median. Line: 5th to 95th percentile of answers, not a confidence interval.",),
    )  # fmt: skip


def memory(speeds: Mapping[str, Speed]) -> Figure | None:
    """Memory peaks of run tasks whose memory was measured, GiB.

    Args:
        speeds: run task → its speed.
    """
    known = {name: table.memory for name, table in speeds.items() if table.memory is not None}
    series = []
    for key, title in MEMORY.items():
        values = tuple(
            None if (peak := peaks.figure(key)) is None else peak / 2**30
            for peaks in known.values()
        )
        if any(value is not None for value in values):
            series.append(Series(title, tuple(known), values))
    if not series:
        return None
    return Figure(
        "memory", "Peak memory", "interval", Axis("run task", scale="category"),
        Axis("peak", "GiB", low=0.0), tuple(series),
    )  # fmt: skip
