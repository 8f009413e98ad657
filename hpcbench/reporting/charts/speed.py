"""Figures of speed and memory, made of `performance.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpcbench.evaluation import number_format as form
from hpcbench.reporting.charts.names import stem
from hpcbench.reporting.figures import Axis, Figure, Scale, Series

CURVES = 12
"""Distributions that are drawn as curves; more of them as medians with ranges."""

MOST = 12
"""Figures of quality and speed in a report."""

MEMORY = {
    "gpu_peak": "GPU",
    "torch_allocated": "PyTorch",
    "kv_peak": "KV cache",
    "effective": "effective need",
    "host_held_peak": "host",
}
"""Figures of memory, by their names in `performance.json`, and what they are called."""


def tradeoffs(metrics: Mapping[str, Any], performance: Mapping[str, Any]) -> Iterator[Figure]:
    """Quality over speed of run tasks that were asked the same, by the kind of machine that ran them.

    On the Pareto front is who nobody of the same machine and load equals in both and beats in one: speed of
    another machine says nothing about a model.

    Args:
        metrics: `metrics.json`.
        performance: `performance.json`.
    """
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, table in metrics["run_tasks"].items():
        rate = (performance["run_tasks"].get(name) or {}).get("answers_per_s") or {}
        metric = next((key for key, entry in table["metrics"].items() if entry), None)
        if rate.get("value") is not None and metric is not None:
            key = table["ml_task"], table["dataset"], table["split"], metric
            groups.setdefault(key, []).append(name)
    several = [(key, names) for key, names in groups.items() if len(names) > 1]
    for (ml_task, dataset, split, metric), names in several[:MOST]:
        where = f"{dataset}, {split}" if split else dataset
        entries = {name: metrics["run_tasks"][name]["metrics"][metric] for name in names}
        tables = {name: performance["run_tasks"][name] for name in names}
        better_up = next(iter(entries.values())).get("higher_is_better", True)
        machines: dict[str, list[str]] = {}
        for name in names:
            machines.setdefault(machine(tables[name]), []).append(name)
        notes = [
            "On the front: nobody on the same machine is as good and as fast, and better in one."
        ]
        if len(machines) > 1:
            notes.append("Not the same machine for all: compare speeds within one colour only.")
        if any(not tables[name].get("valid", True) for name in names):
            notes.append("Some were held up by the client: measured speed is too low for them.")
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
    entries: Mapping[str, Mapping[str, Any]],
    tables: Mapping[str, Mapping[str, Any]],
    better_up: bool,
) -> Series:
    rates = [tables[name]["answers_per_s"] for name in names]
    some = [entries[name] for name in names]
    sign = 1.0 if better_up else -1.0
    points = [
        (float(rate["value"]), sign * entry["value"])
        for rate, entry in zip(rates, some, strict=True)
    ]
    return Series(
        kind or "run tasks",
        tuple(rate["value"] for rate in rates),
        tuple(entry["value"] for entry in some),
        tuple(entry["low"] for entry in some),
        tuple(entry["high"] for entry in some),
        labels=tuple(names),
        highlight=front(points),
        x_low=tuple(rate["low"] for rate in rates),
        x_high=tuple(rate["high"] for rate in rates),
    )


def machine(table: Mapping[str, Any]) -> str:
    """The GPUs that a run task of `performance.json` ran on, `2 × NVIDIA H100`; empty where nobody tells."""
    kinds = []
    for one in table.get("hardware") or ():
        gpus = [str(gpu) for gpu in one.get("gpus") or ()]
        counted = {gpu: gpus.count(gpu) for gpu in gpus}
        kinds.append(", ".join(f"{n} × {gpu}" if n > 1 else gpu for gpu, n in counted.items()))
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


def sweep(name: str, swept: Mapping[str, Any], run_tasks: Mapping[str, Any]) -> Figure | None:
    """Latency over throughput, a point a load, the knee of either kind ringed; None below two points.

    Args:
        name: of the sweep.
        swept: one of `performance.json`'s sweeps.
        run_tasks: what it says of run tasks.
    """
    points = [
        one
        for one in swept["points"]
        if run_tasks[one]["answers_per_s"] and run_tasks[one]["e2e_due_ms"]
    ]
    if len(points) < 2:
        return None
    paced = [one for one in points if run_tasks[one]["load"]["rate"] is not None]
    kept = [one for one in points if one not in paced]
    series = [
        _loads(title, some, run_tasks, swept.get(mark))
        for title, some, mark in (
            ("so many at once", kept, "knee"),
            ("so many a second", paced, "rate_knee"),
        )
        if some
    ]
    late = [one for one in points if not run_tasks[one]["valid"]]
    notes: tuple[str, ...] = ()
    if late:
        crosses = _loads("client-bound: not valid", late, run_tasks, None)
        series.append(Series(crosses.name, crosses.x, crosses.y, mark="point"))
        notes = ("Client-bound: the client ran late, and not the engine was measured.",)
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


def _loads(title: str, names: Sequence[str], tables: Mapping[str, Any], knee: str | None) -> Series:
    rates = [tables[name]["answers_per_s"] for name in names]
    means = [tables[name]["e2e_due_ms"]["mean"] for name in names]
    loads = [tables[name]["load"] for name in names]
    return Series(
        title,
        tuple(rate["value"] for rate in rates),
        tuple(mean["value"] / 1000 for mean in means),
        tuple(None if mean["low"] is None else mean["low"] / 1000 for mean in means),
        tuple(None if mean["high"] is None else mean["high"] / 1000 for mean in means),
        tuple(
            f"{load['concurrency']}" if load["rate"] is None else f"{load['rate']:g}/s"
            for load in loads
        ),
        "line",
        tuple(name == knee for name in names) if knee in names else None,
        tuple(rate["low"] for rate in rates),
        tuple(rate["high"] for rate in rates),
    )


def latencies(performance: Mapping[str, Any], names: Sequence[str]) -> Iterator[Figure]:
    """How TTFT and E2E of these run tasks are distributed: cumulated; of many run tasks medians with ranges.

    Args:
        performance: `performance.json`.
        names: of its run tasks.
    """
    for key, title in (("ttft_ms", "TTFT"), ("e2e_due_ms", "E2E from due")):
        found = {
            name: table
            for name in names
            if (table := performance["run_tasks"][name].get(key)) and table.get("quantiles")
        }
        if not found:
            continue
        where = stem("latency", key.removesuffix("_ms"))
        values = {name: tuple(table["quantiles"]) for name, table in found.items()}
        axis = Axis(title, "ms", scale=_scale(values))
        if len(found) > CURVES:
            yield _ranges(where, f"{title} by run task", axis, values)
            continue
        yield Figure(
            where, f"{title}: share of answers that took at most so long", "ecdf", axis,
            Axis("share of answers"),
            tuple(Series(name, some, _cumulated(found[name])) for name, some in values.items()),
        )  # fmt: skip


def tokens(performance: Mapping[str, Any]) -> Iterator[Figure]:
    """How long the answers of each run task are: a line over its answers, from the shortest to the longest.

    The line shows what a mean hides: how many are short, where the tail begins, and, as a level end, how many
    were cut at the same greatest length. Of many run tasks medians with ranges. What an older version
    measured has sums alone, and is drawn as tokens of a mean answer.

    Args:
        performance: `performance.json`.
    """
    tables: Mapping[str, Any] = performance["run_tasks"]
    each = {name: table.get("tokens_each") or {} for name, table in tables.items()}
    found = {
        name: tuple(float(one) for one in counts["completion_tokens"])
        for name, counts in each.items()
        if counts.get("completion_tokens")
    }
    if found:
        axis = Axis("tokens of an answer", scale=_scale(found))
        if len(found) > CURVES:
            yield _ranges("tokens", "Tokens of an answer, by run task", axis, found)
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
    known = {n: t for n, t in tables.items() if t["answered"] and t.get("completion_tokens")}
    if known:
        means = tuple(table["completion_tokens"] / table["answered"] for table in known.values())
        yield Figure(
            "tokens", "Tokens of a mean answer", "bar", Axis("run task", scale="category"),
            Axis("tokens", low=0.0), (Series("answer", tuple(known), means),),
        )  # fmt: skip


def _levels(quantiles: Sequence[float]) -> list[float]:
    """Which share each of evenly spaced quantiles belongs to, from 0 to 1."""
    last = max(1, len(quantiles) - 1)
    return [place / last for place in range(len(quantiles))]


def _cumulated(table: Mapping[str, Any]) -> tuple[float, ...]:
    """Share of values at or below each of a latency's `quantiles`, which are all values, or some of many."""
    count = len(table["quantiles"])
    if count == table["n"]:
        return tuple((place + 1) / count for place in range(count))
    least = 1 / table["n"]
    return tuple(max(least, level) for level in _levels(table["quantiles"]))


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
        notes=("Dot: median. Line: from 5 % to 95 % of answers, no interval of confidence.",),
    )  # fmt: skip


def memory(performance: Mapping[str, Any]) -> Figure | None:
    """Peaks of memory of the run tasks where it was measured, GiB.

    Args:
        performance: `performance.json`.
    """
    known = {
        name: table["memory"] for name, table in performance["run_tasks"].items() if table["memory"]
    }
    series = []
    for key, title in MEMORY.items():
        values = tuple(
            None if peaks.get(key) is None else peaks[key] / 2**30 for peaks in known.values()
        )
        if any(value is not None for value in values):
            series.append(Series(title, tuple(known), values))
    if not series:
        return None
    return Figure(
        "memory", "Peaks of memory", "interval", Axis("run task", scale="category"),
        Axis("peak", "GiB", low=0.0), tuple(series),
    )  # fmt: skip
