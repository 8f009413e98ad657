"""Following all events of an experiment, from its files alone and at little cost.

Events are in many files, one writer each (`log.py`): the submission, every control request, every worker,
every attempt of a shard. `EventTail` reads them all as one stream. It opens a file again at each look, since
only that shows another node's writes over NFS. It looks at a file while the file may grow, less often the
longer it has been silent, and never again after its end. Workers report the shards they claim, so folders are
listed rarely. Every event is returned once, even if files are cut, replaced or read twice: source and `seq`
identify it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from hpcbench.errors import OTHER_FORM
from hpcbench.experiment.event_cursor import decode, encode
from hpcbench.experiment.event_log import LAST_WORDS, SHARD_ENDS, Sort, sort_of
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import rounds
from hpcbench.files.archive import FOLDED, Folder
from hpcbench.files.atomic import GONE, parse_line
from hpcbench.files.tail import Tail

LIST_SECONDS = (2.0, 15.0)
"""Shortest and longest time between two listings of the folders of workers and of control requests, while
they seem unchanged."""

SWEEP_SECONDS = 30.0
"""Time between two listings of all folders of shards: finds attempts that no worker reported."""

FOLDERS_AT_ONCE = 50
"""Folders of shards listed at one look."""

PATIENCE_SECONDS = 10.0
"""How long to wait for a line that is no JSON: some of its bytes may not have arrived yet."""


_ATTEMPT = re.compile(r"[0-9]{5,}\.[0-9]+\.events\.jsonl")
_WISH = re.compile(r"[0-9]+\.json")
_LAST_TIME = 1e11  # no calendar goes beyond it; comparisons with not-a-number are false
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Event:
    """An event."""

    source: str
    """The event's file: `submission`, `control`, `outcome`, `workers/GROUP.OWNER`,
    `shards/RUN_TASK/NNNNN.ATTEMPT`, `monitor/GROUP.OWNER`."""
    seq: int
    """The event's number in its source, from 1."""
    time: float
    """Time in seconds since the epoch, by the clock of the writing node."""
    kind: str
    """Kind of the event, see `log.Kind`."""
    data: Mapping[str, Any]
    """The other fields."""

    @property
    def sort(self) -> Sort:
        """The event's sort."""
        return sort_of(self.kind)

    def to_json(self) -> dict[str, Any]:
        """As `hpcbench events --json` prints it."""
        return {
            "source": self.source,
            "seq": self.seq,
            "time": self.time,
            "kind": self.kind,
            "data": dict(self.data),
        }


class _File(Tail):
    """A file of events."""

    def __init__(self, source: str, path: Path, now: float) -> None:
        super().__init__(path, now)
        self.source = source
        self.folder: Folder | None = None
        """The folder whose folded file holds this file now; None: it is not folded."""
        self.last = False
        """Whether the next look is the last one."""
        self.waits: tuple[int, float] | None = None
        """Offset of a line that cannot be parsed yet, and the time of the first try."""

    def block(self) -> bytes:
        """See `Tail`; for a folded file, read from the folder."""
        if self.folder is None:
            return super().block()
        data = self.folder.read(self.path.name)
        return data[self.offset : data.rfind(b"\n") + 1]


class EventTail:
    """All events of an experiment as one stream, live.

    Args:
        experiment: the experiment.
        since: cursor of an earlier tail: only later events are returned. Empty: from the beginning.
        resources: also return the monitor's readings, as events of kind `resources`.
        patience: seconds to wait for the rest of a line that is no JSON; then it is reported `unreadable`.
        clock: a clock in seconds that never goes back.

    Raises:
        UserError: `since` is no cursor of this experiment.
    """

    def __init__(
        self,
        experiment: Experiment,
        since: str = "",
        *,
        resources: bool = False,
        patience: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.fault: str | None = None
        """Why a file or folder could not be read at the last look; the next look tries it again."""
        self.ended = False
        """Whether the experiment had ended at the last look: no more events follow, unless it is resumed."""
        self._experiment, self._clock = experiment, clock
        self._patience = patience
        self._seqs = decode(since, experiment.id) if since else {}
        self._files: dict[str, _File] = {}
        """Files that may still grow, by source."""
        self._finished: set[str] = set()
        """Sources that have ended."""
        self._held: dict[str, set[str]] = {}
        """Worker → sources of the shards it claimed."""
        self._folders = _Folders(experiment, resources)
        self._outcome = _Outcome(experiment.outcome_file)
        self._round = -1
        self._polled = False
        self._add("submission", experiment.submission_file)

    @property
    def cursor(self) -> str:
        """The stream's position, for `since`: all events that `poll` has returned are before it."""
        return encode(self._seqs, self._experiment.id)

    def poll(self) -> list[Event]:
        """New events, nearly in order of time; each source's events in their own order."""
        self.fault = None
        changed = self._try(self._outcome.read)
        # In this order: if the outcome is there, all earlier events are, too.
        ending = self._ends() and not self.ended
        found = self._look(everything=not self._polled or ending or bool(changed))
        self._polled = True
        self.ended = self._ends() and self.fault is None
        merged = _merged(found)
        if self.ended and (last := self._outcome.event()) is not None:
            merged += self._new(last)
        return merged

    def follow(
        self, pause: float = 1.0, sleep: Callable[[float], object] = time.sleep
    ) -> Iterator[list[Event]]:
        """New events of each look until the experiment has ended; an empty list if there are none.

        Args:
            pause: seconds between two looks.
            sleep: waits for `pause`.
        """
        while True:
            yield self.poll()
            if self.ended:
                return
            sleep(pause)

    def _ends(self) -> bool:
        """Whether the newest known round has its outcome."""
        return self._outcome.round is not None and self._outcome.round >= self._round

    # --- which files ------------------------------------------------------------------------------------

    def _look(self, everything: bool) -> list[list[Event]]:
        """Read every file that is due, and files that are found during the look."""
        now = self._clock()
        self._try(lambda: self._folders.look(now, everything))
        found = [self._control_requests()]
        read: set[_File] = set()
        while due := self._due(now, everything, read):
            for file in due:
                read.add(file)
                found.append(self._read(file, now))
        return found

    def _due(self, now: float, everything: bool, read: set[_File]) -> list[_File]:
        self._try(self._folders.look_again)
        for source, path in self._folders.found():
            self._add(source, path)
        for source, folder, path in self._folders.found_folded():
            self._add_folded(source, folder, path)
        return [
            file
            for file in self._files.values()
            if (everything or file.due <= now) and file not in read
        ]

    def _add(self, source: str, path: Path) -> None:
        if source not in self._files and source not in self._finished:
            file = self._files[source] = _File(source, path, self._clock())
            file.last = source.replace("monitor/", "workers/") in self._finished

    def _add_folded(self, source: str, folder: Folder, path: Path) -> None:
        """Read a folded file a last time, unless all its events are known."""
        lines = folder.folded[path.name].lines
        if lines is not None and lines <= self._seqs.get(source, 0):
            self._finish(source)
        elif source not in self._finished:
            file = self._files[source] = _File(source, path, self._clock())
            file.folder, file.last = folder, True

    def _finish(self, source: str) -> None:
        """Never look at this source again."""
        self._files.pop(source, None)
        self._finished.add(source)

    # --- reading ----------------------------------------------------------------------------------------

    def _control_requests(self) -> list[Event]:
        """New control requests; each is a file, and its number is its `seq`."""
        events: list[Event] = []
        for number, path in self._folders.control_requests(after=self._seqs.get("control", 0)):
            line = self._try(path.read_bytes)
            if line is None:
                break  # the next request must not come before this one
            event = _event("control", line, number) or _unreadable("control", number, path)
            events += self._new(event)
        return events

    def _read(self, file: _File, now: float) -> list[Event]:
        """New events of a file."""
        events: list[Event] = []
        last = file.last
        try:
            while block := file.block():
                if not self._parse(file, block, now, events):
                    break
        except OSError as error:
            if error.errno in GONE:
                # Not visible on this node yet, or folded into another file.
                self._folders.look_at(file.path.parent)
            if error.errno != errno.ENOENT:
                self.fault = _words(error)
        file.looked(now, bool(events))
        if last and self.fault is None:
            self._finish(file.source)
        return events

    def _parse(self, file: _File, block: bytes, now: float, events: list[Event]) -> bool:
        """Turn lines into events; returns whether all lines were parsed."""
        for line in block.split(b"\n")[:-1]:
            event = _event(file.source, line, file.lines + 1)
            if event is None:
                if file.waits is None or file.waits[0] != file.offset:
                    file.waits = (file.offset, now)
                if not file.last and now - file.waits[1] < self._patience:
                    return False
                event = _unreadable(file.source, file.lines + 1, file.path)
            file.take(line)
            self._notice(file, event)
            events += self._new(event)
        return True

    def _new(self, event: Event) -> list[Event]:
        """The event, if it was not returned yet."""
        if event.seq <= self._seqs.get(event.source, 0):
            return []
        self._seqs[event.source] = event.seq
        return [event]

    # --- events about other files -----------------------------------------------------------------------

    def _notice(self, file: _File, event: Event) -> None:
        if file.source.startswith("workers/"):
            self._notice_worker(file.source, event)
        elif event.kind == "round" and file.source == "submission":
            self._round = max(self._round, event.data.get("round", -1))
            self._folders.hurry()
        elif event.kind in SHARD_ENDS and event.source == file.source:
            self._finish(file.source)

    def _notice_worker(self, worker: str, event: Event) -> None:
        held = self._held.setdefault(worker, set())
        kind, shard = event.kind, str(event.data.get("shard", ""))
        if sort_of(kind) != "progress":
            # The worker's activity changed: its shards may have ended.
            held.intersection_update(self._files)
            for source in held:
                self._files[source].due = 0.0
        run_task, _, index = shard.rpartition("/")
        attempt = event.data.get("attempt")
        if kind == "shard_claimed" and index.isdigit() and isinstance(attempt, int):
            source = f"shards/{shard}.{attempt}"
            self._add(source, self._experiment.shard_events(run_task, int(index), attempt))
            held.add(source)
        elif (
            kind != "shard_done"  # its file is known, and ends now
            and run_task
            and not any(source.startswith(f"shards/{shard}.") for source in held)
        ):
            self._folders.look_at(self._experiment.shards_dir(run_task))
        if kind in LAST_WORDS:
            self._finish(worker)
            if monitor := self._files.get(f"monitor/{worker.partition('/')[2]}"):
                monitor.last, monitor.due = True, 0.0

    def _try(self, look: Callable[[], _T]) -> _T | None:
        """Read from the file system; an error is kept as `fault`, and the next look tries again."""
        try:
            return look()
        except OSError as error:
            self.fault = _words(error)
            return None


def has_ended(experiment: Experiment) -> bool:
    """Whether the outcome of the newest round exists; reads two small files.

    Raises:
        OSError, DamagedFile: a file cannot be read.
    """
    outcome = _Outcome(experiment.outcome_file)
    outcome.read()
    if outcome.round is None:
        return False
    return outcome.round >= max((one.number for one in rounds(experiment)), default=0)


class _Folders:
    """New files of an experiment, found with few listings of its folders.

    Args:
        experiment: the experiment.
        resources: whether the monitor's files are wanted too.
    """

    def __init__(self, experiment: Experiment, resources: bool) -> None:
        self._experiment, self._resources = experiment, resources
        self._seen: dict[Path, set[str]] = {}
        self._found: list[tuple[str, Path]] = []
        self._folds: dict[Path, Folder] = {}
        self._folded: list[tuple[str, Folder, Path]] = []
        self._requests: list[int] = []
        self._wanted: set[Path] = set()
        self._pause, self._due = LIST_SECONDS[0], 0.0
        self._listed: tuple[int, ...] = ()
        self._sweep: Iterator[str] = iter(())
        self._sweep_due = 0.0

    def hurry(self) -> None:
        """Expect new workers soon."""
        self._pause, self._due = LIST_SECONDS[0], 0.0

    def look_at(self, folder: Path) -> None:
        """List this folder at the next look: new files are expected."""
        self._wanted.add(folder)

    def found(self) -> list[tuple[str, Path]]:
        """Source and path of files that were not returned before."""
        found, self._found = self._found, []
        return found

    def found_folded(self) -> list[tuple[str, Folder, Path]]:
        """Source, folder and former path of files folded since the last call."""
        found, self._folded = self._folded, []
        return found

    def control_requests(self, after: int) -> list[tuple[int, Path]]:
        """Number and path of the control requests after a number, in order."""
        folder = self._experiment.control_dir
        return [
            (number, folder / f"{number:05d}.json") for number in self._requests if number > after
        ]

    def look(self, now: float, everything: bool) -> None:
        """List the folders that are due."""
        # Over NFS a changed time may arrive late, so the folders are also listed without one.
        times = self._times()
        if everything or now >= self._due or times != self._listed:
            self._listed = times
            known = len(self._found)
            self._list(self._experiment.workers_dir)
            names = self._new(self._experiment.control_dir)
            requests = sorted(int(name[:-5]) for name in names if _WISH.fullmatch(name))
            self._requests += requests
            quiet = not requests and len(self._found) == known
            self._pause = min(LIST_SECONDS[1], 2 * self._pause) if quiet else LIST_SECONDS[0]
            self._due = now + self._pause
        if everything or now >= self._sweep_due:
            self._sweep = iter(_names(self._experiment.all_shards_dir))
            self._sweep_due = now + SWEEP_SECONDS
        for folder in self._sweep if everything else islice(self._sweep, FOLDERS_AT_ONCE):
            self._list(self._experiment.all_shards_dir / folder)

    def _times(self) -> tuple[int, ...]:
        """Times of the last change of the folders of workers and of requests; 0: the folder is missing."""
        folders = self._experiment.workers_dir, self._experiment.control_dir
        return tuple(map(_changed, folders))

    def look_again(self) -> None:
        """List the folders given to `look_at`."""
        while self._wanted:
            self._list(self._wanted.pop())

    def _list(self, folder: Path) -> None:
        """Find the new files of a folder and then, in this order, its newly folded files."""
        for name in self._new(folder):
            if source := self._source(folder, name):
                self._found.append((source, folder / name))
        fold = self._folds.get(folder)
        if FOLDED in self._seen[folder] and (fold is None or not fold.unchanged()):
            self._folds[folder] = now = Folder(folder)
            for name in now.folded.keys() - (fold.folded.keys() if fold else ()):
                if source := self._source(folder, name):
                    self._folded.append((source, now, folder / name))

    def _source(self, folder: Path, name: str) -> str | None:
        """Source of a file's events; None if its events are not wanted."""
        stem, _, kind = name.removesuffix(".jsonl").rpartition(".")
        if folder != self._experiment.workers_dir:
            run_task = self._experiment.run_task_in(folder.name)
            return f"shards/{run_task}/{stem}" if _ATTEMPT.fullmatch(name) else None
        if kind == "monitor" and self._resources:
            return f"monitor/{stem}"
        return f"workers/{stem}" if kind == "events" and name[0] != "." else None

    def _new(self, folder: Path) -> set[str]:
        """Names that the last listing did not have."""
        seen = self._seen.setdefault(folder, set())
        new = set(_names(folder)) - seen
        seen |= new
        return new


def _changed(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


class _Outcome:
    """The file `outcome.json`, read when it changes."""

    def __init__(self, path: Path) -> None:
        self.round: int | None = None
        """The outcome's round; None: the file is missing."""
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._said: Mapping[str, Any] = {}

    def read(self) -> bool:
        """Read the file if it changed; returns whether it did.

        Raises:
            OSError: the file cannot be read.
        """
        try:
            with self._path.open("rb") as file:
                stat = os.fstat(file.fileno())
                stamp = (stat.st_ino, stat.st_mtime_ns)
                if stamp == self._stamp:
                    return False
                said = json.loads(file.read())
            self._said, self._stamp, self.round = said, stamp, int(said["round"])
        except (FileNotFoundError, *OTHER_FORM):  # a damaged one counts as none
            self.round, self._stamp = None, None
            return False
        return True

    def event(self) -> Event | None:
        """The end as an event, the last one of its round."""
        if self._stamp is None or self.round is None:
            return None
        when = self._said.get("time", self._stamp[1] / 1e9)
        data = {key: value for key, value in self._said.items() if key not in ("time", "version")}
        return Event("outcome", self.round + 1, when, "ended", data)


def _event(source: str, line: bytes, number: int) -> Event | None:
    """The event of a line; None for any other line. Old events without `seq` have their line's number."""
    data = parse_line(line)
    if data is None:
        return None
    try:
        kind = "resources" if source.startswith("monitor/") else str(data.pop("event"))
        seq, when = int(data.pop("seq", number)), float(data.pop("time", 0.0))
    except (ValueError, KeyError, TypeError):
        return None
    return Event(source, seq, when if 0 <= when < _LAST_TIME else 0.0, kind, data)


def _unreadable(source: str, number: int, path: Path) -> Event:
    return Event(source, number, time.time(), "unreadable", {"file": str(path), "line": number})


def _merged(found: Sequence[Sequence[Event]]) -> list[Event]:
    """Events by time; where the clock of a source went back, the source's order wins."""
    keyed: list[tuple[float, Event]] = []
    latest: dict[str, float] = {}
    for events in found:
        for event in events:
            latest[event.source] = max(event.time, latest.get(event.source, 0.0))
            keyed.append((latest[event.source], event))
    keyed.sort(key=lambda one: one[0])  # stable: events of the same time keep their source's order
    return [event for _, event in keyed]


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone: iterdir makes a Path of each
    except FileNotFoundError:
        return []


def _words(error: OSError) -> str:
    return f"{error.filename or 'a file'}: {error.strerror or error}"
