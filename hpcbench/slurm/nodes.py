"""The nodes in slurmctld's memory, with the GPUs that jobs hold: one question for all readers.

`scontrol --details show nodes` gives this in every version since 22.05 and needs no accounting of GPUs; sinfo
merges equal nodes, and its JSON has another shape in each version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcbench.slurm.commands import ask
from hpcbench.slurm.jobs import parse_key_values
from hpcbench.slurm.queue import MAX_AGE
from hpcbench.slurm.shared_answer import SharedAnswer, shared_answer

_DETAILS = ("scontrol", "--oneliner", "--details", "show", "nodes")
_PARTITIONS = ("scontrol", "--oneliner", "show", "partition")

PARTITIONS_AGE = 300.0
"""Maximum age of an answer about partitions, seconds: administrators change them by hand."""

DOWN = frozenset((
    "DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "MAINT", "MAINTENANCE", "NO_RESPOND",
    "NOT_RESPONDING",
    "POWERED_DOWN", "POWERING_DOWN", "REBOOT_ISSUED", "RESERVED", "UNKNOWN", "FUTURE", "INVALID_REG",
))  # fmt: skip
"""Words in a node's state that keep jobs from starting there."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node and its free resources."""

    name: str
    """Its name."""
    partitions: tuple[str, ...]
    """Partitions of the node."""
    state: str
    """Slurm's states, joined by `+`: `IDLE`, `MIXED`, `DOWN+DRAIN`."""
    cpus: int
    """CPUs."""
    cpus_used: int
    """CPUs that jobs hold."""
    gpus: dict[str, int]
    """Type of GPU → number; the type is empty where Slurm gives none."""
    gpus_used: dict[str, int]
    """Type of GPU → number that jobs hold."""
    why: str = ""
    """The administrators' reason for taking it out of service."""

    @property
    def up(self) -> bool:
        """Whether jobs may start on it."""
        return "*" not in self.state and not DOWN & set(re.split(r"[^A-Z_]+", self.state))

    @property
    def idle(self) -> bool:
        """Whether the node has no job and could run one."""
        return self.up and self.state.startswith("IDLE")


def nodes_answer(max_age: float = MAX_AGE, *, folder: Path | None = None) -> SharedAnswer:
    """Input for `parse_nodes`, requested at most every `max_age` seconds by all readers on this machine."""
    return shared_answer(" ".join(_DETAILS), lambda: ask(*_DETAILS), max_age, folder=folder)


def partitions_answer(folder: Path | None = None) -> SharedAnswer:
    """Partitions for `parse_key_values`, shared in the same way."""
    return shared_answer(
        " ".join(_PARTITIONS), lambda: ask(*_PARTITIONS), PARTITIONS_AGE, folder=folder
    )


def parse_nodes(text: str) -> Iterator[Node]:
    """Nodes in the answer of `scontrol --oneliner --details show nodes`; pure."""
    for row in parse_key_values(text):
        if "NodeName" not in row:
            continue
        why = row.get("Reason", "")
        yield Node(
            name=row["NodeName"],
            partitions=tuple(one for one in row.get("Partitions", "").split(",") if one),
            state=row.get("State", "UNKNOWN"),
            cpus=_integer(row.get("CPUTot", "")),
            cpus_used=_integer(row.get("CPUAlloc", "")),
            gpus=_gpus(row.get("Gres", "")),
            gpus_used=_gpus(row.get("GresUsed", "")),
            why=re.sub(r"\s*\[[^\[\]]*\]$", "", why),
        )


def expand_nodes(text: str) -> list[str]:
    """`gpu[01-03,7],login` as names, at most 4,096; unreadable text is unchanged."""
    found: list[str] = []
    for part in re.findall(r"[^,\[\]]+(?:\[[^\]]*\][^,\[\]]*)*", text):
        match = re.fullmatch(r"([^\[\]]*)\[([\d,-]+)\]([^\[\]]*)", part)
        if match is None:
            found.append(part)
            continue
        for span in match[2].split(","):
            first, _, last = span.partition("-")
            width, begin, end = len(first), _integer(first), _integer(last or first)
            for number in range(begin, min(end, begin + 4096) + 1):
                found.append(f"{match[1]}{number:0{width}d}{match[3]}")
    return found[:4096]


def _gpus(gres: str) -> dict[str, int]:
    """`gpu:a100:4(S:0-1),gpu:2,shard:8` → {a100: 4, "": 2}; counts in `(IDX:…)` are left out."""
    found: dict[str, int] = {}
    for part in re.split(r",(?![^(]*\))", gres):
        match = re.fullmatch(
            r"gpu(?::(?!\d+(?:\(|$))([^:()]+))?(?::(\d+))?(?:\(.*\))?", part.strip()
        )
        if match is not None:
            found[match[1] or ""] = found.get(match[1] or "", 0) + int(match[2] or 1)
    return found


def _integer(text: str) -> int:
    return int(text) if text.isdigit() else 0
