"""Changes of submitted jobs: throttle, excluded nodes, hold, cancel; sbatch's refusals.

Each function returns whether it was in time: a job that has ended, or has started where only a pending one
can be changed, is no error. Any other failure is an EnvironmentFault with the command's own last line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from hpcbench.slurm.commands import SlurmFault, ask, silent
from hpcbench.slurm.jobs import parse_key_values

Refusal = Literal["limit", "array_size", "time", "gone", "other"]
"""Why sbatch refused a job.

`limit` no more jobs of this user, account or QOS at present · `array_size` an index of MaxArraySize or more ·
`time` a longer time limit than allowed · `gone` slurmctld was not reached, but may have the job · `other`
"""

# Jobs per command: a command line has its limits.
_AT_ONCE = 500

_LATE = re.compile(
    r"invalid job id|already finish|already complet|no longer pending", re.IGNORECASE
)
# scontrol fails, although it did the change, where some tasks of an array have ended: `4711_0-3: …`.
_PART = re.compile(
    r"^\d+_\S+: .*(already finish|already complet|no error)|error: no error$", re.IGNORECASE
)

_ARRAY = re.compile(r"invalid job array specification", re.IGNORECASE)
_TIME = re.compile(r"maxwall|requested time limit is invalid|wallduration", re.IGNORECASE)
_LIMIT = re.compile(
    r"(assoc|qos)\w*(submit|maxjobs|grpjobs)|slurm temporarily unable to accept job"
    r"|maximum number of jobs|too many jobs|job submit limit",
    re.IGNORECASE,
)
_NAMED = re.compile(r"\b(?:assoc|qos)(?:max|grp|min)\w+", re.IGNORECASE)


def set_throttle(array_job: str, tasks: int) -> bool:
    """Limit the number of tasks of an array that run at once; 0: all.

    Raises:
        EnvironmentFault: Slurm refuses or does not answer.
    """
    return _update(array_job, f"ArrayTaskThrottle={tasks}")


def exclude_nodes(job: str, nodes: Sequence[str]) -> bool:
    """Exclude these nodes for a pending job, in addition to those already excluded.

    Raises:
        EnvironmentFault: Slurm refuses or does not answer.
    """
    try:
        text = ask("scontrol", "--oneliner", "show", "job", job)
    except SlurmFault as fault:
        return _benign(fault)
    found = [row["ExcNodeList"] for row in parse_key_values(text) if "ExcNodeList" in row]
    known = [node for node in found[:1] if node != "(null)"]
    # Slurm keeps the list as written, so a node is written only once.
    new = [node for node in dict.fromkeys(nodes) if node not in ",".join(known).split(",")]
    return not new or _update(job, f"ExcNodeList={','.join([*known, *new])}")


def depend_on(job: str, after: Sequence[str]) -> bool:
    """Let a pending job start when all of these jobs have ended, in any state.

    Raises:
        EnvironmentFault: Slurm refuses or does not answer.
    """
    return _update(job, f"Dependency=afterany:{':'.join(after)}" if after else "Dependency=")


def release_hold(jobs: Sequence[str]) -> bool:
    """Let held jobs start; Slurm continues after a job that is gone.

    Raises:
        EnvironmentFault: Slurm refuses or does not answer.
    """
    starts = range(0, len(jobs), _AT_ONCE)
    return all([_tell("release", ",".join(jobs[start : start + _AT_ONCE])) for start in starts])


def cancel_waiting(jobs: Sequence[str]) -> None:
    """Cancel the jobs and array tasks of these that have not started; running ones continue.

    Raises:
        EnvironmentFault: Slurm refuses or does not answer.
    """
    if jobs:
        ask("scancel", "--quiet", "--state=PENDING", *jobs)


def cancel(jobs: Sequence[str]) -> None:
    """Cancel jobs; jobs already gone are no error.

    Raises:
        EnvironmentFault: Slurm refuses or does not answer.
    """
    for start in range(0, len(jobs), _AT_ONCE):
        ask("scancel", "--quiet", *jobs[start : start + _AT_ONCE])


def classify_refusal(message: str) -> Refusal:
    """Why sbatch refused, from its whole output: the informative line is often not the last one."""
    if silent(message):
        return "gone"
    if _ARRAY.search(message):
        return "array_size"
    if _TIME.search(message):
        return "time"
    # Every refusal by policy ends in `… (job submit limit, user's size and/or time limits)`: an earlier line
    # that names another kind of limit, such as QOSMaxGRESPerUser, gives the cause.
    named = _NAMED.findall(message)
    limits = [word for word in named if _LIMIT.search(word)]
    return "limit" if limits or (not named and _LIMIT.search(message)) else "other"


def _update(job: str, change: str) -> bool:
    return _tell("update", f"JobId={job}", change)


def _tell(*words: str) -> bool:
    try:
        ask("scontrol", *words)
    except SlurmFault as fault:
        return _benign(fault)
    return True


def _benign(fault: SlurmFault) -> bool:
    """Whether the command was in time, where the fault only says that a job has ended."""
    lines = [line for line in fault.said.splitlines() if line.strip() and not _PART.search(line)]
    if all(_LATE.search(line) for line in lines):
        return not lines
    raise fault
