"""Where spread comes from: repeats of the same samples, likeness within documents."""

from __future__ import annotations

import random
import statistics
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.statistics import intraclass_correlation, mean_interval, repeats
from tests.campaign import examples

SHROUT_FLEISS = [
    [9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7],
]  # fmt: skip
"""Six subjects, four ratings each: table 2 of Shrout & Fleiss 1979; ICC(1,1) 0.17, ICC(1,4) 0.44."""


def test_the_published_table() -> None:
    found = repeats(numpy.array(SHROUT_FLEISS).T)
    assert found.within == pytest.approx(6.26, abs=0.005), "mean square within subjects"
    assert 4 * found.between + found.within == pytest.approx(11.24, abs=0.01), "between subjects"
    assert found.reliability == pytest.approx(0.17, abs=0.005)
    assert found.reliability_of_mean == pytest.approx(0.44, abs=0.005)
    ratings = [one for row in SHROUT_FLEISS for one in row]
    subjects = [number for number in range(6) for _ in range(4)]
    assert intraclass_correlation(ratings, subjects) == pytest.approx(found.reliability)


def test_runs_deviate_as_their_means_do() -> None:
    found = repeats([[0.1, 0.9, 0.5], [0.4, 0.2, 0.6], [0.7, 0.7, 0.4], [1.0, 0.0, 0.8]])
    assert found.run_deviation == pytest.approx(statistics.stdev([0.5, 0.4, 0.6, 0.6]))


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_the_unit_of_values_changes_no_share(unit: float) -> None:
    table = numpy.array(SHROUT_FLEISS, dtype=float).T
    found, same = repeats(unit * table), repeats(table)
    assert found.reliability == pytest.approx(same.reliability)
    assert found.reliability_of_mean == pytest.approx(same.reliability_of_mean)


def test_components_that_were_put_in_are_found() -> None:
    chance = numpy.random.default_rng(1)
    truth = chance.normal(0, 2, 4000)
    found = repeats(truth + chance.normal(0, 1, (5, 4000)))
    assert found.within == pytest.approx(1, rel=0.03)
    assert found.between == pytest.approx(4, rel=0.06)
    assert found.reliability == pytest.approx(0.8, abs=0.02)
    assert found.chance_error == pytest.approx(1 / (5 * 4000) ** 0.5, rel=0.02)
    assert found.runs == len(found.means) == 5


def test_repeats_are_no_further_samples() -> None:
    """Asking the same again five times does not make the interval narrower than the samples allow."""
    values = [0.1, 0.4, 0.9, 0.3, 0.7, 1.0]
    clusters = ["a", "a", "b", "b", "c", "c"]
    found, once = repeats([values] * 5, clusters), mean_interval(values, clusters)
    assert (found.interval.low, found.interval.high) == pytest.approx((once.low, once.high))
    assert (found.interval.n, found.interval.clusters) == (6, 3)
    assert found.within == pytest.approx(0)
    assert found.reliability == pytest.approx(1)
    assert found.run_deviation == pytest.approx(0)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_order_of_repeats_and_samples_changes_no_byte(seed: int, chance: random.Random) -> None:
    values = numpy.random.default_rng(seed).random((4, 9))
    clusters = [f"d{one}" for one in numpy.random.default_rng(seed).integers(0, 4, 9)]
    rows, columns = chance.sample(range(4), 4), chance.sample(range(9), 9)
    first = repeats(values, clusters)
    again = repeats(values[rows][:, columns], [f"x{clusters[one]}" for one in columns])
    assert sorted(first.means) == sorted(again.means)
    for name in ("interval", "within", "between", "reliability", "reliability_of_mean"):
        assert getattr(first, name) == getattr(again, name), name


def test_what_one_repeat_or_one_sample_cannot_tell() -> None:
    once = repeats([[0.1, 0.9]])
    assert (once.within, once.reliability, once.run_deviation) == (None, None, None)
    assert once.interval == mean_interval([0.1, 0.9])
    alone = repeats([[0.1], [0.3]])
    assert (alone.between, alone.reliability) == (None, None)
    assert alone.within == pytest.approx(0.02)
    alike = repeats([[0.5, 0.5], [0.5, 0.5]])
    assert alike.reliability is None


@pytest.mark.parametrize("values", [[], [1.0, 2.0], [[[1.0]]], [[1.0, float("nan")]]])
def test_what_is_no_table_of_repeats_is_refused(values: Any) -> None:
    with pytest.raises(ValueError, match=r"table|finite"):
        repeats(values)


def test_likeness_within_documents_of_unequal_size() -> None:
    chance = numpy.random.default_rng(3)
    documents = numpy.repeat(numpy.arange(3000), chance.integers(1, 9, 3000))
    values = chance.normal(0, 1, 3000)[documents] + chance.normal(0, 2, len(documents))
    assert intraclass_correlation(values, documents) == pytest.approx(0.2, abs=0.02)
    assert intraclass_correlation([0, 1, 0, 1], [1, 1, 2, 2]) == pytest.approx(-1)


@pytest.mark.parametrize(
    ("values", "documents"), [([1, 2], [1, 1]), ([1, 2], [1, 2]), ([1, 1, 1], [1, 1, 2])]
)
def test_unknown_likeness(values: list[float], documents: list[int]) -> None:
    assert intraclass_correlation(values, documents) is None
