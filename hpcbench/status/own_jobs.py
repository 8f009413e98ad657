"""This experiment's jobs, as known to Slurm (or /proc under the local executor)."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from hpcbench import slurm
from hpcbench.experiment.claims import Owner, ShardState
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import Round, names_of
from hpcbench.experiment.view.workers import WorkerRun
from hpcbench.status.experiment_status import SlurmWord, Wait
from hpcbench.status.liveness import process_lives, supervisors
from hpcbench.status.shards import Life

ORDERLY = frozenset({"Dependency", "JobArrayTaskLimit"})
"""Planned reasons to wait: other jobs of the plan, or its own parallelism."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """The living jobs of one experiment, and the source of this knowledge."""

    alive: tuple[slurm.Job, ...] = ()
    """Jobs and array tasks; array tasks that wait together count as one."""
    snapshot: slurm.Snapshot | None = None
    """Slurm's answer; None: Slurm was not asked."""
    ours: str = ""
    """Prefix of the names of the experiment's jobs."""
    elsewhere: str = ""
    """Local executor: the only host that can see whether the supervisor runs, if it is another host."""
    processes: dict[int, bool] = field(default_factory=dict, compare=False)
    """Process of this host → whether it lives, for the processes checked in this look."""

    @property
    def answered(self) -> bool:
        """Whether jobs that are not in `alive` are gone."""
        if self.snapshot is None:
            return not self.elsewhere
        return self.snapshot.fault is None

    @property
    def word(self) -> SlurmWord | None:
        """Time and fault of Slurm's answer, for people."""
        if self.snapshot is None:
            return None
        return SlurmWord(time=self.snapshot.time or None, fault=self.snapshot.fault)

    @property
    def counts(self) -> dict[str, int]:
        """Slurm's name of a state → number of jobs or array tasks."""
        counted: Counter[str] = Counter()
        for job in self.alive:
            counted[job.state] += job.tasks
        return dict(sorted(counted.items()))

    def with_started(self, workers: Iterable[WorkerRun]) -> Jobs:
        """The same jobs; those whose workers started after Slurm's answer run, and do not wait any more."""
        if self.snapshot is None:
            return self
        started = {one.job for one in workers if one.started > self.snapshot.time}
        alive = tuple(now for job in self.alive for now in _now(job, started))
        return replace(self, alive=alive)

    def find(self, job_id: str) -> slurm.Job | None:
        """The experiment's living job of this id; for an array task that waits with others, their array."""
        job = self.snapshot.find(job_id) if self.snapshot is not None else None
        # Slurm reuses job ids after some millions: an old id may now be another user's job.
        return job if job is not None and job.alive and job.name.startswith(self.ours) else None


def _now(job: slurm.Job, started: Collection[str]) -> Iterator[slurm.Job]:
    """A job as it is after some jobs and array tasks started; a pending array may become several."""
    if job.state != "PENDING":
        yield job
    elif not job.task_ids:
        yield replace(job, state="RUNNING", reason="") if job.id in started else job
    else:
        left = {f"{job.array_job}_{number}": number for number in slurm.task_numbers(job.task_ids)}
        for name in sorted(left.keys() & started):
            yield replace(job, id=name, state="RUNNING", reason="", task_ids="")
            del left[name]
        if left:
            throttle = f"%{job.throttle}" if job.throttle else ""
            yield replace(job, task_ids=",".join(map(str, left.values())) + throttle)


def look(experiment: Experiment, rounds: Sequence[Round], snapshot: slurm.Snapshot | None) -> Jobs:
    """The living jobs of an experiment.

    Args:
        experiment: the experiment.
        rounds: its rounds.
        snapshot: Slurm's answer, if the caller has it already.
    """
    if experiment.planned.executor != "slurm":
        living, elsewhere = supervisors(experiment, rounds)
        alive = tuple(slurm.Job(job, "supervisor", "RUNNING") for job in living)
        return Jobs(alive, elsewhere=elsewhere)
    if snapshot is None:
        snapshot = slurm.snapshot(newer_than=last_change(experiment))
    ids = {job for one in rounds for job in one.jobs.values()}
    ours = names_of(experiment)
    alive = tuple(
        job
        for array in sorted(ids)
        for job in snapshot.of_array(array)
        if job.alive and job.name.startswith(ours)
    )
    return Jobs(alive, snapshot, ours)


def last_change(experiment: Experiment) -> float:
    """Time of the last submission: older answers of Slurm do not include it."""
    try:
        return experiment.submission_file.stat().st_mtime
    except OSError:
        return 0.0


def life(experiment: Experiment, state: ShardState, jobs: Jobs, last: int = 0) -> Life:
    """Whether the owner of a claimed shard lives; `last`: number of the last started run of its job."""
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
    """Whether a local executor's worker lives; on another host: its supervisor. None: neither can be seen."""
    if host == jobs.elsewhere or host != socket.gethostname():
        return None if jobs.elsewhere else bool(jobs.alive)
    if pid not in jobs.processes:
        jobs.processes[pid] = process_lives(pid, experiment)
    return jobs.processes[pid]


def waits(experiment: Experiment, rounds: Sequence[Round], jobs: Jobs) -> tuple[Wait, ...]:
    """Reasons of the waiting jobs, in plain words."""
    if jobs.snapshot is None:
        return ()
    steps = {job: name for one in rounds for name, job in one.jobs.items()}
    waiting: dict[tuple[str, str], list[slurm.Job]] = {}
    for job in jobs.alive:
        if job.state == "PENDING" and job.reason not in ORDERLY:
            waiting.setdefault((job.array_job, job.reason), []).append(job)
    if not waiting:  # reading the whole plan takes 0.2 s
        return ()
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
