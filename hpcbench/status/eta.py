"""Estimated time of the last answer, with its uncertainty; pure functions.

The rest of the work is simulated many times with random errors: the common error of the plan's estimates, the
further error of each run task, the differences among shards of one run task. Finished shards narrow the first
two, so the interval shrinks as the work continues. Workers pull: a free worker takes the next shard.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hpcbench.number_format import duration

CONFIDENCE = 0.8
"""Share of such intervals that contain the true time."""

DRAWS = 30_000
"""Budget of random numbers for an estimate: some 50 ms."""

WHOLE_SPREAD = 0.86
"""Prior spread of the logarithm of the estimates' common error: four in five within ±3×."""
TASK_SPREAD, TASK_WEIGHT = 0.5, 3
"""The same for one run task compared with the others, and this prior's weight in run tasks."""
SHARD_SPREAD, SHARD_WEIGHT = 0.25, 4
"""The same for one shard compared with others of its run task, and this prior's weight in shards."""

TAIL = 2
"""Shards for each worker that are simulated one by one at the end; earlier shards only fill time."""


class Pace(NamedTuple):
    """Planned and measured seconds that one worker takes for a sample of a run task."""

    planned: float
    """Seconds a sample by the plan; 0: the plan has no estimate."""
    seen: tuple[float, ...] = ()
    """Seconds a sample of done shards, and of running shards with enough answers."""


class RemainingShards(NamedTuple):
    """Shards of a run task that no worker has started."""

    run_task: str
    """The run task."""
    model: str
    """Its model."""
    shards: int
    """Number of shards."""
    samples: int
    """Their samples without an answer."""


class Busy(NamedTuple):
    """A working worker."""

    model: str | None = None
    """Model it holds or loads."""
    run_task: str | None = None
    """Run task of its shard; None: it has no shard now."""
    samples: int = 0
    """Samples of that shard without an answer."""
    loading: float = 0.0
    """Seconds until its model is ready; 0 if it loads no model."""


class Crew(NamedTuple):
    """The workers of one group, and their remaining work."""

    left: tuple[RemainingShards, ...]
    """Shards that no worker has started, by run task."""
    busy: tuple[Busy, ...]
    """Workers now at work. If there are none, one worker is assumed to start now."""


class Interval(NamedTuple):
    """Seconds from now until the last answer."""

    low: float
    """The 10th percentile."""
    likely: float
    """The median."""
    high: float
    """The 90th percentile."""


class _Belief(NamedTuple):
    """Estimate for one run task without the common error, as logarithms of seconds a sample."""

    planned: float
    seen: float
    weight: float
    """Weight of the measured mean; the rest is the plan's estimate, shifted by the common error."""
    spread: float


class Beliefs(NamedTuple):
    """Estimates for all run tasks: common error of the plan, errors of run tasks, spread of shards."""

    whole: tuple[float, float]
    """Mean and spread of the common error's logarithm."""
    tasks: Mapping[str, _Belief]
    """Run task → its estimate."""
    shard: float
    """Spread among shards of a run task."""


def believe(paces: Mapping[str, Pace]) -> Beliefs | None:
    """Combine the plan's estimates with measured times; None: there are neither."""
    seen = {name: [math.log(one) for one in pace.seen if one > 0] for name, pace in paces.items()}
    planned = _planned(paces, seen)
    if planned is None:
        return None
    means = {name: sum(own) / len(own) for name, own in seen.items() if own}
    squares = sum((one - means[name]) ** 2 for name, own in seen.items() for one in own)
    freedom = SHARD_WEIGHT + sum(len(own) - 1 for own in seen.values() if own)
    shard = (SHARD_WEIGHT * SHARD_SPREAD**2 + squares) / freedom
    off = {name: mean - planned[name] for name, mean in means.items()}
    centre = sum(off.values()) / len(off) if off else 0.0
    squares = sum((one - centre) ** 2 for one in off.values())
    task = (TASK_WEIGHT * TASK_SPREAD**2 + squares) / (TASK_WEIGHT + max(0, len(off) - 1))
    precision = 1 / WHOLE_SPREAD**2
    pull = 0.0
    for name, one in off.items():
        own_precision = 1 / (task + shard / len(seen[name]))
        precision += own_precision
        pull += one * own_precision
    tasks = {}
    for name in paces:
        count = len(seen[name])
        total = 1 / task + count / shard
        tasks[name] = _Belief(
            planned[name], means.get(name, 0.0), (count / shard) / total, math.sqrt(1 / total)
        )
    return Beliefs((pull / precision, math.sqrt(1 / precision)), tasks, math.sqrt(shard))


def estimate(
    crews: Sequence[Crew], paces: Mapping[str, Pace], load_seconds: Mapping[str, float]
) -> Interval | None:
    """Time until all crews are done; None: no duration is known.

    The same input gives the same interval. It does not include the wait for Slurm.

    Args:
        crews: groups with work left.
        paces: paces of all run tasks: done shards show how good the plan's estimates are.
        load_seconds: model → duration of a load.
    """
    beliefs = believe(paces)
    if beliefs is None:
        return None
    chance = random.Random(7)
    cost = sum(len(crew.left) + (TAIL + 1) * max(1, len(crew.busy)) for crew in crews)
    rounds = max(40, min(400, DRAWS // max(1, cost)))
    ends = sorted(_play(crews, beliefs, load_seconds, chance) for _ in range(rounds))
    edge = (1 - CONFIDENCE) / 2
    return Interval(_quantile(ends, edge), _quantile(ends, 0.5), _quantile(ends, 1 - edge))


def span_text(low: float, high: float, now: float | None = None) -> str:
    """Two times for people: `14:20–14:50`, `Tue 23:50–Wed 01:10`, `within a minute`.

    `low`, `high` and `now` are seconds since the epoch. A wider span is rounded more coarsely.
    """
    now = time.time() if now is None else now
    if high - now < 60:
        return "within a minute"
    step = next((step for step in (60, 300, 900) if (high - low) < 30 * step), 3600)
    first, last = math.floor(low / step) * step, math.ceil(high / step) * step
    first = max(first, math.floor(now / 60) * 60)
    return f"{_moment(first, now)}–{_moment(last, now if _day(last) == _day(now) else first)}"


def durations_text(low: float, high: float) -> str:
    """Two durations for people: `12–40 min`, `40 s–12 min`, `about 3.5 h`."""
    first, last = duration(max(1.0, low)), duration(max(1.0, high))
    if first == last:
        return f"about {last}"
    if first.partition(" ")[2] == last.partition(" ")[2]:
        first = first.partition(" ")[0]
    return f"{first}–{last}"


def _moment(at: float, beside: float) -> str:
    moment = time.localtime(at)
    if _day(at) == _day(beside):
        return time.strftime("%H:%M", moment)
    return time.strftime("%a %H:%M" if abs(at - beside) < 6 * 86400 else "%d %b %H:%M", moment)


def _day(at: float) -> tuple[int, int]:
    moment = time.localtime(at)
    return moment.tm_year, moment.tm_yday


def _planned(
    paces: Mapping[str, Pace], seen: Mapping[str, Sequence[float]]
) -> dict[str, float] | None:
    """Logarithm of the plan's seconds a sample; without an estimate, the mean of all known values."""
    known = [math.log(pace.planned) for pace in paces.values() if pace.planned > 0]
    known = known or [one for own in seen.values() for one in own]
    if not known:
        return None
    mean = sum(known) / len(known)
    return {
        name: math.log(pace.planned) if pace.planned > 0 else mean for name, pace in paces.items()
    }


def _play(
    crews: Sequence[Crew],
    beliefs: Beliefs,
    load_seconds: Mapping[str, float],
    chance: random.Random,
) -> float:
    """One simulated course: seconds until the last crew is done."""
    mean, spread = beliefs.whole
    common = chance.gauss(mean, spread)
    drawn: dict[str, float] = {}

    def pace(name: str) -> float:
        if name not in drawn:
            one = beliefs.tasks[name]
            middle = one.weight * one.seen + (1 - one.weight) * (one.planned + common)
            drawn[name] = chance.gauss(middle, one.spread)
        return drawn[name]

    def taken(name: str, samples: float) -> float:
        return samples * math.exp(pace(name) + chance.gauss(0.0, beliefs.shard))

    end = 0.0
    for crew in crews:
        clocks = [
            one.loading + (taken(one.run_task, one.samples) if one.run_task else 0.0)
            for one in crew.busy
        ] or [0.0]
        single = _last_shards(crew.left, TAIL * len(clocks))
        bulk = _loads(crew, load_seconds)
        for left, alone in zip(crew.left, single, strict=True):
            samples = left.samples * (1 - alone / left.shards)
            bulk += samples * math.exp(pace(left.run_task) + beliefs.shard**2 / 2)
        _fill(clocks, bulk)
        heapq.heapify(clocks)
        for left, alone in zip(crew.left, single, strict=True):
            for _ in range(alone):
                seconds = taken(left.run_task, left.samples / left.shards)
                heapq.heapreplace(clocks, clocks[0] + seconds)
        end = max(end, *clocks)
    return end


def _last_shards(left: Sequence[RemainingShards], most: int) -> list[int]:
    """Number of each run task's shards that are simulated one by one, from the last run task backwards."""
    found = []
    for one in reversed(left):
        found.append(min(one.shards, most))
        most -= found[-1]
    return found[::-1]


def _loads(crew: Crew, load_seconds: Mapping[str, float]) -> float:
    """Seconds of loads ahead of the crew: one for each model that no worker holds, more for much work."""
    held = {one.model for one in crew.busy}
    others = [one for one in crew.left if one.model not in held]
    models = {one.model for one in others}
    if not models:
        return 0.0
    shards = sum(one.shards for one in crew.left)
    share = sum(one.shards for one in others) / shards
    loads = max(float(len(models)), len(crew.busy) * share)
    return loads * sum(load_seconds.get(model, 0.0) for model in models) / len(models)


def _fill(clocks: list[float], seconds: float) -> None:
    """Give all work to the workers that are free first, as if it were divisible at will."""
    clocks.sort()
    level, count = clocks[0], 0
    for count, clock in enumerate(clocks):  # noqa: B007 - used after the loop
        needed = (clock - level) * count
        if needed > seconds:
            break
        seconds -= needed
        level = clock
    else:
        count = len(clocks)
    level += seconds / max(1, count)
    clocks[:] = [max(level, clock) for clock in clocks]


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
