"""Resources of a round's last job, and what follows its death: a larger job, not work on the login node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hpcbench import slurm
from hpcbench.experiment.submission import Round, Step
from hpcbench.schema.work import JobResources

if TYPE_CHECKING:
    from hpcbench.schema.plan import ResolvedPlan

DEFAULT = JobResources(cpus=1, memory_gb=4.0, time_limit="01:00:00")
"""Resources where neither plan nor site profile says others."""

TRIES = 3
"""Last jobs of a round that may die before only a user's `resume` submits another one."""

MEMORY, TIME = ("OUT_OF_MEMORY",), ("TIMEOUT", "DEADLINE")
"""Ends of a job that had too little of them."""


def resources(resolved: ResolvedPlan) -> JobResources:
    """Resources of the first last job: the plan's, else the site profile's, else the default."""
    site, plan = resolved.site.slurm.last_job, resolved.plan.last_job
    said = site.model_dump(exclude_none=True) | plan.model_dump(exclude_none=True)
    return replace(DEFAULT, **said)


def grown(last: JobResources | None, end: str, resolved: ResolvedPlan) -> JobResources:
    """Resources of a last job after one that died: twice the memory or the time that was too little.

    No more than the partition has, as far as the site profile describes it.

    Args:
        last: resources of the job that died; None: not recorded.
        end: Slurm's state of its end.
        resolved: the plan.
    """
    from hpcbench.schema.shared_types import (
        seconds,  # a status that shows no death needs no schemas
    )

    before = last or resources(resolved)
    site = resolved.site.slurm
    partition = site.partition_called(site.cpu_partition or site.partition)
    if end in MEMORY:
        most = partition.memory_gb if partition is not None else None
        memory = 2 * before.memory_gb
        return replace(before, memory_gb=min(memory, most) if most else memory)
    if end in TIME:
        most_time = partition.time_limit if partition is not None else None
        time = 2 * seconds(before.time_limit)
        longest = min(time, seconds(most_time)) if most_time else time
        return replace(before, time_limit=slurm.clock(longest))
    return before


@dataclass(frozen=True, slots=True)
class Death:
    """A last job that died and was not cancelled."""

    step: Step
    """Its step."""
    end: slurm.JobEnd
    """Its end in Slurm."""
    times: int
    """Last jobs of its round that died, this one included."""

    @property
    def words(self) -> str:
        """`its job needed more memory than it had requested (1 CPU, 4 GB, 01:00:00; job 4711)`."""
        had = in_words(self.step.resources or DEFAULT)
        return f"{self.end.text} ({had}; job {self.step.job})"


def death(now: Round, job_ends: Mapping[str, slurm.JobEnd]) -> Death | None:
    """The death of a round's newest last job; None: it lives, ended well, was cancelled, or is unknown."""
    ends = [(step, job_ends[str(step.job)]) for step in now.last_steps if step.job in job_ends]
    died = [one for one in ends if one[1].died]
    if not died or died[-1][0] is not now.last_steps[-1]:
        return None
    return Death(*died[-1], len(died))


def in_words(wanted: JobResources) -> str:
    """`1 CPU, 4 GB, 01:00:00`."""
    cpus = "1 CPU" if wanted.cpus == 1 else f"{wanted.cpus} CPUs"
    return f"{cpus}, {wanted.memory_gb:g} GB, {wanted.time_limit}"
