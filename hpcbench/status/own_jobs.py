"""This experiment's jobs, as Slurm (or /proc under the local executor) knows them."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from hpcbench import slurm
from hpcbench.experiment.claims import Owner, ShardState
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import Round, names_of
from hpcbench.status.liveness import process_lives, supervisors
from hpcbench.status.models import SlurmWord, Wait
from hpcbench.status.shards import Life

ORDERLY = frozenset({"Dependency", "JobArrayTaskLimit"})
"""Reasons to wait that are part of the plan: other jobs of it, or its own parallelism."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs of one experiment that live, and how good that word is."""

    alive: tuple[slurm.Job, ...] = ()
    """Jobs and array tasks; array tasks that wait together are one."""
    snapshot: slurm.Snapshot | None = None
    """What Slurm said; None: it was not asked."""
    ours: str = ""
    """What the names of our jobs begin with."""
    elsewhere: str = ""
    """Of the local executor: the host on which alone it can be seen whether the supervisor runs."""
    processes: dict[int, bool] = field(default_factory=dict, compare=False)
    """Processes of this host that were looked up in this look, and whether they live."""

    @property
    def answered(self) -> bool:
        """Whether a job that is not here is gone."""
        if self.snapshot is None:
            return not self.elsewhere
        return self.snapshot.fault is None

    @property
    def word(self) -> SlurmWord | None:
        """What Slurm said, for people."""
        if self.snapshot is None:
            return None
        return SlurmWord(time=self.snapshot.time or None, fault=self.snapshot.fault)

    @property
    def counts(self) -> dict[str, int]:
        """State in Slurm's words → jobs or array tasks."""
        counted: Counter[str] = Counter()
        for job in self.alive:
            counted[job.state] += job.tasks
        return dict(sorted(counted.items()))

    def find(self, job_id: str) -> slurm.Job | None:
        """Our living job of this id; of an array task that waits with others, their array."""
        job = self.snapshot.find(job_id) if self.snapshot is not None else None
        # Slurm counts job ids anew after some millions: an old one may be another's by now.
        return job if job is not None and job.alive and job.name.startswith(self.ours) else None


def look(experiment: Experiment, passes: Sequence[Round], snapshot: slurm.Snapshot | None) -> Jobs:
    """The jobs of an experiment that live.

    Args:
        experiment: the experiment.
        passes: its rounds.
        snapshot: Slurm's word, where it has been asked already.
    """
    if experiment.resolved.executor != "slurm":
        living, elsewhere = supervisors(experiment, passes)
        alive = tuple(slurm.Job(job, "supervisor", "RUNNING") for job in living)
        return Jobs(alive, elsewhere=elsewhere)
    if snapshot is None:
        snapshot = slurm.snapshot(newer_than=last_change(experiment))
    ids = {job for one in passes for job in one.jobs.values()}
    ours = names_of(experiment)
    alive = tuple(
        job
        for array in sorted(ids)
        for job in snapshot.of_array(array)
        if job.alive and job.name.startswith(ours)
    )
    return Jobs(alive, snapshot, ours)


def last_change(experiment: Experiment) -> float:
    """When something was last submitted: an older word of Slurm's does not know of it."""
    try:
        return experiment.submission_file.stat().st_mtime
    except OSError:
        return 0.0


def life(experiment: Experiment, state: ShardState, jobs: Jobs, last: int = 0) -> Life:
    """Whether the owner of a claimed shard lives; `last`: number of the last run of its job that began."""
    if state.owner is None:
        return "gone"
    owner = Owner(**state.owner)
    if jobs.snapshot is None:
        here = process_lives_here(experiment, owner.host, owner.pid, jobs)
        return "unknown" if here is None else "lives" if here else "gone"
    job = jobs.find(owner.job)
    if job is None:
        return "gone" if jobs.answered else "unknown"
    again = job.state == "PENDING" or max(last, job.restarts) > owner.restart
    return "requeued" if again else "lives"


def process_lives_here(experiment: Experiment, host: str, pid: int, jobs: Jobs) -> bool | None:
    """Whether a worker of the local executor lives: on another host as its supervisor, if that is known."""
    if host != socket.gethostname():
        return None if jobs.elsewhere else bool(jobs.alive)
    if pid not in jobs.processes:
        jobs.processes[pid] = process_lives(pid, experiment)
    return jobs.processes[pid]


def waits(experiment: Experiment, passes: Sequence[Round], jobs: Jobs) -> tuple[Wait, ...]:
    """What the jobs that wait are waiting for, in plain words."""
    if jobs.snapshot is None:
        return ()
    steps = {job: name for one in passes for name, job in one.jobs.items()}
    waiting: dict[tuple[str, str], list[slurm.Job]] = {}
    for job in jobs.alive:
        if job.state == "PENDING" and job.reason not in ORDERLY:
            waiting.setdefault((job.array_job, job.reason), []).append(job)
    site = experiment.resolved.site
    return tuple(
        Wait(
            job=array,
            step=steps.get(array, ""),
            count=sum(job.tasks for job in those),
            why=slurm.why_pending(those[0], jobs.snapshot, site),
            reason=reason,
        )
        for (array, reason), those in waiting.items()
    )
