"""The ends of jobs: from accounting if the cluster has it, else from slurmctld's memory, else they are lost.

Accounting may be missing, empty or late (it reports RUNNING for jobs that are gone), and it holds earlier
jobs of the same number: so a job is identified by number *and* name, and live jobs are in squeue.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcbench.errors import EnvironmentFault
from hpcbench.slurm.commands import ask
from hpcbench.slurm.jobs import FIELD, RUN_FIELDS, Job, parse_runs, task_numbers
from hpcbench.slurm.queue import MAX_AGE, Snapshot, snapshot
from hpcbench.slurm.shared_answer import shared_answer

LOST = "LOST"
"""State of a job that neither slurmctld nor accounting knows: it certainly no longer runs."""

_WORDS = {
    "COMPLETED": "its job completed",
    "FAILED": "its job ended with exit code {code}",
    "CANCELLED": "its job was cancelled",
    "TIMEOUT": "its job reached its time limit",
    "OUT_OF_MEMORY": "its job needed more memory than it had requested",
    "NODE_FAIL": "its node failed",
    "BOOT_FAIL": "its node did not boot",
    "PREEMPTED": "its job was preempted",
    "DEADLINE": "its job reached its deadline",
    LOST: "its job disappeared, and Slurm has no record of its end",
}


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The end of a job."""

    state: str
    """Slurm's state, e.g. NODE_FAIL, or LOST."""
    runs: tuple[Job, ...] = ()
    """Its known runs, oldest first; a requeued job has several."""
    restarts: int = 0
    """Number of requeues."""
    alive: bool = False
    """Whether it still lives or may run again without a new submission."""

    @property
    def died(self) -> bool:
        """Whether it ended badly and was not cancelled."""
        return not self.alive and self.state not in ("COMPLETED", "CANCELLED", LOST)

    @property
    def exit_code(self) -> int:
        """The job script's exit code, or 128 + the signal that ended it."""
        return self.runs[-1].exit_code if self.runs else 0

    @property
    def node(self) -> str:
        """Node of the last run."""
        return next((run.node for run in reversed(self.runs) if run.node), "")

    @property
    def start(self) -> float | None:
        """Start of the last run, seconds since the epoch."""
        return self.runs[-1].start if self.runs else None

    @property
    def end(self) -> float | None:
        """End of the last run; None: unknown, or not yet ended."""
        return self.runs[-1].end if self.runs and not self.alive and self.state != LOST else None

    @property
    def elapsed(self) -> float:
        """Seconds of all runs together."""
        return sum(run.elapsed for run in self.runs)

    @property
    def gpus(self) -> int:
        """GPUs that it held."""
        return max((run.gpus for run in self.runs), default=0)

    @property
    def energy(self) -> float | None:
        """Joules, where Slurm measures them."""
        known = [run.energy for run in self.runs if run.energy is not None]
        return sum(known) if known else None

    @property
    def text(self) -> str:
        """Description in plain words."""
        words = _WORDS.get(self.state, f"Slurm reports {self.state}").format(code=self.exit_code)
        return f"{words} (on {self.node})" if self.node else words


def job_ends(
    ids: Iterable[str],
    names: Collection[str],
    *,
    since: float | None = None,
    folder: Path | None = None,
) -> Mapping[str, JobEnd]:
    """The ends of jobs and array tasks, from one sacct call and the shared snapshot.

    An array's id means the whole array: the answer also has each task by its own id, and the array has the
    end of its most informative task: a live one, else a failed one.

    Args:
        ids: `4711`, `4711_3`.
        names: names that these jobs had: another job of the same number is not the user's.
        since: submission time of the youngest job. Then a later shared snapshot suffices; without it Slurm is
            asked again before a job counts as lost.
        folder: where readers share answers; None: a private folder on a local disk.

    Raises:
        EnvironmentFault: slurmctld does not answer, and a job is not in its last answer.
    """
    wanted = list(dict.fromkeys(ids))
    if not wanted:
        return {}
    now = snapshot(newer_than=since or 0.0, folder=folder)
    found = judge(wanted, names, now, _accounted(wanted, names, MAX_AGE, folder))
    if since is None and (now.fault or any(end.state == LOST for end in found.values())):
        now = snapshot(0, folder=folder)
        found = judge(wanted, names, now, _accounted(wanted, names, 0, folder))
    # Accounting alone cannot distinguish the end of a job from the end of a run that another run follows.
    if now.fault and any(not end.alive and now.find(job) is None for job, end in found.items()):
        raise EnvironmentFault(f"cannot determine how jobs ended: {now.fault}")
    return found


def judge(
    ids: Iterable[str], names: Collection[str], now: Snapshot, runs: Sequence[Job]
) -> dict[str, JobEnd]:
    """`job_ends` from the answers of slurmctld and accounting; pure.

    slurmctld's answer counts for the jobs that it knows. Accounting's counts for ended jobs; a job that is
    alive only in accounting is lost.
    """
    ours = Snapshot(tuple(job for job in now.jobs if job.name in names))
    past: dict[str, list[Job]] = {}
    for run in sorted(runs, key=lambda run: run.start or run.submitted or 0.0):
        if run.name in names:
            tasks = [f"{run.id}_{number}" for number in task_numbers(run.task_ids)]
            for job in tasks or [run.id]:
                past.setdefault(job, []).append(run)
    found: dict[str, JobEnd] = {}
    for wanted in dict.fromkeys(ids):
        tasks = _tasks(wanted, ours, past)
        for task in tasks:
            found[task] = _job_end(ours.find(task), past.get(task, []))
        if wanted not in found:
            found[wanted] = max(
                (found[task] for task in tasks), key=_informative, default=JobEnd(LOST)
            )
    return found


def accounting(names: Iterable[str]) -> list[Job]:
    """All runs of jobs with these names; empty without accounting."""
    listed = ",".join(names)
    if not listed or shutil.which("sacct") is None:
        return []
    try:
        return parse_runs(ask(*_sacct("--name", listed)))
    except EnvironmentFault:
        return []


def _job_end(held: Job | None, past: Sequence[Job]) -> JobEnd:
    # In accounting REQUEUED and PREEMPTED are ends of runs: the end time, not the state, shows what is over.
    over = [run for run in past if run.end is not None]
    again = max(held.restarts if held is not None else 0, len(past) - 1, 0)
    if held is not None and held.alive:
        runs = over if held.state == "PENDING" else [*over, held]
        return JobEnd(held.state, tuple(runs), held.restarts, alive=True)
    if held is not None:
        # A run that has just ended may not be in accounting yet.
        known = over if over and over[-1].state == held.state else [*over, _timed(held)]
        return JobEnd(held.state, tuple(known), again)
    last = past[-1] if past else None
    if last is None or last.end is None or last.state == "REQUEUED":
        return JobEnd(LOST, tuple(past), again)
    return JobEnd(last.state, tuple(over), again)


def _timed(held: Job) -> Job:
    """A job that squeue shows as ended, with the seconds it ran."""
    ran = max(0.0, held.end - held.start) if held.node and held.start and held.end else 0.0
    return replace(held, elapsed=ran)


def _tasks(wanted: str, ours: Snapshot, past: Mapping[str, Sequence[Job]]) -> list[str]:
    """Ids of the array tasks of an array's id; for another job the id itself."""
    if "_" in wanted:
        return [wanted]
    rows = ours.of_array(wanted)
    known = {job for job in past if job.partition("_")[0] == wanted} | {job.id for job in rows}
    known |= {f"{wanted}_{task}" for job in rows for task in task_numbers(job.task_ids)}
    tasks = {job for job in known if "_" in job}
    return sorted(tasks or known, key=lambda job: (len(job), job))


def _informative(end: JobEnd) -> tuple[bool, bool, bool]:
    return end.alive, end.state != "COMPLETED", end.state != LOST


def _accounted(
    ids: Sequence[str], names: Collection[str], max_age: float, folder: Path | None
) -> list[Job]:
    """Runs of these jobs; also by number, since by name alone sacct omits jobs that were never eligible."""
    if not names or shutil.which("sacct") is None:
        return []
    arrays = sorted({job.partition("_")[0] for job in ids})
    words = _sacct("--jobs", ",".join(arrays), "--name", ",".join(sorted(names)))
    # A failed sacct leaves its last good answer, which `judge` distrusts like any other.
    answer = shared_answer(" ".join(words), lambda: ask(*words), max_age, folder=folder)
    return parse_runs(answer.text)


def _sacct(*words: str) -> tuple[str, ...]:
    return (
        "sacct", "--parsable2", f"--delimiter={FIELD}", "--noheader", "--allocations", "--duplicates",
        "--starttime", "now-30days", *words, "--format", ",".join(RUN_FIELDS),
    )  # fmt: skip
