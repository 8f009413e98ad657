"""The cluster: partitions, their nodes, limits, version."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from typing import Any

from hpcbench.errors import EnvironmentFault
from hpcbench.slurm.commands import ask, silent
from hpcbench.slurm.jobs import parse_key_values


@dataclass(frozen=True, slots=True)
class Nodes:
    """Resources of a partition's nodes."""

    gres: frozenset[str]
    """GRES in Slurm's form, e.g. `gpu:a100:8`."""
    cpus: int | None
    """CPUs of the largest node."""
    memory_gb: float | None
    """Memory of the largest node, GiB."""
    count: int | None = None
    """Number of nodes."""

    @property
    def gpus(self) -> dict[str, int]:
        """Type of GPU → largest number on a node."""
        found: dict[str, int] = {}
        for kind, count in re.findall(r"gpu:([A-Za-z_][\w.-]*):(\d+)", ",".join(sorted(self.gres))):
            found[kind] = max(found.get(kind, 0), int(count))
        return found


def available() -> bool:
    """Whether this machine can submit."""
    return shutil.which("sbatch") is not None


def on_cluster() -> bool:
    """Whether this machine submits to a cluster; also True while its controller cannot be reached."""
    if not available():
        return False
    try:
        return bool(partitions())
    except EnvironmentFault as fault:
        return silent(fault.message)


def version() -> str:
    """`slurm 22.05.8`."""
    return ask("sbatch", "--version").strip()


def partitions() -> list[dict[str, str]]:
    """Partitions as `scontrol` describes them: PartitionName, Default, MaxTime, Nodes, TRES …

    As text, since Slurm 22.05 has no other form for partitions.
    """
    return parse_key_values(ask("scontrol", "--oneliner", "show", "partition"))


def nodes_by_partition() -> dict[str, Nodes]:
    """Partition → resources of its nodes."""
    return parse_sinfo(ask("sinfo", "--json"))


def max_array_size() -> int | None:
    """Slurm's MaxArraySize; None if Slurm does not give it."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", ask("scontrol", "show", "config"), re.MULTILINE)
    return int(found[1]) if found else None


def parse_sinfo(text: str) -> dict[str, Nodes]:
    """Partition → nodes, from `sinfo --json`: nodes in 22.05, rows of equal nodes since 23.02."""
    data = json.loads(text)
    rows: list[tuple[Any, ...]] = [
        (partition, node["gres"], node.get("cpus"), node.get("real_memory"), 1)
        for node in data.get("nodes", ())
        for partition in node["partitions"]
    ]
    rows += [
        (
            row["partition"]["name"],
            row["gres"]["total"],
            (row.get("cpus") or {}).get("maximum"),
            (row.get("memory") or {}).get("maximum"),
            (row.get("nodes") or {}).get("total"),
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
            sum(row[4] or 0 for row in own) or None,
        )
    return found
