"""This user's jobs in slurmctld's memory: one squeue call for all jobs and all readers."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from hpcbench.errors import EnvironmentFault
from hpcbench.slurm.commands import ask
from hpcbench.slurm.jobs import FIELD, QUEUE_FIELDS, RECORD, Job, parse_queue, task_numbers
from hpcbench.slurm.shared_answer import shared_answer

MAX_AGE = 30.0
"""Seconds between two questions to Slurm, for all readers of a user together."""

# Size 0 means full width, never cut.
_FORM = f":0{FIELD},".join(QUEUE_FIELDS) + f":0{RECORD}"
_SQUEUE = ("squeue", "--me", "--noheader", "--states=all", f"--Format={_FORM}")


@dataclass(frozen=True)
class Snapshot:
    """This user's jobs at one moment: live ones, and those that ended minutes ago (MinJobAge)."""

    jobs: tuple[Job, ...] = ()
    """The jobs; pending tasks of an array are one job."""
    time: float = 0.0
    """Time of the question to Slurm, seconds since the epoch; 0: Slurm never answered."""
    fault: str | None = None
    """Why Slurm has not answered since; then a job missing here may still exist."""

    def find(self, job: str) -> Job | None:
        """A job or array task by its id, also a task that is pending with others of its array."""
        return self._by_id.get(job)

    def of_array(self, array_job: str) -> tuple[Job, ...]:
        """All remaining jobs of an array, or the single job of this id."""
        return self._by_array.get(array_job, ())

    @cached_property
    def _by_id(self) -> Mapping[str, Job]:
        waiting = {
            f"{job.id}_{number}": job
            for job in self.jobs
            if job.task_ids
            for number in task_numbers(job.task_ids)
        }
        return waiting | {job.id: job for job in self.jobs}

    @cached_property
    def _by_array(self) -> Mapping[str, tuple[Job, ...]]:
        found: dict[str, list[Job]] = {}
        for job in self.jobs:
            found.setdefault(job.array_job, []).append(job)
        return {array: tuple(jobs) for array, jobs in found.items()}


def snapshot(
    max_age: float = MAX_AGE, *, newer_than: float = 0.0, folder: Path | None = None
) -> Snapshot:
    """This user's jobs, requested at most every `max_age` seconds by all readers on this machine together.

    It is no error if Slurm does not answer: the function returns the last good snapshot with its `fault`, or
    an empty one of time 0 if there never was any.

    Args:
        max_age: maximum age, seconds; 0: ask now.
        newer_than: earliest time of the snapshot, seconds since the epoch.
        folder: where readers share it; None: a private folder on a local disk.
    """
    answer = shared_answer(
        " ".join(_SQUEUE), _queue_text, max_age, newer_than=newer_than, folder=folder
    )
    return Snapshot(_parsed(answer.text), answer.time, answer.fault)


def queue() -> list[Job]:
    """This user's jobs that Slurm still has in memory, requested now."""
    return list(_parsed(_queue_text()))


def _queue_text() -> str:
    """squeue's answer, checked to be readable."""
    text = ask(*_SQUEUE)
    try:
        _parsed(text)
    except EnvironmentFault as fault:
        # This squeue lacks one of the fields, or is a site's own replacement.
        try:
            text = ask("squeue", "--me", "--json")
            _parsed(text)
        except EnvironmentFault:
            raise fault from None
    return text


@lru_cache(maxsize=2)
def _parsed(text: str) -> tuple[Job, ...]:
    return tuple(parse_queue(text, _user())) if text else ()


def _user() -> str:
    """The user by number, as Slurm knows it, whatever LOGNAME says."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return os.environ.get("USER", "")
