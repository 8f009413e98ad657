"""Quantiles of values that come in documents: the ends, and how often they hold the truth."""

from __future__ import annotations

import math
from random import Random

import numpy
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.statistics import (
    ONE_CLUSTER,
    clustered_quantile_interval,
    mean_interval,
    quantile_interval,
)


@given(st.lists(st.floats(0, 1e6), min_size=8, max_size=60), st.sampled_from([0.5, 0.9]))
def test_a_quantile_of_single_values_is_that_without_clusters(
    values: list[float], share: float
) -> None:
    clusters = [f"d{number}" for number in range(len(values))]
    found = clustered_quantile_interval(values, clusters, share)
    assert found == quantile_interval(values, share)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 50)), min_size=4, max_size=60),
    st.sampled_from([0.1, 0.5, 0.95]),
    st.randoms(use_true_random=False),
)
def test_a_clustered_quantile_is_within_its_ends_in_any_order(
    pairs: list[tuple[int, int]], share: float, random: Random
) -> None:
    clusters, values = zip(*pairs, strict=True)
    found = clustered_quantile_interval([float(one) for one in values], clusters, share)
    assert found.estimate == numpy.quantile(values, share)
    assert found.low is None or found.low <= found.estimate
    assert found.high is None or found.high >= found.estimate
    random.shuffle(pairs)
    clusters, values = zip(*pairs, strict=True)
    assert clustered_quantile_interval([float(one) for one in values], clusters, share) == found


def test_one_cluster_has_a_quantile_without_interval() -> None:
    found = clustered_quantile_interval([1.0, 2.0, 3.0], ["a", "a", "a"], 0.5)
    assert (found.estimate, found.low, found.high) == (2.0, None, None)
    assert found.method == ONE_CLUSTER


def test_the_ends_are_the_values_at_the_ends_of_the_share_below() -> None:
    """Woodruff's method, written out: the interval of the share below the estimate, read off the values."""
    random = numpy.random.default_rng(3)
    place = numpy.repeat(numpy.arange(15), 8)
    values = (random.standard_normal((15, 1)) + random.standard_normal((15, 8))).ravel()
    for share in (0.3, 0.5, 0.8):
        found = clustered_quantile_interval(values, place, share, 0.9)
        below = mean_interval((values < found.estimate) * 1.0, place, 0.9, bounds=(0.0, 1.0))
        assert below.low is not None and below.high is not None
        ordered = numpy.sort(values)
        assert found.low == ordered[math.ceil(below.low * 120) - 1]
        assert found.high == ordered[math.floor(below.high * 120)]


def test_values_equal_to_the_estimate_are_below_it_in_part() -> None:
    place = numpy.repeat(numpy.arange(20), 3)
    values = numpy.where(numpy.arange(60) % 5 == 0, 0.0, 1.0)
    values[-2:] = 2.0
    # The median is 1, and 12 values are below it; 18 of the 46 ones complete the half.
    portions = numpy.where(values < 1, 1.0, numpy.where(values == 1, 18 / 46, 0.0))
    below = mean_interval(portions, place, bounds=(0.0, 1.0))
    found = clustered_quantile_interval(values, place, 0.5)
    assert below.low is not None and below.high is not None
    ordered = numpy.sort(values)
    assert (found.estimate, found.low) == (1.0, ordered[math.ceil(below.low * 60) - 1])
    assert found.high == ordered[math.floor(below.high * 60)]
    skewed = clustered_quantile_interval(values, place, 0.22)
    assert (skewed.estimate, skewed.low) == (1.0, 0.0)


def test_clustered_quantiles_cover_where_independent_ones_do_not() -> None:
    """20 documents of ten pages each: an interval that ignores documents is far too narrow."""
    random = numpy.random.default_rng(7)
    truth, rounds, kept, naive = 1.0, 120, 0, 0
    for _ in range(rounds):
        documents = random.standard_normal((20, 1)) + random.standard_normal((20, 10))
        values = numpy.exp(documents).ravel()
        found = clustered_quantile_interval(values, numpy.repeat(numpy.arange(20), 10), 0.5)
        alone = quantile_interval(values, 0.5)
        assert found.low is not None and found.high is not None
        assert alone.low is not None and alone.high is not None
        kept += found.low <= truth <= found.high
        naive += alone.low <= truth <= alone.high
    assert kept / rounds >= 0.88
    assert naive / rounds <= 0.8
