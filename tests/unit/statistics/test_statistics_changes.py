"""Change points: rarely ever shown where there is none, soon and at the right place where there is one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from statistics import NormalDist

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.statistics import changes
from hpcbench.statistics.changes import LEAST, SHARE, STEPS, _autocorrelation, _wanted
from tests.campaign import examples, first

Nights = Callable[[numpy.random.Generator, int], numpy.ndarray]


def correlated(chance: numpy.random.Generator, count: int) -> numpy.ndarray:
    """Normal nights with an autocorrelation of 0.3."""
    found = chance.normal(size=count)
    for night in range(1, count):
        found[night] = 0.3 * found[night - 1] + math.sqrt(1 - 0.09) * found[night]
    return found


FLAT: dict[str, Nights] = {
    "normal": lambda chance, count: chance.normal(size=count),
    "autocorrelation 0.3": correlated,
    "skewed": lambda chance, count: numpy.exp(correlated(chance, count)),
    "near 1": lambda chance, count: numpy.minimum(1, 0.995 + 0.005 * correlated(chance, count)),
    "few values": lambda chance, count: numpy.round(correlated(chance, count)),
    "outliers": lambda chance, count: (
        correlated(chance, count) + 9.0 * (chance.random(count) < 0.02)
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("nights", first(2, FLAT.values()), ids=FLAT)
def test_few_flat_series_that_are_read_every_night_ever_show_a_change(nights: Nights) -> None:
    """5 % of them at most: of 200 series at most 21 in 99.9 % of cases (binomial)."""
    chance = numpy.random.default_rng(20261122)
    assert sum(bool(changes(nights(chance, 180).tolist())) for _ in range(200)) <= 21


def test_a_step_is_found_where_it_is() -> None:
    rng = numpy.random.default_rng(1)
    series = [*rng.normal(0.90, 0.01, 20), *rng.normal(0.87, 0.01, 15)]
    (found,) = changes(series)
    assert found.at == 20
    assert found.before == pytest.approx(0.90, abs=0.01)
    assert found.after == pytest.approx(0.87, abs=0.01)
    assert found.seen <= 28


def test_several_steps_are_found_in_order() -> None:
    rng = numpy.random.default_rng(2)
    series = [*rng.normal(1, 0.1, 12), *rng.normal(3, 0.1, 12), *rng.normal(2, 0.1, 12)]
    assert [one.at for one in changes(series)] == [12, 24]


@pytest.mark.parametrize(("flat", "nights"), [(8, 10), (10, 8), (20, 5), (30, 5), (60, 4)])
def test_a_step_beyond_all_noise_is_shown_after_so_many_nights(flat: int, nights: int) -> None:
    (found,) = changes([0.5] * flat + [0.4] * 30)
    assert (found.at, found.seen) == (flat, flat + nights - 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("flat", "step", "within", "share"), [(20, 2, 30, 0.8), (20, 5, 6, 0.9), (60, 1, 60, 0.5)]
)
def test_most_steps_are_shown_soon(flat: int, step: float, within: int, share: float) -> None:
    """`share` is the lower end of what 200 series with independent normal nights come to."""
    chance = numpy.random.default_rng(3)
    hits = 0
    for _ in range(200):
        series = [*chance.normal(0, 1, flat), *chance.normal(step, 1, within)]
        hits += any(one.seen >= flat and abs(one.at - flat) <= 15 for one in changes(series))
    assert hits >= 200 * share


@pytest.mark.parametrize(
    "series",
    [
        [],
        [1.0],
        [1.0] * 30,
        [0.0, 1.0] * 30,
        [5.0] * 10 + [9.0] + [5.0] * 10,
        [5.0] * 60 + [9.0] * 2 + [5.0] * 60,
        [0.0] * 8 + [1.0] * 8,
    ],
    ids=["nothing", "one", "constant", "to and fro", "outlier", "two in a row", "too short"],
)
def test_nothing_little_or_one_or_two_outliers_are_no_change(series: list[float]) -> None:
    assert changes(series) == []


steps = st.lists(
    st.tuples(st.floats(-1e6, 1e6), st.integers(1, 25), st.sampled_from([0.0, 0.1, 10.0])),
    min_size=1,
    max_size=4,
)


def drawn(levels: list[tuple[float, int, float]]) -> list[float]:
    """Some levels, each for some nights and with some noise."""
    chance = numpy.random.default_rng(5)
    return [
        value
        for level, nights, noise in levels
        for value in (level + noise * chance.normal(size=nights)).tolist()
    ]


@settings(max_examples=examples(60), deadline=None)
@given(steps, st.integers(0, 100))
def test_what_was_shown_once_stays_and_nothing_is_shown_for_earlier_nights(
    levels: list[tuple[float, int, float]], night: int
) -> None:
    series = drawn(levels)
    whole = [(one.at, one.seen) for one in changes(series)]
    early = [(one.at, one.seen) for one in changes(series[:night])]
    assert early == [one for one in whole if one[1] < night]


@settings(max_examples=examples(60), deadline=None)
@given(steps)
def test_changes_are_in_order_and_means_fit_the_series(
    levels: list[tuple[float, int, float]],
) -> None:
    series = drawn(levels)
    found = changes(series)
    places = [one.at for one in found]
    bounds = [0, *places, len(series)]
    assert all(later - earlier >= 3 for earlier, later in zip(bounds, places, strict=False))
    for number, one in enumerate(found):
        before, after = (series[bounds[n] : bounds[n + 1]] for n in (number, number + 1))
        assert math.isclose(one.before, sum(before) / len(before), rel_tol=1e-9, abs_tol=1e-6)
        assert math.isclose(one.after, sum(after) / len(after), rel_tol=1e-9, abs_tol=1e-6)
        assert one.at + 2 <= one.seen < len(series)


@settings(max_examples=examples(30), deadline=None)
@given(steps, st.sampled_from([-4.0, -1.0, 0.25, 8.0]))
def test_neither_unit_nor_direction_matters(
    levels: list[tuple[float, int, float]], unit: float
) -> None:
    series = drawn(levels)
    reported = [(one.at, one.seen) for one in changes([unit * value for value in series])]
    assert reported == [(one.at, one.seen) for one in changes(series)]


@settings(max_examples=examples(30), deadline=None)
@given(steps)
def test_a_stricter_level_shows_no_first_change_sooner(
    levels: list[tuple[float, int, float]],
) -> None:
    series = drawn(levels)
    strict, usual = changes(series, 0.01)[:1], changes(series)[:1]
    assert all(usual and usual[0].seen <= one.seen for one in strict)


@pytest.mark.parametrize(("share", "steps"), [(-0.2, 0), (0.05, 1), (0.15, 2), (0.6, STEPS)])
def test_how_alike_neighbouring_nights_are_is_rounded_up_to_a_step(
    share: float, steps: int
) -> None:
    series = numpy.random.default_rng(7).normal(size=50_000)
    for night in range(1, len(series)):
        series[night] += share * series[night - 1]
    assert _autocorrelation(series) == steps


def slowly(series: list[float], level: float) -> tuple[int, int] | None:
    """The first change and the night that shows it, night by night from the definitions."""
    for night in range(2 * LEAST, len(series)):
        known = series[: night + 1]
        ranks = numpy.array([sum(numpy.sign(one - other) for other in known) for one in known])
        share = 0.1 * _autocorrelation(ranks)
        white = [after - share * before for before, after in itertools.pairwise(known)]
        clear = {
            cut: abs(sum(numpy.sign(b - a) for a in white[:cut] for b in white[cut:])) / wanted
            for cut, wanted in enumerate(_wanted(night, level), LEAST)
        }
        cut = max(clear, key=lambda one: clear[one])
        if clear[cut] >= 1:
            return cut + 1, night
    return None


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 2**32), st.integers(3, 20), st.sampled_from([0.0, 0.3]))
def test_the_first_change_is_the_one_of_the_definitions(seed: int, flat: int, share: float) -> None:
    series = numpy.random.default_rng(seed).normal(size=30)
    for night in range(1, len(series)):
        series[night] += share * series[night - 1]
    series[flat:] += 2.5
    first = changes(series.tolist(), 0.2)[:1]
    assert [(one.at, one.seen) for one in first] == [
        one for one in [slowly(series.tolist(), 0.2)] if one
    ]


def pairs_that_fell(m: int, n: int) -> list[int]:
    """(m n + 1,) orders of m and n values by their pairs that fell (Mann & Whitney's recursion)."""
    counts = {(0, k): [1] for k in range(n + 1)} | {(k, 0): [1] for k in range(m + 1)}
    for one, other in itertools.product(range(1, m + 1), range(1, n + 1)):
        total = [0] * (one * other + 1)
        for fell, count in enumerate(counts[one, other - 1]):
            total[fell] += count
        for fell, count in enumerate(counts[one - 1, other]):
            total[fell + other] += count
        counts[one, other] = total
    return counts[m, n]


@pytest.mark.parametrize("nights", [6, 11, 18, 24])
@pytest.mark.parametrize("level", [0.001, 0.05, 0.5])
def test_a_cut_shows_a_change_only_where_so_much_is_rare_enough(nights: int, level: float) -> None:
    chance = SHARE * level / nights**2
    for m, wanted in enumerate(_wanted(nights, level), LEAST):
        n = nights - m
        orders = pairs_that_fell(m, n)
        rare = [
            fell
            for fell in range(m * n + 1)
            if sum(orders[: fell + 1]) <= chance * math.comb(nights, m)
        ]
        exact = m * n - 2 * rare[-1] if rare else math.inf
        normal = -NormalDist().inv_cdf(chance) * math.sqrt(m * n * (nights + 1) / 3)
        assert wanted == pytest.approx(min(exact, normal))


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        changes([1.0, float("nan")])
    with pytest.raises(ValueError, match="level"):
        changes([1.0], level=0)
