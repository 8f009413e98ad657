"""Observations over a time span, summarised: peaks, means over busy time, energy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

from hpcbench.monitor.engine_metrics import EngineState
from hpcbench.monitor.host import Disk, HostMemory, Traffic
from hpcbench.monitor.nvml import THROTTLES, Gpu, GpuReading

HostSource = Literal["job", "pss", "rss"]


@dataclass(frozen=True, slots=True)
class Reading:
    """All observations at one moment."""

    at: float
    """Seconds on the monotonic clock."""
    gpus: Mapping[Gpu, GpuReading]
    host: HostMemory | None
    """None: no control group."""
    held_bytes: int
    """Host memory that cannot be dropped; `held_source` names its source."""
    held_source: HostSource
    processes: int
    """Living processes of the tree."""
    zombies: int
    cpu_seconds: float
    """CPU time of the tree so far."""
    disks: Mapping[str, Disk]
    engine: EngineState
    """The last reported state; all None: the engine does not answer."""
    network: Mapping[str, Traffic] = field(default_factory=dict)
    """Interface → its traffic since the node started."""

    @property
    def busy(self) -> bool:
        """Whether requests are in progress, by the engine, else by the GPUs; True if neither reports."""
        if self.engine.running is not None:
            return self.engine.running > 0
        known = [one.utilisation for one in self.gpus.values() if one.utilisation is not None]
        return any(known) if known else True


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One GPU over a phase; None: unknown."""

    gpu: Gpu
    peak_bytes: int | None
    """Peak of memory: of our processes, or above the use at the start, see `source`."""
    source: Literal["processes", "device"] | None
    """`device`: the driver showed none of our processes, so all use above the start's counts as ours."""
    device_peak_bytes: int
    """Peak of memory in use, by any process."""
    utilisation: float | None
    """Mean over busy time, percent."""
    watts: float | None
    """Mean over busy time."""
    sm_mhz: float | None
    """Mean over busy time."""
    celsius: int | None
    """Highest."""
    watt_hours: float | None
    """Energy of the whole phase: the GPU's own counter, else power by the trapezoid rule."""
    throttles: tuple[str, ...]
    """Reasons for which it ran slower than possible, at any time."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A time span; spans of the same name are one phase."""

    name: str
    seconds: float
    busy_seconds: float
    """Seconds with requests in progress."""
    readings: int
    gpus: tuple[GpuUse, ...]
    host_peak_bytes: int | None
    """Peak of memory of Slurm's control group of the job, by the kernel's count from its start on."""
    host_held_peak_bytes: int
    host_source: HostSource | None
    processes: int
    """Most at a time."""
    zombies: int
    """Most at a time."""
    cpu_seconds: float
    """CPU time of the process tree."""
    disk_free: Mapping[str, int]
    """Minimum, bytes."""
    engine: EngineState
    """Greatest values."""
    network: Mapping[str, Traffic] = field(default_factory=dict)
    """Interface → its traffic in the phase."""


@dataclass
class _GpuTally:
    """Sums of one GPU."""

    baseline: int
    tree: int | None = None
    device: int = 0
    celsius: int | None = None
    joules: float | None = None
    throttles: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)

    def add(self, one: GpuReading, before: GpuReading | None, seconds: float, busy: bool) -> None:
        self.device = max(self.device, one.used_bytes)
        if one.tree_bytes is not None:
            self.tree = max(self.tree or 0, one.tree_bytes)
        if one.celsius is not None:
            self.celsius = max(self.celsius or one.celsius, one.celsius)
        self.throttles |= one.throttles
        for name in ("utilisation", "watts", "sm_mhz") if busy else ():
            value = getattr(one, name)
            if value is not None:
                self.sums[name] = self.sums.get(name, 0) + value * seconds
                self.weights[name] = self.weights.get(name, 0) + seconds
        spent = _joules(one, before, seconds)
        if spent is not None:
            self.joules = (self.joules or 0) + spent

    def mean(self, name: str) -> float | None:
        weight = self.weights.get(name, 0)
        return self.sums[name] / weight if weight else None

    def use(self, gpu: Gpu) -> GpuUse:
        own = max(0, self.device - self.baseline) if self.tree is None else self.tree
        return GpuUse(
            gpu=gpu,
            peak_bytes=own,
            source="device" if self.tree is None else "processes",
            device_peak_bytes=self.device,
            utilisation=self.mean("utilisation"),
            watts=self.mean("watts"),
            sm_mhz=self.mean("sm_mhz"),
            celsius=self.celsius,
            watt_hours=None if self.joules is None else self.joules / 3600,
            throttles=throttle_names(self.throttles),
        )


def _joules(one: GpuReading, before: GpuReading | None, seconds: float) -> float | None:
    """Energy since the previous reading."""
    if before is None:
        return None
    if one.joules is not None and before.joules is not None and one.joules >= before.joules:
        return one.joules - before.joules
    if one.watts is not None and before.watts is not None:
        return (one.watts + before.watts) / 2 * seconds
    return None


class Tally:
    """Summarises the readings of one phase.

    Args:
        name: of the phase.
        baseline: memory in use on each GPU before any engine started, bytes.
    """

    def __init__(self, name: str, baseline: Mapping[Gpu, int]) -> None:
        self.name = name
        self._gpus = {gpu: _GpuTally(used) for gpu, used in baseline.items()}
        self._seconds = self._busy_seconds = self._cpu_seconds = 0.0
        self._readings = self._held = self._processes = self._zombies = 0
        self._peak: int | None = None
        self._source: HostSource | None = None
        self._disks: dict[str, int] = {}
        self._engine = EngineState()
        self._network: dict[str, Traffic] = {}

    def add(self, now: Reading, before: Reading | None) -> None:
        """Add a reading; the time since `before` belongs to this phase."""
        seconds = now.at - before.at if before is not None else 0.0
        self._readings += 1
        self._seconds += seconds
        if now.busy:
            self._busy_seconds += seconds
        if before is not None:
            self._cpu_seconds += now.cpu_seconds - before.cpu_seconds
        for gpu, one in now.gpus.items():
            known = before.gpus.get(gpu) if before is not None else None
            self._gpus[gpu].add(one, known, seconds, now.busy)
        if now.host is not None and now.held_source == "job":
            self._peak = max(self._peak or 0, now.host.used, now.host.peak or 0)
        self._held = max(self._held, now.held_bytes)
        self._source = now.held_source
        self._processes = max(self._processes, now.processes)
        self._zombies = max(self._zombies, now.zombies)
        for name, disk in now.disks.items():
            self._disks[name] = min(self._disks.get(name, disk.free), disk.free)
        self._engine = _greatest((self._engine, now.engine))
        for name, traffic in now.network.items():
            if before is not None and (last := before.network.get(name)) is not None:
                so_far = self._network.get(name, Traffic(0, 0))
                self._network[name] = Traffic(
                    so_far.received + traffic.received - last.received,
                    so_far.sent + traffic.sent - last.sent,
                )

    def phase(self) -> Phase:
        """Summary of the readings so far."""
        return Phase(
            name=self.name,
            seconds=self._seconds,
            busy_seconds=self._busy_seconds,
            readings=self._readings,
            gpus=tuple(tally.use(gpu) for gpu, tally in self._gpus.items() if tally.device),
            host_peak_bytes=self._peak,
            host_held_peak_bytes=self._held,
            host_source=self._source,
            processes=self._processes,
            zombies=self._zombies,
            cpu_seconds=self._cpu_seconds,
            disk_free=dict(self._disks),
            engine=self._engine,
            network=dict(self._network),
        )


def throttle_names(bits: int) -> tuple[str, ...]:
    """Names of NVML's bits."""
    return tuple(name for bit, name in THROTTLES.items() if bits & bit)


def _greatest(states: Iterable[EngineState]) -> EngineState:
    known = list(states)
    greatest = {}
    for one in fields(EngineState):
        values = [value for state in known if (value := getattr(state, one.name)) is not None]
        greatest[one.name] = max(values, default=None)
    return EngineState(**greatest)
