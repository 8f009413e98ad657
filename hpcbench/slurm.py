"""What Slurm says: one question for all jobs, pure parsers, Slurm 22.05 and newer.

`squeue --json` for jobs that live, `sacct --parsable2` for those that are gone. The JSON's shape changed
between versions (numbers became `{"set": …, "number": …}`, states became lists); `_number` and `_state`
take all of them.
"""

from __future__ import annotations

import getpass
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.errors import EnvironmentFault

LIVE = frozenset(
    {
        "PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD",
        "REQUEUE_FED", "RESIZING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "PREEMPTED",
    }
)  # fmt: skip
"""States in which Slurm still knows a job as its own; PREEMPTED is seen shortly before a requeue."""

TIMEOUT = 60
"""Seconds to wait for an answer; slurmctld under load can take its time."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job or one task of an array."""

    id: str
    """`4711`, or `4711_3` for an array task; a pending array shows once, as `4711`."""
    name: str
    """Job name."""
    state: str
    """Slurm's word, e.g. RUNNING."""
    reason: str = ""
    """Why it is pending."""
    node: str = ""
    """Where it runs."""
    restarts: int = 0
    """How often it was requeued."""
    exit_code: int = 0
    """What the job script returned."""

    @property
    def array_job(self) -> str:
        """The array's job id."""
        return self.id.partition("_")[0]

    @property
    def alive(self) -> bool:
        """Whether it runs or may run again by itself."""
        return self.state in LIVE


def available() -> bool:
    """Whether this machine can submit."""
    return shutil.which("sbatch") is not None


def queue() -> list[Job]:
    """This user's jobs that Slurm still holds in memory.

    Raises:
        EnvironmentFault: slurmctld does not answer.
    """
    return parse_squeue(_ask("squeue", "--json", "--user", getpass.getuser()), getpass.getuser())


def accounting(names: Iterable[str]) -> list[Job]:
    """Every run there ever was of jobs with these names; empty where there is no accounting."""
    listed = ",".join(names)
    command = (
        "sacct", "--parsable2", "--noheader", "--allocations", "--duplicates",
        "--starttime", "now-30days", "--name", listed,
        "--format", "JobID,JobName,State,ExitCode,NodeList",
    )  # fmt: skip
    if not listed or shutil.which("sacct") is None:
        return []
    try:
        return parse_sacct(_ask(*command))
    except EnvironmentFault:
        return []


def cancel(jobs: Sequence[str]) -> None:
    """Cancel jobs; those already gone are no error."""
    if jobs:
        _ask("scancel", "--quiet", *jobs)


def partitions() -> list[dict[str, str]]:
    """Partitions as `scontrol` describes them: PartitionName, Default, MaxTime, Nodes, TRES …

    Text, for Slurm 22.05 tells of partitions in no other way.
    """
    return parse_key_values(_ask("scontrol", "--oneliner", "show", "partition"))


@dataclass(frozen=True, slots=True)
class Nodes:
    """What the nodes of a partition have."""

    gres: frozenset[str]
    """GRES as Slurm writes them, e.g. `gpu:a100:8`."""
    cpus: int | None
    """CPUs of the largest."""
    memory_gb: float | None
    """Memory of the largest, GiB."""

    @property
    def gpus(self) -> dict[str, int]:
        """Type of GPU → most of them on a node."""
        found: dict[str, int] = {}
        for kind, count in re.findall(r"gpu:([A-Za-z_][\w.-]*):(\d+)", ",".join(sorted(self.gres))):
            found[kind] = max(found.get(kind, 0), int(count))
        return found


def nodes_by_partition() -> dict[str, Nodes]:
    """Partition → what its nodes have."""
    return parse_sinfo(_ask("sinfo", "--json"))


def max_array_size() -> int | None:
    """Slurm's MaxArraySize; None if it does not say."""
    found = re.search(
        r"^MaxArraySize\s*=\s*(\d+)", _ask("scontrol", "show", "config"), re.MULTILINE
    )
    return int(found[1]) if found else None


def version() -> str:
    """`slurm 22.05.8`."""
    return _ask("sbatch", "--version").strip()


def parse_squeue(text: str, user: str | None = None) -> list[Job]:
    """Jobs in the answer of `squeue --json`.

    Raises:
        EnvironmentFault: the answer is an error.
    """
    data = json.loads(text)
    if data.get("errors"):
        first = data["errors"][0]
        raise EnvironmentFault(f"squeue: {first.get('description') or first.get('error')}")
    return [
        _job(job)
        for job in data["jobs"]
        if user is None or job.get("user_name") in (user, "", None)
    ]


def parse_sacct(text: str) -> list[Job]:
    """Jobs in the answer of `sacct --parsable2 --noheader` with our format."""
    jobs = []
    for line in text.splitlines():
        job_id, name, state, exit_code, node = line.split("|")[:5]
        code, _, signal = exit_code.partition(":")
        number = int(code or 0) or (128 + int(signal) if int(signal or 0) else 0)
        jobs.append(Job(job_id, name, state.split(" ")[0], node=node, exit_code=number))
    return jobs


def parse_sinfo(text: str) -> dict[str, Nodes]:
    """Partition → nodes, from `sinfo --json`: nodes in 22.05, rows of like nodes since 23.02."""
    data = json.loads(text)
    rows = [
        (partition, node["gres"], node.get("cpus"), node.get("real_memory"))
        for node in data.get("nodes", ())
        for partition in node["partitions"]
    ]
    rows += [
        (
            row["partition"]["name"],
            row["gres"]["total"],
            (row.get("cpus") or {}).get("maximum"),
            (row.get("memory") or {}).get("maximum"),
        )
        for row in data.get("sinfo", ())
    ]
    found: dict[str, Nodes] = {}
    for partition in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == partition]
        memory = max((row[3] or 0 for row in own), default=0)
        found[partition] = Nodes(
            frozenset(row[1] for row in own),
            max((row[2] or 0 for row in own), default=0) or None,
            round(memory / 1024, 1) or None,
        )
    return found


def parse_key_values(text: str) -> list[dict[str, str]]:
    """Records in the answer of `scontrol --oneliner show …`."""
    return [
        dict(re.findall(r"(\S+?)=(.*?)(?=\s+\S+?=|\s*$)", line))
        for line in text.splitlines()
        if "=" in line
    ]


def _job(job: Mapping[str, Any]) -> Job:
    array, task = _number(job.get("array_job_id")), _number(job.get("array_task_id"))
    single = not array or task is None
    job_id = str(array or job["job_id"]) if single else f"{array}_{task}"
    return Job(
        job_id,
        str(job.get("name", "")),
        _state(job.get("job_state")),
        reason=str(job.get("state_reason", "")),
        node=str(job.get("nodes", "")),
        restarts=_number(job.get("restart_cnt")) or 0,
    )


def _number(value: Any) -> int | None:
    if isinstance(value, Mapping):
        return int(value["number"]) if value.get("set") else None
    return None if value is None else int(value)


def _state(value: Any) -> str:
    states = value if isinstance(value, list) else [value]
    if "COMPLETING" in states:  # its processes may still live, however it ended
        return "COMPLETING"
    return str(states[0]) if states else ""


def _ask(*command: str) -> str:
    """Run one of Slurm's commands and return what it prints.

    Raises:
        EnvironmentFault: it is not there, fails or does not answer.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except FileNotFoundError:
        raise EnvironmentFault(
            f"no `{command[0]}` on PATH", remedy="run on a login node, or use `executor: local`"
        ) from None
    except subprocess.TimeoutExpired:
        raise EnvironmentFault(f"{command[0]} gave no answer in {TIMEOUT} s") from None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise EnvironmentFault(f"{command[0]}: {lines[-1] if lines else f'exit {done.returncode}'}")
    return done.stdout
