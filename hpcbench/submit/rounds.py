"""Submitting an experiment's jobs exactly once: intent before, job id after, and a name on every job.

`experiment/submission.py` defines a round and its records. After a kill at any point, `submit_round` asks
Slurm for the name of an intent without a job id and continues; no job is submitted twice. Workers that a
limit of Slurm refuses wait: workers pull shards, so a few of them do all the work.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from hpcbench import slurm
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.access import owner_writes
from hpcbench.experiment.control import control_request
from hpcbench.experiment.event_log import EventLog, Kind
from hpcbench.experiment.last_word import finalisers_ballast, keep_room
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.process_identity import identity
from hpcbench.experiment.seal import check_seal, seal_if_new
from hpcbench.experiment.submission import (
    FINALISE,
    SUPERVISE,
    Round,
    Step,
    job_name,
    rounds,
    updated,
)
from hpcbench.experiment.submission_lock import alone
from hpcbench.files.atomic import replacing
from hpcbench.resume import last_job
from hpcbench.schema.plan import Group
from hpcbench.schema.work import JobResources
from hpcbench.status.liveness import living
from hpcbench.submit import Say, secrets_file
from hpcbench.submit.array_task import ArrayTask
from hpcbench.submit.fingerprint import interpreter
from hpcbench.submit.reuse import open_groups, take_over_answers
from hpcbench.submit.sbatch import (
    clean_environment,
    parameters,
    plain_env,
    prefixed,
    python,
)
from hpcbench.subprocesses import last_line

MAX_ARRAY_SIZE = 1001
"""Slurm's default, for site profiles without a value."""

TRIES = 6
"""Maximum number of tries of sbatch while slurmctld is unreachable; with growing pauses, about a minute."""


def submit_first(experiment: Experiment, say: Say = lambda line: None) -> None:
    """Submit an experiment as planned, or finish a submission that a kill interrupted.

    Answers of earlier experiments are taken over first, as the manifest says; jobs ask what is left.

    Raises:
        RunFailed: another process is submitting this experiment right now.
        EnvironmentFault: Slurm refuses.
    """
    with alone(experiment):
        if rounds(experiment):
            hand_over(experiment)
        else:
            seal_if_new(experiment)  # a kill may have come between the manifest and the seal
            begin_first_round(experiment, say)


def begin_first_round(experiment: Experiment, say: Say = lambda line: None) -> None:
    """Take over answers of earlier experiments, and submit the rest; call it under `alone`.

    A round without groups has only the finalising job: every sample has an answer.

    Raises:
        EnvironmentFault: Slurm refuses.
    """
    taken = take_over_answers(experiment, say).count
    groups = open_groups(experiment) if taken else experiment.work.groups
    begin_round(experiment, groups, answered=taken)


def begin_round(
    experiment: Experiment,
    groups: Sequence[Group],
    excluded: Sequence[str] = (),
    answered: int = 0,
) -> None:
    """Submit a new round; call it under `alone`.

    Args:
        experiment: the experiment.
        groups: groups of the round.
        excluded: nodes that its jobs exclude.
        answered: number of answers so far.

    Raises:
        EnvironmentFault: Slurm refuses.
    """
    keep_room(finalisers_ballast(experiment))
    with EventLog(experiment.submission_file) as log:
        log.write(
            "round",
            sync=True,
            round=len(rounds(experiment)),
            groups=[asdict(group) for group in groups],
            excluded=list(excluded),
            answered=answered,
        )
    hand_over(experiment)


def hand_over(experiment: Experiment, alive: Sequence[slurm.Job] = ()) -> None:
    """Submit the missing jobs of the newest round; call it under `alone`.

    Args:
        experiment: the experiment.
        alive: living jobs of a round that was handed over before: workers refused by a limit are retried.

    Raises:
        EnvironmentFault: Slurm refuses.
    """
    check_seal(experiment)
    secrets_file.keep(experiment)
    with EventLog(experiment.submission_file) as log:
        if experiment.resolved.executor == "slurm":
            _Slurm(experiment, log).submit([job.array_job for job in alive])
        else:
            _supervise(experiment, log)


def submit_last_job(experiment: Experiment, resources: JobResources, died: str) -> None:
    """Submit the newest round's finalising job once more; call it under `alone`.

    Args:
        experiment: the experiment.
        resources: of the new job.
        died: how the last one died, for the status.

    Raises:
        EnvironmentFault: Slurm refuses.
    """
    check_seal(experiment)
    secrets_file.keep(experiment)
    with EventLog(experiment.submission_file) as log:
        _Slurm(experiment, log).again(resources, died)


def cancel(experiment: Experiment, run_tasks: Sequence[str] = ()) -> int:
    """End an experiment, or some of its run tasks; returns the number of cancelled jobs.

    Raises:
        EnvironmentFault: Slurm does not answer; the request is written, and workers see it.
    """
    control_request(experiment, "cancel", run_tasks)
    if run_tasks:
        return 0
    cancelled = end_jobs(experiment)
    secrets_file.forget(experiment)
    return cancelled


def end_jobs(experiment: Experiment) -> int:
    """End all living jobs of an experiment; returns their number."""
    alive = living(experiment)
    if experiment.resolved.executor == "slurm":
        array_jobs = sorted({job.array_job for job in alive})
        slurm.cancel(array_jobs)
        return len(array_jobs)
    return sum(_end_supervisor(job.id) for job in alive)


class _Slurm:
    """Submits the missing jobs of the newest round."""

    def __init__(self, experiment: Experiment, log: EventLog) -> None:
        self.experiment, self.log = experiment, log
        self.resolved = experiment.resolved
        self.largest = self.resolved.site.slurm.max_array_size or MAX_ARRAY_SIZE
        self.now = rounds(experiment)[-1]

    def submit(self, alive: Sequence[str]) -> None:
        """Find lost jobs, then submit arrays, then the finalising job that waits for them.

        Args:
            alive: living array jobs of the round, if it was handed over before.
        """
        interrupted = not self.now.handed and bool(self.now.steps)
        self._find_lost()
        before = set(self.now.jobs)
        if interrupted:  # the killed process had submitted some of the arrays
            own = set(self.now.jobs.values())
            alive = [job.array_job for job in living(self.experiment) if job.array_job in own]
        for group in self.now.groups:
            self._arrays(group, alive)
        new = [job for name, job in self.now.jobs.items() if name not in before]
        self._finaliser([*alive, *new], fresh=bool(new), interrupted=interrupted)
        self._write("handed")

    def _arrays(self, group: Group, alive: Sequence[str]) -> None:
        """Submit workers of a group, fewer if Slurm refuses more."""
        wanted, living = self.largest, set(alive)
        while (step := self.now.next_array(group, wanted, living)) is not None:
            now = self.now
            after = [step.job for name in group.after for step in now.arrays(name) if step.job]
            if len(after) < len([name for name in group.after if _is_in(now, name)]):
                return  # an array that it waits for is not submitted itself
            numbers = {name: getattr(step, name) for name in ("first", "workers", "throttle")}
            self._write("intent", step.name, group=group.id, **numbers)
            try:
                job = self._sbatch(step, group, after)
            except _LimitReached as limit:
                self._write("refused", step.name, message=str(limit))
                wanted = step.workers // 2
            else:
                self._write("submitted", step.name, job=job)
                living.add(job)

    def _finaliser(self, arrays: Sequence[str], fresh: bool, interrupted: bool) -> None:
        """Submit one finalising job after all living arrays; after a kill, all arrays may have ended."""
        now = self.now
        own = [job for job in now.finalisers if any(one.id == job for one in self._alive())]
        after = [job for job in dict.fromkeys(arrays) if job not in now.finalisers]
        if own and after and (fresh or interrupted):
            slurm.depend_on(own[-1], after)
        submitted = interrupted and any(step.job for step in now.steps.values() if step.group)
        if own or not (after or submitted or not now.groups):
            return
        self._last_job(last_job.resources(self.resolved), after)

    def again(self, resources: JobResources, died: str) -> None:
        """Submit the finalising job once more, after all arrays and earlier finalising jobs have ended."""
        self._find_lost()
        if not self._alive():
            self._last_job(resources, (), died)
        self._write("handed")

    def _last_job(self, resources: JobResources, after: Sequence[str], died: str = "") -> None:
        count = len(self.now.finalisers)
        name = f"{FINALISE}+{count}" if count else FINALISE
        step = Step(name, resources=resources, died=died)
        for _ in range(2):
            said = {"died": died} if died else {}
            self._write("intent", step.name, resources=resources.stated(), **said)
            try:
                self._write("submitted", step.name, job=self._sbatch(step, None, after))
            except _LimitReached as limit:
                self._write("refused", step.name, message=str(limit))
                if not self._make_room():
                    return
            else:
                return

    def _alive(self) -> list[slurm.Job]:
        return living(self.experiment) if self.now.finalisers else []

    def _make_room(self) -> bool:
        """Give up one of several workers for the finalising job; the other workers do its work."""
        arrays = [step for step in self.now.steps.values() if step.group and step.workers > 1]
        if not arrays:
            return False
        step = max(arrays, key=lambda one: one.workers)
        slurm.cancel([f"{step.job}_{step.workers - 1}"])
        self._write("shrunk", step.name, workers=step.workers - 1)
        return True

    def _find_lost(self) -> None:
        """Find jobs whose ids were lost in a kill between sbatch and its record."""
        now = self.now
        lost = {job_name(self.experiment, step.name, now.number): step for step in now.intents}
        if not lost:
            return
        found: dict[str, str] = {}
        for job in [*slurm.accounting(lost), *slurm.queue()]:
            if job.name in lost:
                found[job.name] = job.array_job
        for name, step in lost.items():
            if name in found:
                self._give_pickles(step, found[name])
                self._write("submitted", step.name, job=found[name])
            else:
                self._write("dropped", step.name)

    def _give_pickles(self, step: Step, job_id: str) -> None:
        """Write the pickles of a job that was found again: submitit names them only after sbatch's answer."""
        from submitit.core.utils import DelayedSubmission, JobPaths

        elements = self._elements(step)
        for index, element in enumerate(elements):
            own = f"{job_id}_{index}" if len(elements) > 1 else job_id
            pickle = JobPaths(self.experiment.jobs_dir, own).submitted_pickle
            if not pickle.exists():
                submission = DelayedSubmission(element)
                submission.set_timeout(1, 0)
                with owner_writes(), replacing(pickle) as temporary:
                    submission.dump(temporary)

    def _elements(self, step: Step) -> list[ArrayTask]:
        """The callables of a step's array tasks."""
        path, now = str(self.experiment.path), self.now
        if not step.group:
            return [ArrayTask("hpcbench.finalise", path)]
        of = now.group(step.group).workers
        return [
            ArrayTask(
                "hpcbench.worker", path, step.group, str(now.number), f"{step.first + place}/{of}"
            )
            for place in range(step.workers)
        ]

    def _sbatch(self, step: Step, group: Group | None, after: Sequence[str]) -> str:
        """Submit a step; returns its job id.

        Raises:
            _LimitReached: Slurm accepts no more jobs of this user now.
            EnvironmentFault: Slurm refuses the job for good.
        """
        for attempt in range(TRIES):
            try:
                return self._submitit(step, group, after)
            except _Unreachable as error:
                if attempt == TRIES - 1:
                    raise EnvironmentFault(
                        f"slurmctld cannot be reached: {error}",
                        remedy=f"run `hpcbench resume {self.experiment.id}` later",
                    ) from None
                time.sleep(2**attempt)
                # slurmctld may have accepted the job and died before its answer.
                name = job_name(self.experiment, step.name, self.now.number)
                with contextlib.suppress(EnvironmentFault):
                    for job in slurm.queue():
                        if job.name == name:
                            self._give_pickles(step, job.array_job)
                            return job.array_job
        raise AssertionError

    def _submitit(self, step: Step, group: Group | None, after: Sequence[str]) -> str:
        import submitit

        now = self.now
        name = job_name(self.experiment, step.name, now.number)
        resources = (
            group.resources if group else step.resources or last_job.resources(self.resolved)
        )
        gpus = group.gpus if group else 0
        alike = now if now.groups else replace(now, groups=self.experiment.work.groups)
        if group is None and alike.rides(self.resolved.site.slurm.cpu_partition):
            gpus = 1  # a site with only GPU nodes may refuse jobs without a GPU
        options = parameters(self.resolved, resources, gpus, name, list(after), group=group)
        if now.excluded:
            options["exclude"] = ",".join(now.excluded)
        jobs_python = interpreter(self.experiment)
        if len(jobs_python) == 1:  # Python 3.10 imports from the current folder first
            options["additional_parameters"].setdefault("chdir", str(self.experiment.path))
        with clean_environment():
            executor = submitit.AutoExecutor(
                self.experiment.jobs_dir,
                cluster="slurm",
                slurm_python=python(jobs_python),
            )
            executor.update_parameters(**prefixed(options))
            try:
                if group is not None:
                    at_once = step.throttle or group.throttle
                    executor.update_parameters(slurm_array_parallelism=at_once)
                with owner_writes(), executor.batch():
                    jobs = [executor.submit(one) for one in self._elements(step)]
                return str(jobs[0].job_id).partition("_")[0]
            except submitit.core.utils.FailedJobError as error:
                self._remove_orphans()
                raise self._refusal(step, str(error)) from error

    def _refusal(self, step: Step, text: str) -> Exception:
        what, said = slurm.classify_refusal(text), _error_line(text)
        if what == "limit":
            return _LimitReached(said)
        if what == "gone":
            return _Unreachable(said)
        return EnvironmentFault(
            f"sbatch refused {step.name}: {said}",
            remedy="check partition, account and limits in the site profile, then run "
            f"`hpcbench resume {self.experiment.id}`",
        )

    def _remove_orphans(self) -> None:
        """Remove pickles that submitit leaves after a refusal; pickles of jobs have the job's id."""
        for path in self.experiment.jobs_dir.glob("*.pkl"):
            if len(path.stem) == 32:  # a UUID, not a job's id
                path.unlink(missing_ok=True)

    def _write(self, kind: Kind, step: str = "", **details: Any) -> None:
        self.now = updated(self.now, self.log.write(kind, sync=True, step=step, **details))


class _LimitReached(Exception):
    """Slurm accepts no more jobs of this user now."""


class _Unreachable(Exception):
    """slurmctld does not answer."""


def _is_in(now: Round, name: str) -> bool:
    return any(group.id == name for group in now.groups)


def _supervise(experiment: Experiment, log: EventLog) -> None:
    """Start the local executor's supervisor, which outlives this process."""
    current = rounds(experiment)[-1]
    if current.handed:
        return
    log.write("intent", sync=True, step=SUPERVISE)
    output = experiment.jobs_dir / f"supervisor.{current.number}.log"
    command = [*interpreter(experiment), "-m", "hpcbench.submit.local"]
    with clean_environment(), output.open("ab") as file:
        process = subprocess.Popen(
            [*command, str(experiment.path), str(current.number)],
            # The variable is for processes that submitit starts, which get no options of Python.
            env={**os.environ, "PYTHONSAFEPATH": "1", **plain_env(experiment.resolved.site)},
            cwd=experiment.path if "-P" not in command else None,  # as for Slurm
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    job = f"{socket.gethostname()}:{process.pid}"
    log.write("submitted", step=SUPERVISE, job=job, process=identity(process.pid))
    log.write("handed", sync=True, step="")


def _end_supervisor(job: str) -> bool:
    try:
        os.kill(int(job.rpartition(":")[2]), signal.SIGTERM)
    except ProcessLookupError:
        return False
    return True


def _error_line(text: str) -> str:
    errors = [line for line in text.splitlines() if "error" in line.lower()]
    return last_line("\n".join(errors) or text)
