"""When the last answer will be there: the interval holds what it says, and follows what was seen."""

from __future__ import annotations

import heapq
import math
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from hpcbench.status.eta import (
    CONFIDENCE,
    Busy,
    Crew,
    Interval,
    Pace,
    RemainingShards,
    believe,
    durations_text,
    estimate,
    span_text,
)
from tests.campaign import examples

SAMPLES = 20
"""Samples a shard, in these tests."""


def alone(
    seen: tuple[float, ...] = (), *, planned: float = 1.0, shards: int = 40, workers: int = 4
) -> Interval:
    """One run task, workers that have just started."""
    crew = Crew((RemainingShards("a", "m", shards, shards * SAMPLES),), (Busy("m"),) * workers)
    found = estimate([crew], {"a": Pace(planned, seen)}, {"m": 60.0})
    assert found is not None
    return found


def test_nothing_is_said_where_nothing_is_known() -> None:
    crew = Crew((RemainingShards("a", "m", 4, 40),), ())
    assert estimate([crew], {"a": Pace(0.0)}, {}) is None
    assert believe({"a": Pace(0.0)}) is None


@settings(max_examples=examples(30))
@given(
    planned=some.floats(0.01, 100),
    seen=some.lists(some.floats(0.01, 100), max_size=8),
    shards=some.integers(1, 500),
    workers=some.integers(1, 40),
)
def test_an_interval_is_an_interval(
    planned: float, seen: list[float], shards: int, workers: int
) -> None:
    found = alone(tuple(seen), planned=planned, shards=shards, workers=workers)
    assert 0 < found.low <= found.likely <= found.high < math.inf


@pytest.mark.long
@settings(max_examples=examples(25))
@given(some.integers(1, 300), some.integers(1, 16))
def test_more_work_takes_no_less_time_and_more_workers_no_more(shards: int, workers: int) -> None:
    found = alone(shards=shards, workers=workers)
    assert alone(shards=2 * shards + workers, workers=workers).likely >= found.likely
    assert alone(shards=shards, workers=3 * workers).likely <= 1.15 * found.likely


def test_the_same_facts_give_the_same_interval() -> None:
    assert alone((1.0, 2.0)) == alone((1.0, 2.0))


def test_what_was_seen_counts_more_than_what_was_planned() -> None:
    wrong = alone((3.0,) * 12, planned=1.0)
    assert wrong.likely == pytest.approx(40 * SAMPLES * 3 / 4, rel=0.15)


def test_an_interval_narrows_as_shards_are_done() -> None:
    def width(one: Interval) -> float:
        return (one.high - one.low) / one.likely

    widths = [width(alone((1.0,) * count)) for count in (0, 1, 4, 30)]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 1 > 0.3 > widths[-1]


def test_run_tasks_that_have_started_inform_about_those_that_have_not() -> None:
    paces = {name: Pace(1.0, (3.0, 3.1, 2.9)) for name in "abcd"} | {"z": Pace(1.0)}
    crew = Crew((RemainingShards("z", "m", 40, 40 * SAMPLES),), (Busy("m"),) * 4)
    found = estimate([crew], paces, {})
    assert found is not None
    assert found.likely > 2 * alone().likely


def test_a_load_before_the_last_shard_is_counted() -> None:
    crew = Crew((RemainingShards("a", "cold", 1, 1),), (Busy("warm"),))
    paces = {"a": Pace(0.01, (0.01,) * 9)}
    with_load = estimate([crew], paces, {"cold": 600.0})
    assert with_load is not None and with_load.low > 600


def test_the_slowest_group_decides() -> None:
    small = Crew((RemainingShards("a", "m", 1, 1),), (Busy("m"),))
    large = Crew((RemainingShards("b", "n", 100, 1000),), (Busy("n"),))
    paces = {"a": Pace(1.0), "b": Pace(1.0)}
    both, one = estimate([small, large], paces, {}), estimate([large], paces, {})
    assert both is not None and one is not None
    assert both.likely == pytest.approx(one.likely, rel=0.2)


def test_a_thousand_run_tasks_and_hundreds_of_workers_can_be_estimated() -> None:
    left = tuple(RemainingShards(f"t{n}", f"m{n % 20}", 10, 200) for n in range(1000))
    crew = Crew(left, tuple(Busy(f"m{n % 20}", f"t{n}", 10) for n in range(256)))
    assert estimate([crew], {one.run_task: Pace(1.0) for one in left}, {}) is not None


# -- calibration: a simulated cluster, and whether four in five intervals hold what came ------------------


def holds(chance: random.Random, progress: float) -> bool:
    """Play one experiment; stop at this share of its shards, estimate, and see whether it was right."""
    common = chance.gauss(0, 0.86)
    names = [f"t{number}" for number in range(chance.randint(1, 6))]
    true = {name: math.exp(common + chance.gauss(0, 0.5)) for name in names}
    workers = chance.randint(2, 12)
    queue = [(name, chance.gauss(0, 0.25)) for name in names for _ in range(chance.randint(5, 30))]
    total = len(queue)
    running = [(0.0, 0.0, "", index) for index in range(workers)]
    heapq.heapify(running)
    seen: dict[str, list[float]] = {name: [] for name in names}
    place, done, reported = 0, 0, None
    end = 0.0
    while running:
        at, started, name, index = heapq.heappop(running)
        if name:
            seen[name].append((at - started) / SAMPLES)
            done += 1
            end = max(end, at)
        if reported is None and done >= progress * total and place < total:
            reported = _estimated(names, queue[place:], running, seen, at)
            moment = at
        if place < total:
            name, noise = queue[place]
            place += 1
            heapq.heappush(running, (at + SAMPLES * true[name] * math.exp(noise), at, name, index))
    if reported is None:
        return True
    return moment + reported.low <= end <= moment + reported.high


def _estimated(
    names: list[str],
    rest: list[tuple[str, float]],
    running: list[tuple[float, float, str, int]],
    seen: dict[str, list[float]],
    now: float,
) -> Interval:
    left = tuple(
        RemainingShards(name, "m", count, count * SAMPLES)
        for name in names
        if (count := sum(one == name for one, _ in rest))
    )
    busy = [
        Busy("m", name, round(SAMPLES * (end - now) / max(end - started, 1e-9)))
        for end, started, name, _ in running
        if name
    ]
    crew = Crew(left, (*busy, Busy("m")))
    far = {name: list(known) for name, known in seen.items()}
    for end, started, name, _ in running:  # what runs tells, too, once a quarter of it is answered
        if name and now - started >= 0.25 * (end - started):
            far[name].append((end - started) / SAMPLES)
    found = estimate([crew], {name: Pace(1.0, tuple(far[name])) for name in names}, {})
    assert found is not None
    return found


@pytest.mark.long
@pytest.mark.parametrize("progress", [0.05, 0.3, 0.7])
def test_intervals_hold_as_often_as_they_say(progress: float) -> None:
    chance = random.Random(11)
    plays = 80
    held = sum(holds(chance, progress) for _ in range(plays)) / plays
    assert CONFIDENCE - 0.12 <= held <= CONFIDENCE + 0.14


# -- words ----------------------------------------------------------------------------------------------


def test_a_span_is_rounded_to_what_its_width_is_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    noon = 1_790_000_000 - 1_790_000_000 % 86400 + 12 * 3600
    try:
        assert span_text(noon + 30, noon + 50, noon) == "within a minute"
        assert span_text(noon + 610, noon + 1000, noon) == "12:10–12:17"
        assert span_text(noon + 3700, noon + 8000, noon) == "13:00–14:15"
        assert span_text(noon + 1, noon + 8000, noon) == "12:00–14:15"
        assert span_text(noon + 11 * 3600, noon + 14 * 3600, noon) == "23:00–Tue 02:00"
        assert span_text(noon + 30 * 3600, noon + 33 * 3600, noon) == "Tue 18:00–21:00"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_two_durations_say_their_unit_once() -> None:
    assert durations_text(720, 2400) == "12–40 min"
    assert durations_text(40, 720) == "40 s–12 min"
    assert durations_text(12600, 12700) == "about 3.5 h"
