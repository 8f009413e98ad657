"""Rows that reports and the command line print, their numbers formatted by `evaluation.format`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hpcbench.evaluation import number_format as form
from hpcbench.experiment.results import at_once

LATENCIES = {
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "e2e_ms": "E2E",
    "ttft_due_ms": "TTFT from due",
    "e2e_due_ms": "E2E from due",
    "queue_ms": "queue",
}
"""Latencies that the report shows: key of `performance.json` → what it is called."""

GROUPS = 40
"""Groups of a table that the report shows; `hpcbench score --by` shows all."""

MEMORY = ("gpu_peak", "torch_allocated", "kv_peak", "effective", "host_held_peak")
"""Figures of memory that the report shows, of those that the monitor gives."""


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric of one run task."""

    run_task: str
    ml_task: str
    model: str
    dataset: str
    split: str | None
    metric: str
    value: float | None
    """None when no sample could be scored."""
    low: float | None
    """Lower end of the interval; None where undefined."""
    high: float | None
    """Upper end of the interval; None where undefined."""
    n: int
    """Samples scored."""
    clusters: int
    """Documents they belong to."""
    coverage: float
    """ok ÷ (asked + skipped)."""
    higher_is_better: bool
    signature: str
    """Metric with all its options."""
    method: str
    """How the interval was found, or why there is none."""


@dataclass(frozen=True, slots=True)
class GroupTable:
    """One run task by groups of its samples: a line a group, a column a metric; already formatted."""

    run_task: str
    by: str
    """What it is grouped by, `doc_type × question_type`."""
    heads: tuple[str, ...]
    """Names of the metrics, with the direction that is better."""
    lines: tuple[tuple[str, str, str, tuple[str, ...]], ...]
    """Group, samples, coverage, and of each metric the value with its interval."""
    left_out: int
    """Groups that are not shown."""


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """Rates of one run task under its load; figures already formatted."""

    run_task: str
    load: str
    """`8 at once`, `auto`, `2.5/s poisson`; behind it in brackets `knee`, `best`, `client-bound`."""
    answered: str
    """Requests with an answer / requests."""
    in_flight: str
    answers: str
    """Answers a second with interval."""
    tokens: str
    """Answer tokens a second with interval."""
    ttft: str
    """p50 / p95, ms."""
    tpot: str
    """p50 / p95, ms."""
    e2e: str
    """p50 / p95 from when it was due, ms."""
    good: str
    """Good answers a second, and their share of the requests; a dash without limits."""


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """One latency of one run task, ms, already formatted."""

    run_task: str
    latency: str
    n: int
    mean: str
    p50: str
    p90: str
    p95: str
    p99: str
    greatest: str


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """Peaks of memory of one run task, GiB, already formatted; a dash for what was not measured."""

    run_task: str
    figures: tuple[str, ...]
    """In the order of `MEMORY`."""


def metric_rows(metrics: Mapping[str, Any]) -> Iterator[MetricRow]:
    """Rows of `metrics.json`, in the order it lists run tasks and metrics."""
    for run_task, table in metrics["run_tasks"].items():
        for name, entry in table["metrics"].items():
            entry = entry or {}
            yield MetricRow(
                run_task=run_task,
                ml_task=table["ml_task"],
                model=table["model"],
                dataset=table["dataset"],
                split=table["split"],
                metric=name,
                value=entry.get("value"),
                low=entry.get("low"),
                high=entry.get("high"),
                n=entry.get("n", 0),
                clusters=entry.get("clusters", 0),
                coverage=table["coverage"],
                higher_is_better=entry.get("higher_is_better", True),
                signature=entry.get("signature", ""),
                method=entry.get("method", "no sample was scored"),
            )


def group_tables(metrics: Mapping[str, Any]) -> Iterator[GroupTable]:
    """Tables of groups of `metrics.json`, where there is more than one group."""
    for run_task, table in metrics["run_tasks"].items():
        for level in table["groups"]:
            if level["groups"] < 2:
                continue
            lines: dict[tuple[str, ...], dict[str, Mapping[str, Any]]] = {}
            heads: dict[str, str] = {}
            for row in level["rows"]:
                group = tuple(row["by"][name] or "–" for name in level["by"])
                lines.setdefault(group, {})[row["metric"]] = row
                better = (table["metrics"].get(row["metric"]) or {}).get("higher_is_better", True)
                heads.setdefault(
                    row["metric"], f"{row['metric']} {form.arrow(higher_is_better=better)}"
                )
            shown = list(lines.items())[:GROUPS]
            yield GroupTable(
                run_task,
                " × ".join(level["by"]),
                tuple(heads.values()),
                tuple(_group_line(group, cells, list(heads)) for group, cells in shown),
                level["groups"] - len(shown),
            )


def _group_line(
    group: tuple[str, ...], cells: Mapping[str, Mapping[str, Any]], metrics: Iterable[str]
) -> tuple[str, str, str, tuple[str, ...]]:
    first = next(iter(cells.values()))
    values = tuple(_metric(cells[name]) if name in cells else form.DASH for name in metrics)
    return ", ".join(group), form.count(first["asked"]), form.share(first["coverage"]), values


def _metric(entry: Mapping[str, Any]) -> str:
    return form.value_with_interval(entry["value"], entry["low"], entry["high"])


def speed_rows(performance: Mapping[str, Any], names: Iterable[str]) -> Iterator[SpeedRow]:
    """Rows of these run tasks of `performance.json`."""
    sweeps = performance["sweeps"].values()
    knees = {sweep.get(mark) for sweep in sweeps for mark in ("knee", "rate_knee")}
    best = {sweep["best"] for sweep in sweeps}
    for name in names:
        table = performance["run_tasks"][name]
        told = [
            "knee" if name in knees else "",
            "best" if name in best else "",
            "" if table["valid"] else "client-bound",
        ]
        marks = ", ".join(filter(None, told))
        load = _load(table["load"])
        yield SpeedRow(
            run_task=name,
            load=f"{load} ({marks})" if marks else load,
            answered=f"{table['answered']} / {table['requests']}",
            in_flight=form.figure(table["window"]["in_flight"]),
            answers=_with_ends(table["answers_per_s"]),
            tokens=_with_ends(table["tokens_per_s"]),
            ttft=_quantiles(table["ttft_ms"]),
            tpot=_quantiles(table["tpot_ms"]),
            e2e=_quantiles(table["e2e_due_ms"]),
            good=_good(table),
        )


def latency_rows(performance: Mapping[str, Any], names: Iterable[str]) -> Iterator[LatencyRow]:
    """Rows of these run tasks of `performance.json`, for each latency they have."""
    for name in names:
        for key, latency in LATENCIES.items():
            table = performance["run_tasks"][name][key]
            # At a given concurrency a request is due when there is room for it: it waits for nothing.
            waits = performance["run_tasks"][name]["load"]["rate"] is not None
            if table is not None and (waits or key in ("ttft_ms", "tpot_ms", "e2e_ms")):
                shown = {
                    column: _with_ends(table[column])
                    for column in ("mean", "p50", "p90", "p95", "p99")
                }
                greatest = form.figure(table["max"])
                yield LatencyRow(
                    run_task=name, latency=latency, n=table["n"], greatest=greatest, **shown
                )


def memory_rows(performance: Mapping[str, Any]) -> Iterator[MemoryRow]:
    """Rows of `performance.json`, of run tasks whose memory was measured."""
    for name, table in performance["run_tasks"].items():
        if table["memory"] is not None:
            yield MemoryRow(name, tuple(form.gib(table["memory"].get(one)) for one in MEMORY))


def _load(load: Mapping[str, Any]) -> str:
    if load["rate"] is not None:
        return f"{load['rate']:g}/s {load['arrival']}"
    count = at_once(load)
    if count == "auto":  # of an earlier version, which did not say what it came to
        return "auto"
    return f"{count} at once (auto)" if load.get("chosen") else f"{count} at once"


def _quantiles(table: Mapping[str, Any] | None) -> str:
    """`12.1 / 40.3`; a dash for a percentile that so few requests do not tell."""
    if table is None:
        return form.DASH
    return " / ".join(form.figure(table[name]["value"]) for name in ("p50", "p95"))


def _with_ends(entry: Mapping[str, Any] | None) -> str:
    """`12.1 [11.8, 12.6]`, as far as there are ends."""
    if entry is None:
        return form.DASH
    return form.figure_with_interval(entry["value"], entry["low"], entry["high"])


def _good(table: Mapping[str, Any]) -> str:
    if table["attainment"] is None:
        return form.DASH
    rate = form.figure((table["good_per_s"] or {}).get("value"))
    return f"{rate}, {form.share(table['attainment']['value'])}"
