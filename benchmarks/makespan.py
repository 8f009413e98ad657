"""How long workers take for an experiment, beside the shortest time there can be; no cluster, no sleep.

The planner cuts and the workers' own board chooses, as in a real run; time is simulated, and claims are kept
in memory. Expected times are wrong by up to three times for a whole run task and a third for a shard; workers
die at times, are back after a minute, load again and ask again what was not acknowledged.

The bound is (all work + work lost by deaths + reloads after them + one load a worker) ÷ workers: what no
schedule can beat that has every worker load once. Beside it: each worker is given its shards beforehand, in
equal parts by expected time, as static array jobs do.

    python benchmarks/makespan.py [--quick]
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from hpcbench.experiment.claims import Owner
from hpcbench.experiment.scheduler import Candidate, ShardScheduler
from hpcbench.planning import plan_work
from hpcbench.schema.plan import Cut, Shard
from tests.unit.memory_ledger import Memory
from tests.unit.small import measured, resolved, run_task

BACK_AFTER = 60.0
"""Seconds until a worker that died is at work again."""


@dataclass(frozen=True)
class Case:
    """A simulation."""

    shards: int
    workers: int
    models: int
    load: float
    """Seconds of a load."""
    deaths: float
    """Chance that a worker dies in a shard."""


CASES = (
    Case(shards=1_000, workers=16, models=1, load=120, deaths=0.0),
    Case(shards=1_000, workers=16, models=4, load=120, deaths=0.01),
    Case(shards=100_000, workers=256, models=8, load=120, deaths=0.001),
)


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the largest case")
    cases = CASES[:-1] if parser.parse_args().quick else CASES
    print(
        f"{'shards':>8}{'workers':>9}{'models':>8}{'load s':>8}{'deaths':>8}"
        f"{'hpcbench ÷ bound':>18}{'static ÷ bound':>16}{'loads':>7}{'missed claims':>15}{'took s':>8}"
    )
    for case in cases:
        started = time.perf_counter()
        runs = [_Run(case, seed) for seed in range(5 if case.shards <= 1000 else 1)]
        ours = sorted(run.go() for run in runs)
        static = sorted(run.static() for run in runs)
        middle = len(runs) // 2
        print(
            f"{case.shards:>8}{case.workers:>9}{case.models:>8}{case.load:>8.0f}{case.deaths:>8.1%}"
            f"{ours[middle]:>18.3f}{static[middle]:>16.3f}{runs[0].loads:>7}"
            f"{runs[0].memory.collisions:>15}{time.perf_counter() - started:>8.1f}"
        )


class _Run:
    """One simulated experiment."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case, self.chance = case, random.Random(seed)
        self.memory, self.loads, self.lost = Memory(), 0, 0.0
        # Two run tasks a model, of different sizes; a model is expected to be quicker or slower than others.
        tasks = [
            run_task(f"t{number}", model={"name": f"m{number // 2}"})
            for number in range(2 * case.models)
        ]
        weights = [self.chance.uniform(1, 4) for _ in tasks]
        samples = {
            task.name: max(10, round(10 * case.shards * weight / sum(weights)))
            for task, weight in zip(tasks, weights, strict=True)
        }
        plan = resolved(*tasks, parallelism=case.workers, shard_size=10)
        pace = {task.name: self.chance.uniform(6, 24) for task in tasks}
        loads = {task.model.name: case.load for task in tasks}
        self.work = plan_work(plan, measured(plan, samples), pace, loads)
        self.models = {task.name: task.model.name for task in tasks}
        self.cuts: Sequence[Cut] = self.work.cuts
        wrong = {task.name: 3 ** self.chance.uniform(-1, 1) for task in tasks}
        self.true = {
            shard.id: shard.seconds * wrong[shard.run_task] * self.chance.uniform(0.75, 1.33)
            for shard in self.work.shards
        }

    def bound(self) -> float:
        whole = sum(self.true.values()) + self.lost
        return whole / self.case.workers + self.case.load

    def go(self) -> float:
        """Makespan of workers that pull, divided by the bound."""
        count = self.case.workers
        boards = [self._board(number, 0) for number in range(count)]
        restarts, loaded = [0] * count, [None] * count
        at: list[Shard | None] = [None] * count
        queue = [(0.0, number) for number in range(count)]
        left_alone: dict[str, float] = {}
        end = 0.0
        while queue:
            now, number = heapq.heappop(queue)
            shard = at[number]
            if shard is not None:
                at[number] = None
                if shard.id in left_alone:  # it died in it
                    self.lost += left_alone.pop(shard.id) + BACK_AFTER + self.case.load
                    restarts[number] += 1
                    boards[number] = self._board(number, restarts[number])
                    loaded[number] = self.memory.loaded[_id(number)] = None
                    heapq.heappush(queue, (now + BACK_AFTER, number))
                    continue
                self.memory.end(shard, "done")
                boards[number].done(shard)
                end = max(end, now)
            found = boards[number].next(loaded[number])
            if not isinstance(found, Candidate):
                self.memory.loaded[_id(number)] = None
                continue
            if found.model != loaded[number]:
                loaded[number] = self.memory.loaded[_id(number)] = found.model  # type: ignore[call-overload]
                self.loads += 1
                heapq.heappush(queue, (now + self.case.load, number))
                continue
            if boards[number].claim(found) is None:
                heapq.heappush(queue, (now, number))
                continue
            at[number], takes = found.shard, self.true[found.shard.id]
            if self.chance.random() < self.case.deaths:
                takes *= self.chance.random()
                left_alone[found.shard.id] = takes
            heapq.heappush(queue, (now + takes, number))
        assert sum(self.memory.done().values()) == len(self.true), "something was left undone"
        return end / self.bound()

    def static(self) -> float:
        """Makespan of equal parts by expected time, without deaths, divided by the bound without them."""
        count, parts = self.case.workers, [[] for _ in range(self.case.workers)]
        whole, reached = sum(shard.seconds for shard in self.work.shards), 0.0
        for shard in self.work.shards:
            parts[min(count - 1, int(reached / whole * count))].append(shard)
            reached += shard.seconds
        longest = max(
            sum(self.true[shard.id] for shard in part)
            + self.case.load * len({self.models[shard.run_task] for shard in part})
            for part in parts
        )
        return longest / (sum(self.true.values()) / count + self.case.load)

    def _board(self, number: int, restart: int) -> ShardScheduler:
        owner = Owner(_id(number).partition("-")[0], restart, "host", 1)
        return ShardScheduler(
            self.cuts,
            self.models,
            self.memory.of(owner),
            owner,
            load_seconds=self.work.load_seconds,
            place=number / self.case.workers,
            workers=self.case.workers,
            chance=random.Random(f"{number} {restart}"),
        )


def _id(number: int) -> str:
    return f"1_{number}-0"


if __name__ == "__main__":
    main()
