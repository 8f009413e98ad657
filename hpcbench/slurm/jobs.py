"""Parsers of Slurm's output about jobs: squeue as text and as JSON, sacct; pure, Slurm 22.05 and newer.

hpcbench requests text first. squeue's JSON changed its shape in 23.02, 23.11 and 24.05 (numbers became
`{"set": …, "infinite": …, "number": …}`, states became lists), is missing where Slurm was built without its
plugin, and in 22.05 always holds every user's jobs. `_number` and `_words` read all shapes of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hpcbench.errors import EnvironmentFault
from hpcbench.slurm.commands import named

LIVE = frozenset(
    {
        "PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD",
        "REQUEUE_FED", "RESIZING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "PREEMPTED",
    }
)  # fmt: skip
"""States in which Slurm still knows a job as its own; PREEMPTED occurs shortly before a requeue."""

FIELD, RECORD = "\x1f", "\x1e"
"""Separators of fields and records in the requested text: a name or a comment may hold any other character.
"""

QUEUE_FIELDS = (
    "JobArrayID", "Name", "State", "Reason", "NodeList", "RestartCnt", "exit_code", "Partition",
    "PriorityLong", "SubmitTime", "StartTime", "EndTime", "TimeLimit", "tres-alloc", "tres-per-job",
    "tres-per-node", "Comment",
)  # fmt: skip
"""Fields of squeue that `parse_queue` reads, in this order."""

RUN_FIELDS = (
    "JobID", "JobName", "State", "ExitCode", "NodeList", "Start", "End", "ElapsedRaw", "AllocTRES",
    "ConsumedEnergyRaw", "Partition", "Submit",
)  # fmt: skip
"""Fields of sacct that `parse_runs` reads, in this order."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job, one task of an array, or all pending tasks of an array; in accounting, one run of it."""

    id: str
    """`4711`, or `4711_3` for an array task; a pending array shows once, as `4711`."""
    name: str
    """Job name."""
    state: str
    """Slurm's state, e.g. RUNNING."""
    reason: str = ""
    """Reason why it is pending."""
    node: str = ""
    """Node of its run."""
    restarts: int = 0
    """Number of requeues."""
    exit_code: int = 0
    """The job script's exit code, or 128 + the signal that ended it."""
    partition: str = ""
    """Partition; several, separated by commas, while the job may start in any of them."""
    comment: str = ""
    """Comment given to sbatch."""
    priority: int = 0
    """Slurm's priority; 0: held."""
    submitted: float | None = None
    """Submission time, seconds since the epoch."""
    start: float | None = None
    """Start time; while the job is pending, Slurm's expected start."""
    end: float | None = None
    """End time; while the job runs, the end of its time limit."""
    time_limit: int | None = None
    """Time limit, seconds; None: unlimited or unknown."""
    elapsed: float = 0.0
    """Seconds of the run, in accounting."""
    tres: str = ""
    """Resources that it holds, or requests while pending: `cpu=4,mem=16G,gres/gpu=2`."""
    gpus: int = 0
    """GPUs of these."""
    gpu_type: str = ""
    """Type of GPU, if given."""
    energy: float | None = None
    """Joules, where Slurm measures them."""
    task_ids: str = ""
    """Remaining tasks of a pending array, in Slurm's form: `3-9,12%2`."""

    @property
    def array_job(self) -> str:
        """The array's job id."""
        return self.id.partition("_")[0]

    @property
    def alive(self) -> bool:
        """Whether it runs or may run again without a new submission."""
        return self.state in LIVE

    @property
    def tasks(self) -> int:
        """Number of its tasks: 1, except for a pending array."""
        return len(task_numbers(self.task_ids)) if self.task_ids else 1

    @property
    def throttle(self) -> int | None:
        """Number of tasks of this pending array that may run at once; None: all."""
        limit = self.task_ids.partition("%")[2]
        return int(limit) if limit.isdigit() and int(limit) else None


def task_numbers(text: str) -> list[int]:
    """Task numbers from Slurm's shorthand, `3-9,12,20-28:4%2`; unreadable parts are left out."""
    found: list[int] = []
    for part in text.partition("%")[0].split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?(?::(\d+))?", part.strip())
        if match:
            first, last, step = match[1], match[2] or match[1], match[3] or "1"
            found += range(int(first), int(last) + 1, max(1, int(step)))
    return found


def parse_queue(text: str, user: str | None = None) -> list[Job]:
    """Jobs in squeue's answer, as text in hpcbench's format or as JSON.

    Args:
        text: the answer.
        user: owner of the jobs; None: all jobs in the answer.

    Raises:
        EnvironmentFault: the answer is neither, or an error.
    """
    if text.lstrip().startswith("{"):
        return parse_squeue(text, user)
    records = text.split(RECORD)
    rows = [record.lstrip("\n").split(FIELD) for record in records[:-1]]
    stray = records[-1] if len(records) == 1 else records[-1].strip()
    if stray or any(len(row) != len(QUEUE_FIELDS) for row in rows):
        raise EnvironmentFault(
            f"squeue answered in another format than requested: {text.strip()[:200]!r}"
        )
    return [_queued(row) for row in rows]


def parse_squeue(text: str, user: str | None = None) -> list[Job]:
    """Jobs in the answer of `squeue --json`.

    Raises:
        EnvironmentFault: the answer is an error, or of another form.
    """
    try:
        data = json.loads(text)
        errors = data.get("errors")
        if not errors:
            return [
                _job(job)
                for job in data["jobs"]
                if user is None or job.get("user_name") in (user, "", None)
            ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EnvironmentFault(f"squeue: JSON of an unknown structure: {error!r:.200}") from error
    first = errors[0] if isinstance(errors[0], Mapping) else {"error": errors[0]}
    raise EnvironmentFault(named("squeue", str(first.get("description") or first.get("error"))))


def parse_runs(text: str) -> list[Job]:
    """Runs in sacct's answer with `RUN_FIELDS`, `FIELD` between them; requeued jobs have several."""
    runs = []
    for line in text.split("\n"):
        cells = line.split(FIELD)
        if len(cells) == len(RUN_FIELDS):
            runs.append(_run(dict(zip(RUN_FIELDS, cells, strict=True))))
    return runs


def parse_key_values(text: str) -> list[dict[str, str]]:
    """Records in the answer of `scontrol --oneliner show …`."""
    return [
        dict(re.findall(r"(\S+?)=(.*?)(?=\s+\S+?=|\s*$)", line))
        for line in text.splitlines()
        if "=" in line
    ]


@lru_cache(maxsize=256)  # thousands of tasks have equal texts
def gpus_of(held: str, of_job: str = "", of_node: str = "") -> tuple[int, str]:
    """Number of GPUs that a job holds or requests, and their type if given.

    Args:
        held: `cpu=4,node=1,gres/gpu=2,gres/gpu:a100=2`; it has GPUs only where Slurm accounts for them.
        of_job: request for the job, `gres/gpu:a100:2` (`gres:gpu:a100:2` in 22.05).
        of_node: request for each node, in the same form.
    """
    nodes = re.search(r"(?:^|,)node=(\d+)", held)
    many = int(nodes[1]) if nodes else 1
    count, kind = 0, ""
    for text, times in ((held, 1), (of_job, 1), (of_node, many)):
        own, named = _gpus(text)
        count, kind = count or own * times, kind or named
    return count, kind


def _gpus(text: str) -> tuple[int, str]:
    total, typed, kind = 0, 0, ""
    for part in text.split(","):
        # A single part after the colon is a count, since no type is a number.
        match = re.fullmatch(
            r"(?:gres[:/])?gpu(?::(?!\d+$)([^:=()]+))?(?:[:=](\d+))?", part.strip()
        )
        if match is None:
            continue
        number = int(match[2] or 1)
        if match[1]:
            typed, kind = typed + number, kind or match[1]
        else:
            total += number
    return total or typed, kind


@lru_cache(maxsize=256)
def clock_seconds(text: str) -> int | None:
    """`[D-][[HH:]MM:]SS`, as squeue writes limits, in seconds; None for UNLIMITED and the like."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)", text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def clock(seconds: int) -> str:
    """A time limit as Slurm writes it, `[D-]HH:MM:SS`."""
    days, rest = divmod(seconds, 86400)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def _queued(row: Sequence[str]) -> Job:
    """A job from the cells of `QUEUE_FIELDS`; unpacked by place, since there are thousands."""
    array_id, name, state, reason, node, restarts, code, partition, priority, *rest = row
    submitted, start, end, limit, *tres, comment = rest
    held, of_job, of_node = (_text(one) for one in tres)
    job_id, task_ids = _split_array(array_id)
    gpus, kind = gpus_of(held, of_job, of_node)
    return Job(
        job_id,
        name,
        state,
        reason=_text(reason),
        node=_text(node),
        restarts=_integer(restarts),
        exit_code=_text_exit(code),
        partition=_text(partition),
        comment=_text(comment),
        priority=_integer(priority),
        submitted=_time(submitted),
        start=_time(start),
        end=_time(end),
        time_limit=clock_seconds(limit),
        tres=held,
        gpus=gpus,
        gpu_type=kind,
        task_ids=task_ids,
    )


def _text(cell: str) -> str:
    """A cell, empty where squeue marks an empty value."""
    return "" if cell in ("N/A", "(null)") else cell


def _job(job: Mapping[str, Any]) -> Job:
    array, task = _number(job.get("array_job_id")), _number(job.get("array_task_id"))
    single = not array or task is None
    limit = _number(job.get("time_limit"))
    tres = str(job.get("tres_alloc_str") or job.get("tres_req_str") or "")
    asked = (job.get("tres_per_job"), job.get("tres_per_node"))
    gpus, kind = gpus_of(tres, *(str(one or "") for one in asked))
    return Job(
        str(array or job["job_id"]) if single else f"{array}_{task}",
        str(job.get("name", "")),
        _words(job.get("job_state")),
        reason=str(job.get("state_reason") or ""),
        node=str(job.get("nodes") or ""),
        restarts=_number(job.get("restart_cnt")) or 0,
        exit_code=_json_exit(job.get("exit_code")),
        partition=str(job.get("partition") or ""),
        comment=_json_comment(job.get("comment")),
        priority=_number(job.get("priority")) or 0,
        submitted=_number(job.get("submit_time")) or None,
        start=_number(job.get("start_time")) or None,
        end=_number(job.get("end_time")) or None,
        time_limit=None if limit is None else limit * 60,
        tres=tres,
        gpus=gpus,
        gpu_type=kind,
        task_ids=str(job.get("array_task_string") or "") if single else "",
    )


def _run(row: Mapping[str, str]) -> Job:
    job_id, task_ids = _split_array(row["JobID"])
    gpus, kind = gpus_of(row["AllocTRES"])
    joules = re.search(r"(?:^|,)energy=(\d+)", row["AllocTRES"])
    energy = _integer(joules[1] if joules else row["ConsumedEnergyRaw"])
    return Job(
        job_id,
        row["JobName"],
        _word(row["State"]),
        node="" if row["NodeList"] == "None assigned" else row["NodeList"],
        exit_code=_exit_pair(row["ExitCode"]),
        partition=row["Partition"],
        submitted=_time(row["Submit"]),
        start=_time(row["Start"]),
        end=_time(row["End"]),
        elapsed=float(_integer(row["ElapsedRaw"])),
        tres=row["AllocTRES"],
        gpus=gpus,
        gpu_type=kind,
        # 0 and numbers near 2⁶⁴ are Slurm's marks of a missing measurement.
        energy=float(energy) if 0 < energy < 2**62 else None,
        task_ids=task_ids,
    )


def _split_array(job_id: str) -> tuple[str, str]:
    """`4711_[3-9%2]` is the array 4711 with pending tasks."""
    array, bracket, tasks = job_id.partition("_[")
    return (array, tasks.rstrip("]")) if bracket else (job_id, "")


def _word(state: str) -> str:
    """The state without its user, as in `CANCELLED by 1000`."""
    return state.split(" ")[0]


def _words(value: Any) -> str:
    states = value if isinstance(value, list) else [value]
    if "COMPLETING" in states:  # its processes may still live, whatever its end
        return "COMPLETING"
    return str(states[0]) if states and states[0] else ""


def _integer(text: str) -> int:
    return int(text) if text.strip().isdigit() else 0


def _time(text: str) -> float | None:
    """Epoch seconds; `N/A`, `Unknown` and `None` are no time."""
    return float(text) if text.isdigit() and int(text) else None


def _wait_status(status: int) -> int:
    return status >> 8 or (128 + (status & 127) if status & 127 else 0)


def _text_exit(text: str) -> int:
    """The exit code in squeue's text: a wait status in 22.05, `3:0` in 24.11."""
    return _exit_pair(text) if ":" in text else _wait_status(_integer(text))


def _exit_pair(text: str) -> int:
    """The exit code from `3:0` or `0:15` in accounting."""
    code, _, signal = text.partition(":")
    return _integer(code) or (128 + _integer(signal) if _integer(signal) else 0)


def _json_exit(value: Any) -> int:
    """A wait status in 22.05, since then `{"return_code": …, "signal": {"id" or "signal_id": …}}`."""
    if not isinstance(value, Mapping):
        return _wait_status(_number(value) or 0)
    signal = value.get("signal") or {}
    number = _number(signal.get("id") or signal.get("signal_id")) or 0
    return _number(value.get("return_code")) or (128 + number if number else 0)


def _json_comment(value: Any) -> str:
    """The comment: a text in squeue; in other answers of newer versions one of three comments."""
    return str(value.get("job") or "") if isinstance(value, Mapping) else str(value or "")


def _number(value: Any) -> int | None:
    if isinstance(value, Mapping):
        return int(value["number"]) if value.get("set") and not value.get("infinite") else None
    return None if value is None else int(value)
