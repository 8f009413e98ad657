"""Why a job waits, in plain words: Slurm's reason, the job's request, the jobs ahead, the expected start."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.slurm.commands import ask
from hpcbench.slurm.jobs import FIELD, RECORD, Job, task_numbers
from hpcbench.slurm.queue import Snapshot
from hpcbench.slurm.shared_answer import shared_answer

if TYPE_CHECKING:
    from hpcbench.schema.site import Site

QUEUE_AGE = 600.0
"""Seconds for which the number of other users' pending jobs may be old."""

_FORMAT = f"JobArrayID:0{FIELD},PriorityLong:0{FIELD},Reason:0{FIELD},Partition:0{RECORD}"
"""Fields that are queried of each pending job."""

IN_LINE = frozenset({"", "None", "Resources", "Priority", "SchedDefer"})
"""Reasons that mean only that it is not the job's turn yet."""

_HELD = re.compile(
    r"Held|Dependency|BeginTime|JobArrayTaskLimit|^Assoc|^QOS|^Partition", re.IGNORECASE
)
"""Reasons of jobs that do not delay other jobs."""

REASONS: dict[str, tuple[str, str]] = {
    "Dependency": ("waits for the end of the jobs that it depends on", ""),
    "DependencyNeverSatisfied": (
        "can never start: a job that it depends on failed", "run `hpcbench cancel`, then `hpcbench resume`",
    ),
    "BeginTime": ("waits for its begin time", ""),
    "JobHeldUser": ("is held by you", "run `hpcbench resume`, or `scontrol release {id}`"),
    "JobHeldAdmin": ("is held by an administrator", "ask your cluster's support"),
    "JobHoldMaxRequeue": (
        "is held: it was requeued as often as Slurm allows", "run `scontrol release {id}`",
    ),
    "JobLaunchFailure": (
        "its node could not launch it", "see `hpcbench logs`; report the node to your support",
    ),
    "launch failed requeued held": (
        "is held: its node could not launch it",
        "run `scontrol release {id}`; report the node to your support",
    ),
    "JobArrayTaskLimit": ("waits for other tasks of its array: Slurm limits how many run at once", ""),
    "PartitionTimeLimit": (
        "requests more time than partition {partition} allows{limit}", "set a lower time_limit",
    ),
    "PartitionNodeLimit": (
        "requests more or fewer nodes than partition {partition} allows", "use another partition",
    ),
    "PartitionConfig": (
        "requests resources that partition {partition} does not have", "use another partition",
    ),
    "PartitionDown": ("partition {partition} is down", "wait, or use another partition"),
    "PartitionInactive": ("partition {partition} starts no jobs now", "wait, or use another partition"),
    "ReqNodeNotAvail": ("nodes that it needs are down, drained or reserved", ""),
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": (
        "nodes that it needs are down, drained, or kept for partitions of higher priority", "",
    ),
    "NodeDown": ("a node that it needs is down", ""),
    "BadConstraints": ("no node can ever satisfy its request", "request fewer GPUs or CPUs, or less memory"),
    "Reservation": ("waits for the start of its reservation", ""),
    "ReservationDeleted": ("its reservation no longer exists", "correct `reservation` in the site profile"),
    "Licenses": ("waits for licences", ""),
    "InvalidAccount": ("its account is not valid", "correct `account` in the site profile"),
    "AccountNotAllowed": (
        "its account is not allowed to use partition {partition}",
        "change `account` or `partition` in the site profile",
    ),
    "InvalidQOS": ("its QOS is not valid", "correct `qos` in the site profile"),
    "QOSNotAllowed": ("its QOS is not allowed here", "change `qos` in the site profile"),
    "QOSUsageThreshold": ("its QOS is over its usage threshold", ""),
    "AssociationJobLimit": ("your account has reached its limit of running jobs", ""),
    "AssociationResourceLimit": ("your account has reached its limit of resources", ""),
    "AssociationTimeLimit": ("your account has used all its time", "use another account"),
    "QOSJobLimit": ("its QOS has reached its limit of running jobs", ""),
    "QOSResourceLimit": ("its QOS has reached its limit of resources", ""),
    "QOSTimeLimit": ("its QOS has used all its time", "use another QOS"),
    "Cleaning": ("Slurm still cleans up its last run", ""),
    "Prolog": ("Slurm prepares its nodes", ""),
    "FrontEndDown": ("the front end of the nodes is down", ""),
    "DeadLine": ("cannot end before its deadline", ""),
    "BurstBufferResources": ("waits for room in the burst buffer", ""),
    "BurstBufferStageIn": ("Slurm stages its data in", ""),
    "SystemFailure": ("Slurm itself has failed", "ask your cluster's support"),
}  # fmt: skip
"""Slurm's reason → its meaning, and a remedy, if any."""

_LIMIT = re.compile(r"^(QOS|Assoc)(Grp|Max|Min)(\w+?)(?:Limit)?$")
_OF = {
    "cpu": "CPUs", "gres": "GPUs", "mem": "memory", "memory": "memory", "node": "nodes",
    "jobs": "running jobs", "job": "running jobs", "submitjob": "submitted jobs",
    "submitjobs": "submitted jobs", "wall": "wall time", "wallduration": "wall time",
    "cpuminutes": "CPU minutes", "cpurunminutes": "CPU minutes", "gresminutes": "GPU minutes",
    "gresrunminutes": "GPU minutes", "memminutes": "memory minutes", "memrunminutes": "memory minutes",
    "billing": "billing units", "billingminutes": "billing minutes",
    "billingrunminutes": "billing minutes", "bb": "burst buffer", "license": "licences",
    "jobsaccrue": "jobs that gain priority", "unknown": "a resource",
}  # fmt: skip


def unlaunched(reason: str) -> bool:
    """Whether a job waits because its node could not launch it: Slurm holds it until a user releases it."""
    return reason.replace("_", " ").lower() == "launch failed requeued held"


def why_pending(
    job: Job,
    snapshot: Snapshot | Sequence[Job],
    site: Site | None = None,
    *,
    folder: Path | None = None,
    now: float | None = None,
) -> str:
    """Why a job waits, e.g. `waits for 2 × A100 in partition gpu; 14 jobs ahead; earliest start 14:20`.

    If the job waits for its turn, other users' pending jobs are counted, see `jobs_ahead`. Without an answer
    that part is left out.

    Args:
        job: a pending job, or the pending tasks of an array.
        snapshot: all jobs of this user.
        site: site profile, for the resources of its partitions.
        folder: where readers share answers; None: a private folder on a local disk.
        now: this moment, seconds since the epoch; None: the clock's.
    """
    moment = time.time() if now is None else now
    reason = " ".join(job.reason.replace("_", " ").split())
    parts: list[str] = []
    if reason in IN_LINE:
        parts.append(f"waits for {_wanted(job, site)}")
        ahead = jobs_ahead(job, folder=folder)
        if ahead is not None:
            parts.append(
                f"{ahead} {'job' if ahead == 1 else 'jobs'} ahead" if ahead else "next in line"
            )
    else:
        jobs = snapshot.jobs if isinstance(snapshot, Snapshot) else snapshot
        parts.append(_explained(job, reason, jobs, site))
    if job.start is not None and job.start > moment:
        parts.append(f"earliest start {_clock(job.start, moment)}")
    return "; ".join(parts)


def jobs_ahead(job: Job, *, folder: Path | None = None) -> int | None:
    """Number of all users' pending jobs and array tasks ahead of a job in its partition; None: unknown.

    Jobs that are held, wait for other jobs or have reached a limit do not count, nor does its own array.

    slurmctld sends all jobs of the cluster for it, whatever the partition; so one answer is for all
    partitions, and `QUEUE_AGE` seconds are no old age for it.
    """
    if not job.priority:
        return None
    command = ["squeue", "--noheader", "--states=PENDING", f"--Format={_FORMAT}"]
    answer = shared_answer(" ".join(command), lambda: ask(*command), QUEUE_AGE, folder=folder)
    return count_ahead(answer.text, job) if answer.time else None


def count_ahead(text: str, job: Job) -> int:
    """Number of pending jobs in squeue's answer (id, priority, reason, partitions) ahead of a job; pure."""
    where = set(job.partition.split(","))
    ahead = 0
    for record in text.split(RECORD):
        cells = record.strip("\n").split(FIELD)
        if len(cells) != 4 or not cells[1].isdigit() or _HELD.search(cells[2]):
            continue
        if job.partition and where.isdisjoint(cells[3].split(",")):
            continue
        array, _, tasks = cells[0].partition("_")
        older = array.isdigit() and job.array_job.isdigit() and int(array) < int(job.array_job)
        priority = int(cells[1])
        if (
            array == job.array_job
            or priority < job.priority
            or (priority == job.priority and not older)
        ):
            continue
        ahead += len(task_numbers(tasks.strip("[]"))) if tasks.startswith("[") else 1
    return ahead


def _wanted(job: Job, site: Site | None) -> str:
    where = f" in partition {job.partition}" if job.partition else ""
    if job.gpus:
        kind = job.gpu_type or (site.slurm.gpu_gres.partition(":")[2] if site else "")
        word = kind.upper() if kind else ("GPU" if job.gpus == 1 else "GPUs")
        return f"{job.gpus} × {word}{where}" if kind else f"{job.gpus} {word}{where}"
    asked = dict(part.split("=", 1) for part in job.tres.split(",") if "=" in part)
    cpus = asked.get("cpu", "")
    what = f"{cpus} CPU{'' if cpus == '1' else 's'}" if cpus else "its turn"
    return f"{what}{where}"


def _explained(job: Job, reason: str, jobs: Sequence[Job], site: Site | None) -> str:
    head, _, rest = reason.partition(",")
    words, remedy = REASONS.get(reason) or REASONS.get(head) or ("", "")
    if not words:
        return _limit(reason, jobs) or f"Slurm says: {job.reason}"
    if reason not in REASONS and rest.strip():
        words = f"{words} ({rest.strip()})"
    if head == "BeginTime" and job.restarts:
        words = "was requeued, and Slurm delays its next start"
    if head == "JobArrayTaskLimit" and job.throttle:
        words = f"waits for other tasks of its array: at most {job.throttle} may run at once"
    words = words.format(partition=job.partition or "of its own", limit=_given(job, site))
    return f"{words} ({remedy.format(id=job.id)})" if remedy else words


def _limit(reason: str, jobs: Sequence[Job]) -> str:
    """`QOSMaxGRESPerUser` and similar reasons, by their parts."""
    match = _LIMIT.match(reason)
    if match is None:
        return ""
    owner, _, what = match.groups()
    what, _, scope = what.partition("Per")
    thing = _OF.get(what.lower(), what)
    each = {
        "User": " per user",
        "Account": " per account",
        "Job": " per job",
        "Node": " per node",
    }.get(scope, "")
    whose = "the QOS's" if owner == "QOS" else "your account's"
    running = sum(job.state == "RUNNING" for job in jobs)
    own = f", {running} of your jobs run" if running and scope not in ("Job", "Node") else ""
    return f"{whose} limit of {thing}{each} is reached{own} ({reason})"


def _given(job: Job, site: Site | None) -> str:
    partition = site.slurm.partition_called(job.partition) if site else None
    return f", {partition.time_limit}" if partition is not None and partition.time_limit else ""


def _clock(moment: float, now: float) -> str:
    """Local time; with the date if it is not today."""
    then, today = time.localtime(moment), time.localtime(now)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M", then)
    near = moment - now < 6 * 86400
    return time.strftime("%a %H:%M" if near else "%Y-%m-%d %H:%M", then)
