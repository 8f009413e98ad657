"""The facts about an experiment in the words of `hpcbench status`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.claims import id_of_owner
from hpcbench.experiment.control import said
from hpcbench.experiment.event_log import time_of
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.attempts import Attempts
from hpcbench.experiment.view.readings import last_reading, monitor_heard
from hpcbench.experiment.view.workers import WorkerRun, spent_by
from hpcbench.resume import last_job
from hpcbench.schema.spending import Amount, BudgetCaps
from hpcbench.schema.spending import in_words as budget_in_words
from hpcbench.schema.work import PlannedTask
from hpcbench.slurm import LOST, unlaunched
from hpcbench.status import causes
from hpcbench.status import own_jobs as own_jobs
from hpcbench.status.experiment_status import (
    ExperimentStatus,
    Failure,
    GpuUse,
    RunTaskState,
    RunTaskStatus,
    ShardStatus,
    Spending,
    State,
    WorkerStatus,
)
from hpcbench.status.findings import Facts, is_news
from hpcbench.status.forecast import forecast, rates, spans
from hpcbench.status.shards import count

AGAIN = (
    "its array task was requeued after preemption, a node failure, or a loss of slurmctld's state"
)
"""Why a worker of a restarted job is gone."""

LOOKED_UP = 200
"""Most workers without a last event whose reason is looked up; further ones add no information."""

GIB = 2**30

HELD = ("claimed", "running", "silent")


def in_words(facts: Facts, state: State) -> ExperimentStatus:
    """The whole status."""
    experiment, run_state = facts.experiment, facts.run_state
    ahead = {worker.id: worker.ahead for worker in facts.living}
    known = [] if facts.ended else spans((state for state, _ in facts.shards), facts.now, ahead)
    pace = rates(known, facts.now)
    run_tasks = _run_tasks(facts, pace)
    failures, alarms = _failures(facts, state)
    works = state in ("submitting", "pending", "running")
    jobs = run_state.jobs.with_started(facts.living)
    written = [experiment.report_dir / name for name in ("report.html", "report.md")]
    report = next((path for path in written if path.exists()), None) if facts.ended else None
    return ExperimentStatus(
        time=round(facts.now, 3),
        id=experiment.id,
        state=state,
        reason=run_state.reason if state in ("incomplete", "failed") else None,
        needs=_needs(facts, state),
        path=str(experiment.path),
        executor=experiment.planned.executor,
        round=len(run_state.rounds),
        max_resubmits=experiment.planned.max_resubmits,
        samples=sum(one.samples for one in run_tasks),
        answered=sum(one.answered for one in run_tasks),
        shards=count(shard for _, shard in facts.shards),
        rate=round(sum(pace.values()), 3) or None,
        eta=forecast(facts, known) if works else None,
        spending=_spending(facts),
        jobs=jobs.counts,
        waits=own_jobs.waits(experiment, run_state.rounds, jobs),
        deferred=run_state.rounds[-1].deferred if run_state.rounds and not facts.ended else 0,
        slurm=run_state.jobs.word,
        run_tasks=run_tasks,
        workers=_workers(facts),
        failures=failures,
        alarms=alarms,
        report=str(report) if report else None,
    )


def _spending(facts: Facts) -> Spending | None:
    planned = facts.experiment.planned
    caps, currency = planned.budget.changed(facts.run_state.control.budget), planned.currency
    if caps == BudgetCaps() and not currency:
        return None
    spent = spent_by(facts.workers) or Amount()
    return Spending(
        requests=round(spent.requests),
        tokens=round(spent.tokens),
        cost=round(spent.cost, 6) if currency else None,
        currency=currency or None,
        **caps._asdict(),
        text=budget_in_words(spent, caps, currency),
    )


def _needs(facts: Facts, state: State) -> str | None:
    experiment, run_state = facts.experiment, facts.run_state
    go_on = f"`hpcbench resume {experiment.id}` continues it"
    if run_state.jobs.elsewhere and not facts.ended:
        return (
            f"it was started on {run_state.jobs.elsewhere}, and only that machine shows whether it still "
            f"runs: run `hpcbench status` there, or `hpcbench resume {experiment.id} --force` if that "
            "machine no longer exists"
        )
    died = last_job.death(run_state.rounds[-1], facts.job_ends) if run_state.rounds else None
    if died is not None and state in ("stalled", "lost"):
        wanted = last_job.grown(died.step.resources, died.end.state, experiment.resolved)
        command = (
            "`hpcbench status`" if state == "stalled" else f"`hpcbench resume {experiment.id}`"
        )
        return (
            f"its last job, which evaluates and reports, died: {died.words}; {command} submits it "
            f"again with {last_job.in_words(wanted)}; `last_job` in plan or site profile is for later runs"
        )
    if state == "stalled":
        return "the next step needs a command on the login node: `hpcbench status` does it"
    if state == "interrupted":
        return f"its submission was interrupted: {go_on}"
    if state == "lost":
        return f"all its jobs disappeared before its end: {go_on}"
    if state == "paused":
        return f"paused: {go_on}"
    if state in ("incomplete", "failed") and run_state.control.stopped_tasks:
        return None  # the reason of a run task that hpcbench stopped says how it goes on
    if state in ("incomplete", "failed"):
        return _after_a_poor_end(experiment)
    if any(unlaunched(job.reason) for job in run_state.jobs.alive):
        return "Slurm holds a job that its node could not launch: the next `hpcbench status` releases it"
    from_jobs = experiment.planned.submit_from_jobs
    if run_state.rounds and run_state.rounds[-1].deferred and not facts.ended and not from_jobs:
        return "a Slurm limit delays some workers: the next `hpcbench status` submits them"
    return None


def _after_a_poor_end(experiment: Experiment) -> str:
    """Remedy for an experiment that ended incomplete or failed: `resume` only if something is left to ask."""
    from hpcbench.experiment.view.metrics_json import metrics_of  # late, as in `causes`

    resume = f"`hpcbench resume {experiment.id}` sends the failed and the unsent requests"
    try:
        tables = metrics_of(experiment).run_tasks.values()
    except EnvironmentFault:
        return resume
    if not tables or any(one.failed for one in tables):
        return resume
    if any(one.skipped for one in tables):
        return (
            "no request is left to send: samples that cannot be used count against the coverage, and "
            "`hpcbench data check DATASET` names them"
        )
    return f"no request is left to send: `hpcbench report {experiment.id}` shows why answers do not count"


def _run_tasks(facts: Facts, pace: dict[str, float]) -> tuple[RunTaskStatus, ...]:
    own: dict[str, list[ShardStatus]] = {}
    for state, shard in facts.shards:
        own.setdefault(state.shard.run_task, []).append(shard)
    return tuple(
        _run_task(facts, run_task, own.get(run_task.name, []), pace.get(run_task.name))
        for run_task in facts.experiment.planned.run_tasks
    )


def _run_task(
    facts: Facts, run_task: PlannedTask, own: list[ShardStatus], rate: float | None
) -> RunTaskStatus:
    name, control = run_task.name, facts.run_state.control
    counted = count(own)
    enough = control.enough_tasks.get(name)
    failed = control.failed_tasks.get(name)
    reason = failed or control.stopped_tasks.get(name, enough)
    held = counted.claimed or counted.running or counted.silent
    state: RunTaskState
    ending = facts.run_state.endings.get(name, {})
    whole = (own and counted.done == len(own)) or enough is not None
    if failed is not None and not ending:
        state = "failed"
    elif not whole and (control.cancelled or name in control.cancelled_tasks):
        state = "cancelled"
    elif ending.get("state") == "failed":
        state = "failed"
    elif not whole and failed is None and reason is not None:
        state = "stopped"
    elif ending.get("state") == "incomplete":
        state = "incomplete"
    elif whole:
        state = "done"
    elif facts.ended:
        state = "incomplete" if any(shard.answered for shard in own) else "failed"
    elif control.paused or name in control.paused_tasks:
        state = "paused"
    else:
        state = "running" if held else "pending"
    if state in ("incomplete", "failed") and failed is None:
        cause = next((shard.cause for shard in own if shard.cause), None)
        reason = "; ".join(filter(None, (ending.get("reason"), cause))) or None
    return RunTaskStatus(
        name=name,
        model=run_task.model,
        state=state,
        reason=reason,
        coverage=ending.get("coverage"),
        samples=sum(shard.samples for shard in own),
        answered=sum(shard.answered for shard in own),
        shards=counted,
        rate=round(rate, 3) if rate else None,
        **_agents(facts, name),
    )


def _agents(facts: Facts, run_task: str) -> dict[str, int]:
    """Turns, tool calls and samples in work, by the workers' events; nothing where none says so."""
    living = {worker.id for worker in facts.living}
    works = [
        (work, shard == worker.shard and worker.id in living)
        for worker in facts.workers
        for shard, work in worker.work.items()
        if shard.rpartition("/")[0] == run_task
    ]
    if not works:
        return {}
    return {
        "turns": sum(work.turns for work, _ in works),
        "tool_calls": sum(work.calls for work, _ in works),
        "working": sum(work.working for work, at_work in works if at_work),
    }


def _workers(facts: Facts) -> tuple[WorkerStatus, ...]:
    held = {
        id_of_owner(state.owner): shard
        for state, shard in facts.shards
        if state.state == "claimed" and state.owner is not None
    }
    return tuple(_worker(facts, worker, held.get(worker.id)) for worker in facts.living)


def _worker(facts: Facts, worker: WorkerRun, shard: ShardStatus | None) -> WorkerStatus:
    last = max(worker.heard, monitor_heard(facts.experiment, worker))
    state: Literal["starting", "loading", "working", "idle", "silent"]
    if not is_news(last, facts.now):
        state = "silent"
    elif worker.loading is not None:
        state = "loading"
    elif shard is not None and shard.state in HELD:
        state = "working"
    else:
        state = "starting" if worker.model is None else "idle"
    token = worker.tokens.get(worker.model or "")
    return WorkerStatus(
        id=worker.id,
        group=worker.group,
        job=worker.job,
        node=worker.node,
        state=state,
        since=worker.started,
        heard=round(last, 1),
        model=worker.model,
        shard=shard.id if shard is not None else None,
        answered=shard.answered if shard is not None else None,
        samples=shard.samples if shard is not None else None,
        gpus=_gpus(last_reading(facts.experiment, worker)),
        token=None if token is None else token.in_words(),
    )


def _gpus(reading: Mapping[str, Any]) -> tuple[GpuUse, ...]:
    """A living worker's GPUs, from its monitor's last reading."""
    return tuple(
        GpuUse(
            gpu=int(one["gpu"]),
            utilisation=None if (use := one.get("utilisation")) is None else float(use),
            used_gb=None if one.get("used") is None else round(one["used"] / GIB, 1),
        )
        for one in reading.get("gpus") or ()
    )


def _failures(facts: Facts, state: State) -> tuple[tuple[Failure, ...], tuple[Failure, ...]]:
    executor = facts.experiment.planned.executor
    cancels = _cancels(facts.experiment)
    said = [one for run in facts.workers for one in causes.complaints(run, executor, cancels)]
    troubles = [one for one in said if not one.alarm]
    failures = causes.grouped(
        [*troubles, *_gone(facts, cancels), *_last_jobs(facts)]
    ) + causes.bad_answers(facts.experiment)
    if state in ("lost", "stalled") and not failures:
        failures = (causes.last_words(facts.experiment),)
    return failures, causes.grouped(one for one in said if one.alarm)


def _last_jobs(facts: Facts) -> Iterator[causes.Complaint]:
    """Last jobs that died and were submitted again."""
    for one in facts.run_state.rounds:
        for step in one.last_steps:
            if step.died:
                what = f"a last job, which evaluates and reports, died: {step.died}"
                yield causes.Complaint("lost", what, one.started, "", "")


def _gone(facts: Facts, cancels: list[float]) -> Iterator[causes.Complaint]:
    """Workers that ended without a last event: killed, or their node died."""
    living = {worker.id for worker in facts.living}
    runs = {(worker.seat, worker.restart) for worker in facts.workers}
    looked_up, known_attempts = 0, dict[str, Attempts]()
    for worker in facts.workers:
        again = (worker.seat, worker.restart + 1) in runs
        end = facts.job_ends.get(worker.job)
        # A worker that ended in order writes a last event, which may arrive late over NFS.
        known = end is not None and not end.alive and end.state not in (LOST, "COMPLETED")
        silent = facts.ended or not is_news(worker.heard, facts.now)
        if worker.last_words or worker.id in living or not (again or silent or known):
            continue
        if not again and not facts.run_state.jobs.answered:
            continue  # it is not known to be gone
        if not again and _cancelled(facts, worker, cancels):
            continue
        looked_up += 1
        why = AGAIN if again else ""
        why = why or (end.text if end is not None else "")
        if not why and looked_up <= LOOKED_UP:
            why = _released(facts.experiment, worker, known_attempts)
        name = (worker.shard or "").rpartition("/")[0] or None
        why = why or "a worker ended without a message"
        yield causes.Complaint("lost", why, worker.heard, worker.node, worker.log, run_task=name)


def _cancels(experiment: Experiment) -> list[float]:
    """Times at which a user cancelled the experiment, seconds since the epoch."""
    return [
        time_of(one)
        for one in said(experiment)
        if one["event"] == "cancel" and not one["run_tasks"]
    ]


def _cancelled(facts: Facts, worker: WorkerRun, cancels: list[float]) -> bool:
    """Whether `hpcbench cancel` ended a worker: while it loads, it is killed before its last event."""
    end = facts.job_ends.get(worker.job)
    if end is not None and end.state not in ("CANCELLED", "COMPLETED", LOST):
        return False
    heard = max(worker.heard, monitor_heard(facts.experiment, worker)) if cancels else 0.0
    return any(is_news(heard, moment) for moment in cancels)


def _released(experiment: Experiment, worker: WorkerRun, known: dict[str, Attempts]) -> str:
    """The recorded reason when the shard of a gone worker was taken from it.

    Args:
        experiment: the experiment.
        worker: the worker.
        known: run task → attempts at its shards, a cache that this function fills.
    """
    run_task, _, index = (worker.shard or "").rpartition("/")
    if not index.isdigit():
        return ""
    if run_task not in known:
        known[run_task] = Attempts(experiment, run_task)
    return known[run_task].released(int(index), worker.id)
