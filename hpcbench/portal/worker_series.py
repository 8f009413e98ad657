"""Events and monitor readings of an experiment's workers, read once and then only the new lines.

A monitor writes two lines a second and a worker one every five seconds: files of megabytes that a page
requests again and again. Only events that change a state are kept, and readings as `thinned` series. A call
of `look` reads for a limited time, and the next call continues.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hpcbench.experiment.event_log import LAST_WORDS
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import Round, rounds
from hpcbench.experiment.view.workers import WorkerEvent, WorkerRun, WorkerRuns, parsed
from hpcbench.files.tail import ArchivedTail
from hpcbench.number_format import in_order
from hpcbench.portal.context import Portal, once
from hpcbench.portal.downsample import Point, Thinned
from hpcbench.portal.json_safe import finite
from hpcbench.portal.lru import LruCache, stamp_of
from hpcbench.schema.plan import Cut

LOOK_SECONDS = 0.015
"""Seconds that `look` reads; the next call continues."""

WORKERS = 64
"""Most workers that are read, those of the newest jobs."""

KEPT_BYTES = 3 << 20
"""Bytes of memory for the workers of all experiments."""

SERIES = 120
"""Most series of readings of an experiment, each some 80 kB."""

EVENTS = 1_000
"""Most events of a worker that are kept, the newest."""

GIB = 2**30

_DULL = frozenset({"progress", "loading", "resources", "monitor", "client_health"})
"""Kinds of events that change no state."""

_Reading = tuple[float, Mapping[str, Any]]
"""Time and data of a reading, or of one of its GPUs."""


@dataclass(slots=True)
class Series:
    """One figure of one device."""

    what: str
    """As `models.Strip.what`."""
    device: str
    """Number of the GPU; empty: the host."""
    points: Thinned = field(default_factory=Thinned)
    """Times and values."""


class Worker:
    """A run of a worker with the data that a page shows of it.

    Args:
        run: the run, from its events.
        monitor: reader of its monitor's file.
    """

    def __init__(self, run: WorkerRun, monitor: ArchivedTail) -> None:
        self.run = run
        self.gpu_name = ""
        """Name of its first GPU."""
        self.series: dict[tuple[str, str], Series] = {}
        """Readings of its monitor, by figure and device."""
        self.events: list[WorkerEvent] = []
        """Events that change a state, in order."""
        self.rate = Thinned()
        """Answers a second."""
        self._seen = monitor
        self._shard: tuple[float, str, int] | None = None
        self._cpu: tuple[float, float] | None = None

    @property
    def bytes(self) -> int:
        """Approximate bytes of memory."""
        series = [self.rate, *(one.points for one in self.series.values())]
        return 2_000 + 500 * len(self.events) + sum(one.bytes for one in series)

    def hear(self, event: Mapping[str, Any], cuts: Mapping[str, Cut]) -> None:
        """Process the worker's next event."""
        kind, at = str(event["event"]), finite(event.get("time"))
        if at is None:
            return
        if kind == "model_ready" and isinstance(machine := event.get("hardware"), dict):
            self.gpu_name = str(next(iter(machine.get("gpus") or ()), ""))
        self._count(kind, at, event, cuts)
        if kind not in _DULL:
            self.events.append(WorkerEvent.of(event))
            if len(self.events) > EVENTS:
                del self.events[1 : EVENTS // 10]  # the first one identifies the worker

    def worked_on(self, run_task: str) -> bool:
        """Whether an event names a run task."""
        return any(event.run_task == run_task for event in self.events)

    def watch(self, until: float) -> bool:
        """Read its monitor's readings; returns whether all are read."""
        while lines := self._seen.read():
            timed = ((finite(one.get("time")), one) for one in parsed(lines))
            self._read([(at, reading) for at, reading in timed if at is not None])
            if time.monotonic() > until:
                return False
        return self._seen.whole

    def _count(
        self, kind: str, at: float, record: Mapping[str, Any], cuts: Mapping[str, Cut]
    ) -> None:
        """Add the answers since its last event: a worker starts a shard after the end of the previous one."""
        shard = str(record.get("shard", ""))
        if kind == "progress" and self._shard is not None and self._shard[1] == shard:
            answered = int(finite(record.get("answered")) or 0)
            self._add_rate(at, max(0, answered - self._shard[2]))
            self._shard = (at, shard, answered)
        elif kind in ("shard_claimed", "shard_done") or kind in LAST_WORDS:
            if self._shard is not None:
                size = _samples(self._shard[1], cuts) if kind != "failed" else 0
                self._add_rate(at, max(0, size - self._shard[2]))
            self._shard = (at, shard, 0) if kind == "shard_claimed" else None

    def _add_rate(self, at: float, count: int) -> None:
        assert self._shard is not None
        if (seconds := at - self._shard[0]) > 0:
            self.rate.add(at, count / seconds)

    # --- what its monitor saw -----------------------------------------------------------------------------

    def _read(self, readings: Sequence[_Reading]) -> None:
        """Take readings, figure by figure: reading by reading takes three times as long."""
        gpus: dict[str, list[_Reading]] = {}
        for at, reading in readings:
            for gpu in reading.get("gpus") or ():
                if isinstance(gpu, dict):
                    gpus.setdefault(str(gpu.get("gpu", ""))[:40], []).append((at, gpu))
        for device, own in gpus.items():
            self._add("gpu_use", device, _values(own, "utilisation"))
            self._add("gpu_memory", device, _values(own, "used", 1 / GIB))
            self._add("gpu_power", device, _values(own, "watts"))
            self._add("gpu_temperature", device, _values(own, "celsius"))
        self._add("host_memory", "", _values(readings, "held", 1 / GIB))
        self._add("cpu", "", list(self._cpu_rates(_values(readings, "cpu"))))

    def _cpu_rates(self, used: Iterable[Point]) -> Iterator[Point]:
        """CPUs at a time, from seconds of CPU time until then."""
        for at, cpu in used:
            if self._cpu is None:
                self._cpu = (at, cpu)
            elif at - self._cpu[0] >= 1.0:  # twice a second is too often for a rate
                yield at, max(0.0, cpu - self._cpu[1]) / (at - self._cpu[0])
                self._cpu = (at, cpu)

    def _add(self, what: str, device: str, points: Sequence[Point]) -> None:
        if points:
            series = self.series.get((what, device))
            if series is None:
                series = self.series[what, device] = Series(what, device)
            series.points.extend(points)


class Workers:
    """Workers of one experiment; may be called from any thread.

    Args:
        experiment: the experiment.
        grown: called after each look: the workers may take more memory than before.
    """

    def __init__(self, experiment: Experiment, grown: Callable[[], object] = lambda: None) -> None:
        self._experiment, self._grown = experiment, grown
        # A circle of references would keep what the cache drops until a collection, megabytes each.
        hear = weakref.WeakMethod(self._hear)

        def heard(run: WorkerRun, event: Mapping[str, Any]) -> None:
            if (listener := hear()) is not None:
                listener(run, event)

        self._runs = WorkerRuns(experiment, heard, dull=True)
        self._known: dict[str, Worker] = {}
        self._lock = threading.Lock()

    @cached_property
    def _cuts(self) -> Mapping[str, Cut]:
        return {cut.run_task: cut for cut in self._experiment.work.cuts}

    @property
    def bytes(self) -> int:
        """Approximate bytes of memory."""
        return 2_000 + sum(one.bytes for one in list(self._known.values()))

    def look(
        self, groups: Iterable[str] | None = None, *, monitors: bool = False
    ) -> tuple[list[Worker], bool]:
        """Workers of the newest jobs, and whether all their events are read.

        Args:
            groups: only these groups; None: all groups.
            monitors: whether to read their monitors, too; of the newest workers, up to `SERIES` series.
        """
        until = time.monotonic() + LOOK_SECONDS
        wanted = None if groups is None else set(groups)

        def newest(stems: list[str]) -> list[str]:
            own = [one for one in stems if wanted is None or one.partition(".")[0] in wanted]
            return sorted(own, key=in_order)[-WORKERS:]

        with self._lock:
            runs, whole = self._runs.look(newest, until)
            found = [self._worker(run) for run in runs]
            watched = 0
            for one in found[::-1] if monitors else ():
                whole = one.watch(until) and whole
                watched += len(one.series) + 1
                if watched >= SERIES:
                    break
        self._grown()
        return found, whole

    def _worker(self, run: WorkerRun) -> Worker:
        if run.stem not in self._known:
            self._known[run.stem] = Worker(run, self._runs.monitor(run))
        return self._known[run.stem]

    def _hear(self, run: WorkerRun, event: Mapping[str, Any]) -> None:
        self._worker(run).hear(event, self._cuts)


def _values(readings: Iterable[_Reading], key: str, factor: float = 1.0) -> list[Point]:
    """Times and values of a figure; without readings that lack it."""
    return [
        (at, value * factor) for at, one in readings if (value := finite(one.get(key))) is not None
    ]


def _samples(shard: str, cuts: Mapping[str, Cut]) -> int:
    """Samples of a shard, `RUN_TASK/INDEX`; 0 for a shard that was not planned."""
    name, _, index = shard.rpartition("/")
    if (cut := cuts.get(name)) is None or not index.isdigit():
        return 0
    one = cut.shard(int(index))
    return max(0, one.stop - one.start)


def workers_of(portal: Portal, experiment: Experiment) -> Workers:
    """The reader of an experiment's workers."""
    kept, path = _kept(portal), experiment.path
    return kept.of(path, None, lambda: Workers(experiment, lambda: kept.weigh(path)))


_kept = once(lambda _: LruCache[Workers](KEPT_BYTES, lambda one: one.bytes))


_rounds: LruCache[list[Round]] = LruCache(64)


def rounds_of(experiment: Experiment) -> list[Round]:
    """Its rounds, oldest first, read again after a change of the file."""
    path = experiment.submission_file
    return _rounds.of(path, stamp_of(path), lambda: rounds(experiment))


def groups_of(experiment: Experiment, run_task: str) -> set[str]:
    """Groups whose workers process shards of a run task, of any round."""
    planned = [*experiment.work.groups, *(g for one in rounds_of(experiment) for g in one.groups)]
    return {group.id for group in planned if run_task in group.run_tasks}
