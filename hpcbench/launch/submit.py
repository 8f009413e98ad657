"""Submitting an experiment's jobs once: intent before, job id after, and a tag on every job.

A *round* is one pass of jobs: an array a group, then evaluation, then finalise, each dependent on what
stands before. `submission.jsonl` tells the story: `round` (what it holds), `intent` (about to submit a
step), `submitted` (its job id). Killed anywhere and run again, `submit_round` asks Slurm for the tag of an
intent without answer and goes on; nothing is submitted twice.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench import slurm
from hpcbench.errors import EnvironmentFault, RunFailed
from hpcbench.experiment.claims import Owner, ShardState, release, shard_states
from hpcbench.experiment.files import Appender, create_exclusive, read_lines
from hpcbench.experiment.layout import Experiment
from hpcbench.launch.element import Element
from hpcbench.schema.documents import Resources, seconds
from hpcbench.schema.plan import Group, ResolvedPlan

EVALUATE, FINALISE, SUPERVISE = "evaluate", "finalise", "supervise"
"""Steps after the arrays; `supervise` stands for all of a round under the local executor."""

SMALL = Resources(cpus=1, memory_gb=4, time_limit="01:00:00")
"""What evaluation and finalise ask for."""

LOCK_SECONDS = 600
"""A submission lock older than this was left behind by a kill on another host."""


@dataclass(frozen=True, slots=True)
class Round:
    """One pass of jobs as the submission log tells it."""

    number: int
    """0 for the first."""
    workers: dict[str, int]
    """Group → workers of its array."""
    jobs: dict[str, str]
    """Step → job id, for steps that were submitted."""
    intents: tuple[str, ...]
    """Steps that were about to be submitted."""
    steps: tuple[str, ...]
    """All steps, in order."""
    started: float
    """When it was begun, seconds since the epoch."""

    @property
    def complete(self) -> bool:
        """Whether every step was submitted."""
        return all(step in self.jobs for step in self.steps)


def rounds(experiment: Experiment) -> list[Round]:
    """All rounds of an experiment, oldest first."""
    found: list[Round] = []
    jobs: dict[str, str] = {}
    intents: list[str] = []
    for event in read_lines(experiment.submission_file):
        if event["event"] == "round":
            jobs, intents = {}, []
            found.append(
                Round(
                    event["round"], event["workers"], jobs, (), tuple(event["steps"]), event["time"]
                )
            )
        elif event["event"] == "intent":
            intents.append(event["step"])
        elif event["event"] == "submitted":
            jobs[event["step"]] = event["job"]
        else:
            continue
        last = found[-1]
        found[-1] = Round(last.number, last.workers, jobs, tuple(intents), last.steps, last.started)
    return found


def cancelled(experiment: Experiment) -> bool:
    """Whether the user cancelled it and did not resume since."""
    last = "round"
    for event in read_lines(experiment.submission_file):
        if event["event"] in ("round", "cancelled"):
            last = event["event"]
    return last == "cancelled"


def submit_round(experiment: Experiment) -> Round:
    """Finish the round that was interrupted, or submit a new one for all that is left.

    Raises:
        RunFailed: somebody else is submitting this experiment right now.
        EnvironmentFault: Slurm refuses.
    """
    with _locked(experiment), Appender(experiment.submission_file) as log:
        known = rounds(experiment)
        if not known or known[-1].complete:
            _begin_round(experiment, log, len(known))
        current = rounds(experiment)[-1]
        if experiment.resolved.executor == "slurm":
            _Slurm(experiment, log).submit(current)
        else:
            _supervise(experiment, log, current)
    return rounds(experiment)[-1]


def job_name(experiment: Experiment, step: str, number: int) -> str:
    """Name and comment of a job: which experiment, step and round it is."""
    return f"hpcbench:{experiment.id}:{step}.{number}"


def release_dead(experiment: Experiment) -> list[ShardState]:
    """Take shards from owners that are gone; returns those it took."""
    names = [run_task.name for run_task in experiment.resolved.run_tasks]
    claimed = [state for state in shard_states(experiment, names) if state.state == "claimed"]
    if not claimed:
        return []
    living = _living(experiment)
    return [
        state
        for state in claimed
        if not living(state) and release(experiment, state, "its worker is gone")
    ]


def remaining(experiment: Experiment) -> list[ShardState]:
    """Shards that a worker could take now or whose owner still works on them."""
    names = [run_task.name for run_task in experiment.resolved.run_tasks]
    return [
        state
        for state in shard_states(experiment, names)
        if state.claimable or state.state == "claimed"
    ]


def cancel(experiment: Experiment) -> int:
    """End all jobs of an experiment; returns how many were told."""
    with Appender(experiment.submission_file) as log:
        log.write({"event": "cancelled", "time": time.time()})
    jobs = [job for one in rounds(experiment) for job in one.jobs.values()]
    if experiment.resolved.executor == "slurm":
        living = {job.array_job for job in slurm.queue() if job.alive}
        doomed = [job for job in jobs if job in living]
        slurm.cancel(doomed)
        return len(doomed)
    return sum(_end_supervisor(job) for job in jobs)


def sbatch_text(experiment_dir: Path, resolved: ResolvedPlan, group: Group) -> str:
    """The batch script of a group's array, as `submit` would hand it to sbatch."""
    from submitit.slurm import slurm as submitit_slurm

    parameters = _parameters(resolved, group.resources, group.gpus, f"hpcbench:ID:{group.id}.0")
    parameters |= {"array_parallelism": group.throttle, "map_count": group.workers}
    command = f"{_python()} -u -m submitit.core._submit {shlex.quote(str(experiment_dir / 'jobs'))}"
    text: str = submitit_slurm._make_sbatch_string(
        command=command, folder=experiment_dir / "jobs", **parameters
    )
    return text


def _begin_round(experiment: Experiment, log: Appender, number: int) -> None:
    left = [state.shard.run_task for state in remaining(experiment)]
    workers = {}
    for group in experiment.work.groups:
        count = sum(name in group.run_tasks for name in left)
        if count:
            workers[group.id] = min(count, group.workers)
    slurm_steps = [*workers, EVALUATE, FINALISE]
    steps = slurm_steps if experiment.resolved.executor == "slurm" else [SUPERVISE]
    log.write(
        {"event": "round", "round": number, "workers": workers, "steps": steps, "time": time.time()}
    )
    log.sync()


class _Slurm:
    """Submits the steps of a round through submitit."""

    def __init__(self, experiment: Experiment, log: Appender) -> None:
        self.experiment, self.log = experiment, log

    def submit(self, current: Round) -> None:
        jobs = dict(current.jobs)
        jobs |= self._found_again(current)
        groups = {group.id: group for group in self.experiment.work.groups}
        for step in current.steps:
            if step in jobs:
                continue
            if step in groups:
                after: list[str] = []
            elif step == EVALUATE:
                after = [jobs[group] for group in current.workers]
            else:
                after = [jobs[EVALUATE]]
            self._write("intent", step)
            jobs[step] = self._sbatch(step, groups.get(step), current, after)
            self._write("submitted", step, job=jobs[step])

    def _found_again(self, current: Round) -> dict[str, str]:
        """Jobs of intents whose job id was lost by a kill between sbatch and its record."""
        lost = {
            job_name(self.experiment, step, current.number): step
            for step in current.intents
            if step not in current.jobs
        }
        if not lost:
            return {}
        found = {}
        for job in [*slurm.accounting(lost), *slurm.queue()]:
            if job.name in lost:
                found[lost[job.name]] = job.array_job
        for step, job_id in found.items():
            self._hand_over(step, job_id, current)
            self._write("submitted", step, job=job_id)
        return found

    def _hand_over(self, step: str, job_id: str, current: Round) -> None:
        """Give a job found again its pickles: submitit names them only after sbatch has answered."""
        from submitit.core.utils import DelayedSubmission, JobPaths

        elements = self._elements(step, current)
        for index, element in enumerate(elements):
            own = f"{job_id}_{index}" if len(elements) > 1 else job_id
            pickle = JobPaths(self.experiment.jobs_dir, own).submitted_pickle
            if not pickle.exists():
                submission = DelayedSubmission(element)
                submission.set_timeout(1, 0)
                temporary = pickle.with_suffix(".new")
                submission.dump(temporary)
                temporary.replace(pickle)

    def _elements(self, step: str, current: Round) -> list[Element]:
        """What the array tasks of a step call."""
        path = str(self.experiment.path)
        if step in current.workers:
            return [Element("hpcbench.worker", path, step)] * current.workers[step]
        return [Element("hpcbench.evaluation" if step == EVALUATE else "hpcbench.finalise", path)]

    def _sbatch(self, step: str, group: Group | None, current: Round, after: list[str]) -> str:
        import submitit

        resolved = self.experiment.resolved
        name = job_name(self.experiment, step, current.number)
        resources = group.resources if group else SMALL
        parameters = _parameters(resolved, resources, group.gpus if group else 0, name, after)
        with _clean_environment():
            executor = submitit.AutoExecutor(
                self.experiment.jobs_dir, cluster="slurm", slurm_python=_python()
            )
            executor.update_parameters(**_prefixed(parameters))
            try:
                if group is not None:
                    executor.update_parameters(slurm_array_parallelism=group.throttle)
                with executor.batch():
                    jobs = [executor.submit(one) for one in self._elements(step, current)]
                return str(jobs[0].job_id).partition("_")[0]
            except submitit.core.utils.FailedJobError as error:
                raise EnvironmentFault(
                    f"sbatch refused {step}: {_last_line(error)}",
                    remedy="see partition, account and limits in the site profile, then "
                    f"`hpcbench resume {self.experiment.id}`",
                ) from error

    def _write(self, event: str, step: str, **details: Any) -> None:
        self.log.write({"event": event, "step": step, "time": time.time(), **details})
        self.log.sync()


def _supervise(experiment: Experiment, log: Appender, current: Round) -> None:
    """Start the local executor's supervisor, which outlives this process."""
    log.write({"event": "intent", "step": SUPERVISE, "time": time.time()})
    log.sync()
    output = experiment.jobs_dir / f"supervisor.{current.number}.log"
    with _clean_environment(), output.open("ab") as file:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "hpcbench.launch.local",
                str(experiment.path),
                str(current.number),
            ],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    job = f"{socket.gethostname()}:{process.pid}"
    log.write({"event": "submitted", "step": SUPERVISE, "job": job, "time": time.time()})
    log.sync()


def _parameters(
    resolved: ResolvedPlan,
    resources: Resources,
    gpus: int,
    name: str,
    after: list[str] | None = None,
) -> dict[str, Any]:
    """sbatch options in submitit's words."""
    site = resolved.site.slurm
    worker = after is None or not after
    partition = resources.partition or site.partition
    if not worker:
        partition = site.cpu_partition or site.partition
    extra: dict[str, Any] = {
        # The batch script `exec`s Python, so the signal has to go to the batch shell itself.
        "signal": f"B:USR2@{site.drain_seconds}",
        "requeue": True,
        **site.options,
    }
    gres = f"gpu:{resources.gpu_type}" if resources.gpu_type else site.gpu_gres
    chosen: dict[str, Any] = {
        "job_name": name,
        "comment": name,
        "partition": partition,
        "account": site.account,
        "qos": site.qos,
        "time": max(1, seconds(resources.time_limit) // 60),
        "nodes": 1,
        "ntasks_per_node": 1,
        "cpus_per_task": resources.cpus,
        "mem": f"{int(resources.memory_gb * 1024)}M",
        "gres": f"{gres}:{gpus}" if gpus else None,
        "dependency": f"afterany:{':'.join(after)}" if after else None,
        "setup": list(resolved.site.setup) or None,
        "stderr_to_stdout": True,
        "use_srun": False,
        "additional_parameters": extra,
    }
    return {key: value for key, value in chosen.items() if value is not None}


def _prefixed(parameters: dict[str, Any]) -> dict[str, Any]:
    return {f"slurm_{key}": value for key, value in parameters.items()}


def _python() -> str:
    """`exec PYTHON`: no shell stands between Slurm's signals and the worker."""
    return f"exec {shlex.quote(sys.executable)}"


def _living(experiment: Experiment) -> Any:
    """A test whether the owner of a shard may still work on it, from one look at Slurm or /proc."""
    if experiment.resolved.executor == "slurm":
        jobs = {job.id: job for job in slurm.queue() if job.alive}

        def in_slurm(state: ShardState) -> bool:
            return state.owner is not None and state.owner["job"] in jobs

        return in_slurm

    def on_this_host(state: ShardState) -> bool:
        if state.owner is None:
            return False
        owner = Owner(**state.owner)
        if owner.host != socket.gethostname():
            return True
        return process_lives(owner.pid, str(experiment.path))

    return on_this_host


def process_lives(pid: int, mentions: str) -> bool:
    """Whether a process of this host runs and is the one meant, not a later one of the same number."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return mentions in command and state not in "ZX"


def _end_supervisor(job: str) -> bool:
    host, _, pid = job.partition(":")
    if host != socket.gethostname() or not process_lives(int(pid), "hpcbench.launch.local"):
        return False
    os.kill(int(pid), signal.SIGTERM)
    return True


@contextlib.contextmanager
def _locked(experiment: Experiment) -> Iterator[None]:
    """Only one process submits an experiment at a time."""
    path = experiment.path / "submission.lock"
    line = {"host": socket.gethostname(), "pid": os.getpid(), "time": time.time()}
    for _ in range(2):
        if create_exclusive(path, line):
            break
        if not _stale(path):
            raise RunFailed(f"{experiment.id}: another hpcbench is submitting it right now")
        path.unlink(missing_ok=True)
    else:
        raise RunFailed(f"{experiment.id}: another hpcbench is submitting it right now")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _stale(path: Path) -> bool:
    holder = next(read_lines(path), None)
    if holder is None:
        return True
    if holder["host"] == socket.gethostname():
        return not Path(f"/proc/{holder['pid']}").exists()
    return bool(time.time() - holder["time"] > LOCK_SECONDS)


def submitting(experiment: Experiment) -> bool:
    """Whether a process holds the submission lock and lives."""
    path = experiment.path / "submission.lock"
    return path.exists() and not _stale(path)


@contextlib.contextmanager
def _clean_environment() -> Iterator[None]:
    """sbatch reads SLURM_* and SBATCH_* as options: what an outer job left there is not ours."""
    inherited = {
        name: os.environ.pop(name)
        for name in list(os.environ)
        if name.startswith(("SLURM_", "SBATCH_", "SUBMITIT_")) and name != "SLURM_CONF"
    }
    try:
        yield
    finally:
        os.environ.update(inherited)


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if "error" in line.lower()]
    return lines[-1] if lines else str(error).strip().splitlines()[-1]
