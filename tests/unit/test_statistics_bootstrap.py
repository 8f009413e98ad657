"""Intervals of what is made of sums: scipy's BCa, the jackknife of many clusters, what is undefined."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench import statistics
from hpcbench.statistics import (
    MANY_CLUSTERS,
    NO_SPREAD,
    ONE_CLUSTER,
    cluster_sums,
    mean_interval,
    parts_interval,
    ratio,
    ratio_interval,
    sums_interval,
)


def skewed(chance: numpy.random.Generator, count: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Errors and lengths of pages, some very bad."""
    lengths = chance.integers(50, 500, count).astype(float)
    return chance.poisson(lengths * chance.gamma(0.5, 0.1, count)).astype(float), lengths


def macro(sums: numpy.ndarray) -> numpy.ndarray:
    """Mean of two F1 values: no ratio of two sums."""
    first = 2 * sums[:, 0] / (sums[:, 1] + sums[:, 2])
    return (first + 2 * sums[:, 3] / (sums[:, 4] + sums[:, 5])) / 2


@pytest.mark.parametrize("count", [12, 60])
def test_bca_is_scipys(count: int) -> None:
    from scipy import stats

    over, under = skewed(numpy.random.default_rng(count), count)
    scipys = stats.bootstrap(
        (over, under),
        lambda a, b, axis: a.sum(axis=axis) / b.sum(axis=axis),
        paired=True, vectorized=True, n_resamples=20_000, method="BCa",
        rng=numpy.random.default_rng(1),
    )  # fmt: skip
    ours = ratio_interval(over, under, resamples=20_000)
    width = ours.high - ours.low
    few = ", narrow for fewer than 20 clusters" if count < 20 else ""
    assert ours.method == f"BCa bootstrap of clusters{few}"
    ends = (scipys.confidence_interval.low, scipys.confidence_interval.high)
    assert (ours.low, ours.high) == pytest.approx(ends, abs=0.05 * width), "chance of two seeds"
    assert ours.error == pytest.approx(scipys.standard_error, rel=0.25), "jackknife and bootstrap"


def test_bca_leans_to_the_side_where_the_tail_is() -> None:
    over, under = skewed(numpy.random.default_rng(5), 60)
    found = ratio_interval(over, under)
    assert found.high - found.estimate > 1.2 * (found.estimate - found.low)


def test_many_clusters_get_the_same_from_the_jackknife_as_from_resampling() -> None:
    """On both sides of the limit; with whole documents, and of a value that is no ratio."""
    chance = numpy.random.default_rng(7)
    over, under = skewed(chance, MANY_CLUSTERS)
    limit = ratio_interval(over, under)
    below = ratio_interval(over[:-1], under[:-1], resamples=1000)
    assert limit.method == "t, jackknife of clusters"
    assert below.method == "BCa bootstrap of clusters"
    width = limit.high - limit.low
    assert (limit.low, limit.high) == pytest.approx((below.low, below.high), abs=0.15 * width)
    sums = chance.binomial([5, 9, 10, 3, 8, 6], 0.5, (MANY_CLUSTERS, 6)).astype(float)
    limit, below = sums_interval(sums, macro), sums_interval(sums[:-1], macro, resamples=1000)
    width = limit.high - limit.low
    assert limit.method != below.method
    assert (limit.low, limit.high) == pytest.approx((below.low, below.high), abs=0.15 * width)


def test_the_jackknife_of_a_ratio_is_its_linearised_error() -> None:
    over, under = skewed(numpy.random.default_rng(9), 8000)
    found = ratio_interval(over, under)
    residuals = over - found.estimate * under
    linear = math.sqrt(8000 / 7999 * (residuals**2).sum()) / under.sum()
    assert found.error == pytest.approx(linear, rel=0.01)


def test_the_jackknife_of_a_mean_is_cr1() -> None:
    values = numpy.random.default_rng(4).random(300)
    sums = cluster_sums(numpy.stack([values, numpy.ones(300)], axis=1), numpy.arange(300) // 3)
    mean = mean_interval(values, numpy.arange(300) // 3)
    assert sums_interval(sums, ratio).error == pytest.approx(mean.error)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 30), st.randoms(use_true_random=False))
def test_order_and_names_of_clusters_change_no_byte(
    seed: int, count: int, chance: random.Random
) -> None:
    drawn = numpy.random.default_rng(seed)
    parts = drawn.random((count, 2)) + [0, 1]
    clusters = drawn.integers(0, 7, count)
    order = chance.sample(range(count), count)
    first = sums_interval(cluster_sums(parts, clusters), ratio, resamples=60, n=count)
    names = [f"document {one}" for one in clusters[order]]
    again = sums_interval(cluster_sums(parts[order], names), ratio, resamples=60, n=count)
    assert first == again


def test_where_bca_is_undefined_the_method_says_why_and_gives_percentiles() -> None:
    one_holds_all = ratio_interval([3, 0, 0, 0], [9, 0, 0, 0])
    assert "BCa undefined: one cluster holds all" in one_holds_all.method
    assert "resamples without a value left out" in one_holds_all.method
    values = numpy.random.default_rng(0).random((12, 1))
    top = sums_interval(values, lambda sums: -((sums[:, 0] - values.sum()) ** 2))
    assert top.method == (
        "percentile bootstrap of clusters (BCa undefined: all resamples lie on one side), "
        "narrow for fewer than 20 clusters"
    )
    assert top.high < top.estimate, "such a value is not one for a bootstrap, and it shows"


@pytest.mark.parametrize(
    ("sums", "reason"),
    [([[1, 2]], ONE_CLUSTER), ([[1, 2], [2, 4], [3, 6]], NO_SPREAD), ([[0, 2], [0, 9]], NO_SPREAD)],
)
def test_what_cannot_be_told_is_not(sums: list[list[float]], reason: str) -> None:
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
    """A thousand sums each, as macro F1 over hundreds of classes has: nothing is resamples x clusters x K."""
    import tracemalloc

    sums = numpy.random.default_rng(1).integers(0, 9, (2000, 1000)).astype(float)
    tracemalloc.start()
    sums_interval(sums, lambda rows: rows[:, 0] / rows[:, 1], resamples=1000)
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
    assert parts_interval(Kind("ratio"), parts, documents, seed=3) == ratio_interval(
        over, under, documents, seed=3, bounds=(0, 1)
    )
    counts = [
        {"said": 2.0, "there": 2.0, **({"right": 1.0} if chance.random() < 0.5 else {})}
        for _ in range(50)
    ]
    found = parts_interval(Kind("corpus"), counts, documents)
    assert found is not None
    assert found.estimate == sum("right" in one for one in counts) / 100
    assert found.method == "BCa bootstrap of clusters"
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
