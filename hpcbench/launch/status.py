"""How far an experiment is, from its files and one look at Slurm: what `hpcbench status` shows.

An element's own log is the truth for progress, Slurm (or /proc under the local executor) for liveness.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from hpcbench import slurm
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.claims import ShardState, shard_states
from hpcbench.experiment.files import read_json, read_lines
from hpcbench.experiment.layout import Experiment
from hpcbench.launch.submit import Round, cancelled, process_lives, rounds, submitting
from hpcbench.schema.documents import Part

State = Literal[
    "submitting", "interrupted", "pending", "running", "evaluating", "done", "incomplete",
    "cancelled", "lost",
]  # fmt: skip
"""State of an experiment.

`submitting` jobs are being handed over · `interrupted` that was cut off, `hpcbench resume` goes on ·
`pending` all jobs wait · `running` · `evaluating` answers are in · `done` · `incomplete` ended with work
left that trying again did not cure · `cancelled` · `lost` no job is left and nobody said it ended.
"""

NEWS_SECONDS = 120
"""Twice the longest time an NFS client may keep a directory by default."""

TROUBLES = ("model_failed", "engine_died", "disk_full", "failed", "shard_failed", "alarm")
"""Events of workers that tell of trouble."""

ENDED: tuple[State, ...] = ("done", "incomplete", "cancelled", "lost", "interrupted")
"""States that no job will change."""


class Trouble(Part):
    """One thing that went wrong, with its cause and where to look."""

    message: str
    """The cause in one line."""
    run_task: str | None = None
    """Run task it hit, if one."""
    model: str | None = None
    """Model it hit, if one."""
    node: str | None = None
    """Node it was seen on."""
    log: str | None = None
    """File with more."""
    count: int = 1
    """How often."""


class RunTaskStatus(Part):
    """How far one run task is."""

    name: str
    """The run task."""
    state: Literal["pending", "running", "done", "failed"]
    """`failed`: it has work left that nobody will do."""
    samples: int
    """Samples to ask about."""
    answered: int
    """Samples with an acknowledged answer, whatever its outcome."""
    shards: int
    """Shards in all."""
    shards_done: int
    """Shards done."""


class ExperimentStatus(Part):
    """What `hpcbench status --json` prints; `version` changes when a field changes its meaning."""

    version: int = 1
    """Version of this format."""
    id: str
    """The experiment."""
    state: State
    """State of the whole."""
    path: str
    """Its directory."""
    executor: str
    """slurm or local."""
    round: int
    """Passes of jobs so far, from 1."""
    workers: dict[str, int] = Field(default_factory=dict)
    """State in Slurm's words → jobs or array tasks."""
    pending_reason: str | None = None
    """Why Slurm lets the jobs wait."""
    run_tasks: tuple[RunTaskStatus, ...]
    """Each run task."""
    troubles: tuple[Trouble, ...] = ()
    """What went wrong."""
    report: str | None = None
    """The report, once written."""


def status(experiment: Experiment) -> ExperimentStatus:
    """Look at an experiment; asks Slurm once if its jobs may still live."""
    passes, busy = _passes(experiment)
    outcome = _outcome(experiment, passes)
    jobs, troubles = ([], []) if outcome else _jobs(experiment, passes)
    run_tasks = [
        _run_task(experiment, run_task.name, bool(jobs), outcome is not None)
        for run_task in experiment.resolved.run_tasks
    ]
    state = outcome or _state(experiment, passes, busy, jobs, run_tasks)
    if state == "lost":
        troubles = [*troubles, _last_words(experiment)]
    report = experiment.report_dir / "report.md"
    waiting = next((job.reason for job in jobs if job.state == "PENDING" and job.reason), None)
    return ExperimentStatus(
        id=experiment.id,
        state=state,
        path=str(experiment.path),
        executor=experiment.resolved.executor,
        round=len(passes),
        workers=dict(sorted(Counter(job.state for job in jobs).items())),
        pending_reason=waiting if waiting not in ("None", "Dependency") else None,
        run_tasks=tuple(run_tasks),
        troubles=tuple([*troubles, *worker_troubles(experiment)]),
        report=str(report) if outcome and report.exists() else None,
    )


def worker_troubles(experiment: Experiment) -> list[Trouble]:
    """What workers and shards said went wrong; the same trouble once, with its count."""
    found: list[Trouble] = []
    for path in experiment.worker_event_files():
        log = str(path).removesuffix(".events.jsonl") + ".log"
        node = None
        for event in read_lines(path):
            kind = event["event"]
            if kind == "started":
                node = event["owner"]["host"]
            elif kind in TROUBLES:
                found.append(
                    Trouble(
                        message=event.get("message", kind),
                        run_task=str(event["shard"]).rpartition("/")[0]
                        if "shard" in event
                        else None,
                        model=event.get("model"),
                        node=node,
                        log=log if Path(log).exists() else str(path),
                    )
                )
    return _merged([*found, *_bad_answers(experiment)])


def model_never_loaded(experiment: Experiment) -> dict[str, str]:
    """Models that failed to load in every try there was → the last cause."""
    failed: dict[str, str] = {}
    loaded: set[str] = set()
    for path in experiment.worker_event_files():
        for event in read_lines(path):
            if event["event"] == "model_failed":
                failed[event["model"]] = event["message"]
            elif event["event"] == "model_ready":
                loaded.add(event["model"])
    return {model: cause for model, cause in failed.items() if model not in loaded}


def answered(experiment: Experiment, state: ShardState) -> int:
    """Answers of a shard, counted without reading them."""
    if state.state == "done":
        return state.shard.stop - state.shard.start
    count = 0
    for attempt in range(1, state.attempt + 1):
        path = experiment.shard_responses(state.shard.run_task, state.shard.index, attempt)
        try:
            with path.open("rb") as file:
                count += sum(line.endswith(b"\n") for line in file)
        except FileNotFoundError:
            continue
    return min(count, state.shard.stop - state.shard.start)


def _last_words(experiment: Experiment) -> Trouble:
    """Where to look when all jobs are gone and none of them said why."""
    logs = [path for path in experiment.jobs_dir.glob("*") if path.suffix in (".log", ".out")]
    newest = max(logs, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        return Trouble(message="all jobs are gone and none left a log")
    lines = newest.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    said = f"; the last one said: {lines[-1].strip():.200}" if lines else ""
    return Trouble(message=f"all jobs are gone before the end{said}", log=str(newest))


def _outcome(experiment: Experiment, passes: Sequence[Round]) -> State | None:
    """What finalise said of the newest round, or the user's cancel."""
    if cancelled(experiment):
        return "cancelled"
    try:
        outcome = read_json(experiment.path / "outcome.json")
    except FileNotFoundError:
        return None
    if not passes or outcome["round"] != passes[-1].number:
        return None
    state: State = outcome["state"]
    return state


def _jobs(experiment: Experiment, passes: Sequence[Round]) -> tuple[list[slurm.Job], list[Trouble]]:
    """This experiment's jobs that live."""
    ids = {job for one in passes for job in one.jobs.values()}
    if experiment.resolved.executor == "slurm":
        try:
            return [job for job in slurm.queue() if job.array_job in ids and job.alive], []
        except EnvironmentFault as fault:
            return [], [Trouble(message=str(fault))]
    living = [
        job for job in ids if process_lives(int(job.rpartition(":")[2]), str(experiment.path))
    ]
    return [slurm.Job(job, "supervisor", "RUNNING") for job in living], []


def _passes(experiment: Experiment) -> tuple[Sequence[Round], bool]:
    """The passes so far, and whether the last one is being submitted."""
    while True:
        passes = rounds(experiment)
        if passes and passes[-1].complete:
            return passes, False
        if submitting(experiment):
            return passes, True
        # Nobody submits now; but somebody may have come to the end since the passes were read.
        if rounds(experiment) == passes:
            return passes, False


def _state(
    experiment: Experiment,
    passes: Sequence[Round],
    busy: bool,
    jobs: Sequence[slurm.Job],
    run_tasks: Sequence[RunTaskStatus],
) -> State:
    if not passes or not passes[-1].complete:
        return "submitting" if busy else "interrupted"
    if not jobs:
        slurm_ran = experiment.resolved.executor == "slurm"
        return "running" if slurm_ran and _fresh(experiment, passes) else "lost"
    if all(run_task.state == "done" for run_task in run_tasks):
        return "evaluating"
    return "pending" if all(job.state == "PENDING" for job in jobs) else "running"


def _fresh(experiment: Experiment, passes: Sequence[Round]) -> bool:
    """Whether something happened lately: Slurm forgets a job sooner than NFS shows its last file."""
    changes = [path.stat().st_mtime for path in experiment.jobs_dir.glob("*_log.out")]
    return time.time() - max([passes[-1].started, *changes]) < NEWS_SECONDS


def _run_task(experiment: Experiment, name: str, living: bool, ended: bool) -> RunTaskStatus:
    states = shard_states(experiment, [name])
    done = sum(state.state == "done" for state in states)
    count = sum(answered(experiment, state) for state in states)
    if done == len(states):
        word = "done"
    elif ended:
        word = "failed"
    else:
        word = (
            "running" if living and any(state.state == "claimed" for state in states) else "pending"
        )
    return RunTaskStatus(
        name=name,
        state=word,  # type: ignore[arg-type]
        samples=sum(state.shard.stop - state.shard.start for state in states),
        answered=count,
        shards=len(states),
        shards_done=done,
    )


def _bad_answers(experiment: Experiment) -> Iterable[Trouble]:
    """Samples without an answer, as evaluation counted them."""
    try:
        metrics: dict[str, Any] = read_json(experiment.metrics_file)
    except FileNotFoundError:
        return
    for name, run_task in metrics["run_tasks"].items():
        for error in run_task["errors"]:
            yield Trouble(
                message=f"{error['outcome']}: {error['message']}",
                run_task=name,
                log=str(experiment.shards_dir(name)),
                count=error["count"],
            )


def _merged(troubles: Iterable[Trouble]) -> list[Trouble]:
    merged: dict[tuple[str | None, ...], Trouble] = {}
    for trouble in troubles:
        key = (trouble.message, trouble.run_task, trouble.model)
        if key in merged:
            trouble = merged[key].model_copy(update={"count": merged[key].count + trouble.count})
        merged[key] = trouble
    return list(merged.values())
