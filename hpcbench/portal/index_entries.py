"""Index entries of experiments, from small files of their directories: no answers, scores or logs."""

from __future__ import annotations

import json
import math
import pwd
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from hpcbench.errors import OTHER_FORM
from hpcbench.experiment.control import control_state
from hpcbench.experiment.counts import Counts, total
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.manifest import Manifest
from hpcbench.experiment.view import metrics_json, performance_json
from hpcbench.experiment.view import usage as view_usage
from hpcbench.experiment.view.as_written import manifest_data, plan_data, summary_of, verdict_data
from hpcbench.experiment.view.metrics_json import Scores
from hpcbench.experiment.view.performance_json import Latency, Speed
from hpcbench.files.json_places import Places
from hpcbench.metrics.resources import unit_of
from hpcbench.portal.file_places import located
from hpcbench.portal.index import Account, Entry
from hpcbench.portal.index.experiment_scores import mean
from hpcbench.portal.index.text_keys import clean
from hpcbench.portal.models.experiments import (
    ExperimentRow,
    RunTaskRow,
    SampleCounts,
    Score,
    Usage,
)
from hpcbench.status import ExperimentStatus, State
from hpcbench.status.findings import outcome_of, rounds_now

TEXT = 500
"""Longest text in an entry, characters."""

GIB = 1 << 30


class Unreadable(Exception):
    """An experiment that another version of hpcbench wrote, or that is damaged."""


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A planned run task."""

    name: str
    """Its name."""
    ml_task: str
    """Its ML task."""
    model: str
    """Its model."""
    dataset: str
    """Its dataset; if there is a split, `DATASET/SPLIT`."""
    prompt: str
    """Its prompt."""
    metrics: tuple[str, ...]
    """Its metrics, the first one leading."""
    samples: int
    """Number of its samples."""


@dataclass(frozen=True, slots=True)
class Planned:
    """Facts of an experiment that never change."""

    id: str
    """Id of the experiment."""
    plan: str
    """Name of its plan."""
    executor: str
    """slurm or local."""
    created: float
    """Time of submission, seconds since the epoch."""
    owner: str
    """Account that submitted it."""
    run_tasks: tuple[PlannedTask, ...]
    """Run tasks in the order of the plan."""


@dataclass(frozen=True, slots=True)
class Results:
    """Results of the evaluation; empty if there are none or the files cannot be read."""

    scores: Mapping[str, Scores] = field(default_factory=dict)
    """Run task → its scores."""
    speeds: Mapping[str, Speed] = field(default_factory=dict)
    """Run task → its speed."""
    files: Mapping[str, Places] = field(default_factory=dict)
    """Name of a large file → where the run tasks are in it."""


def stamp_of(experiment: Experiment) -> str:
    """Time and size of the files that may change after an experiment's end; a few calls of `stat`."""
    files = (
        experiment.manifest_file,
        experiment.outcome_file,
        experiment.submission_file,
        experiment.metrics_file,
        experiment.usage_file,
        experiment.verdict_file,
        experiment.summary_file,
        experiment.control_dir,
    )
    return json.dumps([_stat(path) for path in files], separators=(",", ":"))


def changed_at(stamp: str) -> float:
    """Newest time of change of a stamp's files, seconds since the epoch."""
    return max((one[0] for one in json.loads(stamp) if one), default=0) / 1e9


def ending(experiment: Experiment) -> State | None:
    """State in which an experiment ended; None: it has not ended.

    Raises:
        Unreadable: another version of hpcbench wrote the experiment, or it is damaged.
    """
    try:
        rounds, _ = rounds_now(experiment)
        return outcome_of(experiment, rounds, control_state(experiment))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unreadable(str(error)) from error


def had_requests(experiment: Experiment) -> bool:
    """Whether the experiment ever got a control request: then it may have skipped planned samples."""
    try:
        return any(experiment.control_dir.iterdir())
    except FileNotFoundError:
        return False


def causes(status: ExperimentStatus) -> int:
    """Number of different causes of failures."""
    return len({one.cause for one in status.failures})


def planned(experiment: Experiment) -> Planned:
    """The unchanging facts of an experiment.

    Raises:
        Unreadable: another version of hpcbench wrote the experiment, or it is damaged.
    """
    try:
        manifest, resolved = Manifest.of(manifest_data(experiment)), plan_data(experiment)
        samples = {cut["run_task"]: int(cut["samples"]) for cut in manifest.work["cuts"]}
        return Planned(
            id=experiment.id,
            plan=_text(resolved["plan"]["name"]),
            executor=str(
                resolved["plan"].get("executor") or resolved["site"].get("executor") or "slurm"
            ),
            created=(manifest.moment or experiment.created).timestamp(),
            owner=_owner(experiment.manifest_file.stat().st_uid),
            run_tasks=tuple(_task(one, samples) for one in resolved["run_tasks"]),
        )
    except (OSError, *OTHER_FORM) as error:
        raise Unreadable(str(error)) from error


def results(experiment: Experiment) -> Results:
    """Results of an experiment's evaluation, and where its run tasks are in its large files."""
    return Results(
        metrics_json.scores(experiment), performance_json.speeds(experiment), located(experiment)
    )


def account(experiment: Experiment) -> Account:
    """Usage, summary and verdict, written after an experiment's end."""
    try:
        verdict = verdict_data(experiment)
    except (OSError, ValueError):
        verdict = {}
    return Account(
        _usage(view_usage.written_usage(experiment)),
        tuple(map(clean, summary_of(experiment))),
        verdict or None,
    )


def entry(
    plan: Planned,
    found: Results,
    written: Account,
    *,
    status: ExperimentStatus | None,
    stamp: str,
    updated: float,
    baselines: Sequence[str] = (),
) -> Entry:
    """The index entry of an experiment.

    Args:
        plan: its unchanging facts.
        found: results of its evaluation.
        written: usage, summary and verdict, written after its end.
        status: its status; None: it is done, and every sample was requested.
        stamp: see `Entry`.
        updated: time of its last change, seconds since the epoch.
        baselines: its names as a baseline.
    """
    states = {one.name: one for one in status.run_tasks} if status else {}
    rows = tuple(
        _row(plan.id, one, found, states.get(one.name), done=status is None)
        for one in plan.run_tasks
    )
    counted: dict[str, int] = {}
    for row in rows:
        counted[row.state] = counted.get(row.state, 0) + 1
    whole = ExperimentRow(
        id=plan.id,
        plan=plan.plan,
        state=status.state if status else "done",
        created=plan.created,
        updated=updated,
        owner=plan.owner,
        models=tuple(dict.fromkeys(row.model for row in rows)),
        datasets=tuple(dict.fromkeys(row.dataset for row in rows)),
        run_tasks=len(rows),
        tasks_by_state=counted,
        samples=sum(row.samples for row in rows),
        answered=sum(row.answered for row in rows),
        rate=status.rate if status else None,
        eta=_text(status.eta.text) if status and status.eta else None,
        counts=_together(rows),
        scored=sum(bool(row.scores) and row.scores[0].value is not None for row in rows),
        score=mean([row.scores[0] for row in rows if row.scores], len(rows)),
        gpu_hours=written.usage.gpu_hours,
        failures=causes(status) if status else len(set(_errors(found))),
        verdict=_word(written.verdict),
        baselines=tuple(baselines),
    )
    return Entry(whole, rows, written, stamp, found.files)


def unreadable(experiment: Experiment, stamp: str, baselines: Sequence[str] = ()) -> Entry:
    """The entry of an experiment that cannot be read."""
    try:
        owner = _owner(experiment.path.stat().st_uid)
    except OSError:
        owner = ""
    created = experiment.created.timestamp()
    row = ExperimentRow(
        id=experiment.id, plan="", state="unreadable", created=created,
        updated=max(created, changed_at(stamp)), owner=owner, models=(), datasets=(), run_tasks=0,
        tasks_by_state={}, samples=0, answered=0, baselines=tuple(baselines),
    )  # fmt: skip
    return Entry(row, (), Account(), stamp)


# --- run tasks --------------------------------------------------------------------------------------------


def _task(resolved: Mapping[str, Any], samples: Mapping[str, int]) -> PlannedTask:
    dataset = resolved["dataset"]
    name, split = _text(dataset["name"]), dataset.get("split")
    return PlannedTask(
        name=_text(resolved["task"]["name"]),
        ml_task=_text(resolved["ml_task"]["name"]),
        model=_text(resolved["model"]["name"]),
        dataset=f"{name}/{_text(split)}" if split else name,
        prompt=_text(resolved["prompt"]["name"]),
        metrics=tuple(_text(one["name"]) for one in resolved["metrics"]),
        samples=samples.get(resolved["task"]["name"], 0),
    )


def _row(
    experiment: str, task: PlannedTask, found: Results, status: Any, *, done: bool
) -> RunTaskRow:
    scored = found.scores.get(task.name)
    speed = found.speeds.get(task.name, Speed())
    latency = speed.e2e_ms or Latency()
    peak = speed.memory.gpu_peak if speed.memory is not None else None
    counts = SampleCounts.model_validate(scored.counts.to_json()) if scored is not None else None
    return RunTaskRow(
        experiment=experiment,
        name=task.name,
        ml_task=task.ml_task,
        model=task.model,
        dataset=task.dataset,
        prompt=task.prompt,
        state="done" if done else status.state if status else "pending",
        reason=_text(status.reason) if status and status.reason else None,
        samples=task.samples,
        answered=task.samples if done else status.answered if status else 0,
        rate=status.rate if status else None,
        counts=counts,
        coverage=counts.coverage if counts else None,
        invalid=counts.unreadable if counts else 0,
        scores=tuple(_scores(task, scored)) if scored is not None else (),
        latency_p50=_seconds(latency.p50),
        latency_p95=_seconds(latency.p95),
        tokens_per_second=speed.tokens_per_s.value if speed.tokens_per_s is not None else None,
        speed_valid=speed.valid,
        peak_memory_gb=None if peak is None else peak / GIB,
    )


def _seconds(latency: performance_json.Figure) -> float | None:
    return None if latency.value is None else latency.value / 1000


def _together(rows: Sequence[RunTaskRow]) -> SampleCounts | None:
    """Counts of all run tasks; None if one has no counts: a part must not look like the whole."""
    known = [row.counts for row in rows if row.counts is not None]
    if not known or len(known) < len(rows):
        return None
    each = (Counts(one.asked, one.responded, one.unreadable, one.skipped) for one in known)
    return SampleCounts.model_validate(total(each).to_json())


def _scores(task: PlannedTask, scored: Scores) -> Iterator[Score]:
    """Scores of a run task, planned metrics first, in the order of the plan."""
    planned = [one for one in task.metrics if one in scored.metrics]
    for name in (*planned, *sorted(scored.metrics.keys() - set(planned))):
        one = scored.metrics[name]
        if one is None:
            measured = scored.measured.get(name)
            up = measured is None or measured.higher_is_better
            yield Score(metric=_text(name), value=None, higher_is_better=up)
            continue
        yield Score(
            metric=_text(name), value=one.value, low=one.low, high=one.high, n=one.n,
            documents=one.clusters, higher_is_better=one.higher_is_better, unit=unit_of(one.signature),
            standing=metrics_json.standing(one.calibration),
        )  # fmt: skip


def _errors(found: Results) -> Iterator[str]:
    for scored in found.scores.values():
        for error in scored.errors:
            yield error.cause


# --- files written at the end ---------------------------------------------------------------------------


def _usage(written: view_usage.Usage | None) -> Usage:
    if written is None or not written.hours:
        return Usage()
    gpu = [one for one in written.hours if one.unit == "GPU"]
    return Usage(
        gpu_hours=math.fsum(one.allocated for one in gpu),
        gpu_hours_used=math.fsum(one.used for one in gpu),
        gpu_hours_wasted=math.fsum(one.wasted for one in gpu),
        queue_wait=written.waited.longest if written.waited else None,
    )


def _word(verdict: Mapping[str, Any] | None) -> str | None:
    found = (verdict or {}).get("verdict")
    return _text(found) if isinstance(found, str) else None


# --- files ----------------------------------------------------------------------------------------------


def _stat(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=256)
def _owner(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _text(value: object) -> str:
    return clean(str(value))[:TEXT]
