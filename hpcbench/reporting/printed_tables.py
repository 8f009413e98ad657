"""Rows that reports and the command line print, their numbers formatted by `evaluation.format`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hpcbench import number_format as form
from hpcbench.experiment.view.metrics_json import GroupRow, Scores, standing
from hpcbench.experiment.view.performance_json import Figure, Latency, Load, Performance, Speed

LATENCIES = {
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "e2e_ms": "E2E",
    "ttft_due_ms": "TTFT from due",
    "e2e_due_ms": "E2E from due",
    "queue_ms": "queue",
}
"""Latencies that the report shows: key of `performance.json` → label."""

GROUPS = 40
"""Most groups of a table that the report shows; `hpcbench score --by` shows all."""

MEMORY = ("gpu_peak", "torch_allocated", "kv_peak", "effective", "host_held_peak")
"""The monitor's figures of memory that the report shows."""


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
    """Documents that the scored samples belong to."""
    coverage: float
    """ok ÷ (asked + skipped)."""
    higher_is_better: bool
    signature: str
    """Metric with all its options."""
    method: str
    """How the interval was found, or why there is none."""
    unit: str = ""
    """Unit of a resource metric."""
    calibration: str = ""
    """State of a judge's verdicts: `calibrated` or `uncalibrated`."""

    @property
    def label(self) -> str:
        """The metric with its unit and better direction: `anls ↑`, `ttft_p50, ms ↓`."""
        return form.metric(self.metric, self.unit, higher_is_better=self.higher_is_better)


@dataclass(frozen=True, slots=True)
class GroupTable:
    """One run task by groups of its samples: a line for each group, a column for each metric; formatted."""

    run_task: str
    by: str
    """The grouping columns, `doc_type × question_type`."""
    heads: tuple[str, ...]
    """Names of the metrics, with the better direction."""
    lines: tuple[tuple[str, str, str, tuple[str, ...]], ...]
    """Group, samples, coverage, and for each metric the value with its interval."""
    left_out: int
    """Groups that are not shown."""


SEVERAL_TOKENS = 1.05
"""Mean tokens of a chunk from which a TPOT says so: the time between two tokens of a chunk is unknown."""


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """Rates of one run task under its load; formatted figures."""

    run_task: str
    load: str
    """`8 in flight`, `auto`, `2.5/s poisson`; then in brackets `knee`, `best`, `client-bound`."""
    answered: str
    """Requests with an answer / requests."""
    in_flight: str
    answers: str
    """Answers per second with interval."""
    tokens: str
    """Answer tokens per second with interval."""
    ttft: str
    """p50 / p95, ms."""
    tpot: str
    """p50 / p95, ms; with the tokens of a chunk, if these are several."""
    e2e: str
    """p50 / p95 from the due time, ms."""
    good: str
    """Good answers per second, and their share of the requests; a dash without limits."""


def first_metric(table: Scores) -> str | None:
    """The first metric that has a value, one of answers before one of resources."""
    return min(table.values, key=lambda name: name in table.measured, default=None)


def metric_rows(run_tasks: Mapping[str, Scores]) -> Iterator[MetricRow]:
    """One row for each metric, in the order of run tasks and metrics."""
    for run_task, table in run_tasks.items():
        for name, entry in table.metrics.items():
            measured = table.measured.get(name)
            none = measured.why if measured else "no sample was scored"
            up = entry.higher_is_better if entry else not measured or measured.higher_is_better
            yield MetricRow(
                run_task=run_task,
                ml_task=table.ml_task,
                model=table.model,
                dataset=table.dataset,
                split=table.split,
                metric=name,
                value=entry.value if entry else None,
                low=entry.low if entry else None,
                high=entry.high if entry else None,
                n=entry.n if entry else 0,
                clusters=entry.clusters if entry else 0,
                coverage=table.coverage,
                higher_is_better=up,
                signature=entry.signature if entry else "",
                method=entry.method if entry else none,
                unit=measured.unit if measured else "",
                calibration=entry.calibration if entry else "",
            )


def metric_cells(row: MetricRow) -> tuple[str, ...]:
    """A metric for people: run task, metric, value, interval, samples, documents, coverage."""
    return (
        row.run_task,
        row.label,
        " ".join(filter(None, (form.value(row.value), standing(row.calibration)))),
        form.interval(row.low, row.high),
        form.count(row.n),
        form.count(row.clusters),
        form.share(row.coverage),
    )


def group_tables(run_tasks: Mapping[str, Scores]) -> Iterator[GroupTable]:
    """Tables of groups, where there is more than one group."""
    for run_task, table in run_tasks.items():
        for level in table.groups:
            if level.groups < 2:
                continue
            lines: dict[tuple[str, ...], dict[str, GroupRow]] = {}
            heads: dict[str, str] = {}
            for row in level.rows:
                group = tuple(row.by[name] or "–" for name in level.by)
                lines.setdefault(group, {})[row.metric] = row
                entry = table.metrics.get(row.metric)
                measured = table.measured.get(row.metric)
                better = entry.higher_is_better if entry else measured is None
                unit = measured.unit if measured else ""
                head = form.metric(row.metric, unit, higher_is_better=better)
                heads.setdefault(row.metric, head)
            shown = list(lines.items())[:GROUPS]
            yield GroupTable(
                run_task,
                " × ".join(level.by),
                tuple(heads.values()),
                tuple(_group_line(group, cells, list(heads)) for group, cells in shown),
                level.groups - len(shown),
            )


def _group_line(
    group: tuple[str, ...], cells: Mapping[str, GroupRow], metrics: Iterable[str]
) -> tuple[str, str, str, tuple[str, ...]]:
    first = next(iter(cells.values()))
    values = tuple(_metric(cells[name]) if name in cells else form.DASH for name in metrics)
    return ", ".join(group), form.count(first.asked), form.share(first.coverage), values


def _metric(entry: GroupRow) -> str:
    return form.value_with_interval(entry.value, entry.low, entry.high)


def speed_rows(performance: Performance, names: Iterable[str]) -> Iterator[SpeedRow]:
    """Rows of the given run tasks of `performance.json`."""
    sweeps = performance.sweeps.values()
    knees = {knee for sweep in sweeps for knee in (sweep.knee, sweep.rate_knee)}
    best = {sweep.best for sweep in sweeps}
    for name in names:
        table = performance.run_tasks[name]
        labels = [
            "knee" if name in knees else "",
            "best" if name in best else "",
            "" if table.valid else "client-bound",
        ]
        marks = ", ".join(filter(None, labels))
        load = _load(table.load)
        yield SpeedRow(
            run_task=name,
            load=f"{load} ({marks})" if marks else load,
            answered=f"{table.answered} / {table.requests}",
            in_flight=form.figure(table.window.in_flight),
            answers=_with_ends(table.answers_per_s),
            tokens=_with_ends(table.tokens_per_s),
            ttft=_quantiles(table.ttft_ms),
            tpot=_tpot(table),
            e2e=_quantiles(table.e2e_due_ms),
            good=_good(table),
        )


def latency_rows(speeds: Mapping[str, Speed]) -> Iterator[tuple[str, ...]]:
    """Rows for people, for each latency of the given run tasks, in ms.

    Run task, latency, requests, mean, p50, p90, p95, p99, each with its interval, and the maximum.
    """
    for name, speed in speeds.items():
        for key, latency in LATENCIES.items():
            table = speed.latency(key)
            # At a given concurrency a request is due when a place is free: it waits for nothing.
            waits = speed.load.rate is not None
            if table is not None and (waits or key in ("ttft_ms", "tpot_ms", "e2e_ms")):
                columns = ("mean", "p50", "p90", "p95", "p99")
                ends = [_with_ends(table.figure(one)) for one in columns]
                yield name, latency, form.count(table.n), *ends, form.figure(table.max)


def memory_rows(speeds: Mapping[str, Speed]) -> Iterator[tuple[str, ...]]:
    """Run tasks whose memory was measured, with their peaks of `MEMORY`, GiB."""
    for name, table in speeds.items():
        if table.memory is not None:
            yield name, *(form.gib(table.memory.figure(one)) for one in MEMORY)


def _load(load: Load) -> str:
    if load.rate is not None:
        return f"{load.rate:g}/s {load.arrival}"
    if load.at_once == "auto":  # an earlier version did not record the number
        return "auto"
    return f"{load.at_once} in flight (auto)" if load.chosen else f"{load.at_once} in flight"


def _quantiles(table: Latency | None) -> str:
    """`12.1 / 40.3`; a dash for a percentile for which there are too few requests."""
    if table is None:
        return form.DASH
    return f"{form.figure(table.p50.value)} / {form.figure(table.p95.value)}"


def _tpot(speed: Speed) -> str:
    """`12.1 / 14.0`; `12.1 / 14.0 (8.0 tokens a chunk)` where chunks have more than one token."""
    shown, each = _quantiles(speed.tpot_ms), speed.tokens_per_chunk
    if speed.tpot_ms is None or each is None or each < SEVERAL_TOKENS:
        return shown
    return f"{shown} ({each:.1f} tokens a chunk)"


def _with_ends(entry: Figure | None) -> str:
    """`12.1 [11.8, 12.6]`, with the ends that exist."""
    if entry is None:
        return form.DASH
    return form.figure_with_interval(entry.value, entry.low, entry.high)


def _good(table: Speed) -> str:
    if table.attainment is None:
        return form.DASH
    rate = form.figure(table.good_per_s.value if table.good_per_s is not None else None)
    return f"{rate}, {form.share(table.attainment.value or 0.0)}"
