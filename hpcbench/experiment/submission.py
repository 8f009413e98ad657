"""The history of an experiment's jobs, recorded in `submission.jsonl`.

A *round* is one pass of jobs: arrays of equal workers, one or more for each group, then one finalising job.
The lines: `round` (its groups, with their resources in this round), `intent` (a step is about to be submitted
to Slurm), `submitted` (its job id), `refused` (a limit: so many workers have to wait), `handed` (every
possible step is submitted). After a kill between two lines, the next process can go on from the lines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hpcbench.experiment.event_log import time_of
from hpcbench.experiment.layout import Experiment, decoding
from hpcbench.files.atomic import read_lines
from hpcbench.schema.decoding import decoded_part
from hpcbench.schema.work import Group, JobResources

FINALISE, SUPERVISE = "finalise", "supervise"
"""The step after the arrays; `supervise` is the only step of a round under the local executor."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step that is submitted to Slurm, or about to be: an array, or the finalising job."""

    name: str
    """`g0`, `g0+1` for a further array of the group, `finalise`, `finalise+1`, `supervise`."""
    group: str = ""
    """The array's group."""
    first: int = 0
    """Place of its first worker among the workers of the group."""
    workers: int = 1
    """Array tasks."""
    job: str | None = None
    """Job id; None while only the intent is written."""
    throttle: int = 0
    """Maximum number of running workers of the array; 0: as its group says."""
    resources: JobResources | None = None
    """Resources of the finalising job; None for an array, and in older records."""
    died: str = ""
    """How the finalising job before this one died; empty: there was none, or it did not die."""
    process: Mapping[str, Any] | None = None
    """Local executor: `process.identity` of the supervisor; None in older records."""


@dataclass(frozen=True, slots=True)
class Round:
    """One pass of jobs."""

    number: int
    """0 for the first."""
    started: float
    """Start of the round, seconds since the epoch."""
    groups: tuple[Group, ...]
    """Groups with work left, as they are in this round."""
    steps: Mapping[str, Step] = field(default_factory=dict)
    """Every step by name, in order."""
    handed: bool = False
    """Whether every possible step is submitted."""
    refused: str = ""
    """Why Slurm refused further workers; empty if it refused none."""
    excluded: tuple[str, ...] = ()
    """Nodes that its jobs exclude."""
    answered: int = 0
    """Number of answers at the start of the round."""

    @property
    def jobs(self) -> dict[str, str]:
        """Step → job id, for steps that were submitted."""
        return {name: step.job for name, step in self.steps.items() if step.job is not None}

    @property
    def intents(self) -> list[Step]:
        """Steps that Slurm may or may not have accepted."""
        return [step for step in self.steps.values() if step.job is None]

    def arrays(self, group: str) -> list[Step]:
        """Submitted arrays of a group."""
        return [
            step for step in self.steps.values() if step.group == group and step.job is not None
        ]

    def waiting(self, group: Group) -> int:
        """Workers of a group that are not submitted yet."""
        return max(0, group.workers - sum(step.workers for step in self.arrays(group.id)))

    def next_array(
        self, group: Group, at_most: int, alive: Collection[str] | None = None
    ) -> Step | None:
        """The array to submit next; None: all workers of the group are submitted.

        Arrays of one group share the group's throttle. If Slurm refused workers, the number of arrays is not
        known; then an array takes all that the earlier arrays leave.

        Args:
            group: the group.
            at_most: maximum number of its array tasks.
            alive: arrays that may have workers; None: all submitted arrays.
        """
        waiting = self.waiting(group)
        if not waiting or not at_most:
            return None
        own = self.arrays(group.id)
        workers, place = min(waiting, at_most), len(own)
        throttle = 0
        if workers < group.workers > group.throttle:
            left = group.throttle - sum(
                min(step.workers, step.throttle or group.throttle)
                for step in own
                if alive is None or step.job in alive
            )
            known = not self.refused and workers < waiting  # the later arrays' needs
            share = group.throttle * workers // group.workers if known else left
            throttle = max(1, min(share, left))
        name = f"{group.id}+{place}" if place else group.id
        return Step(name, group.id, group.workers - waiting, workers, throttle=throttle)

    @property
    def several(self) -> bool:
        """Whether it has arrays that pass unused workers to each other."""
        return len(self.groups) > 1 or any(step.throttle for step in self.steps.values())

    @property
    def deferred(self) -> int:
        """Workers that wait because of a limit of Slurm."""
        return sum(map(self.waiting, self.groups)) if self.refused else 0

    @property
    def finalisers(self) -> list[str]:
        """Job ids of finalising steps."""
        return [str(step.job) for step in self.last_steps]

    @property
    def last_steps(self) -> list[Step]:
        """Submitted finalising steps."""
        steps = (step for name, step in self.steps.items() if name.startswith(FINALISE))
        return [step for step in steps if step.job is not None]

    def rides(self, cpu_partition: str | None) -> bool:
        """Whether the last worker finalises: the site has only GPU nodes, and the worker holds one."""
        return cpu_partition is None and any(group.gpus for group in self.groups)

    def group(self, group_id: str) -> Group:
        """The group of that id.

        Raises:
            KeyError: this round has no such group.
        """
        for group in self.groups:
            if group.id == group_id:
                return group
        raise KeyError(group_id)


def names_of(experiment: Experiment) -> str:
    """Prefix of the names of its jobs."""
    return f"hpcbench:{experiment.id}:"


def job_name(experiment: Experiment, step: str, number: int) -> str:
    """Name and comment of a job: its experiment, step and round."""
    return f"{names_of(experiment)}{step}.{number}"


def arrays(groups: Iterable[Group], at_most: int) -> list[Step]:
    """The arrays of groups if `at_most` tasks an array is the only limit."""
    now = Round(0, 0.0, tuple(groups))
    for group in now.groups:
        while (step := now.next_array(group, at_most)) is not None:
            now = replace(now, steps={**now.steps, step.name: replace(step, job="")})
    return list(now.steps.values())


@dataclass(frozen=True, slots=True)
class _Round:
    """A line `round`."""

    round: int
    time: float
    groups: tuple[Group, ...]
    excluded: tuple[str, ...] = ()
    answered: int = 0


@dataclass(frozen=True, slots=True)
class _Line:
    """Any other line; each kind has some of these members."""

    step: str = ""
    group: str = ""
    first: int = 0
    workers: int = 1
    throttle: int = 0
    resources: JobResources | None = None
    died: str = ""
    job: str | None = None
    to: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class _Process:
    """`process.identity`."""

    host: str
    pid: int
    time: float
    began: str | None
    space: str = ""


def rounds(experiment: Experiment) -> list[Round]:
    """All rounds of an experiment, oldest first.

    Raises:
        DamagedFile: a line is damaged and still JSON.
    """
    found: list[Round] = []
    with decoding(experiment.submission_file):
        for event in read_lines(experiment.submission_file):
            if event.get("event") == "round":
                new = decoded_part(_Round, event)
                fresh = Round(new.round, new.time, new.groups, excluded=new.excluded)
                found.append(replace(fresh, answered=new.answered))
            elif found:
                found[-1] = updated(found[-1], event)
    return found


def updated(last: Round, event: Mapping[str, Any]) -> Round:
    """A round after one more line of its history."""
    kind, line = event.get("event"), decoded_part(_Line, event)
    name = line.step
    if kind == "intent":
        step = Step(name, line.group, line.first, line.workers, None, line.throttle)
        step = replace(step, resources=line.resources, died=line.died)
        return replace(last, steps={**last.steps, name: step}, handed=False)
    if kind == "submitted" and name in last.steps:
        process = event.get("process")
        if process is not None:
            decoded_part(_Process, process)
        step = replace(last.steps[name], job=line.job, process=process)
        return replace(last, steps={**last.steps, name: step})
    if kind == "throttle" and name in last.steps:
        step = replace(last.steps[name], throttle=line.to)
        return replace(last, steps={**last.steps, name: step})
    if kind == "dropped":
        return replace(last, steps={key: one for key, one in last.steps.items() if key != name})
    if kind == "shrunk" and name in last.steps:
        step = replace(last.steps[name], workers=line.workers)
        return replace(last, steps={**last.steps, name: step})
    if kind == "refused":
        steps = {key: one for key, one in last.steps.items() if key != name}
        return replace(last, steps=steps, refused=line.message)
    return replace(last, handed=True) if kind == "handed" else last


def submitted_at(experiment: Experiment) -> dict[str, float]:
    """Job id → time of its submission, seconds since the epoch."""
    return {
        str(event.get("job")): time_of(event)
        for event in read_lines(experiment.submission_file)
        if event.get("event") == "submitted"
    }
