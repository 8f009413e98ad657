"""Why a job waits, in plain words: Slurm's reason, what it asks for, who is before it, when it may start."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

from hpcbench.schema.documents import Partition, Site
from hpcbench.slurm.ask import ask
from hpcbench.slurm.cache import shared_answer
from hpcbench.slurm.jobs import FIELD, RECORD, Job, task_numbers
from hpcbench.slurm.queue import MAX_AGE, Snapshot

IN_LINE = frozenset({"", "None", "Resources", "Priority", "SchedDefer"})
"""Reasons that mean no more than: it is not its turn yet."""

_HELD = re.compile(
    r"Held|Dependency|BeginTime|JobArrayTaskLimit|^Assoc|^QOS|^Partition", re.IGNORECASE
)
"""Reasons of jobs that nobody has to wait for."""

REASONS: dict[str, tuple[str, str]] = {
    "Dependency": ("waits for the jobs before it to end", ""),
    "DependencyNeverSatisfied": (
        "can never start: a job that it depends on failed", "`hpcbench cancel`, then `hpcbench resume`",
    ),
    "BeginTime": ("waits for the time that it may begin", ""),
    "JobHeldUser": ("is held by you", "`hpcbench resume`, or `scontrol release {id}`"),
    "JobHeldAdmin": ("is held by an administrator", "ask your cluster's support"),
    "JobHoldMaxRequeue": (
        "is held: it was requeued as often as Slurm allows", "`scontrol release {id}`",
    ),
    "JobLaunchFailure": ("could not be launched on its node", "`hpcbench logs`; tell your support the node"),
    "launch failed requeued held": (
        "is held: it could not be launched on its node",
        "`scontrol release {id}`; tell your support the node",
    ),
    "JobArrayTaskLimit": ("waits for tasks of its own array, which may not all run at once", ""),
    "PartitionTimeLimit": (
        "asks for more time than partition {partition} gives{limit}", "a lower time_limit",
    ),
    "PartitionNodeLimit": (
        "asks for more or fewer nodes than partition {partition} gives", "another partition",
    ),
    "PartitionConfig": ("asks for what partition {partition} does not give", "another partition"),
    "PartitionDown": ("partition {partition} is down", "wait, or take another partition"),
    "PartitionInactive": ("partition {partition} starts no jobs now", "wait, or take another partition"),
    "ReqNodeNotAvail": ("nodes that it needs are down, drained or reserved", ""),
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": (
        "nodes that it needs are down, drained, or kept for partitions of higher priority", "",
    ),
    "NodeDown": ("a node that it needs is down", ""),
    "BadConstraints": ("no node can ever give what it asks for", "fewer GPUs, CPUs or less memory"),
    "Reservation": ("waits for its reservation to begin", ""),
    "ReservationDeleted": ("its reservation is gone", "`reservation` in the site profile"),
    "Licenses": ("waits for licences", ""),
    "InvalidAccount": ("its account is not valid", "`account` in the site profile"),
    "AccountNotAllowed": (
        "its account may not use partition {partition}", "`account` or `partition` in the site profile",
    ),
    "InvalidQOS": ("its QOS is not valid", "`qos` in the site profile"),
    "QOSNotAllowed": ("its QOS may not be used here", "`qos` in the site profile"),
    "QOSUsageThreshold": ("its QOS has been used too much", ""),
    "AssociationJobLimit": ("your account runs as many jobs as it may", ""),
    "AssociationResourceLimit": ("your account uses as much as it may", ""),
    "AssociationTimeLimit": ("your account's time is used up", "another account"),
    "QOSJobLimit": ("its QOS runs as many jobs as it may", ""),
    "QOSResourceLimit": ("its QOS uses as much as it may", ""),
    "QOSTimeLimit": ("its QOS's time is used up", "another QOS"),
    "Cleaning": ("its last run is still being cleaned up", ""),
    "Prolog": ("its nodes are being prepared", ""),
    "FrontEndDown": ("the front end of the nodes is down", ""),
    "DeadLine": ("cannot end before its deadline", ""),
    "BurstBufferResources": ("waits for room in the burst buffer", ""),
    "BurstBufferStageIn": ("its data are being staged in", ""),
    "SystemFailure": ("Slurm itself has failed", "ask your cluster's support"),
}  # fmt: skip
"""Slurm's reason → what it means, and what can be done, if anything."""

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


def why_pending(
    job: Job,
    snapshot: Snapshot | Sequence[Job],
    site: Site | None = None,
    *,
    folder: Path | None = None,
    now: float | None = None,
) -> str:
    """Why a job waits, e.g. `waits for 2 × A100 in partition gpu; 14 jobs ahead; earliest start 14:20`.

    Where it is the job's turn that matters, all users' pending jobs of its partition are counted: one more
    question, shared and cached as the snapshot is. Without an answer that part is left out.

    Args:
        job: a pending job, or the pending tasks of an array.
        snapshot: all jobs of this user.
        site: site profile, for what its partitions give.
        folder: where readers share answers; none: a private folder on a local disk.
        now: this moment, seconds since the epoch; none: the clock's.
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
    """Pending jobs and array tasks of all users that are before a job in its partition; None: nobody says.

    Those that are held, wait for others or have reached a limit are not counted, nor is the job's own array.
    """
    command = ["squeue", "--noheader", "--states=PENDING"]
    if job.partition:
        command.append(f"--partition={job.partition}")
    command.append(f"--Format=JobArrayID:0{FIELD},PriorityLong:0{FIELD},Reason:0{RECORD}")
    answer = shared_answer(" ".join(command), lambda: ask(*command), MAX_AGE, folder=folder)
    if not answer.time or not job.priority:
        return None
    return count_ahead(answer.text, job)


def count_ahead(text: str, job: Job) -> int:
    """How many of the pending jobs in squeue's answer (id, priority, reason) stand before a job; pure."""
    ahead = 0
    for record in text.split(RECORD):
        cells = record.strip("\n").split(FIELD)
        if len(cells) != 3 or not cells[1].isdigit() or _HELD.search(cells[2]):
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
        words = "was requeued, and Slurm lets it wait before it starts again"
    if head == "JobArrayTaskLimit" and job.throttle:
        words = f"waits for tasks of its own array: {job.throttle} may run at once"
    words = words.format(partition=job.partition or "of its own", limit=_given(job, site))
    return f"{words} ({remedy.format(id=job.id)})" if remedy else words


def _limit(reason: str, jobs: Sequence[Job]) -> str:
    """`QOSMaxGRESPerUser` and its many kin, by their parts."""
    match = _LIMIT.match(reason)
    if match is None:
        return ""
    owner, _, what = match.groups()
    what, _, scope = what.partition("Per")
    thing = _OF.get(what.lower(), what)
    each = {"User": " a user", "Account": " an account", "Job": " a job", "Node": " a node"}.get(
        scope, ""
    )
    whose = "the QOS's" if owner == "QOS" else "your account's"
    running = sum(job.state == "RUNNING" for job in jobs)
    own = f", {running} of your jobs run" if running and scope not in ("Job", "Node") else ""
    return f"{whose} limit of {thing}{each} is reached{own} ({reason})"


def _given(job: Job, site: Site | None) -> str:
    partition: Partition | None = site.slurm.partitions.get(job.partition) if site else None
    return f", {partition.time_limit}" if partition is not None and partition.time_limit else ""


def _clock(moment: float, now: float) -> str:
    """Local time; with its day when that is not today."""
    then, today = time.localtime(moment), time.localtime(now)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M", then)
    near = moment - now < 6 * 86400
    return time.strftime("%a %H:%M" if near else "%Y-%m-%d %H:%M", then)
