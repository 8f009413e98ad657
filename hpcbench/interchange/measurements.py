"""Rows of the tables from small files: metrics, events, resources."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import reduce
from pathlib import Path
from typing import Any

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.event_log import sort_of
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import rounds
from hpcbench.experiment.view.logs import logs_of_attempts, logs_of_jobs
from hpcbench.experiment.view.metrics_json import GroupRow, MetricValue, Scores, metrics_of
from hpcbench.experiment.view.performance_json import Figure, Memory, Speed, performance_of
from hpcbench.experiment.view.usage import CAUSES, Hours, Usage, written_usage
from hpcbench.experiment.view.workers import worker_runs
from hpcbench.schema.plan import Group, ResolvedRunTask
from hpcbench.speed import SHARES

Row = Mapping[str, Any]
"""Column → value; a missing column has no value."""

Note = Callable[[str], None]
Damage = Callable[[Path, int], None]

MEMORY = (
    "gpu_peak", "gpu_peak_source", "torch_allocated", "kv_peak", "effective", "host_peak",
    "host_held_peak",
)  # fmt: skip
"""Figures of memory in `performance.json`."""


def of_run_task(experiment: Experiment, run_task: ResolvedRunTask) -> dict[str, str | None]:
    """Columns that the rows of a run task share."""
    return {
        "experiment": experiment.id,
        "run_task": run_task.name,
        "model": run_task.model.name,
        "dataset": run_task.dataset.name,
        "split": run_task.dataset.split,
        "ml_task": run_task.ml_task.name,
    }


# --- metrics ------------------------------------------------------------------------------------------


def metric_rows(
    experiment: Experiment, run_tasks: Sequence[str], note: Note, damage: Damage
) -> Iterator[Row]:
    """One row per value with its interval, of scores and of speed.

    Raises:
        EnvironmentFault: there is no `metrics.json`.
    """
    tables = metrics_of(experiment).run_tasks
    timed = _performance(experiment, note)
    for name in run_tasks:
        run_task = experiment.resolved.run_task(name)
        common = of_run_task(experiment, run_task)
        if name in tables:
            for row in _score_rows(tables[name]):
                yield {**common, **row}
        if name in timed:
            for row in _speed_rows(timed[name]):
                yield {**common, **row}


def _performance(experiment: Experiment, note: Note) -> Mapping[str, Speed]:
    """Figures of speed and memory by run task; empty where they cannot be read, which is noted."""
    try:
        return performance_of(experiment).run_tasks
    except EnvironmentFault as fault:
        note(f"no figures of speed and memory: {fault}")
        return {}


def _score_rows(table: Scores) -> Iterator[Row]:
    for name, entry in table.metrics.items():
        row: Row = {
            "kind": "score", "metric": name, "statistic": "value", "asked": table.asked,
            "answered": table.answered, "coverage": table.coverage,
        }  # fmt: skip
        estimate = {**_estimate(entry), "documents": entry.clusters} if entry is not None else {}
        yield {**row, **estimate, **_of_metric(entry)}
    for level in table.groups:
        for one in level.rows:
            yield {
                "kind": "score", "statistic": "value", "by": ",".join(level.by),
                "group": json.dumps(one.by, ensure_ascii=False, sort_keys=True), "metric": one.metric,
                "asked": one.asked, "answered": one.answered, "coverage": one.coverage,
                **_estimate(one), "documents": one.documents,
                **_of_metric(table.metrics.get(one.metric)),
            }  # fmt: skip


def _estimate(one: MetricValue | GroupRow) -> Row:
    return {
        **_interval(one), "n": one.n, "invalid": one.invalid, "faults": one.faults,
        "method": one.method, "average": one.average,
    }  # fmt: skip


def _of_metric(entry: MetricValue | None) -> Row:
    if entry is None:
        return {}
    return {"signature": entry.signature, "higher_is_better": entry.higher_is_better}


def _speed_rows(table: Speed) -> Iterator[Row]:
    """Figures that have a value and an interval, or nested ones, by their names."""
    common = {"kind": "speed", "valid": table.valid}
    for name in sorted(Speed.model_fields):
        if (rate := table.rate(name)) is not None:
            statistic = "share" if name == "attainment" else "rate"
            yield {**common, "metric": name, "statistic": statistic, **_interval(rate)}
        if (latency := table.latency(name)) is not None:
            for statistic in ("mean", *SHARES):
                found = _interval(latency.figure(statistic))
                yield {**common, "metric": name, "statistic": statistic, **found, "n": latency.n}


def _interval(entry: MetricValue | GroupRow | Figure) -> Row:
    return {"value": entry.value, "low": entry.low, "high": entry.high}


# --- events -------------------------------------------------------------------------------------------


def event_rows(
    experiment: Experiment, run_tasks: Sequence[str], note: Note, damage: Damage
) -> Iterator[Row]:
    """One row per event, by log: submission, control requests, workers, attempts of shards, folded ones too.

    Logs of workers and of the submission belong to no single run task: they are left out where only some run
    tasks are requested.
    """

    def tell(path: Path, line: int) -> None:
        damage(path, 1)

    if len(run_tasks) == len(experiment.resolved.run_tasks):
        for log in logs_of_jobs(experiment, tell):
            named = {"group": log.group, "worker": log.worker} if log.worker else {}
            for record in log.records:
                yield {"experiment": experiment.id, "source": log.source, **named, **_event(record)}
    for log in logs_of_attempts(experiment, run_tasks, tell):
        place = {"run_task": log.run_task, "shard": log.shard, "attempt": log.attempt}
        for record in log.records:
            yield {"experiment": experiment.id, **_event(record), "source": log.source, **place}


def _event(record: Mapping[str, Any]) -> dict[str, Any]:
    kind = str(record.get("event", ""))
    rest = {key: value for key, value in record.items() if key not in ("event", "seq", "time")}
    run_task, seq = record.get("run_task"), record.get("seq")
    return {
        "seq": seq if isinstance(seq, int) else None,
        "time": _moment(record.get("time")),
        "kind": kind,
        "sort": sort_of(kind),
        "run_task": run_task if isinstance(run_task, str) else None,
        "details": json.dumps(rest, ensure_ascii=False, sort_keys=True),
    }


def _moment(seconds: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(float(seconds), timezone.utc)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


# --- resources ----------------------------------------------------------------------------------------


def resource_rows(
    experiment: Experiment, run_tasks: Sequence[str], note: Note, damage: Damage
) -> Iterator[Row]:
    """One row for the experiment, one per run task, one per job: its reserved and used time."""
    usage = written_usage(experiment)
    if usage is None:
        note(
            f"{experiment.id} has no readable {experiment.usage_file.name}: the table has no hours"
        )
        usage = Usage(hours=())
    memory = _performance(experiment, note)
    common = {"experiment": experiment.id}
    whole = len(run_tasks) == len(experiment.resolved.run_tasks)
    if whole:
        for unit in dict.fromkeys(one.unit for one in usage.hours):
            own = [one for one in usage.hours if one.unit == unit]
            first = own[0] is usage.hours[0]
            energy = {"energy_wh": usage.energy_wh, "energy_source": usage.energy_source}
            yield {**common, "scope": "experiment", "source": usage.source, "unit": unit,
                   **_seconds(reduce(Hours.plus, own)), **(energy if first else {})}  # fmt: skip
    for name in run_tasks:
        run_task = experiment.resolved.run_task(name)
        figures = memory[name].memory or Memory() if name in memory else Memory()
        hours: list[Hours | None] = [one for one in usage.hours if one.run_task == name]
        for one in hours or [None]:
            yield {
                **common, "scope": "run_task", "run_task": name, "model": run_task.model.name,
                "unit": one.unit if one else None, **_seconds(one),
                "source": usage.source if one else None,
                "gpu_utilisation": usage.gpu_utilisation.get(name),
                **{key: getattr(figures, key) for key in MEMORY},
            }  # fmt: skip
    if whole:
        for row in _jobs(experiment, damage):
            yield {**common, **row}


def _jobs(experiment: Experiment, damage: Damage) -> Iterator[Row]:
    """The description that each job's worker gives of itself."""
    groups: dict[str, Group] = {group.id: group for group in experiment.work.groups}
    for one in rounds(experiment):  # shapes may change from round to round
        groups |= {step.job: group for step in one.steps.values() if step.job is not None
                   for group in one.groups if group.id == step.group}  # fmt: skip
    for run in worker_runs(experiment, tell=lambda path, line: damage(path, 1)):
        if not run.owner:
            continue  # killed before its first line was complete
        own = groups.get(run.array) or groups.get(run.group)
        held = max(0.0, run.last - run.started)
        count = (own.gpus or own.resources.cpus) if own is not None else None
        yield {
            "scope": "job",
            "group": own.id if own is not None else run.group,
            "job": run.job,
            "restart": run.restart,
            "node": run.node,
            "gpus": own.gpus if own is not None else None,
            "cpus": own.resources.cpus if own is not None else None,
            "begin": _moment(run.started),
            "end": _moment(run.last),
            "seconds": round(held, 3),
            "unit": None if own is None else "GPU" if own.gpus else "CPU",
            "allocated_s": None if count is None else round(held * count, 3),
            "source": "workers",
        }


def _seconds(hours: Hours | None) -> dict[str, float | None]:
    return {
        f"{name}_s": round(getattr(hours, name) * 3600, 3)
        if hours and name in hours.model_fields_set  # older versions did not record all of them
        else None
        for name in ("allocated", "used", *CAUSES)
    }


# --- tokens -------------------------------------------------------------------------------------------


def token_rows(
    experiment: Experiment, run_tasks: Sequence[str], note: Note, damage: Damage
) -> Iterator[Row]:
    """One row per worker, model and kind of request for a token: the last figures of the worker's relays.

    Workers belong to no single run task, so with only some run tasks there are the rows of their models.
    """
    models = {experiment.resolved.run_task(name).model.name for name in run_tasks}
    found = False
    for run in worker_runs(experiment, tell=lambda path, line: damage(path, 1)):
        for model, one in run.tokens.items():
            if model not in models:
                continue
            for kind in sorted({*one.granted, *one.failed, *one.seconds}):
                found = True
                yield {
                    "experiment": experiment.id, "model": model, "worker": run.id, "node": run.node,
                    "refresh_type": kind, "refreshes": one.granted[kind], "failures": one.failed[kind],
                    "duration_s": one.seconds.get(kind, 0.0), "longest_s": one.longest,
                    "fallbacks": one.fallbacks, "rejected": one.rejected, "waits": one.waits,
                    "wait_s": one.wait_seconds, "token_age_s": one.age, "time": _moment(one.time),
                }  # fmt: skip
    if not found:
        note(f"{experiment.id} asked no token server: the table has no rows")
