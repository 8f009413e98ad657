"""One experiment that runs: its events as they come, a whole look now and then, and what is new to tell.

A whole look counts every shard and judges every worker. On ten thousand shards that takes a good part of a
second, so it is done as often as its cost allows; between two looks the events alone say how far it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Literal

from hpcbench import slurm
from hpcbench.experiment.events import Event, EventTail
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.log import SHARD_ENDS
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
"""Time between two looks at its logs, where somebody watches and where nobody does."""

LOOK_SECONDS = (1.0, 15.0)
"""Time between two whole looks while something happens, likewise."""

QUIET_SECONDS = 30.0
"""Time between two whole looks while nothing happens: jobs start and vanish without a word."""

RESOURCES_SECONDS = 5.0
"""Time between two words that there are new readings of GPUs and memory."""

TELL_SECONDS = 0.5
"""Shortest time between two messages."""

MOST_PROGRESS = 200
"""Run tasks that one message speaks of."""

What = Literal["progress", "state", "scores", "failures", "resources", "new", "gone"]


class Watch:
    """Follows one experiment.

    Args:
        experiment: the experiment.
        plan: what it was planned to be.
        new: whether nobody was told of it yet.
    """

    def __init__(self, experiment: Experiment, plan: index_entries.Planned, *, new: bool) -> None:
        self.experiment, self.plan = experiment, plan
        self.status: ExperimentStatus | None = None
        """How it is, as of the last look and the events since."""
        self.updated = 0.0
        """When something of it last happened, seconds since the epoch."""
        self.writing = Pace(1.0)
        """When the index may get the next entry."""
        self._polling, self._looking = Pace(1.0), Pace(1.0)
        self._telling, self._resources = Pace(1.0), Pace(1.0)
        self._observer = Observer(experiment)
        self._tail: EventTail | None = None
        self._results, self._account, self._stamp = index_entries.Results(), Account(), ""
        self._answered: dict[str, int] = {}
        """Shard → samples with an answer."""
        self._shards: dict[str, list[ShardStatus]] = {}
        self._happened = False
        """Whether there were events since the last whole look."""
        self._moved: set[str] = set()
        self._untold: set[What] = {"new"} if new else set()
        self._unwritten = self._ahead = False
        self._baselines: tuple[str, ...] = ()

    def shards(self, run_task: str) -> list[ShardStatus]:
        """Its shards as of the last whole look, answers as of the events since."""
        return [
            one._replace(answered=max(one.answered, self._answered.get(one.id, 0)))
            for one in self._shards.get(run_task, ())
        ]

    def share(self, share: float) -> None:
        """Take no more than so much of a core."""
        for pace in (self._polling, self._looking, self.writing):
            pace.share = share / 3

    def named(self, baselines: tuple[str, ...]) -> None:
        """Names that stand for it as a baseline."""
        if baselines != self._baselines:
            self._baselines, self._unwritten = baselines, True

    def lost(self) -> None:
        """The index does not have it any more."""
        self._unwritten = self.status is not None

    def follow(self, snapshot: slurm.Snapshot | None, *, watched: bool) -> None:
        """Do what is due.

        Args:
            snapshot: Slurm's word; None: it is not known, or the experiment does not need it.
            watched: whether somebody waits for news.

        Raises:
            OSError: its files cannot be read.
        """
        if watched:  # who has just come does not wait until a long pause ends
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
        """The entry for the index; None: it has the newest one already.

        Args:
            stamp: what the entry is made of, where nothing more comes by itself.
        """
        if self.status is None or not (self._unwritten or stamp):
            return None
        if self._ahead:  # who was told before now finds what he was told of
            self._untold.add("progress")
        self._unwritten = self._ahead = False
        return index_entries.entry(
            self.plan, self._results, self._account, status=self.status, stamp=stamp,
            updated=self.updated or self.plan.created, baselines=self._baselines,
        )  # fmt: skip

    def finish(self) -> str:
        """Look a last time, at one that has ended.

        Returns:
            The stamp of what it was found to be.
        """
        stamp = index_entries.stamp_of(self.experiment)
        if self.status is not None and self.status.state not in ("lost", "interrupted"):
            self._look(None)
        return stamp

    def news(self) -> ExperimentNews | None:
        """What nobody was told yet; None: nothing, or something was told a moment ago."""
        if self.status is None or not self._untold or not self._telling.due():
            return None
        with self._telling.work(TELL_SECONDS):
            return self._news(self.status)

    # --- telling ----------------------------------------------------------------------------------------

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
        news = told(self.plan.id, status.state, *sorted(self._untold), answered=status.answered,
                    samples=status.samples, progress=progress)  # fmt: skip
        self._untold, self._moved = set(), set()
        self._ahead = self._unwritten
        return news

    # --- looking ----------------------------------------------------------------------------------------

    def _look(self, snapshot: slurm.Snapshot | None) -> None:
        """A whole look."""
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
            self._tail.poll()  # what it was made of was counted by the look
        if status.workers and self._resources.due():
            with self._resources.work(RESOURCES_SECONDS):
                self._untold.add("resources")

    def _read(self) -> None:
        """Read what evaluation wrote, if anything changed."""
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
            self._untold |= {"scores"} if self._stamp else set()
        self._stamp = stamp

    def _compare(self, status: ExperimentStatus) -> None:
        """Take a new status; notes what is different."""
        before, self.status = self.status, status
        if before is None:
            self._unwritten = True
            return
        known = {one.name: one for one in before.run_tasks}
        for one in status.run_tasks:
            old = known.get(one.name)
            if old is None or old.state != one.state:
                self._untold.add("state")
            if old is None or (old.state, old.answered) != (one.state, one.answered):
                self._untold.add("progress")
                self._moved.add(one.name)
        if (before.state, before.needs, before.waits) != (status.state, status.needs, status.waits):
            self._untold.add("state")
        if [one.count for one in before.failures] != [one.count for one in status.failures]:
            self._untold.add("failures")
        if self._untold or before.rate != status.rate or before.eta != status.eta:
            self._unwritten = True

    def _take(self, events: Iterable[Event]) -> None:
        """What events say of how far it is."""
        gained: dict[str, int] = {}
        begun: set[str] = set()
        for event in events:
            self._happened = True
            self.updated = max(self.updated, event.time)
            shard = _shard_of(event)
            if shard is None or shard not in self._answered:
                continue
            run_task = shard.rpartition("/")[0]
            begun.add(run_task)
            answered = event.data.get("answered")
            if isinstance(answered, int) and answered > self._answered[shard]:
                gained[run_task] = gained.get(run_task, 0) + answered - self._answered[shard]
                self._answered[shard] = answered
        if self.status is not None and begun:
            self._compare(_moved(self.status, gained, begun))


def told(
    experiment: str,
    state: State | Literal["unreadable"],
    *changed: What,
    answered: int = 0,
    samples: int = 0,
    progress: tuple[Progress, ...] = (),
) -> ExperimentNews:
    """A message, without the number and time that the hub gives it."""
    return ExperimentNews(
        seq=0, time=0.0, experiment=experiment, state=state, answered=answered, samples=samples,
        progress=progress, changed=changed,
    )  # fmt: skip


def _shard_of(event: Event) -> str | None:
    """The shard that an event tells of as being worked on."""
    if event.kind in ("progress", "shard_claimed"):
        return str(event.data.get("shard", ""))
    if event.kind in SHARD_ENDS and event.source.startswith("shards/"):
        return event.source.removeprefix("shards/").rpartition(".")[0]
    return None


def _moved(status: ExperimentStatus, gained: dict[str, int], begun: set[str]) -> ExperimentStatus:
    """A status with more answers, and run tasks that have begun."""

    def after(one: RunTaskStatus) -> RunTaskStatus:
        if one.name not in begun:
            return one
        answered = min(one.samples, one.answered + gained.get(one.name, 0))
        state = "running" if one.state == "pending" else one.state
        return one.model_copy(update={"answered": answered, "state": state})

    run_tasks = tuple(map(after, status.run_tasks))
    answered = sum(one.answered for one in run_tasks)
    return status.model_copy(update={"run_tasks": run_tasks, "answered": answered})


def _heard(facts: Facts) -> float:
    """When something was last heard of an experiment, by the clocks of its nodes, and not later than now."""
    passes = facts.story.rounds
    begun = passes[-1].started if passes else 0.0
    last = max((worker.heard for worker in facts.workers), default=0.0)
    return min(max(begun, last), time.time())
