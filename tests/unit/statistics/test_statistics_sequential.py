"""Looking more than once at a stated risk; and what came second taken out of a mean."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.statistics import NO_SPREAD, crossover, mean_interval, nominal_levels, spent
from tests.campaign import examples

fractions = st.lists(st.integers(1, 50), min_size=1, max_size=8, unique=True).map(
    lambda found: [one / 50 for one in sorted(found)]
)


def test_boundaries_are_those_that_are_published() -> None:
    """Five looks at equal distances: Jennison & Turnbull (2000), section 7.2; gsDesign's sfLDOF."""
    found = [NormalDist().inv_cdf(1 - p / 2) for p in nominal_levels([0.2, 0.4, 0.6, 0.8, 1])]
    assert found == pytest.approx([4.8769, 3.3569, 2.6803, 2.2898, 2.0310], abs=2e-4)


def test_one_look_at_all_there_is_is_the_fixed_test() -> None:
    assert nominal_levels([1.0], 0.05) == pytest.approx([0.05], abs=1e-9)
    assert spent(1.0, 0.01) == pytest.approx(0.01)


@settings(deadline=None, max_examples=examples(30))
@given(fractions, st.sampled_from([0.2, 0.05, 0.01]))
def test_no_look_may_use_more_than_all(times: list[float], alpha: float) -> None:
    assert all(0 <= level <= alpha + 1e-9 for level in nominal_levels(times, alpha))


@pytest.mark.parametrize("count", [2, 5, 8])
def test_at_equal_distances_every_look_may_use_more_than_the_one_before(count: int) -> None:
    levels = nominal_levels([(number + 1) / count for number in range(count)])
    assert levels == sorted(levels)
    assert levels[-1] > 0.035  # nearly the fixed test's: little is paid for having looked


@settings(deadline=None, max_examples=examples(20))
@given(fractions)
def test_what_a_look_may_use_does_not_depend_on_later_looks(times: list[float]) -> None:
    whole = nominal_levels(times)
    for count in range(1, len(times)):
        assert nominal_levels(times[:count]) == whole[:count]


@pytest.mark.parametrize("times", [[0.5, 0.5], [0.5, 0.2], [0.0, 1.0], [0.5, 1.5]])
def test_times_that_are_none_are_refused(times: list[float]) -> None:
    with pytest.raises(ValueError, match="fraction"):
        nominal_levels(times)


def test_of_a_motion_without_drift_five_in_a_hundred_ever_leave_the_boundaries() -> None:
    times = [0.25, 0.4, 0.55, 0.7, 0.85, 1.0]
    edges = [NormalDist().inv_cdf(1 - p / 2) for p in nominal_levels(times)]
    chance = np.random.default_rng(5)
    steps = chance.normal(0, np.sqrt(np.diff([0, *times])), (40_000, len(times)))
    left = (np.abs(steps.cumsum(axis=1) / np.sqrt(times)) > edges).any(axis=1)
    assert left.mean() == pytest.approx(0.05, abs=0.004)  # four standard errors


@given(
    st.lists(st.floats(-5, 5), min_size=4, max_size=30),
    st.floats(-3, 3),
    st.integers(1, 29),
)
def test_what_it_is_to_come_second_is_not_in_the_mean(
    differences: list[float], second: float, firsts: int
) -> None:
    """A constant that is added where a came first and taken away where b did changes nothing."""
    first = [number < min(firsts, len(differences) - 1) for number in range(len(differences))]
    moved = [
        one + (second if a_first else -second)
        for one, a_first in zip(differences, first, strict=True)
    ]
    plain, other = crossover(differences, first), crossover(moved, first)
    assert other.estimate == pytest.approx(plain.estimate, abs=1e-9)
    if plain.error is not None and plain.error > 1e-6:
        assert other.error == pytest.approx(plain.error, rel=1e-6)


@pytest.mark.parametrize("unit", [1, 1e-9, 1e9])
def test_pairs_of_one_order_have_the_plain_t_interval(unit: float) -> None:
    values = [unit * value for value in (0.1, 0.3, 0.2, 0.5)]
    ours, plain = crossover(values, [True] * 4), mean_interval(values)
    assert (ours.estimate, ours.low, ours.high) == pytest.approx(
        (plain.estimate, plain.low, plain.high)
    )


def test_too_few_pairs_or_no_spread_leave_no_interval() -> None:
    assert crossover([0.1, 0.2], [True, False]).low is None
    for unit in (1, 1e9):
        same = crossover([0.1 * unit] * 6, [True, False, True] * 2)
        assert (same.low, same.method) == (None, NO_SPREAD)
    with pytest.raises(ValueError, match="do not fit"):
        crossover([0.1], [])


def test_intervals_of_turns_hold_the_truth_where_drift_and_order_matter() -> None:
    """ABBA on a node that slows down: the mean of differences is covered as often as stated."""
    chance = np.random.default_rng(11)
    held = 0
    rounds = 2000
    for _ in range(rounds):
        n = 12
        drift = chance.normal(0.05)
        first = [number % 2 == 0 for number in range(n)]
        values = [0.3 + (drift if a_first else -drift) + chance.normal(0, 0.1) for a_first in first]
        found = crossover(values, first)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.3 <= found.high
    assert held / rounds == pytest.approx(0.95, abs=0.02)
