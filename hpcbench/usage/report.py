"""What an experiment took of the cluster: read from Slurm's accounting and from what its workers wrote.

Slurm knows how long a job held its GPUs, the worker what it did meanwhile; `hours.py` brings the two
together. Where Slurm does not answer, the workers' own words stand for both.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from hpcbench import slurm
from hpcbench.experiment.claims import Owner
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.log import LAST_WORDS
from hpcbench.experiment.submission import job_name, rounds
from hpcbench.experiment.view.attempts import Attempt, Attempts
from hpcbench.experiment.view.readings import readings
from hpcbench.experiment.view.usage import CAUSES, Hours, Unit, Usage, written_usage
from hpcbench.experiment.view.workers import WorkerRun, worker_runs
from hpcbench.files.atomic import read_lines, write_json
from hpcbench.schema.plan import Group
from hpcbench.usage.hours import Run, Span, hours, waited

By = Literal["run_task", "model", "experiment", "month"]
"""What hours are added up by."""

CLOCKS = 5.0
"""Seconds by which a node's clock may be behind that of Slurm's controller."""

LONGEST_GAP = 120.0
"""Seconds between two readings of a monitor above which nothing is said of the time between."""


def account(experiment: Experiment) -> Usage:
    """Work out what an experiment took, and write it to its `usage.json`.

    Raises:
        OSError: it cannot be written.
    """
    found = look(experiment)
    write_json(experiment.usage_file, found.model_dump(mode="json"))
    return found


def usage_of(experiment: Experiment) -> Usage:
    """What an experiment took: as it was written down at its end, else as it can be seen now.

    What was written while a job still ran is counted again, as long as accounting remembers.
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
        with contextlib.suppress(OSError):  # somebody else's
            write_json(experiment.usage_file, found.model_dump(mode="json"))
    return found


def look(experiment: Experiment) -> Usage:
    """Work out what an experiment took so far."""
    workers = list(_workers(experiment))
    allocated = _allocations(experiment, _said(workers))
    runs = list(_matched(experiment, workers, allocated))
    seen = list(map(_Gpus.of, readings(experiment))) if any(run.gpus for run in runs) else []
    watts = sum(one.watt_hours for one in seen)
    joules = [run.joules for run in runs if run.joules]
    over = [one.over for one in allocated] or [one.worker.over for one in workers]
    begun = min((run.begin for run in runs), default=None)
    return Usage(
        experiment=experiment.id,
        month=time.strftime("%Y-%m", time.localtime(begun)) if begun is not None else "",
        source="slurm" if allocated else "workers",
        jobs=len(runs),
        hours=tuple(_rounded(one) for one in hours(runs)),
        waited=waited(runs),
        energy_wh=round(sum(joules) / 3600, 1) if joules else (round(watts, 1) or None),
        energy_source="slurm" if joules else ("gpus" if watts else None),
        gpu_utilisation=_utilisation(experiment, seen),
        complete=all(over),
    )


def totals(usages: Sequence[Usage], by: By) -> dict[tuple[str, Unit], Hours]:
    """Hours of several experiments, added up: (name, unit) → hours, in the order they are met."""
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
    """What Slurm's accounting says of one run of a job."""

    job: str
    """Job id, `4711_3`."""
    begin: float
    """When it started, seconds since the epoch."""
    end: float
    """When it ended; of one that runs, now."""
    gpus: int
    cpus: int
    submitted: float | None = None
    """When it was submitted, or requeued."""
    joules: float | None = None
    """Energy of its nodes, where Slurm counts it."""
    over: bool = True
    """Whether it has ended."""


@dataclass(frozen=True, slots=True)
class _Held:
    """What a run of a worker held, as its own files tell."""

    worker: WorkerRun
    """The run."""
    run: Run
    """Its time: from its first word to its last, and what it did."""


def _workers(experiment: Experiment) -> Iterator[_Held]:
    attempts = _attempt_spans(experiment)
    groups, submitted = _groups(experiment), _submitted(experiment)
    for worker in worker_runs(experiment):
        group = groups.get(worker.array) or groups.get(worker.group)
        if group is None or not worker.owner:  # killed before its first line was whole
            continue
        owner = f"{worker.job}-{worker.restart}"
        spans = [*attempts.get(owner, ()), *_load_spans(worker.events)]
        ends = [one.end for one in spans if one.end != math.inf]
        run = Run(
            run_tasks=_models(experiment, group),
            begin=worker.started,
            end=max([worker.last, worker.started, *ends]),
            gpus=group.gpus,
            cpus=group.resources.cpus,
            started=worker.started,
            # A requeued job waits again, and nobody but Slurm knows from when on.
            submitted=None if worker.restart else submitted.get(worker.array),
            spans=spans,
        )
        yield _Held(worker, run)


def _allocations(experiment: Experiment, said: Mapping[str, float]) -> list[Allocation]:
    """What Slurm's accounting says of the jobs of all arrays, each run of a requeued one; nothing without it.

    Args:
        experiment: the experiment.
        said: job → when its last worker said its last word, for those who did. Accounting may be late to
            learn that a job is over.
    """
    if experiment.resolved.executor != "slurm":
        return []
    passes = rounds(experiment)
    steps = [(one, step) for one in passes for step in one.steps.values() if step.group]
    ids = {step.job for _, step in steps}
    names = {job_name(experiment, step.name, one.number) for one, step in steps}
    now = time.time()
    return [
        allocation
        for run in slurm.accounting(names)
        if run.array_job in ids and (allocation := _allocation(run, said, now)) is not None
    ]


def _allocation(run: slurm.Job, said: Mapping[str, float], now: float) -> Allocation | None:
    """One run of a job; None: it never held anything."""
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


def _said(workers: Iterable[_Held]) -> dict[str, float]:
    """Job → when its last worker said its last word; this process' own job still holds what it holds."""
    found: dict[str, float] = {}
    for held in sorted(workers, key=lambda held: held.worker.restart):
        found.pop(held.worker.job, None)
        if held.worker.over:
            found[held.worker.job] = held.run.end
    found.pop(Owner.here().job, None)
    return found


def _matched(
    experiment: Experiment, workers: Sequence[_Held], allocated: Sequence[Allocation]
) -> Iterator[Run]:
    """Allocations with what their workers did; workers Slurm does not know of, as they say themselves."""
    groups = _groups(experiment)
    mine = {id(worker): _allocation_of(worker, workers, allocated) for worker in workers}
    for one in allocated:
        group = groups.get(one.job.partition("_")[0])
        worker = next((worker for worker in workers if mine[id(worker)] is one), None)
        if group is None:
            continue
        yield Run(
            run_tasks=_models(experiment, group),
            begin=one.begin,
            end=one.end,
            gpus=one.gpus,
            cpus=one.cpus,
            started=worker.run.started if worker is not None else None,
            submitted=one.submitted,
            spans=worker.run.spans if worker is not None else (),
            joules=one.joules,
        )
    yield from (worker.run for worker in workers if mine[id(worker)] is None)


def _allocation_of(
    held: _Held, workers: Sequence[_Held], allocated: Sequence[Allocation]
) -> Allocation | None:
    """The allocation a worker ran in: of a requeued job there are several, one a restart.

    A job may have been requeued before its worker said a word, so their numbers need not agree: then it is
    the last that began before the worker did.
    """
    own = sorted(
        (one for one in allocated if one.job == held.worker.job), key=lambda one: one.begin
    )
    same = sorted(one.worker.restart for one in workers if one.worker.job == held.worker.job)
    if len(own) == len(same):
        return own[same.index(held.worker.restart)]
    begun = [one for one in own if one.begin <= held.run.begin + CLOCKS]
    return begun[-1] if begun else None


def _load_spans(events: Iterable[Mapping[str, Any]]) -> Iterator[Span]:
    """Loads of a worker; one that never became ready is a failed one, whatever ended it."""
    begin, model = None, ""
    for event in events:
        kind, at = event["event"], float(event["time"])
        ends = kind in ("model_ready", "model_failed") and event["model"] == model
        if begin is not None and (ends or kind in ("model_loading", *LAST_WORDS)):
            yield Span(begin, at, "loading" if kind == "model_ready" else "failed_loads", "", model)
            begin = None
        if kind == "model_loading":
            begin, model = at, event["model"]
    if begin is not None:
        yield Span(begin, math.inf, "failed_loads", "", model)


def _attempt_spans(experiment: Experiment) -> dict[str, list[Span]]:
    """Worker → its time with shards: used as far as its answers count, else lost."""
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
    """Seconds of an attempt that brought answers which count: those nobody had given before.

    Of one that never said its end, from its first request to its last answer on the disk.
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
    """Group of an array's job id and of a group's own; shapes may change from round to round."""
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


def _submitted(experiment: Experiment) -> dict[str, float]:
    """Job id → when it was submitted."""
    return {
        str(event["job"]): float(event["time"])
        for event in read_lines(experiment.submission_file)
        if event["event"] == "submitted"
    }


def _models(experiment: Experiment, group: Group) -> dict[str, str]:
    return {name: experiment.resolved.run_task(name).model.name for name in group.run_tasks}


def _rounded(one: Hours) -> Hours:
    """Hours as they are written: to some milliseconds, and still adding up."""
    parts = {name: round(getattr(one, name), 6) for name in ("used", *CAUSES)}
    return one.model_copy(update={**parts, "allocated": round(sum(parts.values()), 6)})


@dataclass(frozen=True, slots=True)
class _Gpus:
    """What a worker's monitor saw of its GPUs."""

    utilisation: Mapping[str, tuple[float, float]]
    """Phase → sum of percent × seconds, seconds."""
    watt_hours: float
    """What they drew."""

    @classmethod
    def of(cls, blocks: Iterable[Sequence[Mapping[str, Any]]]) -> _Gpus:
        """From readings of one worker: all of them, or parts that each have no gap."""
        busy: dict[str, tuple[float, float]] = {}
        joules = covered = 0.0
        first = last = None
        for block in blocks:
            for one, after in pairwise(block):
                seconds = float(after["time"]) - float(one["time"])
                gpus = one.get("gpus") or ()
                if not 0 < seconds < LONGEST_GAP:
                    continue
                first = one["time"] if first is None else first
                last = after["time"]
                covered += seconds
                joules += seconds * sum(gpu.get("watts", 0.0) for gpu in gpus)
                known = [gpu["utilisation"] for gpu in gpus if "utilisation" in gpu]
                if known:
                    percent, time_seen = busy.get(one["phase"], (0.0, 0.0))
                    mean = sum(known) / len(known)
                    busy[one["phase"]] = (percent + mean * seconds, time_seen + seconds)
        whole = last - first if first is not None and last is not None else 0.0
        return cls(busy, joules / covered * whole / 3600 if covered else 0.0)


def _utilisation(experiment: Experiment, seen: Iterable[_Gpus]) -> dict[str, float]:
    """Run task → mean utilisation of GPUs while it was asked, percent."""
    found = {}
    workers = list(seen)
    for run_task in experiment.resolved.run_tasks:
        parts = [one.utilisation.get(run_task.name, (0.0, 0.0)) for one in workers]
        seconds = sum(part[1] for part in parts)
        if seconds:
            found[run_task.name] = round(sum(part[0] for part in parts) / seconds, 1)
    return found
