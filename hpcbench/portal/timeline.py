"""Phases of a run task over time, from records of its workers and of the submission."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal

from hpcbench.experiment.event_log import LAST_WORDS
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import FINALISE, submitted_at
from hpcbench.experiment.view.metrics_json import Lost
from hpcbench.experiment.view.workers import TROUBLES, WorkerEvent
from hpcbench.portal.models.run_tasks import Phase
from hpcbench.portal.safe_open import open_beneath
from hpcbench.portal.worker_series import Worker, groups_of, rounds_of
from hpcbench.status.causes import complaint, grouped, unanswered
from hpcbench.status.experiment_status import Failure

PHASES = 400
"""Most phases of a timeline, the newest."""

What = Literal["queued", "starting", "loading", "inference", "idle", "evaluation", "ended"]

_BEGAN = re.compile(rb"submitit INFO \((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\)")
"""First line of a job's own output, in local time."""


def timeline(
    experiment: Experiment, run_task: str, model: str, workers: Sequence[Worker], *, ended: bool
) -> tuple[Phase, ...]:
    """Phases of a run task's jobs and workers, in order of their start.

    Args:
        experiment: the experiment.
        run_task: the run task.
        model: its model.
        workers: workers that may have processed its shards.
        ended: whether the experiment has ended: then no phase is open.
    """
    found = [
        *_queued(experiment, run_task, workers, ended=ended),
        *(phase for one in workers for phase in _of_worker(one, run_task, model, ended=ended)),
        *_evaluation(experiment, workers),
    ]
    found.sort(key=lambda phase: (phase.begin, phase.worker))
    return tuple(found[-PHASES:])


def _queued(
    experiment: Experiment, run_task: str, workers: Sequence[Worker], *, ended: bool
) -> Iterator[Phase]:
    """From the submission of an array until the first event of its first worker."""
    groups = groups_of(experiment, run_task)
    said = submitted_at(experiment)
    for one in rounds_of(experiment):
        for step in one.steps.values():
            begin = said.get(str(step.job))
            if step.group not in groups or begin is None:
                continue
            starts = [w.events[0].time for w in workers if w.events and w.run.array == step.job]
            end = min(starts, default=None)
            if end is not None or not ended:
                yield Phase(
                    what="queued", worker=step.name, begin=min(begin, end or begin), end=end
                )


def _of_worker(worker: Worker, run_task: str, model: str, *, ended: bool) -> Iterator[Phase]:
    """Phases of a worker for a run task; none where it did nothing for the task."""
    if not any(_concerns(event, run_task, model) for event in worker.events):
        return
    open_phase: tuple[What, float] | None = None
    last = worker.events[0].time
    for event in worker.events:
        begins = _begins(event, run_task, model)
        last = event.time
        if begins is None or (open_phase is not None and open_phase[0] == begins):
            continue
        if open_phase is not None and open_phase[0] != "idle":
            yield _phase(worker, *open_phase, last)
        open_phase = (begins, last)
    if open_phase is None:
        return
    what, begin = open_phase
    if what == "ended":
        yield _phase(worker, "ended", begin, begin)
    elif what != "idle":
        # A killed worker wrote no last event: its latest event is its last known time.
        yield _phase(worker, what, begin, max(last, worker.run.last) if ended else None)


def _phase(worker: Worker, what: What, begin: float, end: float | None) -> Phase:
    return Phase(
        what=what,
        worker=worker.run.stem,
        node=worker.run.node,
        begin=begin,
        end=None if end is None else max(begin, end),
    )


def _concerns(event: WorkerEvent, run_task: str, model: str) -> bool:
    failed = event.kind in ("model_failed", "engine_died") and event.model == model
    return event.run_task == run_task or failed


def _begins(event: WorkerEvent, run_task: str, model: str) -> What | None:
    """The phase that starts with an event, for a run task; None: the current phase continues."""
    kind = event.kind
    if kind == "started":
        return "starting"
    if kind in LAST_WORDS:
        return "ended"
    if kind == "model_loading":
        return "loading" if event.model == model else "idle"
    if kind in ("model_ready", "model_failed", "engine_died", "shard_failed"):
        return "idle"
    if kind == "shard_claimed":
        return "inference" if event.run_task == run_task else "idle"
    return None


def _evaluation(experiment: Experiment, workers: Sequence[Worker]) -> Iterator[Phase]:
    """The job that evaluates: from its first line of output until the scores were written."""
    try:
        end = experiment.metrics_file.stat().st_mtime
    except OSError:
        return
    with contextlib.suppress(OSError):
        end = min(end, experiment.outcome_file.stat().st_mtime)  # scored again later: not this job
    begin = None
    rounds = rounds_of(experiment)
    for job in rounds[-1].jobs.items() if rounds else ():
        if job[0].startswith(FINALISE):
            begin = _first_word(experiment, job[1])
    if begin is None:
        begin = max((worker.run.last for worker in workers), default=None)
    if begin is not None and begin <= end:
        yield Phase(what="evaluation", worker="evaluation", begin=begin, end=end)


def _first_word(experiment: Experiment, job: str) -> float | None:
    """Time of the first line of a job's output."""
    name = f"{job}_0_log.out"
    try:
        descriptor = open_beneath(experiment.path, "jobs", name)
    except OSError:
        return None
    try:
        match = _BEGAN.search(os.pread(descriptor, 4096, 0))
    finally:
        os.close(descriptor)
    if match is None:
        return None
    return datetime.fromisoformat(match[1].decode()).timestamp() + int(match[2]) / 1000


# --- what went wrong ------------------------------------------------------------------------------------


def troubles(
    workers: Iterable[Worker], run_task: str, model: str, errors: Iterable[Lost]
) -> tuple[Failure, ...]:
    """Failures of a run task, by cause; the most frequent first.

    Args:
        workers: workers that may have processed its shards.
        run_task: the run task.
        model: its model.
        errors: samples without an answer, as `metrics.json` counts them.
    """
    complaints = [
        replace(complaint(worker.run, event), log="", run_task=run_task, model=model)
        for worker in workers
        for event in worker.events
        if event.kind in TROUBLES and _hits(event, run_task, model)
    ]
    found = [replace(one, log=None) for one in grouped(complaints)]
    return tuple(
        sorted([*found, *unanswered(errors, run_task)], key=lambda failure: -failure.count)
    )


def _hits(event: WorkerEvent, run_task: str, model: str) -> bool:
    named = event.run_task
    return named == run_task or (not named and event.model in (None, model))
