"""What one look at an experiment found, and the state that follows from it."""

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
from hpcbench.status.models import ShardStatus, State
from hpcbench.status.own_jobs import Jobs
from hpcbench.status.shards import NEWS_SECONDS


@dataclass(frozen=True, slots=True)
class Story:
    """What is known of an experiment without its shards and workers."""

    rounds: Sequence[Round]
    """Its rounds."""
    busy: bool
    """Whether the last one is being submitted."""
    outcome: State | None
    """How it ended, if it has."""
    wished: ControlState
    """What people want of it."""
    jobs: Jobs
    """Its jobs that live; once it has ended none are looked for."""
    reason: str | None = None
    """Why it ended as it did, where finalise said so."""
    endings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Run task → how it ended, as `experiment.ending.Ending` has it, where finalise said so."""

    @property
    def handed(self) -> bool:
        """Whether all jobs of the last round are submitted."""
        return bool(self.rounds) and self.rounds[-1].handed


@dataclass(frozen=True, slots=True)
class Facts:
    """All that was found."""

    experiment: Experiment
    """The experiment."""
    now: float
    """When, seconds since the epoch."""
    story: Story
    """Its rounds, its jobs, how it ended."""
    workers: Collection[WorkerRun]
    """All workers there ever were."""
    living: Sequence[WorkerRun]
    """Those that live."""
    shards: Sequence[tuple[ShardState, ShardStatus]]
    """Every shard in planned order: as its files tell, and judged."""
    fates: Mapping[str, slurm.JobEnd]
    """Job or array task that is gone → what became of it, as far as it was asked."""

    @property
    def ended(self) -> bool:
        """Whether nobody will do anything more."""
        return self.story.outcome is not None


def rounds_now(experiment: Experiment) -> tuple[Sequence[Round], bool]:
    """The rounds so far, and whether the last one is being submitted."""
    while True:
        passes = rounds(experiment)
        if passes and passes[-1].handed:
            return passes, False
        if submitting(experiment):
            return passes, True
        # Nobody submits now; but somebody may have come to the end since the rounds were read.
        if rounds(experiment) == passes:
            return passes, False


def outcome_of(
    experiment: Experiment, passes: Sequence[Round], wished: ControlState
) -> State | None:
    """What finalise said of the newest round, or the user's cancel."""
    known = outcome(experiment)
    if passes and known is not None and known.round == passes[-1].number:
        state: State = known.state  # type: ignore[assignment]
        return state
    return "cancelled" if wished.cancelled else None


def state_of(
    story: Story,
    *,
    whole: bool,
    rests: bool,
    works: bool,
    news: bool,
    fates: Mapping[str, slurm.JobEnd],
    from_jobs: bool,
) -> State:
    """The state of the experiment.

    Args:
        story: what is known of it.
        whole: whether every shard is done.
        rests: whether people let all that is left rest.
        works: whether a worker was heard of lately.
        news: the same, or its jobs were submitted lately.
        fates: what became of jobs that are gone.
        from_jobs: whether jobs of this site may submit jobs.
    """
    jobs = story.jobs
    if story.outcome is not None:
        return story.outcome
    if not story.handed:
        return "submitting" if story.busy else "interrupted"
    if jobs.alive or not jobs.answered:
        # A Slurm that is silent leaves the files, and its older word.
        begun = works or any(job.state != "PENDING" for job in jobs.alive)
        return "evaluating" if whole else "paused" if rests else "running" if begun else "pending"
    if rests:
        return "paused"
    if (
        news and jobs.snapshot is not None
    ):  # Slurm forgets a job sooner than NFS shows its last file
        return "evaluating" if whole else "running"
    return _nobody(story, fates, from_jobs)


def _nobody(story: Story, fates: Mapping[str, slurm.JobEnd], from_jobs: bool) -> State:
    """Nobody is alive, and finalise has not said how it ended."""
    if (
        story.jobs.snapshot is None
    ):  # the local executor's supervisor died; only `resume` starts another
        return "lost"
    finalisers = story.rounds[-1].finalisers
    if not from_jobs or not finalisers:
        return "stalled"
    # A job that somebody cancelled by hand is not started again behind her back.
    ends = {fates[job].state for job in finalisers if job in fates}
    return "stalled" if ends - {"CANCELLED", slurm.LOST} else "lost"


def is_news(moment: float, now: float) -> bool:
    """Whether something that happened then may still be on its way to us."""
    return now - moment < NEWS_SECONDS
