"""Runs of workers, read from their events: a run is one process of one array task, with its own file."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

from hpcbench.errors import OTHER_FORM
from hpcbench.experiment.event_log import LAST_WORDS, is_event, time_of
from hpcbench.experiment.layout import Experiment
from hpcbench.files.archive import FOLDED, Folder
from hpcbench.files.atomic import Tell, parse_line
from hpcbench.files.tail import ArchivedTail
from hpcbench.schema.spending import Amount
from hpcbench.schema.token_figures import TokenFigures

TROUBLES = (
    "model_failed", "engine_died", "disk_full", "failed", "shard_failed", "bad_node", "poisonous",
    "unreadable", "fenced", "alarm", "token_failed", "limited",
)  # fmt: skip
"""Events of workers that report trouble."""

EVENTS, MONITOR = ".events.jsonl", ".monitor.jsonl"
"""Suffixes of a run's files: events, and its monitor's readings."""

FEW = 1 << 14
"""Bytes of lines up to which they are parsed one by one, see `atomic.SHORT`."""

_DULL = tuple(
    b'{"event":"%s"' % kind for kind in (b"progress", b"loading", b"resources", b"shard_claimed")
)
"""Prefixes of the most frequent lines of a file; only the last line of each kind in a look counts."""

Hear = Callable[["WorkerRun", Mapping[str, Any]], object]
"""Receives every event of a run, in order."""


class AgentWork(NamedTuple):
    """Work of agents on a shard's samples in one attempt, by `progress` and `shard_done`."""

    turns: int
    """Turns that the attempt wrote."""
    calls: int
    """Their tool calls."""
    working: int
    """Samples in work."""

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> AgentWork | None:
        """The work that an event reports; None: it reports none."""
        turns, calls = event.get("turns"), event.get("calls")
        if not isinstance(turns, int) or not isinstance(calls, int):
            return None
        working = event.get("working")
        return cls(turns, calls, working if isinstance(working, int) else 0)


class LimitedWork(NamedTuple):
    """Effects of the rate limits of a model's gateway on a worker."""

    refused: int
    """Requests that it refused for now."""
    waits: int
    """Requests that waited before they were sent."""
    wait_seconds: float
    """Seconds in which they waited."""

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> LimitedWork:
        """The effects that an event reports; missing figures are 0.

        Raises:
            TypeError, ValueError: the event is damaged.
        """
        refused, waits, seconds = (event.get(name, 0) for name in cls._fields)
        return cls(int(refused), int(waits), float(seconds))


class WorkerEvent(NamedTuple):
    """The fields of a worker's event that several readers need; missing texts are empty."""

    kind: str
    """Its kind."""
    time: float
    """Seconds since the epoch, by the worker's clock."""
    run_task: str
    """Run task that it names, by a shard or by itself."""
    model: str | None
    """Model that it names."""
    message: str
    """Its message, or its reason."""
    alarm: str
    """The subject of an alarm, e.g. `memory`."""
    signal: str
    """Signal that ends the worker."""
    node: str
    """Node that it names."""
    log: str
    """A log file with details."""
    cause: str
    """Why an engine ended, as a name, e.g. `gpu_out_of_memory`."""

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> WorkerEvent:
        """The event of a record."""
        model = event.get("model")
        return cls(
            str(event["event"]),
            time_of(event),
            run_task_of(event),
            None if model is None else str(model),
            str(event.get("message") or event.get("reason") or ""),
            str(event.get("kind") or ""),
            str(event.get("signal") or ""),
            str(event.get("node") or ""),
            str(event.get("log") or ""),
            str(event.get("cause") or ""),
        )


@dataclass
class WorkerRun:
    """One run of one array task."""

    group: str
    """The worker's group."""
    id: str
    """`JOB-RESTART`, or `JOB.REPLICA-RESTART` of further workers of a job."""
    job: str = ""
    """Array task."""
    restart: int = 0
    """SLURM_RESTART_COUNT."""
    node: str = ""
    """The node's name in Slurm."""
    pid: int = 0
    """Process on that node."""
    host: str = ""
    """Host name of that node."""
    started: float = 0.0
    """Time of its first event, seconds since the epoch by its clock."""
    last: float = 0.0
    """Time of its newest event, by its clock."""
    heard: float = 0.0
    """Time of its last sign of life, by the shared file system's clock or its own."""
    ahead: float = 0.0
    """Seconds that its clock is ahead of the shared file system's."""
    model: str | None = None
    """Model it holds or loads."""
    loading: float | None = None
    """Start of its current load; None: it loads no model."""
    shard: str | None = None
    """Shard it works on, by its last progress."""
    answered: int | None = None
    """Samples of that shard with an answer."""
    work: dict[str, AgentWork] = field(default_factory=dict)
    """Shard → work of agents on it, by the last event that reports any."""
    last_words: str | None = None
    """Kind of its last event, once it has ended."""
    log: str = ""
    """A log file with details."""
    owner: Mapping[str, Any] = field(default_factory=dict)
    """Its record as an owner of shards; empty while its first line is not whole."""
    tokens: dict[str, TokenFigures] = field(default_factory=dict)
    """Model elsewhere → work for its tokens so far."""
    limits: dict[str, LimitedWork] = field(default_factory=dict)
    """Model elsewhere → effects of its gateway's rate limits so far."""
    spent: Amount | None = None
    """Amount that it spent so far, its requests in flight included, by its last event `budget`."""
    troubles: list[WorkerEvent] = field(default_factory=list)
    """Events that report trouble, and signals that ended it."""
    events: list[Mapping[str, Any]] = field(default_factory=list)
    """Its events in order, where the reader keeps them."""

    @property
    def stem(self) -> str:
        """Prefix of the names of its files."""
        return f"{self.group}.{self.id}"

    @property
    def seat(self) -> str:
        """`JOB` or `JOB.REPLICA`: the same in each run of the job."""
        return self.id.rpartition("-")[0]

    @property
    def replica(self) -> int:
        """Number of the worker in its job, from 0."""
        return int(self.seat.partition(".")[2] or 0)

    @property
    def array(self) -> str:
        """Job id of its array."""
        return self.job.partition("_")[0]

    @property
    def over(self) -> bool:
        """Whether it wrote its last event."""
        return self.last_words is not None

    @property
    def ending(self) -> str:
        """Its last event and the reason; empty before that event."""
        if self.last_words is None:
            return ""
        why = (one for one in reversed(self.troubles) if one.kind == self.last_words)
        reason = next((f": {one.message or one.kind}" for one in why), "")
        return f"its worker {self.last_words}{reason}"

    def take(self, event: Mapping[str, Any]) -> None:
        """Learn from its next event."""
        kind, at = str(event["event"]), time_of(event)
        self.last = max(self.last, at)
        self.heard = max(self.heard, at)
        if kind == "started":
            self._begin(event.get("owner"), at)
        elif kind == "model_loading":
            self.model, self.loading = event.get("model"), at
            self.shard = self.answered = None
        elif kind == "token":
            with contextlib.suppress(*OTHER_FORM):
                self.tokens[str(event["model"])] = TokenFigures.of(event)
        elif kind == "limited":
            with contextlib.suppress(*OTHER_FORM):
                self.limits[str(event["model"])] = LimitedWork.of(event)
        elif kind == "budget":
            with contextlib.suppress(*OTHER_FORM):
                self.spent = Amount.of(event["spent"])
        elif kind == "model_ready":
            self.model, self.loading = event.get("model"), None
        elif kind in ("progress", "shard_claimed"):
            self.shard, self.answered = event.get("shard"), event.get("answered")
        elif kind == "model_failed":
            self.model = self.loading = None
        if (work := AgentWork.of(event)) is not None:
            self.work[str(event.get("shard", ""))] = work
        if kind in TROUBLES or kind == "draining":
            self.troubles.append(WorkerEvent.of(event))
        if kind in LAST_WORDS:
            self.last_words = kind

    def _begin(self, said: object, at: float) -> None:
        owner = said if isinstance(said, Mapping) else {}  # a damaged line may still be JSON
        self.owner = owner
        restart, pid = owner.get("restart"), owner.get("pid")
        self.job, self.host = str(owner.get("job", "")), str(owner.get("host", ""))
        self.restart = restart if isinstance(restart, int) else 0
        self.pid = pid if isinstance(pid, int) else 0
        self.node = str(owner.get("node") or self.host)
        self.started, self.last_words = at, None


def spent_by(runs: Iterable[WorkerRun]) -> Amount | None:
    """Amount that these runs spent together, requests in flight included; None: none of them says so."""
    known = [run.spent for run in runs if run.spent is not None]
    return reduce(Amount.plus, known) if known else None


def run_task_of(event: Mapping[str, Any]) -> str:
    """The run task that an event names, by its shard or by itself; empty: it names none."""
    return str(event.get("shard", "")).rpartition("/")[0] or str(event.get("run_task") or "")


def worker_runs(
    experiment: Experiment, most: int | None = None, tell: Tell | None = None
) -> Iterator[WorkerRun]:
    """Every run, past or present, by name, with all its events; runs without events are left out.

    Args:
        experiment: the experiment.
        most: approximate maximum number of runs to read, evenly spread; None: all.
        tell: is called for each unreadable line: file, number.
    """
    files = list(experiment.worker_records(tell))
    for path, records in files[:: max(1, len(files) // most) if most else 1]:
        run = _run_of(path.name.removesuffix(EVENTS))
        for event in records:
            run.take(event)
            run.events.append(event)
        if run.events:
            yield run


def settled(experiment: Experiment) -> Hashable | None:
    """A stamp of its workers' files where none can grow any more: all are folded; None: some can."""
    folder = experiment.workers_dir
    try:
        names = {path.name for path in folder.iterdir()}
        if FOLDED not in names or any(name.endswith((EVENTS, MONITOR)) for name in names):
            return None
        stat = (folder / FOLDED).stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


@dataclass(slots=True)
class _Listing:
    """Files of all workers. Tails refer to this and not to the runs, which refer to the tails: no cycle."""

    experiment: Experiment
    found: Folder | None = None
    """The folder as the current look listed it."""

    def folder(self) -> Folder:
        if self.found is None:
            self.found = self.experiment.workers()
        return self.found


class WorkerRuns:
    """All runs of an experiment; each look reads only new events.

    Args:
        experiment: the experiment.
        hear: is called for every event, after its run has taken it.
        dull: whether to include events that a later event of their kind replaces; else these are not parsed.
    """

    def __init__(
        self, experiment: Experiment, hear: Hear = lambda run, event: None, *, dull: bool = False
    ) -> None:
        self._experiment, self._hear, self._dull = experiment, hear, dull
        self._listing = _Listing(experiment)
        self._known: dict[str, WorkerRun] = {}
        self._files: dict[str, ArchivedTail] = {}

    def monitor(self, run: WorkerRun) -> ArchivedTail:
        """The file of a run's monitor."""
        return ArchivedTail(self._listing.folder, run.stem + MONITOR)

    def look(
        self,
        choose: Callable[[list[str]], list[str]] = lambda stems: stems,
        until: float | None = None,
    ) -> tuple[list[WorkerRun], bool]:
        """The current runs, and whether all their events are read.

        Args:
            choose: chooses among the sorted stems.
            until: end of the look, by the monotonic clock; the next look continues from there.
        """
        self._listing.found = None
        names = self._listing.folder().names
        stems = sorted(name.removesuffix(EVENTS) for name in names if name.endswith(EVENTS))
        found, whole = [], True
        for stem in choose(stems):
            run = self._known.get(stem)
            if run is None:
                run = self._known[stem] = _run_of(stem)
                self._files[stem] = ArchivedTail(self._listing.folder, stem + EVENTS)
            if not run.over:
                whole = self._listen(stem, run, until) and whole
            found.append(run)
        return found, whole

    def _listen(self, stem: str, run: WorkerRun, until: float | None) -> bool:
        file = self._files[stem]
        while lines := file.read():
            if not run.log:
                log = self._experiment.worker_log(run.group, run.id)
                run.log = str(log if log.exists() else log.with_name(stem + EVENTS))
            at = None
            for event in filter(is_event, parsed(lines if self._dull else _without_dull(lines))):
                run.take(event)
                at = time_of(event)
                self._hear(run, event)
            if at is not None and file.written is not None:
                run.ahead = at - file.written
            if until is not None and time.monotonic() > until:
                return False
        # Time of the open file: over NFS a stat by name may be minutes old.
        run.heard = max(run.heard, file.written or 0.0)
        return file.whole


def parsed(lines: bytes) -> Iterable[dict[str, Any]]:
    """Records of whole lines; damaged lines are left out, the other lines stay valid."""
    each = lines.splitlines()
    found: Iterable[Any] = map(parse_line, each)
    if len(lines) > FEW:
        from pydantic_core import from_json

        with contextlib.suppress(ValueError):
            found = from_json(b"[%s]" % b",".join(each))  # at once: half the time
    return (record for record in found if isinstance(record, dict))


def _without_dull(lines: bytes) -> bytes:
    last = set()
    for mark in _DULL:
        at = lines.rfind(b"\n" + mark)
        last.add(lines.count(b"\n", 0, at + 1) if at >= 0 else 0)
    return b"\n".join(
        line
        for number, line in enumerate(lines.splitlines())
        if not line.startswith(_DULL) or number in last
    )


def _run_of(stem: str) -> WorkerRun:
    group, _, owner = stem.partition(".")
    return WorkerRun(group, owner, job=owner.rpartition("-")[0].partition(".")[0])
