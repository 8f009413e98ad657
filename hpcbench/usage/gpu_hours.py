"""Cluster hours of an experiment, from Slurm's accounting and the files of its workers.

Slurm knows how long a job held its GPUs; the worker knows its activity meanwhile. `hours.py` joins both.
Where Slurm does not answer, the workers' files replace its accounting.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hpcbench import slurm
from hpcbench.experiment.claims import Owner
from hpcbench.experiment.event_log import LAST_WORDS
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import job_name, rounds, submitted_at
from hpcbench.experiment.view.attempts import Attempt, Attempts
from hpcbench.experiment.view.readings import GpuUse, readings
from hpcbench.experiment.view.usage import CAUSES, Hours, Spent, Unit, Usage, written_usage
from hpcbench.experiment.view.workers import WorkerEvent, WorkerRun, spent_by, worker_runs
from hpcbench.files.atomic import write_json
from hpcbench.schema.plan import Group
from hpcbench.usage.hours import Run, Span, hours, waited

By = Literal["run_task", "model", "experiment", "month"]
"""Keys by which hours can be added up."""

CLOCKS = 5.0
"""Largest lag of a node's clock behind the clock of Slurm's controller, in seconds."""


def account(experiment: Experiment) -> Usage:
    """Compute the usage of an experiment, and write it to its `usage.json`.

    Raises:
        OSError: the file cannot be written.
    """
    found = look(experiment)
    write_json(experiment.usage_file, found.model_dump(mode="json"))
    return found


def usage_of(experiment: Experiment) -> Usage:
    """Usage of an experiment: its `usage.json` if that is final, else computed now.

    A file that was written while a job still ran is computed again, as long as accounting has the job.
    """
    written = written_usage(experiment)
    if written is None:
        return look(experiment)
    if written.complete:
        return written
    found = look(experiment)
    if found.source != written.source:
        return written
    if found.complete:
        with contextlib.suppress(OSError):  # another user owns it
            write_json(experiment.usage_file, found.model_dump(mode="json"))
    return found


def look(experiment: Experiment) -> Usage:
    """Compute the usage of an experiment so far."""
    workers = list(_workers(experiment))
    allocated = _allocations(experiment, _said(workers))
    jobs = list(_matched(experiment, workers, allocated))
    runs = [run for own in jobs for run in own]
    seen = list(map(GpuUse.of, readings(experiment))) if any(run.gpus for run in runs) else []
    watts = sum(one.watt_hours for one in seen)
    joules = [run.joules for run in runs if run.joules]
    over = [one.over for one in allocated] or [one.worker.over for one in workers]
    start = min((run.begin for run in runs), default=None)
    return Usage(
        experiment=experiment.id,
        month=time.strftime("%Y-%m", time.localtime(start)) if start is not None else "",
        source="slurm" if allocated else "workers",
        jobs=len(jobs),
        hours=tuple(_rounded(one) for one in hours(runs)),
        waited=waited(own[0] for own in jobs),
        energy_wh=round(sum(joules) / 3600, 1) if joules else (round(watts, 1) or None),
        energy_source="slurm" if joules else ("gpus" if watts else None),
        gpu_utilisation=_utilisation(experiment, seen),
        spent=_spent(experiment, [one.worker for one in workers]),
        complete=all(over),
    )


def _spent(experiment: Experiment, runs: Iterable[WorkerRun]) -> Spent | None:
    spent, currency = spent_by(runs), experiment.planned.currency
    if spent is None:
        return None
    return Spent(
        requests=round(spent.requests),
        tokens=round(spent.tokens),
        cost=round(spent.cost, 6) if currency else None,
        currency=currency or None,
    )


def totals(usages: Sequence[Usage], by: By) -> dict[tuple[str, Unit], Hours]:
    """Sum of the hours of several experiments: (name, unit) → hours, in order of appearance."""
    found: dict[tuple[str, Unit], Hours] = {}
    for usage in usages:
        for one in usage.hours:
            names = {
                "run_task": one.run_task,
                "model": one.model,
                "experiment": usage.experiment,
                "month": usage.month,
            }
            key = (names[by], one.unit)
            found[key] = found.get(key, Hours(unit=one.unit)).plus(one)
    return found


@dataclass(frozen=True, slots=True)
class Allocation:
    """Slurm's accounting of one run of a job."""

    job: str
    """Job id, `4711_3`."""
    begin: float
    """When it started, seconds since the epoch."""
    end: float
    """End of the run; of a running job: now."""
    gpus: int
    cpus: int
    submitted: float | None = None
    """Time of its submission or requeue."""
    joules: float | None = None
    """Energy of its nodes, where Slurm counts it."""
    over: bool = True
    """Whether the run has ended."""


@dataclass(frozen=True, slots=True)
class _WorkerTime:
    """Allocation of a worker's run, as the worker's own files say."""

    worker: WorkerRun
    """The run."""
    run: Run
    """Its time, from the first entry to the last one, and its activity."""


def _workers(experiment: Experiment) -> Iterator[_WorkerTime]:
    attempts = _attempt_spans(experiment)
    groups, submitted = _groups(experiment), submitted_at(experiment)
    for worker in worker_runs(experiment):
        group = groups.get(worker.array) or groups.get(worker.group)
        if group is None or not worker.owner:  # killed before its first line was whole
            continue
        spans = [*attempts.get(worker.id, ()), *_load_spans(map(WorkerEvent.of, worker.events))]
        ends = [one.end for one in spans if one.end != math.inf]
        run = Run(
            run_tasks=_models(experiment, group),
            begin=worker.started,
            end=max([worker.last, worker.started, *ends]),
            gpus=group.worker_gpus,
            cpus=group.resources.cpus * group.nodes,
            started=worker.started,
            # A requeued job waits again; only Slurm knows since when.
            submitted=None if worker.restart else submitted.get(worker.array),
            spans=spans,
        )
        yield _WorkerTime(worker, run)


def _allocations(experiment: Experiment, said: Mapping[str, float]) -> list[Allocation]:
    """Slurm's accounting of the jobs of all arrays, one per run of a requeued job; empty without accounting.

    Args:
        experiment: the experiment.
        said: job → time of the last entry of its last worker, where that worker has ended. Accounting may
            report the end of a job late.
    """
    if experiment.resolved.executor != "slurm":
        return []
    known = rounds(experiment)
    steps = [(one, step) for one in known for step in one.steps.values() if step.group]
    ids = {step.job for _, step in steps}
    names = {job_name(experiment, step.name, one.number) for one, step in steps}
    now = time.time()
    return [
        allocation
        for run in slurm.accounting(names)
        if run.array_job in ids and (allocation := _allocation(run, said, now)) is not None
    ]


def _allocation(run: slurm.Job, said: Mapping[str, float], now: float) -> Allocation | None:
    """One run of a job; None: it held no allocation."""
    if run.start is None or run.state == "PENDING":
        return None
    over = run.end is not None or run.id in said
    end = run.end if run.end is not None else max(run.start, said.get(run.id, now))
    if end <= run.start:
        return None
    cpus = re.search(r"(?:^|,)cpu=(\d+)", run.tres)
    submitted = run.submitted if run.submitted is not None and run.submitted <= run.start else None
    return Allocation(
        run.id,
        run.start,
        end,
        run.gpus,
        int(cpus[1]) if cpus else 1,
        submitted,
        run.energy,
        over,
    )


def _said(workers: Iterable[_WorkerTime]) -> dict[str, float]:
    """Job whose workers have all ended → time of the last entry; without the job of this process, which still
    runs."""
    last = {
        held.worker.seat: held for held in sorted(workers, key=lambda held: held.worker.restart)
    }
    found: dict[str, float] = {}
    for held in last.values():
        found[held.worker.job] = max(held.run.end, found.get(held.worker.job, 0.0))
    working = {held.worker.job for held in last.values() if not held.worker.over}
    return {job: end for job, end in found.items() if job not in {*working, Owner.here().job}}


def _matched(
    experiment: Experiment, workers: Sequence[_WorkerTime], allocated: Sequence[Allocation]
) -> Iterator[list[Run]]:
    """Each allocation, in equal parts for its job's workers, with their activity; a job that Slurm does not
    know, by its workers' files."""
    groups = _groups(experiment)
    mine = {id(worker): _allocation_of(worker, workers, allocated) for worker in workers}
    for one in allocated:
        group = groups.get(one.job.partition("_")[0])
        if group is None:
            continue
        own = [worker for worker in workers if mine[id(worker)] is one]
        yield [
            _part(experiment, group, one, [held for held in own if held.worker.replica == replica])
            for replica in range(group.replicas)
        ]
    unknown: dict[tuple[str, int], list[Run]] = {}
    for held in workers:
        if mine[id(held)] is None:
            unknown.setdefault((held.worker.job, held.worker.restart), []).append(held.run)
    yield from unknown.values()


def _part(experiment: Experiment, group: Group, of: Allocation, held: Sequence[_WorkerTime]) -> Run:
    """One worker's part of an allocation; `held`: the worker's runs in it."""
    parts = group.replicas
    return Run(
        run_tasks=_models(experiment, group),
        begin=of.begin,
        end=of.end,
        gpus=of.gpus / parts,
        cpus=of.cpus / parts,
        started=min((one.run.started for one in held if one.run.started is not None), default=None),
        submitted=of.submitted,
        spans=[span for one in held for span in one.run.spans],
        joules=of.joules / parts if of.joules is not None else None,
    )


def _allocation_of(
    held: _WorkerTime, workers: Sequence[_WorkerTime], allocated: Sequence[Allocation]
) -> Allocation | None:
    """The allocation of a worker; a requeued job has several, one per restart.

    Restart numbers may differ, as a job can be requeued before its worker writes an entry. Then the result
    is the last allocation that started before the worker.
    """
    own = sorted(
        (one for one in allocated if one.job == held.worker.job), key=lambda one: one.begin
    )
    same = sorted(one.worker.restart for one in workers if one.worker.seat == held.worker.seat)
    if len(own) == len(same):
        return own[same.index(held.worker.restart)]
    earlier = [one for one in own if one.begin <= held.run.begin + CLOCKS]
    return earlier[-1] if earlier else None


def _load_spans(events: Iterable[WorkerEvent]) -> Iterator[Span]:
    """Loads of a worker; a load that never became ready has failed, for any reason."""
    begin, model = None, ""
    for event in events:
        kind, at = event.kind, event.time
        ends = kind in ("model_ready", "model_failed") and event.model == model
        if begin is not None and (ends or kind in ("model_loading", *LAST_WORDS)):
            yield Span(begin, at, "loading" if kind == "model_ready" else "failed_loads", "", model)
            begin = None
        if kind == "model_loading":
            begin, model = at, event.model or ""
    if begin is not None:
        yield Span(begin, math.inf, "failed_loads", "", model)


def _attempt_spans(experiment: Experiment) -> dict[str, list[Span]]:
    """Worker → its time with shards: used while it brought answers that count, else lost."""
    models = {one.name: one.model.name for one in experiment.resolved.run_tasks}
    mine: dict[str, list[tuple[Attempt, float]]] = {}
    for name in models:
        known = Attempts(experiment, name)
        for attempts in known.by_shard():
            alone = len(attempts) == 1 and attempts[0].end is not None
            seen = set[str]()
            for one in attempts:
                used = one.seconds if alone else _used(one, known.answers(one), seen)
                mine.setdefault(one.owner, []).append((one, used))
    found: dict[str, list[Span]] = {}
    for owner, pairs in mine.items():
        pairs.sort(key=lambda pair: pair[0].begin)
        later = [pair[0].begin for pair in pairs[1:]] + [math.inf]
        for (one, used), following in zip(pairs, later, strict=True):
            end = one.end if one.end is not None else following
            middle = min(one.begin + used, end)
            found.setdefault(owner, []).extend(
                [
                    Span(one.begin, middle, "used", one.run_task, models[one.run_task]),
                    Span(middle, end, "lost", one.run_task, models[one.run_task]),
                ]
            )
    return found


def _used(one: Attempt, answers: Iterable[Mapping[str, Any]], seen: set[str]) -> float:
    """Seconds of an attempt that brought new answers; only the first answer to a sample counts.

    An attempt without a recorded end lasts from its first request to its last answer on disk.
    """
    count, counted = 0, list[Mapping[str, int]]()
    for response in answers:
        count += 1
        if response["sample_id"] not in seen:
            seen.add(response["sample_id"])
            counted.append(response["times"])
    if not counted:
        return 0.0
    if one.end is not None:
        return one.seconds * len(counted) / count
    first, last = min(time["start"] for time in counted), max(time["done"] for time in counted)
    return (last - first) / 1e9


def _groups(experiment: Experiment) -> dict[str, Group]:
    """Array's job id or group's id → group; shapes may change between rounds."""
    found = {group.id: group for group in experiment.work.groups}
    for one in rounds(experiment):
        found |= {group.id: group for group in one.groups}
        by_id = {group.id: group for group in one.groups}
        found |= {
            step.job: by_id[step.group]
            for step in one.steps.values()
            if step.job is not None and step.group in by_id
        }
    return found


def _models(experiment: Experiment, group: Group) -> dict[str, str]:
    return {name: experiment.resolved.run_task(name).model.name for name in group.run_tasks}


def _rounded(one: Hours) -> Hours:
    """Hours rounded to some milliseconds; the parts still add up."""
    parts = {name: round(getattr(one, name), 6) for name in ("used", *CAUSES)}
    return one.model_copy(update={**parts, "allocated": round(sum(parts.values()), 6)})


def _utilisation(experiment: Experiment, seen: Iterable[GpuUse]) -> dict[str, float]:
    """Run task → mean utilisation of the GPUs during its requests, percent."""
    found = {}
    workers = list(seen)
    for run_task in experiment.resolved.run_tasks:
        parts = [one.utilisation.get(run_task.name, (0.0, 0.0)) for one in workers]
        seconds = sum(part[1] for part in parts)
        if seconds:
            found[run_task.name] = round(sum(part[0] for part in parts) / seconds, 1)
    return found
