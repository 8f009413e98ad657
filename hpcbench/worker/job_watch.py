"""The job as seen from the host: its monitor, and the monitor's part in the worker's log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.inference.client_health import Health
from hpcbench.monitor.alarms import Alarm
from hpcbench.monitor.engine_log import LoggedMemory
from hpcbench.monitor.memory_figures import memory_figures
from hpcbench.monitor.sampler import Monitor, Summary
from hpcbench.worker.engine import EngineProcess, Loaded, last_lines
from hpcbench.worker.event_log import EventSink
from hpcbench.worker.gpu_release import wait_for_memory

ENGINES_DOING = ("out_of_memory", "memory_near_limit", "disk_nearly_full", "engine_gone")
"""Alarms that are logged with the engine's last lines, which may explain them."""

TAIL_LINES = 10


@dataclass
class RunTaskHealth:
    """Quality of the timing of a run task's requests, and its engine's report of memory."""

    memory: LoggedMemory
    health: Health = field(default_factory=Health)
    first_tokens: list[float] = field(default_factory=list)
    """Milliseconds to each first token."""


class JobWatch:
    """Watches one node of a job from before its first engine to after its last.

    Args:
        folders: folders whose disks are watched, by name.
        file: the monitor's output file.
        log: the engines' log.
        events: the worker's log.
        alone: whether the job has no other worker.
    """

    def __init__(
        self,
        folders: Mapping[str, str | Path],
        file: Path,
        log: Path,
        events: EventSink,
        *,
        alone: bool = True,
    ) -> None:
        self._alone = alone
        self._folders, self._file, self._log, self._events = folders, file, log, events
        self._seen: dict[str, RunTaskHealth] = {}
        self._monitor: Monitor
        self._wrapper: EngineProcess | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch the job inside the block."""
        loop = asyncio.get_running_loop()

        def tell(alarm: Alarm) -> None:
            loop.call_soon_threadsafe(self.alarm, alarm)

        self._monitor = Monitor(
            os.getpid(),
            folders=self._folders,
            file=self._file,
            on_alarm=tell,
            alone=self._alone,
        )
        await asyncio.to_thread(self._monitor.start)
        try:
            yield
        finally:
            self._tell_measured(await asyncio.to_thread(self._monitor.stop))

    def mark(self, phase: str) -> None:
        """Start a phase of the job, on all nodes of the engine."""
        self._monitor.mark(phase)
        if self._wrapper is not None:
            self._wrapper.mark(phase)

    def of(self, run_task: str, loaded: Loaded) -> RunTaskHealth:
        """The observations of a run task."""
        return self._seen.setdefault(run_task, RunTaskHealth(loaded.memory))

    def engine(self, wrapper: EngineProcess, loaded: Loaded | None, *, serves: bool = True) -> None:
        """Watch this engine from now on; None: watch none. `serves`: its process here answers requests."""
        self._wrapper = wrapper if loaded else None
        seen_from_here = loaded is not None and not wrapper.elsewhere
        self._monitor.watch_engine(loaded.pid if loaded and seen_from_here else None)
        self._monitor.ask_engine(wrapper.gauges() if loaded and serves else None)

    async def unloaded(self) -> None:
        """Wait for the memory of an engine that has ended."""
        await wait_for_memory(self._monitor, self._events)

    def alarm(self, alarm: Alarm) -> None:
        """Log an alarm of the monitor."""
        # A full file system is handled where answers are written.
        with contextlib.suppress(OSError):
            lines = last_lines(self._log)[-TAIL_LINES:]
            said = {"tail": lines} if alarm.kind in ENGINES_DOING else {}
            self._events.write("alarm", sync=True, kind=alarm.kind, message=alarm.message, **said)

    def _tell_measured(self, summary: Summary) -> None:
        """Log for each run task how well the client kept up, and the memory that serving took."""
        for note in summary.notes:
            self._events.write("monitor_note", message=note)
        phases = {phase.name: phase for phase in summary.phases}
        for name, seen in self._seen.items():
            median = statistics.median(seen.first_tokens or [0.0])
            health: dict[str, Any] = {
                "client_bound": seen.health.client_bound(median),
                **seen.health.to_json(),
            }
            self._events.write("client_health", run_task=name, **health)
            if name in phases:
                figures = asdict(memory_figures(phases[name], seen.memory))
                known = {key: value for key, value in figures.items() if value is not None}
                network = {
                    interface: asdict(traffic)
                    for interface, traffic in phases[name].network.items()
                }
                self._events.write("monitor", run_task=name, memory=known, network=network)
