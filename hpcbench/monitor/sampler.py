"""The monitor: a thread that reads a job's state twice a second, writes it to a file, and summarises it."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from hpcbench.monitor.alarms import GIB, Alarm, Alarms
from hpcbench.monitor.devices import gpus, visible
from hpcbench.monitor.engine_metrics import EngineState, engine_state
from hpcbench.monitor.host import Cgroup, Disk, HostMemory, ProcessTree, Traffic, network
from hpcbench.monitor.nvml import Gpu, Nvml
from hpcbench.monitor.phases import HostSource, Phase, Reading, Tally

SEARCH_SECONDS = 2.0
"""Interval of the search for new processes of the tree."""
ENGINE_SECONDS = 2.0
"""Interval of requests for an engine's metrics; each costs it some milliseconds."""
DISK_SECONDS = 10.0
"""Interval of readings of disks, and of proportional memory where it is needed."""
FLUSH_SECONDS = 5.0
"""Longest delay of a line on its way to the file."""
LINES = 7200
"""After this many lines every second reading is written, after as many again every fourth …"""
LONGEST_PAUSE = 60.0
"""Longest pause between two requests to an engine that does not answer."""


@dataclass(frozen=True, slots=True)
class Summary:
    """All observations of a monitor."""

    whole: Phase
    """From start to stop."""
    phases: tuple[Phase, ...]
    """In the order of their first start."""
    notes: tuple[str, ...] = ()
    """Sources that could not be read, with reasons."""
    cpu_seconds: float = 0.0
    """CPU time of the monitor itself."""


@dataclass
class _Due:
    """A periodic task."""

    every: float
    next: float = 0.0

    def now(self, at: float) -> bool:
        if at < self.next:
            return False
        self.next = at + self.every
        return True


class Monitor:
    """Reads a process tree, its control group, its GPUs and its disks in its own thread.

        monitor = Monitor(os.getpid(), folders={"scratch": "/tmp"}, file=path, on_alarm=tell)
        monitor.start()                       # before any engine: memory in use now is the baseline
        monitor.mark("loading org/model")     # a phase of that name starts
        monitor.ask_engine(over_socket(socket, key))
        summary = monitor.stop()

    No failure here ends the run: an unreadable source is noted once and skipped from then on.

    Args:
        root: first process of the tree, the worker itself: the tree includes all its descendants.
        folders: name → folder whose disk is read.
        file: readings are appended to it, one JSON line each; None: no file.
        on_alarm: receives alarms, in the monitor's thread.
        seconds: interval of readings.
        least_free_bytes: see `Alarms`.
        alone: whether the control group of a job holds nothing but this tree.
    """

    def __init__(
        self,
        root: int,
        *,
        folders: Mapping[str, str | Path] | None = None,
        file: Path | None = None,
        on_alarm: Callable[[Alarm], None] = lambda alarm: None,
        seconds: float = 0.5,
        least_free_bytes: int = GIB,
        alone: bool = True,
    ) -> None:
        self._notes: list[str] = []
        self._alone = alone
        self._folders = {name: Path(folder) for name, folder in (folders or {}).items()}
        self._seconds, self._on_alarm = seconds, on_alarm
        self._tree = ProcessTree(root)
        self._cgroup = Cgroup.of(root)
        self._alarms = Alarms(
            {name: str(one) for name, one in self._folders.items()}, least_free_bytes
        )
        self._trail = _Trail(file, self._note) if file is not None else None
        self._engine = _Engine()
        self._due = {"search": _Due(SEARCH_SECONDS), "disk": _Due(DISK_SECONDS)}
        self._disks: dict[str, Disk] = {}
        self._network: dict[str, Traffic] = {}
        self._pss: int | None = None
        self._last: Reading | None = None
        self._marks: deque[str] = deque()
        self._watched: deque[int | None] = deque()
        self._tallies: dict[str, Tally] = {}
        self._lock = threading.Lock()
        self._stopping, self._wake = False, threading.Event()
        self._cpu_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)

    def start(self) -> None:
        """Take the first reading, whose GPU memory is the baseline, and start the thread.

        This may take seconds, if a driver has to wake up; so may `stop`.
        """
        self._nvml = Nvml(visible(gpus()), self._gpu_failed)
        if self._nvml.missing:
            self._note(
                "GPUs are not monitored: the package nvidia-ml-py or NVIDIA's driver is missing"
            )
        first = self._read()
        self._baseline = {gpu: one.used_bytes for gpu, one in first.gpus.items()}
        self._first = first.gpus
        self._whole = Tally("whole", self._baseline)
        self._current = self._tallies["start"] = Tally("start", self._baseline)
        self._take(first)
        self._thread.start()

    def mark(self, name: str) -> None:
        """Start a phase, or continue the one of that name. Returns at once."""
        self._marks.append(name)
        self._wake.set()

    def watch_engine(self, pid: int | None) -> None:
        """Raise an alarm when this process of the tree ends; None: watch none.

        Args:
            pid: its own number, which in its own PID namespace is not ours.
        """
        self._watched.append(pid)
        self._wake.set()

    def ask_engine(self, metrics: Callable[[], str] | None) -> None:
        """Set the source of the engine's `/metrics` text, e.g. `over_socket(…)`; None: no source."""
        self._engine = _Engine(metrics)

    def look(self) -> None:
        """Trigger a reading now. Returns at once."""
        self._wake.set()

    def gpu_memory_left(self, since: float) -> Mapping[Gpu, int] | None:
        """Bytes in use beyond the use before any engine, without memory of other users.

        Args:
            since: a moment of the monotonic clock.

        Returns:
            By the first reading after `since`; None: there is none yet. Empty: no GPU can be read.
        """
        if not self._first:
            return {}
        with self._lock:
            now = self._last
        if now is None or now.at < since:
            return None
        return {gpu: one.beyond(self._first[gpu]) for gpu, one in now.gpus.items()}

    def phase(self, name: str) -> Phase | None:
        """Summary of a phase so far; None: it has not started."""
        with self._lock:
            tally = self._tallies.get(name)
            return tally.phase() if tally is not None else None

    def stop(self) -> Summary:
        """Take a last reading and end the thread."""
        self._stopping = True
        self._wake.set()
        self._thread.join(10)  # a driver may hang for ever
        if not self._thread.is_alive():
            self._nvml.close()
        with self._lock:
            phases = tuple(tally.phase() for tally in self._tallies.values())
            return Summary(self._whole.phase(), phases, tuple(self._notes), self._cpu_seconds)

    def _run(self) -> None:
        start = time.thread_time()
        while True:
            stopping = self._stopping  # before the reading, so that one follows the call to stop
            try:
                self._take(self._read())
            except Exception as error:  # noqa: BLE001 (monitoring must never end a run)
                self._note(f"the monitor could not take a reading: {type(error).__name__}: {error}")
            self._cpu_seconds = time.thread_time() - start
            if stopping:
                break
            self._wake.wait(self._seconds)
            self._wake.clear()
        if self._trail is not None:
            self._trail.close()

    def _take(self, now: Reading) -> None:
        """Add a reading, write it, raise alarms, and switch to the requested phase."""
        with self._lock:
            self._whole.add(now, self._last)
            self._current.add(now, self._last)
            phase = self._current.name
            while self._marks:
                name = self._marks.popleft()
                self._current = self._tallies.setdefault(name, Tally(name, self._baseline))
                self._current.add(now, None)
            self._last = now
        # Outside the lock: a shared file system may block us, but must not block a caller that reads a phase.
        for alarm in self._alarms.new(now, self._tree):
            self._on_alarm(alarm)
        if self._trail is not None:
            self._trail.write(phase, now)

    def _read(self) -> Reading:
        at = time.monotonic()
        host = self._cgroup.read() if self._cgroup is not None else None
        search = self._due["search"].now(at) or self._stopping or bool(self._watched)
        self._tree.look(search)
        members = self._tree.members
        while self._watched:
            self._watch(self._watched.popleft())
        if self._due["disk"].now(at):
            found = {name: Disk.of(folder) for name, folder in self._folders.items()}
            self._disks = {name: disk for name, disk in found.items() if disk is not None}
            self._pss = None if self._of_job(host) else self._tree.pss_bytes()
        if search:
            self._network = network()
        held, source = self._held(host)
        zombies = sum(one.state == "Z" for one in members.values())
        return Reading(
            at=at,
            gpus=self._nvml.read(members.keys()),
            host=host,
            held_bytes=held,
            held_source=source,
            processes=len(members) - zombies,
            zombies=zombies,
            cpu_seconds=self._tree.cpu_seconds,
            disks=self._disks,
            engine=self._engine.state(at),
            network=self._network,
        )

    def _watch(self, pid: int | None) -> None:
        own = self._tree.find(pid) if pid is not None else None
        if pid is not None and own is None:
            self._note(
                f"the monitor cannot find the engine's process {pid}: no alarm will report its end"
            )
        self._alarms.watch(self._tree.members[own] if own is not None else None)

    def _of_job(self, host: HostMemory | None) -> bool:
        """Whether a reading covers only this tree: any other control group holds other programs, too."""
        return host is not None and self._alone and self._cgroup is not None and self._cgroup.is_job

    def _held(self, host: HostMemory | None) -> tuple[int, HostSource]:
        if host is not None and self._of_job(host):
            return host.held, "job"
        return (self._pss, "pss") if self._pss is not None else (self._tree.rss_bytes, "rss")

    def _gpu_failed(self, message: str) -> None:
        self._note(message)
        self._on_alarm(Alarm("gpu_unreadable", message))

    def _note(self, message: str) -> None:
        if message not in self._notes:
            self._notes.append(message)


@dataclass
class _Engine:
    """Requests metrics at intervals; less often if the engine does not answer."""

    metrics: Callable[[], str] | None = None
    _due: _Due = field(default_factory=lambda: _Due(ENGINE_SECONDS))
    _state: EngineState = field(default_factory=EngineState)

    def state(self, at: float) -> EngineState:
        if self.metrics is not None and self._due.now(at):
            try:
                self._state = engine_state(self.metrics())
                self._due.every = ENGINE_SECONDS
            except Exception:  # noqa: BLE001 (a reader of the caller's own may fail in any way)
                self._state = EngineState()
                self._due.every = min(2 * self._due.every, LONGEST_PAUSE)
                self._due.next = at + self._due.every
        return self._state


class _Trail:
    """Readings in a file, one line each; the more there are, the fewer are written."""

    def __init__(self, path: Path, failed: Callable[[str], None]) -> None:
        self._path, self._failed = path, failed
        self._file: TextIO | None = None
        self._seen = self._written = 0
        self._stride = 1
        self._flush = _Due(FLUSH_SECONDS)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            self._give_up(error)

    def write(self, phase: str, now: Reading) -> None:
        self._seen += 1
        if self._file is None or self._seen % self._stride:
            return
        try:
            line = json.dumps(_line(phase, now), separators=(",", ":"), ensure_ascii=False)
            self._file.write(line + "\n")
            self._written += 1
            if self._written % LINES == 0:
                self._stride *= 2
            if self._flush.now(now.at):
                self._file.flush()
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        try:
            if self._file is not None:
                self._file.close()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._file = None
        self._failed(f"cannot write readings to {self._path}: {error.strerror or error}")


def _line(phase: str, now: Reading) -> dict[str, Any]:
    """A reading in short form; sizes in bytes, unknown values left out."""
    gpus = [
        _known(
            gpu=gpu.index,
            used=one.used_bytes,
            ours=one.tree_bytes,
            utilisation=one.utilisation,
            celsius=one.celsius,
            sm_mhz=one.sm_mhz,
            watts=one.watts,
            throttles=one.throttles or None,
        )
        for gpu, one in now.gpus.items()
    ]
    return _known(
        time=round(time.time(), 2),
        at=round(now.at, 2),
        phase=phase,
        gpus=gpus or None,
        host=now.host.used if now.host is not None else None,
        held=now.held_bytes,
        cpu=round(now.cpu_seconds, 2),
        processes=now.processes,
        zombies=now.zombies or None,
        disk={name: disk.free for name, disk in now.disks.items()} or None,
        net={name: [one.received, one.sent] for name, one in now.network.items()} or None,
        running=now.engine.running,
        waiting=now.engine.waiting,
        kv=now.engine.kv_usage,
    )


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
