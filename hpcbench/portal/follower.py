"""Follows a home: writes new, removed and changed experiments to the index, and sends news to readers.

The follower tails the files only of experiments that may still change by themselves. Each second it checks
the time and size of a few files of some ended experiments, in turn. The longer a kind of work takes, the less
often it runs, so that all work together takes a small part of a core. A fault in one experiment is logged,
and the others continue.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.baselines import baselines
from hpcbench.experiment.layout import Experiment, experiments_dir
from hpcbench.portal import index_entries
from hpcbench.portal.context import Portal, is_id
from hpcbench.portal.experiment_watch import Watch, experiment_news
from hpcbench.portal.index import DerivedFacts, Entry, IndexFault
from hpcbench.portal.models.live import ExperimentNews, Reset
from hpcbench.portal.results_cache import Results
from hpcbench.portal.slurm_poller import Asker
from hpcbench.portal.status_cache import figures_of, known_of
from hpcbench.portal.throttle import Pace
from hpcbench.status import ENDED, ExperimentStatus, ShardStatus
from hpcbench.status.own_jobs import last_change

_log = logging.getLogger(__name__)

SHARE = 0.05
"""Share of a core that all following takes, without the first read of each experiment."""

FILL_SHARE = 0.25
"""Share of a core that full scans of ended experiments take; each experiment is scanned once."""

TICK_SECONDS = 0.25
"""Pause between two rounds."""

LIST_SECONDS = (2.0, 10.0)
"""Time between two lists of all experiments, with readers and without, seconds."""

WRITE_SECONDS = (0.5, 5.0)
"""Time between two index entries of a running experiment, with readers and without, seconds."""

CHECKING_SECONDS = 0.01
"""Time per second for checks of ended experiments' files."""

MOST_CHECKED = 50
"""Most experiments whose files are checked each second."""

BASELINE_SECONDS = 10.0
"""Time between two reads of the baselines' names."""

READ_SECONDS = 0.5
"""Longest time for which experiments are read before other work has its turn."""

RESET_SECONDS = 5.0
"""Time between two messages to fetch all data again, while experiments are read for the first time."""

TELL_EVERY = 100
"""Experiments read between two lines of progress."""

UNSETTLED_SECONDS = 24 * 3600.0
"""How long a lost or interrupted experiment is still followed: its jobs may still report."""

QUIET_SECONDS = 1.0
"""How long after a request no full scan starts: a scan would delay the next page."""

FILL_SECONDS = 10.0
"""Time between two queries for experiments without a full scan."""

FAULT_SECONDS = (2.0, 600.0)
"""Pause of an experiment after a fault, and longest pause; each further fault doubles the pause."""


class Follower:
    """Follows a portal's home in a thread.

    Args:
        portal: the portal; the follower writes its index and publishes to its hub.
        tell: gets a line of progress while many experiments are read.
    """

    def __init__(self, portal: Portal, tell: Callable[[str], object] | None = None) -> None:
        self._portal, self._tell = portal, tell or (lambda _: None)
        self._stopping = threading.Event()
        self._whole = threading.Event()
        self._thread: threading.Thread | None = None
        self._asker = Asker()
        self._watches: dict[str, Watch] = {}
        self._stamps: dict[str, str] = {}
        self._named: dict[str, tuple[str, ...]] = {}
        self._to_read: deque[str] = deque()
        self._to_check: deque[str] = deque()
        self._to_fill: deque[str] = deque()
        self._resting: dict[str, tuple[float, float]] = {}
        """Experiment with a fault → end of its pause, and length of the pause."""
        self._listing, self._naming = Pace(SHARE / 4), Pace(SHARE / 4)
        self._checking, self._filling = Pace(SHARE / 4), Pace(FILL_SHARE)
        self._resetting, self._untold = Pace(1.0), False
        self._read = 0
        self.worked = 0.0
        """When an experiment was last read, by the monotonic clock."""
        portal.kept[follower_of] = self

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for its end."""
        self._stopping.set()
        self._asker.stop()
        if self._thread is not None:
            self._thread.join()

    def status(self, experiment: str) -> ExperimentStatus | None:
        """Status of a followed experiment from the last scan; None: it is not followed."""
        watch = self._watches.get(experiment)
        return watch.status if watch is not None else None

    def shards(self, experiment: str, run_task: str) -> list[ShardStatus] | None:
        """Shards of a run task of a followed experiment; None: it is not followed, or not scanned yet."""
        watch = self._watches.get(experiment)
        return watch.shards(run_task) if watch is not None and watch.status is not None else None

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self._safely():
                self.round()
            self._stopping.wait(TICK_SECONDS)

    def round(self) -> None:
        """Do all work that is due."""
        if self._rests(""):
            return
        watched = self._portal.hub.watched
        if self._naming.due():
            with self._safely(), self._naming.work(BASELINE_SECONDS):
                self._name()
        if self._listing.due():
            with self._safely(), self._listing.work(LIST_SECONDS[not watched]):
                self._list()
        self._read_some()
        for name, watch in list(self._watches.items()):
            if not self._rests(name):
                with self._safely(name):
                    self._follow(watch, watched=watched)
        if self._checking.due():
            with self._safely(), self._checking.work(1.0):
                self._check_some()
        quiet = time.monotonic() - self._portal.used > QUIET_SECONDS
        if quiet and self._whole.is_set() and not self._to_read and self._filling.due():
            self._fill_one()

    @contextmanager
    def _safely(self, experiment: str = "") -> Iterator[None]:
        """Log a fault; then the experiment pauses, or the whole follower if no experiment is named."""
        try:
            yield
            self._resting.pop(experiment, None)
        except Exception as fault:  # noqa: BLE001 - a fault of one experiment does not stop the others
            subject = experiment or str(self._portal.home)
            if isinstance(fault, IndexFault):
                experiment = ""  # a fault of the index, not of the experiment
            if isinstance(fault, IndexFault | EnvironmentFault | OSError):
                _log.warning("following %s: %s", subject, fault)
            else:
                _log.exception("following %s", subject)
            shortest, longest = FAULT_SECONDS
            pause = min(longest, 2 * self._resting.get(experiment, (0.0, shortest / 2))[1])
            self._resting[experiment] = (time.monotonic() + pause, pause)

    def _rests(self, name: str) -> bool:
        return time.monotonic() < self._resting.get(name, (0.0, 0.0))[0]

    # --- list of experiments ----------------------------------------------------------------------------

    def _list(self) -> None:
        """List the folder of experiments once."""
        there = self._there()
        if there is None:
            return
        known = self._portal.index.stamps()
        if gone := sorted(known.keys() - there):
            self._portal.index.remove(gone)
        for name in {*gone, *(self._watches.keys() - there)}:
            self._watches.pop(name, None)
            self._publish(experiment_news(name, "unreadable", "gone"))
        self._stamps = {name: stamp for name, stamp in known.items() if name in there}
        waiting = self._watches.keys() | set(self._to_read)
        # No stamp: new, or followed by an earlier portal or before the index was lost.
        new = sorted(name for name in there - waiting if not self._stamps.get(name))
        self._to_read.extend(name for name in reversed(new) if not self._rests(name))
        for name in self._watches.keys() - known.keys():
            self._watches[name].lost()
        if not self._to_read:
            self._whole.set()

    def _there(self) -> set[str] | None:
        """Ids of all experiments; None: the folder cannot be read."""
        folder = experiments_dir(self._portal.home)
        try:
            with os.scandir(folder) as found:
                return {
                    one.name
                    for one in found
                    if is_id(one.name) and one.is_dir(follow_symlinks=False)
                }
        except FileNotFoundError:
            return set()
        except OSError as error:  # an unreadable folder must not count as empty
            _log.warning("%s: %s", folder, error.strerror)
            return None

    def _name(self) -> None:
        """Read the names of baselines."""
        found: dict[str, list[str]] = {}
        for one in baselines(self._portal.home):
            if one.experiment is not None:
                found.setdefault(one.experiment, []).append(one.name)
        named = {name: tuple(some) for name, some in found.items()}
        changed = {
            name
            for name in named.keys() | self._named.keys()
            if named.get(name) != self._named.get(name)
        }
        self._named = named
        self._to_read.extend(name for name in changed if self._stamps.get(name))

    # --- ended experiments ------------------------------------------------------------------------------

    def _read_some(self) -> None:
        """Read experiments that are new, or changed after their end."""
        started = time.monotonic()
        found: list[Entry] = []
        while (
            self._to_read
            and time.monotonic() - started < READ_SECONDS
            and not self._stopping.is_set()
        ):
            name = self._to_read.popleft()
            with self._safely(name):
                found += self._entries(name)
            self._read += 1
            self.worked = time.monotonic()
            if self._read % TELL_EVERY == 0 and self._to_read:
                self._tell(f"index: {self._read} experiments read, {len(self._to_read)} to go")
        if found:
            self._portal.index.put(found)
        first = not self._whole.is_set()
        for entry in found:
            row, new = entry.row, entry.row.id not in self._stamps
            self._stamps[row.id] = entry.stamp
            if not first:
                self._publish(
                    experiment_news(
                        row.id,
                        row.state,
                        "new" if new else "scores",
                        answered=row.answered,
                        samples=row.samples,
                    )
                )
        if not self._to_read and self._stamps:
            self._whole.set()
        # A page may be open already. Thousands of messages would tell it no more than one does.
        self._untold |= first and bool(found)
        if self._untold and (self._whole.is_set() or self._resetting.due()):
            with self._resetting.work(RESET_SECONDS):
                self._untold = False
                self._portal.hub.publish(lambda seq, now: Reset(seq=seq, time=now))

    def _entries(self, name: str) -> list[Entry]:
        """The entry of an experiment; empty if it is not complete yet, or is followed from now on."""
        here = self._experiment(name)
        if not here.manifest_file.exists():  # submit has not written it yet
            return []
        stamp = index_entries.stamp_of(here)
        named = self._named.get(name, ())
        try:
            plan, ended = index_entries.planned(here), index_entries.ending(here)
            if ended is None:
                self._watches[name] = Watch(here, plan, new=name not in self._stamps)
                return []
            known = (
                None
                if ended == "done" and not index_entries.had_requests(here)
                else known_of(self._portal, here)
            )
        except (index_entries.Unreadable, OSError, ValueError, KeyError, TypeError):
            return [index_entries.unreadable(here, stamp, named)]
        read = index_entries.entry(
            plan,
            index_entries.results(here),
            index_entries.account(here),
            status=known.status if known else None,
            stamp=stamp,
            updated=index_entries.changed_at(stamp),
            baselines=named,
        )
        return [read]

    def _check_some(self) -> None:
        """Check files of some ended experiments: a user may resume, rescore or judge an experiment."""
        if not self._to_check:
            self._to_check.extend(sorted(self._stamps, reverse=True))
        until = time.monotonic() + CHECKING_SECONDS
        for _ in range(min(MOST_CHECKED, len(self._to_check))):
            name = self._to_check.popleft()
            stamp = self._stamps.get(name)
            if (
                stamp
                and name not in self._watches
                and index_entries.stamp_of(self._experiment(name)) != stamp
            ):
                self._to_read.append(name)
            if time.monotonic() > until:
                return

    def _fill_one(self) -> None:
        """Scan one finished experiment, whose status is spread over many files, in a quiet moment."""
        if not self._to_fill:
            with self._safely(), self._filling.work(FILL_SECONDS):
                unknown = self._portal.index.unknown()
                self._to_fill.extend(name for name in unknown if not self._rests(name))
        else:
            name = self._to_fill.popleft()
            with self._safely(name), self._filling.work(0.0):
                self._fill(name)

    def _fill(self, name: str) -> None:
        here = self._experiment(name)
        stamp = index_entries.stamp_of(here)
        row = self._portal.index.experiment(name)
        if stamp != self._stamps.get(name) or row is None:
            return
        known = known_of(self._portal, here)
        self.worked = time.monotonic()
        if row.failures != index_entries.causes(known.status):
            filled = index_entries.entry(
                index_entries.planned(here),
                index_entries.results(here),
                index_entries.account(here),
                status=known.status,
                stamp=stamp,
                updated=row.updated,
                baselines=row.baselines,
            )
            self._portal.index.put([filled])

    # --- running experiments ----------------------------------------------------------------------------

    def _follow(self, watch: Watch, *, watched: bool) -> None:
        """Follow a running experiment, and publish its news."""
        name, snapshot = watch.plan.id, None
        if watch.plan.executor == "slurm":
            snapshot = self._asker.newest(last_change(watch.experiment))
        watch.share(SHARE / len(self._watches))
        watch.named(self._named.get(name, ()))
        watch.follow(snapshot, watched=watched)
        if self._settled(watch):
            self._settle(watch)
        elif watch.writing.due():
            with watch.writing.work(WRITE_SECONDS[not watched]):
                if (entry := watch.entry()) is not None:
                    self._portal.index.put([entry])
                    self._stamps[name] = ""
        if (news := watch.news()) is not None:
            self._publish(news)

    def _settled(self, watch: Watch) -> bool:
        """Whether the experiment will not change by itself any more."""
        if watch.status is None or watch.status.state not in ENDED:
            return False
        gone = watch.status.state in ("lost", "interrupted")
        return not gone or time.time() - watch.updated > UNSETTLED_SECONDS

    def _settle(self, watch: Watch) -> None:
        """Stop following an ended experiment: from now on the stamp of its files shows changes."""
        name = watch.plan.id
        stamp = watch.finish()
        entry = watch.entry(stamp)
        assert watch.status is not None and entry is not None
        self._portal.index.put([entry])
        figures = figures_of(watch.experiment, Results())  # with an empty cache of its own
        self._portal.index.keep(name, stamp, DerivedFacts(watch.status, figures))
        self._stamps[name] = stamp
        del self._watches[name]

    def _publish(self, news: ExperimentNews) -> None:
        self._portal.hub.publish(lambda seq, now: news.model_copy(update={"seq": seq, "time": now}))

    def _experiment(self, name: str) -> Experiment:
        return Experiment(experiments_dir(self._portal.home) / name)


def follower_of(portal: Portal) -> Follower | None:
    """The portal's follower; None: the portal has none."""
    found: Follower | None = portal.kept.get(follower_of)
    return found
