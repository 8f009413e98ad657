"""The order in which a worker takes shards where two arms of a run task are compared.

The arms have the same shards. A *pair* is one shard in both arms: the same samples. A worker that takes a
shard takes the same shard of the other arm next, so one worker on one node asks both, one right after the
other. The second arm of a pair comes first in the next pair (ABBA): slow drifts, such as a node that heats up
or other users' load on the file system, cancel out; and where each arm needs its own load of a model, a pair
costs one load, not two.

All workers go through the pairs in one order, shuffled by the plan's seed, so that the first answers are a
random part of the dataset and not the top of a sorted one. Each worker starts at its own place, every second
worker with arm b. A worker leaves a pair that another worker has started to that worker; it takes over halves
only from workers that are gone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpcbench.experiment.claims import Claim, seat_of
from hpcbench.experiment.scheduler import (
    MARGIN,
    Candidate,
    ShardScheduler,
    Task,
)
from hpcbench.schema.work import Shard


class PairedScheduler(ShardScheduler):
    """Chooses for one worker of a group whose run tasks are arms.

    Args:
        pairs: arms a and b, run tasks of the group.
        seed: of the order of pairs; the same for all workers.
        how: arguments of `Board`.
    """

    def __init__(
        self,
        *how: Any,
        pairs: Sequence[tuple[str, str]],
        seed: int = 0,
        **more: Any,
    ) -> None:
        super().__init__(*how, **more)
        self._other = {one: other for a, b in pairs for one, other in ((a, b), (b, a))}
        self._order = _order(
            pairs, {name: task.cut.count for name, task in self._tasks.items()}, seed
        )
        self._position = int(self._place * len(self._order)) if self._workers > 1 else 0
        self._arm = round(self._place * self._workers) % 2
        """Which arm the next pair begins with, 0 or 1."""
        self._due: Shard | None = None
        """The other half of the pair that this worker has started."""

    def next(self, loaded: str | None, seconds_left: float = float("inf")) -> Candidate | None:
        """See `Board.next`. Whether a pair is whole is read from the claims each time, not remembered."""
        if self._started and self._due is None:
            self._look()
        return super().next(loaded, seconds_left)

    def claim(self, candidate: Candidate) -> Claim | None:
        """Claim the chosen shard; None if another worker was quicker."""
        taken = super().claim(candidate)
        shard = candidate.shard
        if taken is not None:
            self._arm = self._arm_of(shard.run_task)
            self._due = self._open_half(shard)
        elif shard == self._due:
            self._due = None
        return taken

    def _look(self, *, closely: bool = False, of_model: str | None = None) -> None:
        """Always look closely: a shard that was handed back is half of a pair, and there are few shards."""
        super()._look(closely=True)

    def _choose(self, loaded: str | None, seconds_left: float) -> Candidate | None:
        due = self._due
        if due is not None:
            task = self._tasks[due.run_task]
            if task.is_open(due.index) and self._may(task):
                if self._fits(due, loaded, seconds_left):
                    return Candidate(due, 1, self._models[due.run_task])
                return None  # a fresh worker takes it over: a new pair here would leave two halves
            self._due = None
        return super()._choose(loaded, seconds_left)

    def _of_model(
        self, tasks: Sequence[Task], loaded: str | None, seconds_left: float
    ) -> Candidate | None:
        """A shard that was handed back, then a whole pair, then a half whose worker is gone."""
        back = [(shard, attempt + 1) for task in tasks for shard, attempt in task.back]
        self._chance.shuffle(back)
        for shard, attempt in back:
            if self._fits(shard, loaded, seconds_left):
                return Candidate(shard, attempt, self._models[shard.run_task])
        allowed = {task.name for task in tasks}
        for shard in (*self._whole(allowed, loaded), *self._halves(allowed)):
            if self._fits_with_other(shard, loaded, seconds_left):
                return Candidate(shard, 1, self._models[shard.run_task])
        return None

    def _whole(self, allowed: set[str], loaded: str | None) -> Iterator[Shard]:
        """The first half of the next pair that no worker has started."""
        count = len(self._order)
        for turn in range(count):
            place = (self._position + turn) % count
            arms, index = self._order[place]
            if allowed.issuperset(arms) and all(self._tasks[one].is_open(index) for one in arms):
                self._position = place
                of_loaded = [one for one in arms if self._models[one] == loaded]
                first = of_loaded[0] if len(of_loaded) == 1 else arms[self._arm]
                yield self._tasks[first].cut.shard(index)
                return

    def _halves(self, allowed: set[str]) -> Iterator[Shard]:
        """Open halves whose other half belongs to an earlier run of this worker, or to a gone worker."""
        for arms, index in self._order:
            for name, other in (arms, arms[::-1]):
                if (
                    name in allowed
                    and self._tasks[name].is_open(index)
                    and not self._tasks[other].is_open(index)
                ):
                    (state,) = self._ledger.states([self._tasks[other].cut.shard(index)])
                    whose = state.owner or {}
                    own = seat_of(whose) == self._owner.seat
                    if own or whose.get("round", -1) < self._owner.round:
                        yield self._tasks[name].cut.shard(index)

    def _open_half(self, shard: Shard) -> Shard | None:
        """The same samples in the other arm, if no worker has started them."""
        other = self._tasks.get(self._other.get(shard.run_task, ""))
        if other is None or not other.is_open(shard.index):
            return None
        return other.cut.shard(shard.index)

    def _arm_of(self, run_task: str) -> int:
        return next(arms.index(run_task) for arms, _ in self._order if run_task in arms)

    def _fits_with_other(self, shard: Shard, loaded: str | None, seconds_left: float) -> bool:
        """Whether there is time for the whole pair."""
        half = self._open_half(shard)
        if half is None:
            return self._fits(shard, loaded, seconds_left)
        models = dict.fromkeys(self._models[one.run_task] for one in (shard, half))
        loads = sum(self._load_seconds.get(one, 0.0) for one in models if one != loaded)
        return seconds_left >= loads + MARGIN * self.pace * (shard.seconds + half.seconds)


def _order(
    pairs: Sequence[tuple[str, str]], counts: Mapping[str, int], seed: int
) -> list[tuple[tuple[str, str], int]]:
    """All pairs of shards, run task by run task, each run task shuffled by the seed."""
    found: list[tuple[tuple[str, str], int]] = []
    for number, arms in enumerate(pairs):
        indices = list(range(counts[arms[0]]))
        random.Random(f"{seed} {number}").shuffle(indices)
        found += [(arms, index) for index in indices]
    return found
