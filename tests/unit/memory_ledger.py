"""Claims in memory, as files keep them: for tests of the board and for the simulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hpcbench.experiment.claims import Owner, ShardState
from hpcbench.schema.plan import Shard


class Memory:
    """State that all workers of a simulation share."""

    def __init__(self) -> None:
        self.claims: dict[str, dict[int, ShardState]] = {}
        """Run task → number of a shard → its state, of those that were ever claimed."""
        self.loaded: dict[str, str | None] = {}
        """Worker → model."""
        self.of_job: dict[str, dict[str, set[int]]] = {}
        """Job → run task → shards that any of its runs claimed."""
        self.collisions = 0

    def of(self, owner: Owner) -> Ledger:
        """The ledger as one worker sees it."""
        return Ledger(self, owner)

    def end(self, shard: Shard, kind: str) -> None:
        """Say how the newest attempt of a shard ended."""
        own = self.claims[shard.run_task]
        before = own[shard.index]
        failed = before.failed_attempts + (kind not in ("done", "drained"))
        own[shard.index] = ShardState(shard, before.attempt, failed, kind, before.owner)

    def done(self) -> Counter[str]:
        """Run task → shards that are done."""
        return Counter(
            {
                name: sum(state.state == "done" for state in shards.values())
                for name, shards in self.claims.items()
            }
        )


class Ledger:
    """The part of an experiment that `Board` asks."""

    def __init__(self, memory: Memory, owner: Owner) -> None:
        self._memory, self._owner = memory, owner
        self._words = {"job": owner.job, "restart": owner.restart, "round": owner.round}

    def claimed(self, run_task: str) -> Collection[int]:
        return self._memory.claims.get(run_task, {}).keys()

    def states(self, shards: Sequence[Shard]) -> list[ShardState]:
        own = self._memory.claims.get(shards[0].run_task, {}) if shards else {}
        return [own.get(shard.index) or ShardState(shard, 0, 0, "free", None) for shard in shards]

    def claim(self, shard: Shard, attempt: int) -> Any:
        own = self._memory.claims.setdefault(shard.run_task, {})
        before = own.get(shard.index)
        if (before.attempt if before else 0) != attempt - 1:
            self._memory.collisions += 1
            return None
        failed = before.failed_attempts if before else 0
        own[shard.index] = ShardState(shard, attempt, failed, "claimed", self._words)
        of_job = self._memory.of_job.setdefault(self._owner.job, {})
        of_job.setdefault(shard.run_task, set()).add(shard.index)
        return shard

    def left_behind(self) -> Mapping[str, Collection[int]]:
        return self._memory.of_job.get(self._owner.job, {})

    def busy(self) -> Mapping[str, int]:
        others = (model for who, model in self._memory.loaded.items() if who != self._owner.id)
        return Counter(model for model in others if model)
