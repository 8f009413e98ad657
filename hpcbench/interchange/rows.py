"""Rows of the tables that are made of small files: metrics, events, resources."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import reduce
from pathlib import Path
from typing import Any

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.log import sort_of
from hpcbench.experiment.results import metrics_of, performance_of
from hpcbench.experiment.submission import rounds
from hpcbench.experiment.view.logs import logs_of_attempts, logs_of_jobs
from hpcbench.experiment.view.usage import CAUSES, Hours, Usage
from hpcbench.experiment.view.workers import worker_runs
from hpcbench.files.atomic import read_json
from hpcbench.schema.plan import Group, ResolvedRunTask

Row = Mapping[str, Any]
"""Column → value; one that is not there has none."""

Note = Callable[[str], None]
Damage = Callable[[Path, int], None]

MEMORY = (
    "gpu_peak", "gpu_peak_source", "torch_allocated", "kv_peak", "effective", "host_peak",
    "host_held_peak",
)  # fmt: skip
"""Figures of memory in `performance.json`."""


def of_run_task(experiment: Experiment, run_task: ResolvedRunTask) -> dict[str, str | None]:
    """What rows of a run task have in common."""
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
    """A row a value with its interval, of scores and of speed.

    Raises:
        EnvironmentFault: there is no `metrics.json`.
    """
    tables = metrics_of(experiment)["run_tasks"]
    try:
        speed = performance_of(experiment)["run_tasks"]
    except EnvironmentFault as fault:
        note(f"no figures of speed: {fault}")
        speed = {}
    for name in run_tasks:
        run_task = experiment.resolved.run_task(name)
        common = of_run_task(experiment, run_task)
        if name in tables:
            for row in _score_rows(tables[name]):
                yield {**common, **row}
        for row in _speed_rows(speed.get(name) or {}):
            yield {**common, **row}


def _score_rows(table: Mapping[str, Any]) -> Iterator[Row]:
    told = ("value", "low", "high", "n", "invalid", "faults", "method", "average")
    for name, entry in table["metrics"].items():
        whole = {key: table[key] for key in ("asked", "answered", "coverage")}
        found = {key: (entry or {}).get(key) for key in (*told, "signature", "higher_is_better")}
        clusters = (entry or {}).get("clusters")
        yield {
            "kind": "score",
            "metric": name,
            "statistic": "value",
            **whole,
            **found,
            "documents": clusters,
        }
    for level in table["groups"]:
        for row in level["rows"]:
            entry = table["metrics"].get(row["metric"]) or {}
            yield {
                "kind": "score",
                "statistic": "value",
                "by": ",".join(level["by"]),
                "group": json.dumps(row["by"], ensure_ascii=False, sort_keys=True),
                **{
                    key: row.get(key)
                    for key in ("metric", "asked", "answered", "coverage", *told, "documents")
                },
                **{key: entry.get(key) for key in ("signature", "higher_is_better")},
            }


def _speed_rows(figures: Mapping[str, Any]) -> Iterator[Row]:
    """Figures that have a value and an interval, or several of such."""
    common = {"kind": "speed", "valid": figures.get("valid")}
    for name, entry in figures.items():
        if not isinstance(entry, Mapping):
            continue
        if "value" in entry and "low" in entry:
            statistic = "share" if name == "attainment" else "rate"
            yield {
                **common,
                "metric": name,
                "statistic": statistic,
                **_interval(entry),
                "n": entry.get("n"),
            }
        for statistic, one in entry.items():
            if isinstance(one, Mapping) and "value" in one and "low" in one:
                yield {
                    **common, "metric": name, "statistic": statistic, **_interval(one),
                    "n": entry.get("n"),
                }  # fmt: skip


def _interval(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry.get(name) for name in ("value", "low", "high")}


# --- events -------------------------------------------------------------------------------------------


def event_rows(
    experiment: Experiment, run_tasks: Sequence[str], note: Note, damage: Damage
) -> Iterator[Row]:
    """A row an event, log by log: submission, wishes, workers, attempts of shards; folded ones too.

    Logs of workers and of the submission are of no run task alone: they are left out where only some of the
    run tasks are wanted.
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
    """A row of the experiment, one a run task, one a job: what it held and what it used."""
    usage = _usage(experiment, note)
    memory = _read(experiment.performance_file, note, "memory is told once it is evaluated")
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
        figures = (memory.get("run_tasks", {}).get(name) or {}).get("memory") or {}
        hours: list[Hours | None] = [one for one in usage.hours if one.run_task == name]
        for one in hours or [None]:
            yield {
                **common, "scope": "run_task", "run_task": name, "model": run_task.model.name,
                "unit": one.unit if one else None, **_seconds(one),
                "source": usage.source if one else None,
                "gpu_utilisation": usage.gpu_utilisation.get(name),
                **{key: figures.get(key) for key in MEMORY},
            }  # fmt: skip
    if whole:
        for row in _jobs(experiment, damage):
            yield {**common, **row}


def _jobs(experiment: Experiment, damage: Damage) -> Iterator[Row]:
    """What each job's worker says of itself."""
    groups: dict[str, Group] = {group.id: group for group in experiment.work.groups}
    for one in rounds(experiment):  # shapes may change from round to round
        groups |= {step.job: group for step in one.steps.values() if step.job is not None
                   for group in one.groups if group.id == step.group}  # fmt: skip
    for run in worker_runs(experiment, tell=lambda path, line: damage(path, 1)):
        if not run.owner:
            continue  # killed before its first line was whole
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


def _usage(experiment: Experiment, note: Note) -> Usage:
    """What it took; without hours where that is not written yet, or damaged."""
    found = _read(experiment.usage_file, note, "hours are told once it has ended")
    try:
        return Usage.model_validate(found or {"hours": ()})
    except ValueError as error:
        note(f"{experiment.usage_file} is damaged: {error}")
        return Usage(hours=())


def _seconds(hours: Hours | None) -> dict[str, float | None]:
    return {
        f"{name}_s": round(getattr(hours, name) * 3600, 3)
        if hours and name in hours.model_fields_set  # older versions did not know all
        else None
        for name in ("allocated", "used", *CAUSES)
    }


def _read(path: Path, note: Note, when: str) -> dict[str, Any]:
    try:
        found = read_json(path)
    except FileNotFoundError:
        note(f"no {path.name} in {path.parent.name} yet: {when}")
        return {}
    except (ValueError, RecursionError) as error:
        note(f"{path} is damaged: {error}")
        return {}
    return found if isinstance(found, dict) else {}
