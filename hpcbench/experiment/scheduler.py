"""One worker's knowledge of the shards of its group, and its choice of the next shard.

Workers pull shards; no process assigns them. A worker's knowledge may be old: a claim decides, and after a
lost claim the worker knows the shard as taken. So thousands of claims need only a few listings of the folder.
The order:

1. shards that an earlier run of this worker left behind, before a requeue
2. run tasks of higher priority
3. the loaded model; each worker starts at its own place in the work and goes on from there, so that workers
   load different models and rarely try the same shard; where other workers have been, it jumps elsewhere
4. another model, if it is worth a load: the worker's share of the model's work must take longer than the
   load; the model with the largest share comes first
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hpcbench.experiment.claims import Claim, Owner, ShardState, seat_of
from hpcbench.schema.work import Cut, Shard

STALE_CLAIMS = 2
"""Consecutive lost claims after which a worker lists the taken shards again."""

EXAMINED = 5000
"""Most shards whose files a worker opens in one look to see their progress; another worker or the next
round finds the rest."""

MARGIN = 1.5
"""A shard is started if this many times its expected duration is left of the job."""


class Ledger(Protocol):
    """Store of claims: files of an experiment, or the memory of a simulation."""

    def claimed(self, run_task: str) -> Collection[int]:
        """Numbers of shards that any worker has ever claimed."""

    def states(self, shards: Sequence[Shard]) -> list[ShardState]:
        """The state of these shards."""

    def claim(self, shard: Shard, attempt: int) -> Claim | None:
        """Open an attempt; None if another worker was quicker."""

    def left_behind(self) -> Mapping[str, Collection[int]]:
        """Run task → shards that earlier runs of this worker claimed, as far as known."""

    def busy(self) -> Mapping[str, int]:
        """Model → workers that have it loaded or are loading it now."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A shard to try."""

    shard: Shard
    """The shard."""
    attempt: int
    """Attempt to open."""
    model: str
    """Model that the shard asks."""


class ShardScheduler:
    """Chooses shards for one worker.

    Args:
        cuts: run tasks of its group, in planned order, and how they are cut into shards.
        models: run task → model.
        ledger: where claims are kept.
        owner: the worker.
        priorities: run task → priority; the higher goes first.
        load_seconds: model → expected duration of a load.
        place: the worker's first place in the work, from 0 (inclusive) to 1.
        workers: number of workers of the group.
        rests: whether no worker may work on a run task now.
        chance: this worker's own random numbers.
    """

    def __init__(
        self,
        cuts: Sequence[Cut],
        models: Mapping[str, str],
        ledger: Ledger,
        owner: Owner,
        *,
        priorities: Mapping[str, int] | None = None,
        load_seconds: Mapping[str, float] | None = None,
        place: float = 0.0,
        workers: int = 1,
        rests: Callable[[str], bool] = lambda run_task: False,
        chance: random.Random | None = None,
    ) -> None:
        self._models, self._priorities = models, priorities or {}
        self._load_seconds = load_seconds or {}
        self._ledger, self._owner = ledger, owner
        self._place, self._workers = place, workers
        self._rests, self._chance = rests, chance or random.Random()
        self._tasks = {cut.run_task: Task(cut) for cut in cuts}
        self._misses, self._started = 0, False
        self._tried: str | None = None
        """Model of the last claimed shard."""
        self._inside: float | None = place
        """First place in the first model's work; None: a random place, other workers have been there."""
        self._at: dict[str, tuple[str, int]] = {}
        """Model → run task and number of the next shard."""
        self.given_up: set[str] = set()
        """Models this worker does not try any more."""
        self.pace = 1.0
        """This worker's actual seconds for each expected second."""

    def next(self, loaded: str | None, seconds_left: float = float("inf")) -> Candidate | None:
        """The shard to try next; None: no shard is left for this worker.

        Args:
            loaded: the loaded model.
            seconds_left: seconds until the job's time limit.
        """
        if not self._started:
            self._look(closely=self._owner.restart > 0)
        elif self._misses >= STALE_CLAIMS:
            self._look(of_model=self._tried)
            self._at.clear()
            self._inside = None
        self._started = True
        found = self._choose(loaded, seconds_left)
        if found is not None and loaded not in (None, found.model):
            # A load for shards that others have meanwhile taken would be the most expensive mistake.
            self._look()
            found = self._choose(loaded, seconds_left)
        if found is None:
            # Before a worker ends, it looks for shards that others have handed back meanwhile.
            self._look(closely=True)
            found = self._choose(loaded, seconds_left)
        return found

    def claim(self, candidate: Candidate) -> Claim | None:
        """Claim the chosen shard; None if another worker was quicker."""
        taken = self._ledger.claim(candidate.shard, candidate.attempt)
        self._tasks[candidate.shard.run_task].take(candidate.shard.index)
        self._misses, self._inside = (0 if taken is not None else self._misses + 1), None
        self._tried = candidate.model
        self._at[candidate.model] = candidate.shard.run_task, candidate.shard.index + 1
        return taken

    def done(self, shard: Shard) -> None:
        """Record that a shard is done: it is never examined again."""
        self._tasks[shard.run_task].finish(shard)

    def took(self, expected: float, actual: float) -> None:
        """Learn how long shards take here."""
        if expected > 0:
            self.pace = max(actual / expected, 0.5 * self.pace)

    def _choose(self, loaded: str | None, seconds_left: float) -> Candidate | None:
        # In the end most run tasks are done: skip these.
        tasks = [
            task for task in self._tasks.values() if (task.left or task.mine) and self._may(task)
        ]
        for task in tasks:
            for shard, attempt in task.mine:
                if self._fits(shard, loaded, seconds_left):
                    return Candidate(shard, attempt + 1, self._models[task.name])
        ready = [task for task in tasks if task.left]
        top = max((self._priority(task) for task in ready), default=0)
        first = [task for task in ready if self._priority(task) == top]
        return self._of_model(first, loaded, seconds_left)

    def _of_model(
        self, tasks: Sequence[Task], loaded: str | None, seconds_left: float
    ) -> Candidate | None:
        """The shard to take, among the run tasks of the highest priority."""
        by_model: dict[str, list[Task]] = {}
        for task in tasks:
            by_model.setdefault(self._models[task.name], []).append(task)
        order = [loaded] if loaded in by_model else self._worth_loading(by_model, loaded)
        for model in order:
            assert model is not None
            for shard, attempt in self._in_turn(model, by_model[model]):
                if self._fits(shard, loaded, seconds_left):
                    return Candidate(shard, attempt + 1, model)
        return None

    def _in_turn(self, model: str, tasks: Sequence[Task]) -> Iterator[tuple[Shard, int]]:
        """A shard of each run task with its newest attempt: first one that was handed back, then the next."""
        back = [one for task in tasks for one in task.back]
        if back:
            yield self._chance.choice(back)
        name, index = self._at.get(model) or self._begin(tasks)
        first = next((place for place, task in enumerate(tasks) if task.name == name), 0)
        for task in (*tasks[first:], *tasks[:first]):
            shard = task.open_from(index if task.name == name else 0)
            if shard is not None:
                yield shard, 0

    def _begin(self, tasks: Sequence[Task]) -> tuple[str, int]:
        """This worker's own place in these run tasks; a random place once other workers have been there."""
        fraction = self._inside if self._inside is not None else self._chance.random()
        if self._workers == 1:
            fraction = 0.0
        whole, reached = sum(task.seconds for task in tasks), 0.0
        for task in tasks:
            if reached + task.seconds > fraction * whole:
                inside = (fraction * whole - reached) / task.seconds
                return task.name, int(inside * task.cut.count)
            reached += task.seconds
        return tasks[0].name, 0

    def _worth_loading(
        self, by_model: Mapping[str, Sequence[Task]], loaded: str | None
    ) -> list[str]:
        """Models worth a load, the best first; other models are left to the workers that have them."""
        seconds = {model: sum(task.seconds for task in own) for model, own in by_model.items()}
        whole = sum(seconds.values())
        if loaded is None and whole:
            reached = 0.0
            for model, own in seconds.items():  # the model at this worker's place in the work
                if self._place * whole < reached + own:
                    self._inside = (self._place * whole - reached) / own
                    return [model, *(other for other in by_model if other != model)]
                reached += own
        busy = self._ledger.busy() if self._workers > 1 else {}
        gains: dict[str, float] = {}
        for model, own in seconds.items():
            others = busy.get(model, 0)
            load = self._load_seconds.get(model, 0.0)
            share = (own - others * load) / (others + 1)
            if not others or share > load:
                gains[model] = share
        return sorted(gains, key=lambda model: -gains[model])

    def _may(self, task: Task) -> bool:
        return not (self._rests(task.name) or self._models[task.name] in self.given_up)

    def _priority(self, task: Task) -> int:
        return self._priorities.get(task.name, 0)

    def _fits(self, shard: Shard, loaded: str | None, seconds_left: float) -> bool:
        model = self._models[shard.run_task]
        load = 0.0 if model == loaded else self._load_seconds.get(model, 0.0)
        return seconds_left >= load + MARGIN * self.pace * shard.seconds

    def _look(self, *, closely: bool = False, of_model: str | None = None) -> None:
        """List the claimed shards, of one model or of all; `closely`: also read their states."""
        self._misses, allowed = 0, EXAMINED
        again = self._owner.restart > 0 and not self._started
        own = self._ledger.left_behind() if again else {}
        for task in self._tasks.values():
            if not closely and (not task.open or of_model not in (None, self._models[task.name])):
                continue
            claimed = self._ledger.claimed(task.name)
            task.take_all(claimed)
            wanted: list[int] = []
            if closely:
                wanted = task.not_done(claimed)
                if len(wanted) > allowed:
                    first = set(own.get(task.name, ())).intersection(wanted)
                    some = self._chance.sample(wanted, allowed)
                    wanted = [*first, *(index for index in some if index not in first)]
                allowed = max(0, allowed - len(wanted))
            self._learn(task, [task.cut.shard(index) for index in wanted])

    def _learn(self, task: Task, shards: Sequence[Shard]) -> None:
        task.back, task.mine = [], []
        for state in self._ledger.states(shards):
            place = (state.shard, state.attempt)
            if state.state == "done":
                task.finish(state.shard)
            elif self._is_mine(state):
                task.mine.append(place)
            elif state.claimable:
                task.back.append(place)

    def _is_mine(self, state: ShardState) -> bool:
        """Whether an earlier run of this worker left the shard behind."""
        owner = state.owner
        return (
            state.state == "claimed"
            and owner is not None
            and seat_of(owner) == self._owner.seat
            and owner["restart"] < self._owner.restart
        )


class Task:
    """The known states of a run task's shards; a byte each, for there may be a hundred thousand."""

    OPEN, TAKEN, DONE = 0, 1, 2

    def __init__(self, cut: Cut) -> None:
        self.cut, self.name = cut, cut.run_task
        self._known = bytearray(cut.count)
        self.open = cut.count
        """Number of shards without a known claim."""
        self.back: list[tuple[Shard, int]] = []
        """Shards that were handed back, with their newest attempt."""
        self.mine: list[tuple[Shard, int]] = []
        """Shards that an earlier run of this worker left behind, with their newest attempt."""
        self._each = cut.samples * cut.seconds_per_sample / max(1, cut.count)

    @property
    def seconds(self) -> float:
        """Expected duration of all open shards, as if all had the same size."""
        return self.open * self._each

    @property
    def left(self) -> bool:
        """Whether a shard is left to claim."""
        return bool(self.open or self.back)

    def is_open(self, index: int) -> bool:
        """Whether a shard has no known claim."""
        return self._known[index] == self.OPEN

    def open_from(self, index: int) -> Shard | None:
        """The next shard without a known claim, from a number on; after the last shard, from the first."""
        found = self._known.find(self.OPEN, index)
        if found < 0:
            found = self._known.find(self.OPEN)
        return self.cut.shard(found) if found >= 0 else None

    def not_done(self, indices: Iterable[int]) -> list[int]:
        """The given shards without those known to be done."""
        known = self._known
        return [index for index in indices if known[index] != self.DONE]

    def take_all(self, indices: Collection[int]) -> None:
        """Record all claimed shards: most are known already, and there may be many."""
        if len(indices) == self.cut.count - self.open:
            return
        known = self._known
        for index in [index for index in indices if not known[index]]:
            known[index] = self.TAKEN
        self.open = known.count(self.OPEN)

    def take(self, index: int) -> None:
        """Record that a worker has claimed a shard."""
        if self._known[index] == self.OPEN:
            self._known[index] = self.TAKEN
            self.open -= 1
        elif self.back or self.mine:
            self.back = [one for one in self.back if one[0].index != index]
            self.mine = [one for one in self.mine if one[0].index != index]

    def finish(self, shard: Shard) -> None:
        """Record that a shard is done."""
        self.take(shard.index)
        self._known[shard.index] = self.DONE
