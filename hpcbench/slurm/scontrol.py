"""Changes of submitted jobs: throttle, excluded nodes, hold, requeue, cancel; sbatch's refusals.

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


def set_throttle(array_job: str, tasks: int, *, patient: bool = False) -> bool:
    """Limit the number of tasks of an array that run at once; 0: all.

    Raises:
        EnvironmentFault: Slurm refuses or does not answer.
    """
    return _update(array_job, f"ArrayTaskThrottle={tasks}", patient)


def exclude_nodes(job: str, nodes: Sequence[str], *, patient: bool = False) -> bool:
    """Exclude these nodes for a pending job, in addition to those already excluded.

    Raises:
        EnvironmentFault: Slurm refuses or does not answer.
    """
    try:
        text = ask("scontrol", "--oneliner", "show", "job", job, patient=patient)
    except SlurmFault as fault:
        return _benign(fault)
    found = [row["ExcNodeList"] for row in parse_key_values(text) if "ExcNodeList" in row]
    known = [node for node in found[:1] if node != "(null)"]
    # Slurm keeps the list as written, so a node is written only once.
    new = [node for node in dict.fromkeys(nodes) if node not in ",".join(known).split(",")]
    return not new or _update(job, f"ExcNodeList={','.join([*known, *new])}", patient)


def depend_on(job: str, after: Sequence[str], *, patient: bool = False) -> bool:
    """Let a pending job start when all of these jobs have ended, in any state.

    Raises:
        EnvironmentFault: Slurm refuses or does not answer.
    """
    return _update(
        job, f"Dependency=afterany:{':'.join(after)}" if after else "Dependency=", patient
    )


def hold(jobs: Sequence[str], *, patient: bool = False) -> bool:
    """Keep pending jobs and arrays from starting; running jobs continue.

    Raises:
        EnvironmentFault: Slurm refuses or does not answer.
    """
    return _each("hold", jobs, patient)


def release_hold(jobs: Sequence[str], *, patient: bool = False) -> bool:
    """Let held jobs start.

    Raises:
        EnvironmentFault: Slurm refuses or does not answer.
    """
    return _each("release", jobs, patient)


def requeue(job: str, *, patient: bool = False) -> bool:
    """Stop a running job and put it back into the queue; Slurm also requeues a job that has just ended.

    Raises:
        EnvironmentFault: Slurm refuses or does not answer.
    """
    try:
        return _each("requeue", [job], patient)
    except SlurmFault as fault:
        if "pending execution" in fault.said:
            return True
        raise


def cancel_waiting(jobs: Sequence[str], *, patient: bool = False) -> None:
    """Cancel the jobs and array tasks of these that have not started; running ones continue.

    Raises:
        EnvironmentFault: Slurm refuses or does not answer.
    """
    if jobs:
        ask("scancel", "--quiet", "--state=PENDING", *jobs, patient=patient)


def cancel(jobs: Sequence[str], *, patient: bool = False) -> None:
    """Cancel jobs; jobs already gone are no error.

    Raises:
        EnvironmentFault: Slurm refuses or does not answer.
    """
    for start in range(0, len(jobs), _AT_ONCE):
        ask("scancel", "--quiet", *jobs[start : start + _AT_ONCE], patient=patient)


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


def _update(job: str, change: str, patient: bool) -> bool:
    return _tell("update", f"JobId={job}", change, patient=patient)


def _each(verb: str, jobs: Sequence[str], patient: bool) -> bool:
    """Apply an scontrol verb to several jobs; Slurm continues after a job that is gone."""
    starts = range(0, len(jobs), _AT_ONCE)
    return all(
        [_tell(verb, ",".join(jobs[start : start + _AT_ONCE]), patient=patient) for start in starts]
    )


def _tell(*words: str, patient: bool) -> bool:
    try:
        ask("scontrol", *words, patient=patient)
    except SlurmFault as fault:
        return _benign(fault)
    return True


def _benign(fault: SlurmFault) -> bool:
    """Whether the command was in time, where the fault only says that a job has ended."""
    lines = [line for line in fault.said.splitlines() if line.strip() and not _PART.search(line)]
    if all(_LATE.search(line) for line in lines):
        return not lines
    raise fault
