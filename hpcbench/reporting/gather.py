"""Gathers the tables of a report from an experiment's directory; missing files give null, no error."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from hpcbench.errors import EnvironmentFault
from hpcbench.evaluation.endings import endings
from hpcbench.evaluation.performance import performance as measured_performance
from hpcbench.evaluation.score_distributions import distributions
from hpcbench.experiment.claims import shard_states
from hpcbench.experiment.control import control_state
from hpcbench.experiment.counts import total
from hpcbench.experiment.ending import experiment_end
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.reused import Reused, reused_of
from hpcbench.experiment.view.as_written import manifest_data, verdict_data
from hpcbench.experiment.view.metrics_json import Metrics, Scores, metrics_of, variants
from hpcbench.experiment.view.performance_json import Performance, performance_of
from hpcbench.experiment.view.scores import ScoresFiles
from hpcbench.experiment.view.usage import written_usage
from hpcbench.reporting import report_tables
from hpcbench.reporting.ab import arms_of
from hpcbench.reporting.leaderboard import leaders, sentences
from hpcbench.reporting.printed_tables import first_metric
from hpcbench.reporting.provenance import baseline, provenance
from hpcbench.reporting.published import published_scores
from hpcbench.reporting.report_tables import (
    Cell,
    Distribution,
    GateVerdict,
    Matrix,
    MatrixColumn,
    MatrixRow,
    Tables,
)
from hpcbench.reporting.usage_rows import per_document
from hpcbench.reporting.worst_samples import worst_samples

ValueT = TypeVar("ValueT")


def gather(experiment: Experiment, worst: int = 3, *, reused_times: bool = False) -> Tables:
    """All tables that reports show.

    Args:
        experiment: it has been evaluated.
        worst: number of samples to look at, for each run task.
        reused_times: whether speed includes answers of earlier experiments.

    Raises:
        EnvironmentFault: `metrics.json` or `performance.json` is missing or damaged.
    """
    experiment.use_packages()  # metrics and datasets may come from a package
    metrics, performance = _in_order(experiment, reused_times=reused_times)
    run_tasks = metrics.run_tasks
    names = [run_task.name for run_task in experiment.resolved.run_tasks]
    control = control_state(experiment)
    wanted = [name for name in names if name not in control.enough_tasks]
    left = [state for state in shard_states(experiment, wanted) if state.state != "done"]
    state, why = experiment_end(endings(experiment), cancelled=control.cancelled)
    ended = [f"{state.capitalize()}: {why}."] if why else []
    shown_names = shown(performance, run_tasks)
    verdict, wrong = verdict_of(experiment)
    best = leaders(experiment, run_tasks, shown_names)
    usage = written_usage(experiment)
    documents = {name: table.documents for name, table in run_tasks.items()}
    site = experiment.resolved.site
    counts = total(table.counts for table in run_tasks.values())
    reused = reused_of(experiment) or Reused()
    compared = verdict["baseline"] if verdict is not None else experiment.resolved.plan.baseline
    return {
        "version": 2,
        "id": experiment.id,
        "path": str(experiment.path),
        "state": state,
        "reason": why,
        "plan": experiment.resolved.plan.model_dump(mode="json"),
        "asked": counts.asked,
        "responded": counts.responded,
        "ok": counts.ok,
        "unreadable": counts.unreadable,
        "failed": counts.failed,
        "answered": counts.responded,
        "left": sum(state.shard.stop - state.shard.start for state in left),
        "reused": reused.run_tasks,
        "reused_times": reused_times,
        "summary": [*ended, *wrong, *sentences(best, verdict), *_taken_over(reused, counts.asked)],
        "verdict": verdict,
        "arms": arms_of(experiment),
        "leaders": best,
        "matrix": list(matrices(run_tasks, shown_names)),
        "published": published_scores(experiment, run_tasks, shown_names),
        "metrics": cast("report_tables.Metrics", metrics.to_json()),
        "performance": performance.to_json(),
        "worst": worst_samples(experiment, run_tasks, shown_names, worst),
        "distribution": _distributions(experiment, run_tasks, shown_names),
        "usage": usage.model_dump(mode="json") if usage and usage.hours else None,
        "per_document": per_document(usage.hours, documents, site.gpu_hour_price) if usage else {},
        "currency": site.currency,
        "baseline": baseline(experiment, compared),
        "provenance": provenance(experiment),
        "manifest": manifest_data(experiment),
    }


def _taken_over(reused: Reused, asked: int) -> Iterator[str]:
    """A sentence about answers of earlier experiments, if there are any."""
    if reused.count:
        named = ", ".join(
            f"{name} ({count:,})" for name, count in sorted(reused.experiments.items())
        )
        yield f"{reused.count:,} of {asked:,} samples have answers of earlier experiments: {named}."


def _in_order(experiment: Experiment, *, reused_times: bool) -> tuple[Metrics, Performance]:
    """Evaluation's files, run tasks and metrics in the order of the plan: the first metric ranks models."""
    wanted = {
        one.name: [metric.name for metric in one.metrics] for one in experiment.resolved.run_tasks
    }
    metrics, performance = metrics_of(experiment), performance_of(experiment)
    if others := sorted(metrics.run_tasks.keys() - wanted.keys()):
        what = f"{experiment.metrics_file} has scores of {others[0]}, which the plan lacks"
        raise EnvironmentFault(what, f"`hpcbench score {experiment.id}` writes it again")
    if reused_times:
        performance = measured_performance(experiment, reused=True)
    tables = {
        name: table.model_copy(update={"metrics": _sorted(table.metrics, wanted.get(name, ()))})
        for name, table in metrics.run_tasks.items()
    }
    return (
        metrics.model_copy(update={"run_tasks": _sorted(tables, list(wanted))}),
        performance.model_copy(update={"run_tasks": _sorted(performance.run_tasks, list(wanted))}),
    )


def _sorted(found: Mapping[str, ValueT], order: Sequence[str]) -> dict[str, ValueT]:
    places = {name: place for place, name in enumerate(order)}
    return {name: found[name] for name in sorted(found, key=lambda name: places.get(name, 10**9))}


def shown(performance: Performance, run_tasks: Iterable[str]) -> list[str]:
    """Run tasks whose answers are shown: only the first point of a sweep, since the others asked the same."""
    others = {name for sweep in performance.sweeps.values() for name in sweep.points[1:]}
    return [name for name in run_tasks if name not in others]


def verdict_of(experiment: Experiment) -> tuple[GateVerdict | None, list[str]]:
    """The gate's last verdict, and a sentence where it cannot be read."""
    try:
        found: GateVerdict = TypeAdapter(GateVerdict).validate_python(verdict_data(experiment))
    except FileNotFoundError:
        return None, []
    except (OSError, ValueError) as error:
        first = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        return None, [
            f"The verdict of the gate cannot be read: {experiment.verdict_file.name}: {first}."
        ]
    return found, []


def _distributions(
    experiment: Experiment, run_tasks: Mapping[str, Scores], names: Sequence[str]
) -> dict[str, Distribution]:
    """Distribution of the first metric of each run task."""
    places: dict[str, dict[str, ScoresFiles]] = {}
    for name in names:
        metric = first_metric(run_tasks[name])
        if metric is not None:
            places.setdefault(metric, {})[name] = ScoresFiles(experiment.scores_dir, name)
    return {
        name: {"metric": metric, "low": low, "high": high, "counts": counts}
        for metric, some in places.items()
        for name, (low, high, counts) in distributions(some, metric).items()
    }


# --- models × datasets ----------------------------------------------------------------------------------


def matrices(run_tasks: Mapping[str, Scores], names: Sequence[str]) -> Iterator[Matrix]:
    """Models as rows, datasets as columns, one matrix for each ML task and metric.

    Args:
        run_tasks: their scores in `metrics.json`.
        names: run tasks to show, in their order.
    """
    kinds: dict[str, list[str]] = {}
    for name in names:
        kinds.setdefault(run_tasks[name].ml_task, []).append(name)
    for ml_task, group in kinds.items():
        metrics = list(dict.fromkeys(key for name in group for key in run_tasks[name].metrics))
        primary = {next(iter(run_tasks[name].metrics), None) for name in group}
        for metric in metrics:
            matrix = _matrix(run_tasks, group, ml_task, metric)
            if matrix is not None:
                yield {**matrix, "primary": metric in primary}


def _matrix(
    run_tasks: Mapping[str, Scores], names: Sequence[str], ml_task: str, metric: str
) -> Matrix | None:
    having = [name for name in names if metric in run_tasks[name].metrics]
    known = [entry for name in having if (entry := run_tasks[name].values.get(metric))]
    if not known:
        return None
    up = known[0].higher_is_better
    columns = list(dict.fromkeys(_column(run_tasks[name]) for name in having))
    rows: dict[tuple[str, str], list[Cell | None]] = {}
    shown = [run_tasks[name] for name in having]
    places = [
        ((one.model, *_column(one)), one.prompt, name)
        for one, name in zip(shown, having, strict=True)
    ]
    for name, table, variant in zip(having, shown, variants(places), strict=True):
        row = rows.setdefault((table.model, variant), [None] * len(columns))
        row[columns.index(_column(table))] = _cell(name, table, metric)
    for number in range(len(columns)):
        _mark([row[number] for row in rows.values()], higher_is_better=up)
    found: list[MatrixRow] = [
        {"model": model, "variant": variant, "cells": cells}
        for (model, variant), cells in rows.items()
    ]
    heads: list[MatrixColumn] = [{"dataset": dataset, "split": split} for dataset, split in columns]
    return {
        "ml_task": ml_task, "metric": metric, "unit": _unit(run_tasks[having[0]], metric),
        "higher_is_better": up, "primary": False, "columns": heads, "rows": found,
    }  # fmt: skip


def _unit(table: Scores, metric: str) -> str:
    return table.measured[metric].unit if metric in table.measured else ""


def _column(table: Scores) -> tuple[str, str | None]:
    return table.dataset, table.split


def _cell(name: str, table: Scores, metric: str) -> Cell:
    entry = table.metrics[metric]
    cell: Cell = {
        "run_task": name,
        "value": entry.value if entry else None,
        "low": entry.low if entry else None,
        "high": entry.high if entry else None,
        "n": entry.n if entry else 0,
        "documents": entry.clusters if entry else 0,
        "coverage": table.coverage,
        "leads": False,
    }
    if entry is not None and entry.calibration:
        cell["calibration"] = entry.calibration
    return cell


def _mark(cells: Sequence[Cell | None], *, higher_is_better: bool) -> None:
    """Mark the best cell of a column with several cells."""
    scored = [
        cell
        for cell in cells
        if cell is not None and cell["value"] is not None and not cell.get("calibration")
    ]
    if len(scored) < 2:
        return
    values = [cast("float", cell["value"]) for cell in scored]
    best = max(values) if higher_is_better else min(values)
    for cell, value in zip(scored, values, strict=True):
        cell["leads"] = value == best


def as_json(tables: Tables) -> str:
    """The artefact's text: equal tables give equal bytes."""
    return json.dumps(tables, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
