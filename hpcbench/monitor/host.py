"""A job as seen by the kernel: its processes, its memory control group, its disks.

Read from /proc, the control group's files and statvfs; no function here needs root or a package.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hpcbench.files.mounts import Mount, mounted
from hpcbench.process_table import Process, kernel_file, pids, process

_NO_LIMIT = 1 << 60
"""Control groups of version 1 write a number near 2^63 for "no limit"."""

_JOB = re.compile(r"^.*/job_\d+")
"""The group of a whole job, in Slurm's `…/uid_0/job_7/step_0/task_0` and `…/job_7/step_0/user/task_0`."""


@dataclass
class ProcessTree:
    """A process and all its descendants, also when a parent in between has ended.

    A look costs a small read per member, and with a search a listing of /proc and a read per new
    process: a node's thousands of other processes are read once.
    """

    root: int
    members: dict[int, Process] = field(default_factory=dict)
    """Members at the last look; includes dead members that are not reaped, with state Z."""
    ended: dict[int, Process] = field(default_factory=dict)
    """Members of the previous look that are gone, or zombies now."""
    _strangers: set[int] = field(default_factory=set)
    _lost_seconds: float = 0.0

    def look(self, search: bool = True) -> None:
        """Update `members` and `ended`; without `search`, new processes are not looked for."""
        before = self.members
        known: dict[int, Process] = {}
        for pid, old in before.items():
            now = process(pid)
            if now is not None and now.start_ticks == old.start_ticks:
                known[pid] = now
            else:
                self._lost_seconds += old.cpu_seconds
        if search:
            self._search(known)
        self.members = known
        self.ended = {
            pid: old
            for pid, old in before.items()
            if old.state != "Z" and (pid not in known or known[pid].state == "Z")
        }

    def _search(self, known: dict[int, Process]) -> None:
        """Add new processes of the tree to `known`."""
        every = pids()
        self._strangers &= every
        found = (process(pid) for pid in every - self._strangers - known.keys())
        fresh = {one.pid: one for one in found if one is not None}
        sessions = {one.session for one in known.values() if one.session == one.pid}
        while True:
            ours = [
                one
                for one in fresh.values()
                if one.pid == self.root or one.parent in known or one.session in sessions
            ]
            if not ours:
                break
            for one in ours:
                known[one.pid] = fresh.pop(one.pid)
                if one.session == one.pid:
                    sessions.add(one.pid)
        self._strangers |= fresh.keys()

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the tree; includes ended processes, as last seen."""
        return self._lost_seconds + sum(one.cpu_seconds for one in self.members.values())

    @property
    def rss_bytes(self) -> int:
        """Sum of the resident memory of all; a shared page counts once per process."""
        return sum(one.rss_bytes for one in self.members.values())

    def pss_bytes(self) -> int | None:
        """Resident memory with each shared page divided among its users; None: not readable.

        The kernel walks all page tables for it: do not read it often for a large process.
        """
        total = 0
        for pid, one in self.members.items():
            text = _read(Path(f"/proc/{pid}/smaps_rollup"))
            found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
            if found:
                total += int(found[1]) * 1024
            elif one.state != "Z" and one.rss_bytes:
                return None
        return total

    def find(self, pid: int) -> int | None:
        """Our number of the member whose own number in its innermost PID namespace is `pid`."""
        for member in self.members:
            found = re.search(
                r"^NSpid:\s+(.+)$", _read(Path(f"/proc/{member}/status")), re.MULTILINE
            )
            if found and int(found[1].split()[-1]) == pid:
                return member
        return None


def cpu_name() -> str:
    """The kernel's name of the processor, e.g. `AMD EPYC 9654 96-Core Processor`; else its architecture."""
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


@dataclass(frozen=True, slots=True)
class HostMemory:
    """A control group's memory at one moment, bytes."""

    used: int
    """All memory that counts towards its limit, including the cache of read files."""
    held: int
    """`used` without memory that the kernel can drop: cached files and reclaimable slabs."""
    peak: int | None
    """Peak of `used` since the group was created, by the kernel's own count."""
    limit: int | None
    """Smallest limit of the group and its ancestors."""
    limited_held: int | None
    """`held` of the group with that limit."""
    kills: int
    """Processes of the group that were killed for lack of memory, so far."""


class Cgroup:
    """The memory control group of a process: of the whole job under Slurm, else its own.

    Args:
        path: the group's folder.
        top: mount point of the hierarchy, where the search for limits ends.
        version: 1 or 2.
    """

    def __init__(self, path: Path, top: Path, version: int) -> None:
        self.path, self.version = path, version
        self.is_job = _JOB.fullmatch(str(path)) is not None
        self._names = _NAMES[version]
        self._above = [path, *(one for one in path.parents if one.is_relative_to(top))]

    @classmethod
    def of(cls, pid: int, proc: Path = Path("/proc")) -> Cgroup | None:
        """The control group of a process; None: none has a memory controller."""
        groups = _read(proc / str(pid) / "cgroup")
        own: dict[str, str] = {}
        for line in groups.splitlines():
            number, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                own["cgroup"] = path
            elif number == "0" and not controllers:
                own["cgroup2"] = path
        for one in _with_memory(_read(proc / str(pid) / "mountinfo")):
            # With its own namespace, or in a container, only a part is mounted.
            path, root = own.get(one.kind, ""), one.root.rstrip("/")
            if not path or not (path + "/").startswith(root + "/"):
                continue
            relative = path[len(root) :].lstrip("/")
            job = _JOB.match("/" + relative)
            version = 1 if one.kind == "cgroup" else 2
            folder = Path(one.place) / (job[0] if job else relative).lstrip("/")
            if (folder / _NAMES[version].used).exists():
                return cls(folder, Path(one.place), version)
        return None

    def read(self) -> HostMemory | None:
        """Read the group; None: it is gone."""
        used = _number(self.path / self._names.used)
        if used is None:
            return None
        held = self._held(self.path, used)
        limits = [(limit, one) for one in self._above if (limit := self._limit(one)) is not None]
        least, tight = min(limits, default=(None, self.path))
        inside = held if tight == self.path else self._held(tight, None)
        return HostMemory(
            used=used,
            held=held,
            peak=_number(self.path / self._names.peak),
            limit=least,
            limited_held=inside if least is not None else None,
            kills=_table(self.path / self._names.events).get("oom_kill", 0),
        )

    def _limit(self, folder: Path) -> int | None:
        limit = _number(folder / self._names.limit)
        return limit if limit is not None and limit < _NO_LIMIT else None

    def _held(self, folder: Path, used: int | None) -> int:
        used = used if used is not None else _number(folder / self._names.used) or 0
        stat = _table(folder / "memory.stat")
        if self.version == 1:
            cache, shared = stat.get("total_cache", 0), stat.get("total_shmem", 0)
            return max(0, used - (cache - shared))
        # Shared memory counts as file, and cannot be dropped.
        cache = stat.get("file", 0) - stat.get("shmem", 0)
        return max(0, used - cache - stat.get("slab_reclaimable", 0))


@dataclass(frozen=True, slots=True)
class _Names:
    used: str
    peak: str
    limit: str
    events: str


_NAMES = {
    1: _Names(
        "memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.limit_in_bytes", "memory.oom_control"
    ),
    2: _Names("memory.current", "memory.peak", "memory.max", "memory.events"),
}  # fmt: skip


def _with_memory(mountinfo: str) -> Iterator[Mount]:
    """Hierarchies with a memory controller."""
    for one in mounted(mountinfo):
        if one.kind == "cgroup2" or (one.kind == "cgroup" and "memory" in one.of_system):
            yield one


@dataclass(frozen=True, slots=True)
class Disk:
    """Space of a file system, bytes, without quotas."""

    free: int
    size: int

    @classmethod
    def of(cls, folder: Path) -> Disk | None:
        """Space for an ordinary user on the file system of `folder`; None: it is gone."""
        try:
            found = os.statvfs(folder)
        except OSError:
            return None
        return cls(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes through a network interface of this node, by all its programs."""

    received: int
    sent: int


_INFINIBAND_WORD = 4
"""Bytes that InfiniBand's counters count as one."""


def network(kernel: Path = Path("/sys/class")) -> dict[str, Traffic]:
    """Traffic of each interface since the node started: those of IP, and InfiniBand's ports, `mlx5_0/1`.

    RDMA counts at the ports only. The node's own loop is left out.
    """
    found = {}
    for folder in sorted(kernel.glob("net/*/statistics")):
        counts = _read(folder / "rx_bytes"), _read(folder / "tx_bytes")
        if folder.parent.name != "lo" and all(one.strip().isdigit() for one in counts):
            found[folder.parent.name] = Traffic(*map(int, counts))
    for folder in sorted(kernel.glob("infiniband/*/ports/*/counters")):
        counts = _read(folder / "port_rcv_data"), _read(folder / "port_xmit_data")
        if all(one.strip().isdigit() for one in counts):
            port = f"{folder.parents[2].name}/{folder.parent.name}"
            found[port] = Traffic(*(int(one) * _INFINIBAND_WORD for one in counts))
    return found


def _read(path: Path) -> str:
    return kernel_file(path).decode(errors="replace")


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() else None


def _table(path: Path) -> dict[str, int]:
    """Lines of `name number`."""
    pairs = (line.split() for line in _read(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
