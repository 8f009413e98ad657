"""What workers say of themselves, read from where the last look ended."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hpcbench.experiment.claims import Ends
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.log import LAST_WORDS, ends_told
from hpcbench.files.archive import Folder
from hpcbench.status.models import GpuUse

TROUBLES = (
    "model_failed", "engine_died", "disk_full", "failed", "shard_failed", "bad_node", "poisonous",
    "unreadable", "fenced", "alarm",
)  # fmt: skip
"""Events of workers that tell of trouble."""

TOLD_TO_END: Mapping[str, str] = {
    "SIGTERM": "a worker was told to end at once: preempted, requeued or cancelled in Slurm",
    "SIGUSR2": "a worker's time limit was near: it handed back what it had not asked",
    "replaced by a later run of this job": "a worker outlived its job, which Slurm had started again",
}
"""What Slurm's signals mean; a worker that ends for them loses nothing, but somebody may wonder why."""

TOLD_TO_END_HERE = {
    **TOLD_TO_END,
    "SIGTERM": "a worker was told to end at once: by `hpcbench cancel`, or by a signal on this machine",
}
"""The same of workers that no Slurm has started."""

GIB = 2**30
MONITOR_TAIL = 16_384
"""More than the longest line of a monitor: eight GPUs take some 1,500 bytes."""

_DULL = tuple(
    b'{"event":"%s"' % kind for kind in (b"progress", b"loading", b"resources", b"shard_claimed")
)
"""Beginnings of lines that are most of a file; of each kind only the last one of a look counts."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """Something a worker said went wrong."""

    kind: str
    """Kind of event."""
    message: str
    """The cause."""
    time: float
    """When, seconds since the epoch."""
    node: str
    """Where."""
    log: str
    """A file with more."""
    run_task: str | None = None
    """Run task it hit, if one."""
    model: str | None = None
    """Model it hit, if one."""
    alarm: bool = False
    """Whether it is but a warning of a monitor."""


@dataclass
class Worker:
    """One run of one array task, as its events file tells it."""

    group: str
    """Its group."""
    id: str
    """`JOB-RESTART`."""
    job: str = ""
    """Array task."""
    restart: int = 0
    """SLURM_RESTART_COUNT."""
    node: str = ""
    """Node as Slurm calls it."""
    pid: int = 0
    """Process on that node."""
    host: str = ""
    """Name of that node's host."""
    started: float = 0.0
    """When, seconds since the epoch."""
    heard: float = 0.0
    """When it was last heard of, by the shared file system's clock or its own."""
    ahead: float = 0.0
    """Seconds that its clock is ahead of the shared file system's."""
    model: str | None = None
    """Model it holds or loads."""
    loading: float | None = None
    """Since when it loads its model; None: it loads none."""
    shard: str | None = None
    """Shard it works on, by its last progress."""
    answered: int | None = None
    """Samples of that shard with an answer."""
    last_words: str | None = None
    """Kind of its last event, once it has ended."""
    log: str = ""
    """A file with more."""
    complaints: list[Complaint] = field(default_factory=list)
    """What it said went wrong."""
    owner: Mapping[str, Any] = field(default_factory=dict)
    """It, as the owner of shards."""
    done: dict[str, Ends] = field(default_factory=dict)
    """`SHARD.ATTEMPT` of those it has done since somebody took note → first and last event of each."""

    @property
    def ending(self) -> str:
        """Its last word, and why; empty while it has not said it."""
        if self.last_words is None:
            return ""
        own = next((one for one in reversed(self.complaints) if one.kind == self.last_words), None)
        return (
            f"its worker {self.last_words}: {own.message}"
            if own
            else f"its worker {self.last_words}"
        )

    def complain(self, kind: str, message: str, at: float, **more: Any) -> Complaint:
        """Something that went wrong with it, in the words of its own events or of others."""
        return Complaint(kind, message, at, self.node, more.pop("log", None) or self.log, **more)


class Workers:
    """All workers there ever were; `look` reads what is new."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._read: dict[Path, int] = {}
        self._known: dict[Path, Worker] = {}

    @cached_property
    def _signals(self) -> Mapping[str, str]:
        slurm = self._experiment.resolved.executor == "slurm"
        return TOLD_TO_END if slurm else TOLD_TO_END_HERE

    def look(self) -> list[Worker]:
        """Every worker, as it is now."""
        folder = self._experiment.workers()
        for name in sorted(folder.names):
            path = folder.path / name
            if not name.endswith(".events.jsonl"):
                continue
            worker = self._known.get(path)
            if worker is None:
                group, _, owner = path.name.removesuffix(".events.jsonl").partition(".")
                worker = self._known[path] = Worker(group, owner)
            if worker.last_words is None:
                self._news(folder, path, worker)
        return list(self._known.values())

    def _news(self, folder: Folder, path: Path, worker: Worker) -> None:
        begun, written = self._read.get(path, 0), None
        try:
            with path.open("rb") as file:
                file.seek(begun)
                data = file.read()
                # Of an open file: over NFS a mere look at its name may be minutes old.
                written = os.fstat(file.fileno()).st_mtime
                worker.heard = max(worker.heard, written)
        except FileNotFoundError:  # it was folded
            data = folder.read(path.name)[begun:]
        except OSError:  # it is being replaced, or the file server is away: next time
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._read[path] = begun + len(whole)
        if whole and not worker.log:
            log = path.with_name(path.name.removesuffix(".events.jsonl") + ".log")
            worker.log = str(log if log.exists() else path)
        at = None
        for event in _told(whole):
            at = _take(worker, event, self._signals)
        if at is not None and written is not None:
            worker.ahead = at - written


def monitor_heard(experiment: Experiment, worker: Worker) -> float:
    """When a worker's monitor last wrote, which it does also while a model loads; 0: it never did."""
    try:
        with experiment.worker_monitor(worker.group, worker.id).open("rb") as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return 0.0


def gpu_use(experiment: Experiment, worker: Worker) -> tuple[GpuUse, ...]:
    """A living worker's GPUs, as its monitor last saw them."""
    path = experiment.worker_monitor(worker.group, worker.id)
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - MONITOR_TAIL))
            tail = file.read()
    except OSError:
        return ()
    lines = tail[: tail.rfind(b"\n") + 1].splitlines()
    for line in reversed(lines):
        try:
            reading = json.loads(line)
        except ValueError:
            continue
        return tuple(map(_gpu, reading.get("gpus") or ()))
    return ()


def _gpu(reading: Mapping[str, Any]) -> GpuUse:
    used = reading.get("used")
    return GpuUse(
        gpu=int(reading["gpu"]),
        utilisation=reading.get("utilisation"),
        used_gb=None if used is None else round(used / GIB, 1),
    )


def _told(data: bytes) -> Iterator[dict[str, Any]]:
    """Events of whole lines, but for dull ones that a later one of their kind makes old."""
    last = set()
    for mark in _DULL:
        at = data.rfind(b"\n" + mark)
        last.add(data.count(b"\n", 0, at + 1) if at >= 0 else 0)
    lines = [
        line
        for number, line in enumerate(data.splitlines())
        if not line.startswith(_DULL) or number in last
    ]
    try:
        events = json.loads(b"[%s]" % b",".join(lines))  # all at once takes half the time
    except ValueError:
        events = map(_parsed, lines)
    for event in events:
        if isinstance(event, dict) and "event" in event:
            yield event


def _parsed(line: bytes) -> Any:
    """What a line says; None if it is damaged: what stands in other lines is no less true."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _take(worker: Worker, event: Mapping[str, Any], signals: Mapping[str, str]) -> float:
    """Learn from an event; returns when it was, by the worker's clock.

    Args:
        worker: whose event it is.
        event: the event.
        signals: what a signal that ended the worker means.
    """
    kind, at = str(event["event"]), float(event.get("time", 0.0))
    worker.heard = max(worker.heard, at)
    if kind == "started":
        owner = event.get("owner") or {}
        worker.owner = owner
        worker.job, worker.restart = str(owner.get("job", "")), int(owner.get("restart", 0))
        worker.host, worker.pid = str(owner.get("host", "")), int(owner.get("pid", 0))
        worker.node = str(owner.get("node") or worker.host)
        worker.started, worker.last_words = at, None
    elif kind == "model_loading":
        worker.model, worker.loading = event.get("model"), at
        worker.shard = worker.answered = None
    elif kind == "model_ready":
        worker.model, worker.loading = event.get("model"), None
    elif kind in ("progress", "shard_claimed"):
        worker.shard, worker.answered = event.get("shard"), event.get("answered")
    elif kind == "shard_done" and worker.owner:
        worker.done[f"{event.get('shard')}.{event.get('attempt')}"] = ends_told(event, worker.owner)
    if kind == "model_failed":
        worker.model = worker.loading = None
    if kind in TROUBLES:
        worker.complaints.append(_complaint(worker, kind, event, at))
    if kind == "draining" and (why := signals.get(str(event.get("signal")))):
        worker.complaints.append(worker.complain(kind, why, at, alarm=True))
    if kind in LAST_WORDS:
        worker.last_words = kind
    return at


def _complaint(worker: Worker, kind: str, event: Mapping[str, Any], at: float) -> Complaint:
    shard, alarm = str(event.get("shard", "")), kind in ("alarm", "fenced")
    return worker.complain(
        str(event.get("kind", kind)) if alarm else kind,
        str(event.get("message", kind)),
        at,
        log=event.get("log"),
        run_task=shard.rpartition("/")[0] or event.get("run_task"),
        model=event.get("model"),
        alarm=alarm,
    )
