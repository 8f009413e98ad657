"""Living workers of an experiment, shards left by dead workers, and remaining work."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Collection, Sequence

from hpcbench import slurm
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.claims import (
    ENDED,
    Owner,
    ShardState,
    damaged,
    release,
    shard_states,
    unsuccessful,
)
from hpcbench.experiment.control import control_state
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.process_identity import lives, started
from hpcbench.experiment.submission import Round, Step, job_name, names_of, rounds
from hpcbench.experiment.view.workers import worker_runs
from hpcbench.process_table import command

GONE = "its worker is gone"


def living(experiment: Experiment) -> list[slurm.Job]:
    """Jobs of the experiment that run, wait, or may run again; array tasks that wait together count as one.

    Queries Slurm directly, not the shared snapshot: callers' actions cannot be undone.

    Raises:
        EnvironmentFault: Slurm does not answer, or the jobs belong to another user.
    """
    if experiment.planned.executor != "slurm":
        found, _ = supervisors(experiment, rounds(experiment))
        return [slurm.Job(job, "supervisor", "RUNNING") for job in found]
    owner = experiment.submission_file.stat().st_uid
    if owner != os.geteuid():
        # Slurm may hide that user's jobs (PrivateData), and work taken from live workers is done twice.
        raise EnvironmentFault(
            f"{_user(owner)} submitted {experiment.id}, and only {_user(owner)} sees which of its jobs run",
            remedy=f"ask {_user(owner)} to resume it, or submit the plan yourself",
        )
    ids, ours = (
        {job for one in rounds(experiment) for job in one.jobs.values()},
        names_of(experiment),
    )
    return [
        job
        for job in slurm.queue()
        # A slurmctld that lost its state reuses job numbers.
        if job.array_job in ids and job.alive and job.name.startswith(ours)
    ]


def working(experiment: Experiment, jobs: Collection[slurm.Job]) -> list[slurm.Job]:
    """The given jobs without those whose worker has written its last event in this run of the job."""
    last = dict[str, tuple[int, bool]]()
    """Job → number of its last run, and whether that run still works."""
    for run in worker_runs(experiment):
        if run.owner:
            last[run.job] = max((run.restart, not run.over), last.get(run.job, (-1, True)))
    return [job for job in jobs if _works(job, *last.get(job.id, (-1, True)))]


def release_dead(
    experiment: Experiment, jobs: Collection[slurm.Job], elsewhere_gone: bool = False
) -> list[ShardState]:
    """Take shards from owners that are gone; returns the taken shards.

    Args:
        experiment: the experiment.
        jobs: its living jobs.
        elsewhere_gone: local executor: the user states that workers of other hosts are gone.
    """
    alive = {job.id for job in jobs}
    local = experiment.planned.executor != "slurm"
    dead = [
        state
        for state in shard_states(experiment, _names(experiment))
        if state.state == "claimed"
        and not (
            _lives_here(state, experiment, elsewhere_gone) if local else _in_slurm(state, alive)
        )
    ]
    why = {} if local else _ends_of_jobs(experiment, dead)
    return [
        state
        for state in dead
        if release(experiment, state, why.get((state.owner or {}).get("job", ""), GONE))
    ]


def forgive(experiment: Experiment) -> None:
    """Make shards with too many failed attempts claimable again."""
    for state in shard_states(experiment, _names(experiment)):
        if state.state in ENDED and not state.claimable:
            release(experiment, state, "resume tries it again", forgive=True)


def ask_again(experiment: Experiment) -> None:
    """Release shards so that samples with failed or invalid requests are asked again. Reads every answer."""
    now = control_state(experiment)
    names = [name for name in _names(experiment) if not now.rests(name)]
    for state, samples, kept in unsuccessful(experiment, names):
        why = f"resume sends {len(samples)} failed requests again"
        release(experiment, state, why, reopen=True, withdrawn=samples, answered=kept)


def reopen_damaged(experiment: Experiment) -> None:
    """Release shards with answers that have become unreadable: these are asked again. Reads every answer."""
    for state in damaged(experiment, _names(experiment)):
        release(experiment, state, "some of its answers can no longer be read", reopen=True)


def remaining(experiment: Experiment) -> list[ShardState]:
    """Shards that are claimable or claimed, without those of ended run tasks."""
    now = control_state(experiment)
    return [
        state
        for state in shard_states(experiment, _names(experiment))
        if (state.claimable or state.state == "claimed") and not now.ended(state.shard.run_task)
    ]


def process_lives(pid: int, experiment: Experiment) -> bool:
    """Whether a process of this host runs and works on the experiment; the path in its command may differ."""
    name = (experiment.manifest.id or experiment.path.resolve().name).encode()
    return any(name in word for word in command(pid)) and started(pid) is not None


def supervisors(experiment: Experiment, rounds: Sequence[Round]) -> tuple[list[str], str]:
    """Supervisors of the local executor.

    Returns:
        The running supervisors, as `HOST:PID`; and the host of the newest one if this host cannot see
        whether it runs, else the empty text.
    """
    steps = [step for one in rounds for step in one.steps.values() if step.job]
    known = [(str(step.job), _supervisor_lives(step, experiment)) for step in steps]
    unseen = known[-1][0].partition(":")[0] if known and known[-1][1] is None else ""
    return [job for job, runs in known if runs], unseen


def _supervisor_lives(step: Step, experiment: Experiment) -> bool | None:
    """Whether a supervisor runs; None: this host cannot see it."""
    if step.process is not None:
        return lives(step.process)
    host, _, pid = str(step.job).partition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return None
    return process_lives(int(pid), experiment)


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _names(experiment: Experiment) -> list[str]:
    return [run_task.name for run_task in experiment.planned.run_tasks]


def _ends_of_jobs(experiment: Experiment, states: Sequence[ShardState]) -> dict[str, str]:
    """Job → its end in Slurm, in words; jobs without a known end are left out."""
    ids = {str(state.owner["job"]) for state in states if state.owner is not None}
    names = {
        job_name(experiment, step, one.number) for one in rounds(experiment) for step in one.jobs
    }
    try:
        found = slurm.job_ends(ids, names)
    except EnvironmentFault:
        return {}
    return {job: f"{GONE}: {end.text}" for job, end in found.items() if not end.alive}


def _in_slurm(state: ShardState, alive: Collection[str]) -> bool:
    return state.owner is not None and state.owner["job"] in alive


def _lives_here(state: ShardState, experiment: Experiment, elsewhere_gone: bool) -> bool:
    if state.owner is None:
        return False
    owner = Owner(**state.owner)
    if owner.host != socket.gethostname():
        return not elsewhere_gone
    return process_lives(owner.pid, experiment)


def _works(job: slurm.Job, restart: int, works: bool) -> bool:
    """Whether a job's worker works, or has not started since Slurm last started the job."""
    return works or restart < job.restarts
