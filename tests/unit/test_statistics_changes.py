"""Change points: rarely where there is none, at the right place where there is one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.statistics import changes


@pytest.mark.long
@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.normal(size=20),
        lambda rng: rng.exponential(size=25),
        lambda rng: rng.integers(0, 3, size=30).astype(float),
    ],
    ids=["normal", "exponential", "few values"],
)
def test_a_series_without_a_change_raises_few_false_alarms(
    draw: Callable[[numpy.random.Generator], numpy.ndarray],
) -> None:
    """At a level of 5 % at most 5 % do: of 100 series at most 13 in 99.9 % of cases (binomial)."""
    rng = numpy.random.default_rng(20261122)
    alarms = sum(bool(changes(draw(rng), seed=n, permutations=99)) for n in range(100))
    assert alarms <= 13


def test_a_step_is_found_where_it_is() -> None:
    rng = numpy.random.default_rng(1)
    series = [*rng.normal(0.90, 0.01, 20), *rng.normal(0.87, 0.01, 15)]
    (found,) = changes(series)
    assert found.at == 20
    assert found.before == pytest.approx(0.90, abs=0.01)
    assert found.after == pytest.approx(0.87, abs=0.01)
    assert found.p_value <= 0.01


def test_several_steps_are_found_in_order() -> None:
    rng = numpy.random.default_rng(2)
    series = [*rng.normal(1, 0.1, 12), *rng.normal(3, 0.1, 12), *rng.normal(2, 0.1, 12)]
    assert [one.at for one in changes(series)] == [12, 24]


@pytest.mark.long
def test_power_is_high_for_a_step_of_two_deviations() -> None:
    rng = numpy.random.default_rng(3)
    hits = 0
    for number in range(40):
        series = [*rng.normal(0, 1, 15), *rng.normal(2, 1, 15)]
        found = changes(series, seed=number, permutations=99)
        hits += any(abs(one.at - 15) <= 2 for one in found)
    assert hits >= 30


@pytest.mark.parametrize(
    "series", [[], [1.0], [1.0] * 30, [0.0, 1.0] * 3, [5.0] * 10 + [9.0] + [5.0] * 10]
)
def test_nothing_little_or_one_outlier_is_no_change(series: list[float]) -> None:
    assert changes(series) == []


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), max_size=25))
def test_means_fit_the_series_and_nothing_is_left_to_chance(series: list[float]) -> None:
    found = changes(series, permutations=49)
    places = [one.at for one in found]
    assert places == sorted(set(places))
    bounds = [0, *places, len(series)]
    for number, one in enumerate(found):
        part = series[bounds[number] : bounds[number + 1]]
        assert math.isclose(one.before, sum(part) / len(part), rel_tol=1e-9, abs_tol=1e-6)
    assert changes(series, permutations=49) == found


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        changes([1.0, float("nan")])
    with pytest.raises(ValueError, match="level"):
        changes([1.0], level=0)
