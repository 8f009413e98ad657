"""The limit that adapts, against models of servers: enough of the best throughput, and no crowd for nothing.

Each model is a queue whose `slots` first requests share a power that depends on how many they are; work is
log-normal, as the lengths of answers are. Time is simulated: nothing here waits.
"""

from __future__ import annotations

import heapq
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from hpcbench.inference import Adaptive

Power = Callable[[int], float]
ENDLESS = 10**9


@dataclass
class Engine:
    """A server that works on `slots` requests at once, together with `power(how many)`."""

    power: Power
    slots: int = ENDLESS
    reports: bool = False
    """Whether it says how many wait."""
    seed: int = 0
    now: float = 0.0
    in_flight: float = 0.0
    """Mean over the second half."""
    limits: list[int] = field(default_factory=list)

    def serve(self, limit: int | Adaptive, count: int) -> float:
        """Answers a second over the second half of `count`, when as many are sent as the limit allows."""
        chance = random.Random(self.seed)
        at_work: list[float] = []  # the virtual time at which each is done
        waiting: list[float] = []
        virtual, asked_at, begun, area = 0.0, 1.0, 0.0, 0.0
        for number in range(count):
            most = limit.limit if isinstance(limit, Adaptive) else limit
            while len(at_work) + len(waiting) < most:
                waiting.append(chance.lognormvariate(-0.125, 0.5))
                self._take_up(at_work, waiting, virtual)
            running = len(at_work)
            step = (at_work[0] - virtual) * running / self.power(running)
            while self.reports and isinstance(limit, Adaptive) and asked_at < self.now + step:
                limit.queued(len(waiting))
                asked_at += 1.0
            area += step * (running + len(waiting)) * (number >= count // 2)
            self.now += step
            virtual = heapq.heappop(at_work)
            self._take_up(at_work, waiting, virtual)
            if number == count // 2:
                begun, area = self.now, 0.0
            if isinstance(limit, Adaptive):
                limit.completed(self.now)
                self.limits.append(limit.limit)
        self.in_flight = area / (self.now - begun)
        return (count - count // 2 - 1) / (self.now - begun)

    def _take_up(self, at_work: list[float], waiting: list[float], virtual: float) -> None:
        while waiting and len(at_work) < self.slots:
            heapq.heappush(at_work, virtual + waiting.pop(0))


def one_at_a_time(running: int) -> float:
    return 1.0


def eight_servers(running: int) -> float:
    return min(running, 8)


def batches(running: int) -> float:
    return running / (1 + running / 32)


def forty_then_thrash(running: int) -> float:
    return min(running, 40) * (1.0 if running <= 60 else 0.6)


MODELS: dict[str, tuple[Power, int, bool]] = {
    "one at a time": (one_at_a_time, ENDLESS, False),
    "eight servers": (eight_servers, ENDLESS, False),
    "batches of 64": (batches, 64, False),
    "batches of 64, queue told": (batches, 64, True),
    "thrashing": (forty_then_thrash, ENDLESS, False),
}
GRID = (1, 2, 4, 8, 16, 32, 40, 48, 64, 96, 128)


@pytest.mark.parametrize("model", MODELS)
def test_it_comes_near_the_best_and_does_not_crowd(model: str) -> None:
    power, slots, reports = MODELS[model]
    fixed = {limit: Engine(power, slots, seed=9).serve(limit, 1500) for limit in GRID}
    best = max(fixed.values())
    least = min(limit for limit, rate in fixed.items() if rate >= 0.95 * best)
    engines = [Engine(power, slots, reports, seed) for seed in range(6)]
    rates = [engine.serve(Adaptive(), 4000) for engine in engines]
    assert min(rates) > 0.87 * best
    assert statistics.median(rates) > 0.92 * best
    crowd = statistics.median(engine.in_flight for engine in engines)
    assert crowd < 2 * least + 4
    assert max(engine.in_flight for engine in engines) < 4 * least + 8


def test_it_uses_all_it_may_where_more_is_better() -> None:
    engine = Engine(float)
    engine.serve(Adaptive(most=100), 4000)
    assert engine.in_flight > 85
    assert max(engine.limits) == 100


@pytest.mark.parametrize("most", [1, 3, 17])
def test_it_never_goes_beyond_its_maximum(most: int) -> None:
    engine = Engine(float)
    adaptive = Adaptive(most=most)
    assert adaptive.limit <= most
    engine.serve(adaptive, 500)
    assert 1 <= min(engine.limits) <= max(engine.limits) <= most


def test_requests_that_only_wait_are_called_back_at_once() -> None:
    """Within a window, however well throughput seems to do."""
    told, untold = (Engine(batches, 16, reports) for reports in (True, False))
    told.serve(Adaptive(first=128), 600)
    untold.serve(Adaptive(first=128), 600)
    assert told.limits[300] == 18  # sixteen at work, and one tenth in reserve
    assert untold.limits[300] > 18


def test_it_follows_an_engine_that_becomes_slower_and_faster_again() -> None:
    engine, adaptive = Engine(eight_servers), Adaptive()
    engine.serve(adaptive, 2000)
    engine.power = one_at_a_time
    engine.serve(adaptive, 4000)
    slow = engine.in_flight
    engine.power = eight_servers
    rate = engine.serve(adaptive, 4000)
    assert slow < 8
    assert rate > 0.8 * Engine(eight_servers).serve(8, 1500)


def test_a_pause_between_two_runs_is_no_slow_engine() -> None:
    engine, adaptive = Engine(eight_servers), Adaptive()
    engine.serve(adaptive, 1000)
    for _ in range(20):
        engine.now += 1000
        adaptive.resume()
        engine.serve(adaptive, 60)  # a short shard
    rate = engine.serve(adaptive, 200)
    assert rate > 0.85 * Engine(eight_servers).serve(8, 1500)
    assert adaptive.limit < 64


def test_the_same_answers_lead_to_the_same_limits() -> None:
    engines = [Engine(batches, seed=3) for _ in range(2)]
    for engine in engines:
        engine.serve(Adaptive(), 800)
    assert engines[0].limits == engines[1].limits
