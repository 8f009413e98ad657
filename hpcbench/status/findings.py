"""The facts that one look at an experiment finds, and the state that follows from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcbench import slurm
from hpcbench.experiment.claims import ShardState
from hpcbench.experiment.control import ControlState
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.outcome import outcome
from hpcbench.experiment.submission import Round, rounds
from hpcbench.experiment.submission_lock import submitting
from hpcbench.experiment.view.workers import WorkerRun
from hpcbench.resume import last_job
from hpcbench.status.experiment_status import ShardStatus, State
from hpcbench.status.own_jobs import Jobs
from hpcbench.status.shards import NEWS_SECONDS


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run without its shards and workers: its rounds, jobs, control requests and end."""

    rounds: Sequence[Round]
    """Its rounds."""
    busy: bool
    """Whether a process submits the last round now."""
    outcome: State | None
    """How the experiment ended; None: it has not."""
    control: ControlState
    """Its control requests."""
    jobs: Jobs
    """Its living jobs; they are not looked up once it has ended."""
    reason: str | None = None
    """Reason of the outcome, if finalise gave one."""
    endings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Run task → how it ended, as in `experiment.ending.Ending`, if finalise gave it."""

    @property
    def handed(self) -> bool:
        """Whether all jobs of the last round are submitted."""
        return bool(self.rounds) and self.rounds[-1].handed


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts of one look."""

    experiment: Experiment
    """The experiment."""
    now: float
    """Time of the look, seconds since the epoch."""
    run_state: RunState
    """Its rounds, its jobs, how it ended."""
    workers: Collection[WorkerRun]
    """All workers, past and present."""
    living: Sequence[WorkerRun]
    """Living workers."""
    shards: Sequence[tuple[ShardState, ShardStatus]]
    """Every shard in planned order: its state by its files, and its status."""
    job_ends: Mapping[str, slurm.JobEnd]
    """Job or array task that is gone → its end in Slurm, as far as looked up."""

    @property
    def ended(self) -> bool:
        """Whether the experiment has ended."""
        return self.run_state.outcome is not None


def rounds_now(experiment: Experiment) -> tuple[Sequence[Round], bool]:
    """The rounds so far, and whether a process submits the last one now."""
    while True:
        known = rounds(experiment)
        if known and known[-1].handed:
            return known, False
        if submitting(experiment):
            return known, True
        # No process submits now, but one may have finished its submission since the rounds were read.
        if rounds(experiment) == known:
            return known, False


def outcome_of(
    experiment: Experiment, rounds: Sequence[Round], control: ControlState
) -> State | None:
    """Finalise's outcome of the newest round, or the user's cancel; None: not ended."""
    known = outcome(experiment)
    if rounds and known is not None and known.round == rounds[-1].number:
        state: State = known.state  # type: ignore[assignment]
        return state
    return "cancelled" if control.cancelled else None


def state_of(
    run_state: RunState,
    *,
    whole: bool,
    rests: bool,
    works: bool,
    news: bool,
    job_ends: Mapping[str, slurm.JobEnd],
    from_jobs: bool,
) -> State:
    """The state of the experiment.

    Args:
        run_state: its rounds, jobs and end.
        whole: whether every shard is done.
        rests: whether users paused all remaining work.
        works: whether a worker showed a recent sign of life.
        news: the same, or its jobs were submitted recently.
        job_ends: job that is gone → its end in Slurm.
        from_jobs: whether jobs of this site may submit jobs.
    """
    jobs = run_state.jobs
    if run_state.outcome is not None:
        return run_state.outcome
    if not run_state.handed:
        return "submitting" if run_state.busy else "interrupted"
    if jobs.alive or not jobs.answered:
        # Without an answer of Slurm, the files and its older snapshot remain.
        started = works or any(job.state != "PENDING" for job in jobs.alive)
        return "evaluating" if whole else "paused" if rests else "running" if started else "pending"
    if rests:
        return "paused"
    if (
        news and jobs.snapshot is not None
    ):  # Slurm forgets a job sooner than NFS shows its last file
        return "evaluating" if whole else "running"
    return _without_jobs(run_state, job_ends, from_jobs)


def _without_jobs(
    run_state: RunState, job_ends: Mapping[str, slurm.JobEnd], from_jobs: bool
) -> State:
    """The state without living jobs or workers and without an outcome of finalise."""
    if (
        run_state.jobs.snapshot is None
    ):  # the local executor's supervisor died; only `resume` starts another
        return "lost"
    finalisers = run_state.rounds[-1].finalisers
    if not from_jobs or not finalisers:
        return "stalled"
    died = last_job.death(run_state.rounds[-1], job_ends)
    if died is not None and died.times >= last_job.TRIES:
        return "lost"  # a further one is for a user to decide
    # If a user cancelled a job by hand, hpcbench does not restart it on its own.
    ends = {job_ends[job].state for job in finalisers if job in job_ends}
    return "stalled" if ends - {"CANCELLED", slurm.LOST} else "lost"


def is_news(moment: float, now: float) -> bool:
    """Whether an event of that moment may not be visible here yet."""
    return now - moment < NEWS_SECONDS
