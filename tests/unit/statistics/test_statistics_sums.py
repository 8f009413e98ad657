"""Intervals of values made of sums: coverage of few documents, pseudo-values, what is undefined."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import numpy
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import stdtrit

from hpcbench import statistics
from hpcbench.statistics import (
    NO_SPREAD,
    ONE_CLUSTER,
    cluster_sums,
    mean_interval,
    parts_interval,
    ratio,
    ratio_interval,
    sums_interval,
)
from hpcbench.statistics.limits import BAYESIAN
from hpcbench.statistics.sums import ONE_HOLDS_ALL
from tests.campaign import examples


def skewed(chance: numpy.random.Generator, count: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Errors and lengths of pages, some very bad."""
    lengths = chance.integers(50, 500, count).astype(float)
    return chance.poisson(lengths * chance.gamma(0.5, 0.1, count)).astype(float), lengths


def macro(sums: numpy.ndarray) -> numpy.ndarray:
    """Mean of two F1 values: no ratio of two sums."""
    first = 2 * sums[:, 0] / (sums[:, 1] + sums[:, 2])
    return (first + 2 * sums[:, 3] / (sums[:, 4] + sums[:, 5])) / 2


@pytest.mark.long
@pytest.mark.parametrize("count", [10, 15, 30])
def test_skewed_error_rates_of_few_documents_are_covered_where_t_is_not(count: int) -> None:
    """Lognormal rates with sigma 1: t holds the truth in about 80 %."""
    chance, rounds, hits, plain = numpy.random.default_rng(count), 400, 0, 0
    for _ in range(rounds):
        lengths = numpy.ceil(chance.lognormal(5, 0.8, count))
        rates = 0.1 * numpy.exp(chance.normal(-0.5, 1, count))
        errors = chance.poisson(rates * lengths).astype(float)
        found = ratio_interval(errors, lengths)
        half = stdtrit(count - 1, 0.975) * found.error
        hits += found.low <= 0.1 <= found.high
        plain += abs(found.estimate - 0.1) <= half
    assert plain / rounds < 0.9
    assert hits / rounds >= 0.9


def test_the_interval_leans_to_the_side_where_the_tail_is() -> None:
    over, under = skewed(numpy.random.default_rng(5), 60)
    found = ratio_interval(over, under)
    assert found.high - found.estimate > 1.2 * (found.estimate - found.low)


def test_a_value_that_is_no_ratio_has_the_interval_of_its_pseudo_values() -> None:
    chance = numpy.random.default_rng(7)
    sums = chance.binomial([5, 9, 10, 3, 8, 6], 0.5, (400, 6)).astype(float)
    drawn = chance.integers(400, size=(2000, 400))
    low, high = numpy.quantile(macro(sums[drawn].sum(axis=1)), [0.025, 0.975])
    found = sums_interval(sums, macro, bounds=(0, 1))
    width = high - low
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.1 * width)
    free = sums_interval(sums, macro)
    assert free.method == "t, clustered standard error CR1"
    assert (free.low, free.high) == pytest.approx((low, high), abs=0.1 * width)


def grits(sums: numpy.ndarray) -> numpy.ndarray:
    """F1 of similarity ÷ cells on either side, far from linear where one side has few cells."""
    precision, recall = sums[:, 0] / sums[:, 2], sums[:, 0] / sums[:, 1]
    return 2 * precision * recall / (precision + recall)


def test_no_end_of_a_corpus_value_is_beyond_its_bounds() -> None:
    few_right = numpy.array([[0.3, 15, 164], [0, 22, 189], [28, 28, 50], [0, 2, 63], [0.1, 5, 173]])
    free = sums_interval(few_right, grits, bounds=(-1, 1))
    cut = sums_interval(few_right, grits, bounds=(0, 1))
    assert free.low < cut.low == 0 < cut.estimate == free.estimate < cut.high < 1
    assert cut.method == free.method == BAYESIAN

    def one_minus(sums: numpy.ndarray) -> numpy.ndarray:
        found: numpy.ndarray = 1 - grits(sums)
        return found

    mirrored = sums_interval(few_right, one_minus, bounds=(0, 1))
    assert mirrored.high == 1 and mirrored.low == pytest.approx(1 - cut.high)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(1, 99), st.integers(1, 99)), min_size=2, max_size=30
    )
)
def test_ends_lie_within_bounds_and_around_the_value(rows: list[tuple[float, int, int]]) -> None:
    sums = numpy.array([[share * min(right, given), right, given] for share, right, given in rows])
    assume(sums[:, 0].sum() > 1e-6)
    found = sums_interval(sums, grits, bounds=(0, 1))
    if found.low is not None:
        assert 0 <= found.low <= found.estimate <= found.high <= 1 + 1e-12


def test_the_error_of_a_ratio_is_linearised() -> None:
    over, under = skewed(numpy.random.default_rng(9), 8000)
    found = ratio_interval(over, under)
    residuals = over - found.estimate * under
    linear = math.sqrt(8000 / 7999 * (residuals**2).sum()) / under.sum()
    assert found.error == pytest.approx(linear, rel=1e-9)


def test_the_jackknife_of_a_mean_is_cr1() -> None:
    values = numpy.random.default_rng(4).random(300)
    sums = cluster_sums(numpy.stack([values, numpy.ones(300)], axis=1), numpy.arange(300) // 3)
    mean = mean_interval(values, numpy.arange(300) // 3)
    assert sums_interval(sums, ratio).error == pytest.approx(mean.error)


@pytest.mark.parametrize("bounds", [None, (0, 1), (0, None)])
def test_the_pseudo_values_of_a_mean_are_the_values(bounds: Any) -> None:
    sums = numpy.stack([numpy.random.default_rng(4).random(12), numpy.ones(12)], axis=1)
    found = sums_interval(sums, lambda rows: rows[:, 0] / rows[:, 1], bounds=bounds)
    mean = mean_interval(sums[:, 0], bounds=bounds)
    assert (found.low, found.high, found.error) == pytest.approx((mean.low, mean.high, mean.error))


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 30), st.randoms(use_true_random=False))
def test_order_and_names_of_clusters_change_no_byte(
    seed: int, count: int, chance: random.Random
) -> None:
    drawn = numpy.random.default_rng(seed)
    parts = drawn.random((count, 2)) + [0, 1]
    clusters = drawn.integers(0, 7, count)
    order = chance.sample(range(count), count)
    first = sums_interval(cluster_sums(parts, clusters), ratio, n=count)
    names = [f"document {one}" for one in clusters[order]]
    again = sums_interval(cluster_sums(parts[order], names), ratio, n=count)
    assert first == again


def test_a_value_that_one_cluster_holds_has_no_interval() -> None:
    found = ratio_interval([3, 0, 0, 0], [9, 0, 0, 0])
    assert (found.low, found.high, found.method) == (None, None, ONE_HOLDS_ALL)

    def first_over_rest(sums: numpy.ndarray) -> numpy.ndarray:
        return numpy.where(sums[:, 0] > 0, sums[:, 1] / numpy.maximum(sums[:, 0], 1), numpy.nan)

    table = numpy.array([[1.0, 2.0], [0.0, 1.0], [0.0, 3.0]])
    assert sums_interval(table, first_over_rest).method == ONE_HOLDS_ALL


@pytest.mark.parametrize(
    ("sums", "reason"),
    [([[1, 2]], ONE_CLUSTER), ([[1, 2], [2, 4], [3, 6]], NO_SPREAD), ([[0, 2], [0, 9]], NO_SPREAD)],
)
def test_unknown_values_are_not_reported(sums: list[list[float]], reason: str) -> None:
    found = sums_interval(numpy.array(sums, dtype=float), ratio)
    assert (found.low, found.high, found.method) == (None, None, reason)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sums_interval(numpy.zeros((0, 2)), ratio), "at least one value"),
        (lambda: sums_interval(numpy.zeros((3, 2)), ratio), "no value"),
        (lambda: sums_interval(numpy.full((3, 2), numpy.nan), ratio), "not a finite"),
        (lambda: sums_interval(numpy.ones((2, 2, 2)), ratio), "3 dimensions"),
        (lambda: sums_interval(numpy.ones((3, 2)), lambda sums: sums), "of shape"),
        (lambda: cluster_sums([[1, 2], [3, 4]], ["a"]), "2 values do not fit 1 clusters"),
    ],
)
def test_refusals_of_sums(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_memory_stays_bounded_for_clusters_with_many_sums() -> None:
    """A thousand sums each, as macro F1 over hundreds of classes has: nothing is clusters x clusters x K."""
    import tracemalloc

    sums = numpy.random.default_rng(1).integers(0, 9, (2000, 1000)).astype(float)
    tracemalloc.start()
    sums_interval(sums, lambda rows: rows[:, 0] / rows[:, 1])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 150 << 20


# --- metrics by their own word ------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    numerator: float
    denominator: float


@dataclass(frozen=True)
class Kind:
    aggregation: str
    bounds: tuple[float, float | None] = (0.0, 1.0)

    def combine(self, sums: dict[str, Any]) -> Any:
        return 2 * sums.get("right", 0) / (sums["said"] + sums["there"])


def test_a_metrics_parts_get_the_interval_that_fits_their_aggregation() -> None:
    chance = random.Random(1)
    parts = [Part(chance.random(), chance.randint(1, 9)) for _ in range(50)]
    documents = [f"d{number // 2}" for number in range(50)]
    over, under = [part.numerator for part in parts], [part.denominator for part in parts]
    assert parts_interval(Kind("mean"), parts, documents) == mean_interval(
        over, documents, bounds=(0, 1)
    )
    assert parts_interval(Kind("ratio"), parts, documents) == ratio_interval(
        over, under, documents, bounds=(0, 1)
    )
    counts = [
        {"said": 2.0, "there": 2.0, **({"right": 1.0} if chance.random() < 0.5 else {})}
        for _ in range(50)
    ]
    found = parts_interval(Kind("corpus"), counts, documents)
    assert found is not None
    assert found.estimate == sum("right" in one for one in counts) / 100
    assert found.low < found.estimate < found.high
    assert parts_interval(Kind("ratio"), [Part(1, 0), Part(0, 0)]) is None


def test_counts_of_two_runs_share_their_columns() -> None:
    one, other = [{"said": 1.0, "there": 1.0}], [{"said": 1.0, "there": 2.0, "right": 1.0}]
    names = statistics.names_of([*one, *other])
    metric = Kind("corpus")
    tables = [statistics.parts_table(metric, parts, names)[0] for parts in (one, other)]
    assert names == ("right", "said", "there")
    assert [table.tolist() for table in tables] == [[[0, 1, 1]], [[1, 1, 2]]]
    combine = statistics.combine_of(metric, names)
    assert [float(combine(table)[0]) for table in tables] == [0, 2 / 3]
