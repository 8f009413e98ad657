"""Follows a running experiment: its events as they arrive, full scans at intervals, and news for readers.

A full scan counts every shard and judges every worker. On ten thousand shards a scan takes a good part of a
second, so scans are as frequent as their cost allows; between two scans only the events give the progress.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from hpcbench import slurm
from hpcbench.experiment.event_log import SHARD_ENDS
from hpcbench.experiment.events import Event, EventTail
from hpcbench.experiment.layout import Experiment
from hpcbench.portal import index_entries
from hpcbench.portal.index import Account, Entry
from hpcbench.portal.models.live import ExperimentNews, Progress
from hpcbench.portal.throttle import Pace
from hpcbench.status import (
    ExperimentStatus,
    Observer,
    RunTaskStatus,
    ShardStatus,
    State,
)
from hpcbench.status.findings import Facts
from hpcbench.status.render import in_words

POLL_SECONDS = (0.5, 5.0)
"""Time between two reads of the logs, with readers and without, seconds."""

LOOK_SECONDS = (1.0, 15.0)
"""Time between two full scans after new events, with readers and without, seconds."""

QUIET_SECONDS = 30.0
"""Time between two full scans without events: jobs start and vanish without an event."""

RESOURCES_SECONDS = 5.0
"""Time between two messages about new readings of GPUs and memory."""

TELL_SECONDS = 0.5
"""Shortest time between two messages."""

MOST_PROGRESS = 200
"""Most run tasks in one message."""

What = Literal["progress", "state", "scores", "failures", "resources", "new", "gone"]


class Watch:
    """Follows one experiment.

    Args:
        experiment: the experiment.
        plan: its unchanging facts.
        new: whether no message has announced it yet.
    """

    def __init__(self, experiment: Experiment, plan: index_entries.Planned, *, new: bool) -> None:
        self.experiment, self.plan = experiment, plan
        self.status: ExperimentStatus | None = None
        """Its status, from the last scan and the events since."""
        self.updated = 0.0
        """Time of its last event, seconds since the epoch."""
        self.writing = Pace(1.0)
        """Decides when the index may get the next entry."""
        self._polling, self._looking = Pace(1.0), Pace(1.0)
        self._publishing, self._resources = Pace(1.0), Pace(1.0)
        self._observer = Observer(experiment)
        self._tail: EventTail | None = None
        self._results, self._account, self._stamp = index_entries.Results(), Account(), ""
        self._answered: dict[str, int] = {}
        """Shard → samples with an answer."""
        self._shards: dict[str, list[ShardStatus]] = {}
        self._happened = False
        """Whether there were events since the last full scan."""
        self._moved: set[str] = set()
        self._unpublished: set[What] = {"new"} if new else set()
        self._ahead: set[What] = set()
        """Changes in messages that preceded the entry in the index."""
        self._unwritten = False
        self._baselines: tuple[str, ...] = ()

    def shards(self, run_task: str) -> list[ShardStatus]:
        """Shards of a run task from the last full scan, with answers from the events since."""
        return [
            one._replace(answered=max(one.answered, self._answered.get(one.id, 0)))
            for one in self._shards.get(run_task, ())
        ]

    def share(self, share: float) -> None:
        """Limit the load to a share of a core."""
        for pace in (self._polling, self._looking, self.writing):
            pace.share = share / 3

    def named(self, baselines: tuple[str, ...]) -> None:
        """Set the baseline names of the experiment."""
        if baselines != self._baselines:
            self._baselines, self._unwritten = baselines, True

    def lost(self) -> None:
        """Note that the index has lost the experiment's entry."""
        self._unwritten = self.status is not None

    def follow(self, snapshot: slurm.Snapshot | None, *, watched: bool) -> None:
        """Do all work that is due.

        Args:
            snapshot: Slurm's state; None: not known, or the experiment does not need it.
            watched: whether readers wait for news.

        Raises:
            OSError: the experiment's files cannot be read.
        """
        if watched:  # a new reader does not wait for the end of a long pause
            self._polling.soon(POLL_SECONDS[0])
        if self._tail is not None and self._polling.due():
            with self._polling.work(POLL_SECONDS[not watched]):
                self._take(self._tail.poll())
        known = snapshot is not None or self.plan.executor != "slurm"
        if known and self._happened:
            self._looking.soon(LOOK_SECONDS[not watched])
        if known and self._looking.due():
            with self._looking.work(QUIET_SECONDS):
                self._look(snapshot)

    def entry(self, stamp: str = "") -> Entry | None:
        """The entry for the index; None: the index already has the newest entry.

        Args:
            stamp: stamp of the entry's files, if the experiment will not change by itself; else empty.
        """
        if self.status is None or not (self._unwritten or stamp):
            return None
        self._unpublished |= self._ahead  # a second message says that the entry is there
        self._unwritten, self._ahead = False, set()
        return index_entries.entry(
            self.plan, self._results, self._account, status=self.status, stamp=stamp,
            updated=self.updated or self.plan.created, baselines=self._baselines,
        )  # fmt: skip

    def finish(self) -> str:
        """Scan an experiment that has ended for the last time.

        Returns:
            The stamp of the scanned files.
        """
        stamp = index_entries.stamp_of(self.experiment)
        if self.status is not None and self.status.state not in ("lost", "interrupted"):
            self._look(None)
        return stamp

    def news(self) -> ExperimentNews | None:
        """Unsent news; None: there is none, or the last message was sent a moment ago."""
        if self.status is None or not self._unpublished or not self._publishing.due():
            return None
        with self._publishing.work(TELL_SECONDS):
            return self._news(self.status)

    # --- messages ---------------------------------------------------------------------------------------

    def _news(self, status: ExperimentStatus) -> ExperimentNews:
        moved = [one for one in status.run_tasks if one.name in self._moved][:MOST_PROGRESS]
        progress = tuple(
            Progress(
                run_task=one.name,
                state=one.state,
                answered=one.answered,
                samples=one.samples,
                rate=one.rate,
            )
            for one in moved
        )
        news = experiment_news(
            self.plan.id, status.state, *sorted(self._unpublished), answered=status.answered,
            samples=status.samples, progress=progress,
        )  # fmt: skip
        if self._unwritten:
            self._ahead |= self._unpublished - {"resources"}
        self._unpublished, self._moved = set(), set()
        return news

    # --- scans ------------------------------------------------------------------------------------------

    def _look(self, snapshot: slurm.Snapshot | None) -> None:
        """Do a full scan."""
        facts = self._observer.facts(snapshot)
        status = in_words(facts, self._observer.state(facts))
        self._answered = {shard.id: shard.answered for _, shard in facts.shards}
        own: dict[str, list[ShardStatus]] = {}
        for _, shard in facts.shards:
            own.setdefault(shard.id.rpartition("/")[0], []).append(shard)
        self._shards = own
        self._happened = False
        self.updated = max(self.updated, _heard(facts))
        self._compare(status)
        self._read()
        if self._tail is None:
            self._tail = EventTail(self.experiment)
            self._tail.poll()  # the scan has counted the events so far
        if status.workers and self._resources.due():
            with self._resources.work(RESOURCES_SECONDS):
                self._unpublished.add("resources")

    def _read(self) -> None:
        """Read the evaluation's files, if they have changed."""
        stamp = index_entries.stamp_of(self.experiment)
        if stamp == self._stamp:
            return
        before = self._results, self._account
        self._results, self._account = (
            index_entries.results(self.experiment),
            index_entries.account(self.experiment),
        )
        if (self._results, self._account) != before:
            self._unwritten = True
            self._unpublished |= {"scores"} if self._stamp else set()
        self._stamp = stamp

    def _compare(self, status: ExperimentStatus) -> None:
        """Take a new status and note the differences."""
        before, self.status = self.status, status
        if before is None:
            self._unwritten = True
            return
        known = {one.name: one for one in before.run_tasks}
        for one in status.run_tasks:
            old = known.get(one.name)
            if old is None or old.state != one.state:
                self._unpublished.add("state")
            if old is None or (old.state, old.answered) != (one.state, one.answered):
                self._unpublished.add("progress")
                self._moved.add(one.name)
        if (before.state, before.needs, before.waits) != (status.state, status.needs, status.waits):
            self._unpublished.add("state")
        if [one.count for one in before.failures] != [one.count for one in status.failures]:
            self._unpublished.add("failures")
        if self._unpublished or before.rate != status.rate or before.eta != status.eta:
            self._unwritten = True

    def _take(self, events: Iterable[Event]) -> None:
        """Update the progress from events."""
        gained: dict[str, int] = {}
        started: set[str] = set()
        for event in events:
            self._happened = True
            self.updated = max(self.updated, event.time)
            shard = _shard_of(event)
            if shard is None or shard not in self._answered:
                continue
            run_task = shard.rpartition("/")[0]
            started.add(run_task)
            answered = event.data.get("answered")
            if isinstance(answered, int) and answered > self._answered[shard]:
                gained[run_task] = gained.get(run_task, 0) + answered - self._answered[shard]
                self._answered[shard] = answered
        if self.status is not None and started:
            self._compare(_moved(self.status, gained, started))


def experiment_news(
    experiment: str,
    state: State | Literal["unreadable"],
    *changed: What,
    answered: int = 0,
    samples: int = 0,
    progress: tuple[Progress, ...] = (),
) -> ExperimentNews:
    """A message; the hub sets its number and time."""
    return ExperimentNews(
        seq=0, time=0.0, experiment=experiment, state=state, answered=answered, samples=samples,
        progress=progress, changed=changed,
    )  # fmt: skip


def _shard_of(event: Event) -> str | None:
    """The shard that a worker is processing, from an event; None: the event names no such shard."""
    if event.kind in ("progress", "shard_claimed"):
        return str(event.data.get("shard", ""))
    if event.kind in SHARD_ENDS and event.source.startswith("shards/"):
        return event.source.removeprefix("shards/").rpartition(".")[0]
    return None


def _moved(status: ExperimentStatus, gained: dict[str, int], started: set[str]) -> ExperimentStatus:
    """A status with more answers and with started run tasks."""

    def after(one: RunTaskStatus) -> RunTaskStatus:
        if one.name not in started:
            return one
        answered = min(one.samples, one.answered + gained.get(one.name, 0))
        state = "running" if one.state == "pending" else one.state
        return replace(one, answered=answered, state=state)

    run_tasks = tuple(map(after, status.run_tasks))
    answered = sum(one.answered for one in run_tasks)
    return replace(status, run_tasks=run_tasks, answered=answered)


def _heard(facts: Facts) -> float:
    """Time of the last sign of life of an experiment, by the clocks of its nodes, and not later than now."""
    rounds = facts.run_state.rounds
    started = rounds[-1].started if rounds else 0.0
    last = max((worker.heard for worker in facts.workers), default=0.0)
    return min(max(started, last), time.time())
