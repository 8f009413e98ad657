"""Intervals: published vectors, scipy, coverage by simulation, order, and unknown values."""

import math
import random
from statistics import NormalDist

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betainc

from hpcbench.statistics import (
    NO_SPREAD,
    ONE_CLUSTER,
    cluster_sums,
    clustered_standard_error,
    early_stopping_estimate,
    fewest_for_quantile,
    log_widths,
    mean_interval,
    proportion_interval,
    quantile_interval,
    ratio_interval,
)
from hpcbench.statistics.limits import limits, weighted_quantile
from tests.campaign import examples

CR1 = "t, clustered standard error CR1"
EXACT = "Clopper-Pearson"
BAYESIAN = "Bayesian bootstrap of clusters, saddlepoint"
VALUES = st.floats(-10, 10, allow_subnormal=False)
ROWS = st.lists(st.tuples(VALUES, st.sampled_from("abcd")), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("values", "clusters", "error"),
    [
        ([1, 1, 1, 0, 0, 0, 1, 0], None, 0.188982),
        ([1, 1, 1, 0, 0, 0, 1, 0], [1, 1, 1, 2, 2, 2, 3, 3], 0.324760),  # Inspect, NeMo
        ([1, 0, 1, 0], ["a", "b", "c", "d"], 0.288675),
        ([1, 0, 1, 0], [1, 1, 2, 2], 0.0),
        ([1, 0], ["a", "a"], None),
    ],
)
def test_standard_error(values: list[float], clusters: list | None, error: float | None) -> None:
    expected = None if error is None else pytest.approx(error, abs=5e-7)
    assert clustered_standard_error(values, clusters) == expected


def test_mean_interval_is_t_with_one_degree_less_than_clusters() -> None:
    found = mean_interval([1, 1, 1, 0, 0, 0, 1, 0], [1, 1, 1, 2, 2, 2, 3, 3])
    half = 4.302653 * 0.324760  # t(0.975, 2)
    assert (found.estimate, found.n, found.clusters) == (0.5, 8, 3)
    assert found.low == pytest.approx(0.5 - half, abs=1e-5)
    assert found.high == pytest.approx(0.5 + half, abs=1e-5)
    assert found.method == "t, clustered standard error CR1"


def test_without_bounds_an_interval_may_go_beyond_what_is_possible() -> None:
    values, clusters = [1, 1, 0.9, 0, 0, 0, 1, 0], [1, 1, 1, 2, 2, 2, 3, 3]
    free, bounded = mean_interval(values, clusters), mean_interval(values, clusters, bounds=(0, 1))
    assert free.low < 0 < bounded.low < bounded.high < 1 < free.high
    half_open = mean_interval(values, clusters, bounds=(0, None))
    assert 0 < half_open.low < half_open.high


def test_singletons_equal_scipys_t_interval() -> None:
    from scipy import stats

    values = [0.3, 0.9, 0.55, 0.1, 1.0]
    for level in (0.5, 0.9, 0.99):
        expected = stats.ttest_1samp(values, 0).confidence_interval(level)
        found = mean_interval(values, level=level)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
        assert found.level == level


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (90, 100, 0.8238, 0.9510),
        (100, 100, 0.9638, 1),
        (0, 50, 0, 0.0711),
        (7, 10, 0.3475, 0.9333),
    ],
)
def test_a_share_has_clopper_and_pearsons_interval(
    successes: int, n: int, low: float, high: float
) -> None:
    from scipy import stats

    found = proportion_interval(successes, n)
    exact = stats.binomtest(successes, n).proportion_ci(method="exact")
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high))
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)
    assert (found.estimate, found.n, found.method) == (successes / n, n, EXACT)


@settings(deadline=None)
@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_shares_interval_stays_in_bounds_and_mirrors(case: tuple[int, int]) -> None:
    k, n = case
    found, mirrored = proportion_interval(k, n), proportion_interval(n - k, n)
    assert 0 <= found.low <= found.estimate <= found.high <= 1
    assert (1 - found.high, 1 - found.low) == pytest.approx((mirrored.low, mirrored.high))


@settings(deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=200),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_sums_are_exact_whatever_the_order(
    values: list[float], groups: int, chance: random.Random
) -> None:
    clusters = [chance.randrange(groups) for _ in values]
    found = sorted(cluster_sums(values, clusters)[:, 0].tolist())
    members: dict[int, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        members.setdefault(cluster, []).append(value)
    assert found == pytest.approx(sorted(map(math.fsum, members.values())), rel=1e-15, abs=1e-9)
    rows = chance.sample(list(zip(values, clusters, strict=True)), len(values))
    again = cluster_sums([v for v, _ in rows], [f"d{c}" for _, c in rows])[:, 0]
    assert sorted(again.tolist()) == found, "to the bit"


def test_arrays_and_integers_as_clusters_say_the_same_as_lists_and_names() -> None:
    chance = numpy.random.default_rng(2)
    values, clusters = chance.random(500), chance.integers(-40, 40, 500)
    by_list = mean_interval(values.tolist(), [f"d{one}" for one in clusters.tolist()])
    for labels in (clusters, clusters * 10**9, clusters + 40, clusters.astype(str)):
        assert mean_interval(values, labels) == by_list


@settings(deadline=None)
@given(ROWS, st.sampled_from([-3.0, 0.001, 1e9]))
def test_a_mean_in_another_unit_has_the_interval_in_that_unit(rows: list, factor: float) -> None:
    values, clusters = zip(*rows, strict=True)
    found = mean_interval(values, clusters)
    scaled = mean_interval([factor * one for one in values], clusters)
    assert scaled.method == found.method
    if found.low is not None:
        ends = sorted((factor * found.low, factor * found.high))
        size = factor * max(map(abs, values))
        assert [scaled.low, scaled.high] == pytest.approx(ends, rel=1e-9, abs=abs(1e-9 * size))


def test_weights_are_how_often_a_sample_counts() -> None:
    values, clusters = [0.2, 0.9, 0.4, 1.0, 0.0], ["a", "a", "b", "c", "d"]
    weighted = mean_interval(values, clusters, weights=[2, 1, 3, 1, 2])
    repeated = [[value] * count for value, count in zip(values, [2, 1, 3, 1, 2], strict=True)]
    flat = [one for some in repeated for one in some]
    names = [name for name, some in zip(clusters, repeated, strict=True) for _ in some]
    plain = mean_interval(flat, names)
    ends = (plain.estimate, plain.low, plain.high, plain.error)
    assert (weighted.estimate, weighted.low, weighted.high, weighted.error) == pytest.approx(ends)
    assert weighted.n == 5
    assert mean_interval(values, clusters, weights=[7] * 5).low == pytest.approx(
        mean_interval(values, clusters).low
    )


@settings(deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_mean_does_not_depend_on_order_or_names(rows: list, chance: random.Random) -> None:
    shuffled = chance.sample(rows, len(rows))
    first = mean_interval([v for v, _ in rows], [c for _, c in rows])
    again = mean_interval([v for v, _ in shuffled], [f"document {c}" for _, c in shuffled])
    assert first == again


@settings(max_examples=examples(30), deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_ratio_does_not_depend_on_order_or_names(rows: list, chance: random.Random) -> None:
    rows = [(v, 1 + abs(v) / 3, c) for v, c in rows]
    shuffled = chance.sample(rows, len(rows))

    def interval(table: list, prefix: str) -> object:
        over, under, clusters = zip(*table, strict=True)
        names = [prefix + c for c in clusters]
        return ratio_interval(over, under, names)

    assert interval(rows, "") == interval(shuffled, "document ")


# --- scores near a bound -------------------------------------------------------------------------------


@pytest.mark.parametrize(("right", "wrong"), [(97, 3), (90, 10), (50, 50), (10, 0), (0, 7)])
def test_right_or_wrong_of_independent_samples_is_clopper_and_pearsons(
    right: int, wrong: int
) -> None:
    values = [1] * right + [0] * wrong
    found, share = mean_interval(values, bounds=(0, 1)), proportion_interval(right, len(values))
    assert (found.low, found.high) == pytest.approx((share.low, share.high))
    assert found.method == EXACT
    if right and wrong:
        assert mean_interval(values).method == CR1, "without bounds it is no share"


@pytest.mark.parametrize("value", [0, 1])
def test_with_none_of_a_kind_each_cluster_counts_as_one_sample(value: int) -> None:
    found = mean_interval([value] * 40, [number // 4 for number in range(40)], bounds=(0, 1))
    share = proportion_interval(10 * value, 10)
    assert (found.low, found.high) == pytest.approx((share.low, share.high))
    assert (found.n, found.clusters, found.method) == (40, 10, EXACT)


@pytest.mark.parametrize("last", [0.0, 0.01, 0.5, 0.97, 0.999])
def test_a_single_graded_score_among_ones_hides_how_bad_the_next_one_may_be(last: float) -> None:
    """The first score that is neither right nor wrong changes the interval by no more than itself."""
    found = mean_interval([1.0] * 99 + [last], bounds=(0, 1))
    wrong, right = proportion_interval(99, 100), proportion_interval(100, 100)
    assert wrong.low - 1e-3 <= found.low <= right.low + 1e-3
    assert wrong.high - 1e-3 <= found.high <= 1


@pytest.mark.long
def test_many_small_slips_do_not_hide_what_a_rare_failure_costs() -> None:
    chance = numpy.random.default_rng(21)
    share, slip = 0.02, 0.3
    truth = 1 - share - slip * 0.05
    for documents in (30, 60, 100):
        covered = 0
        for _ in range(300):
            drawn = chance.random(documents)
            slipped = numpy.where(drawn < share + slip, chance.uniform(0.9, 1, documents), 1.0)
            scores = numpy.where(drawn < share, 0.0, slipped)
            found = mean_interval(scores, range(documents), bounds=(0, 1))
            assert found.low is not None and found.high is not None
            covered += found.low <= truth <= found.high
        assert covered / 300 >= 0.93 - 3 * math.sqrt(0.93 * 0.07 / 300)


@settings(deadline=None, max_examples=examples(60))
@given(
    st.lists(st.floats(0, 1, allow_subnormal=False), min_size=2, max_size=60),
    st.integers(0, 59),
    st.floats(0, 1),
)
def test_where_few_carry_the_spread_a_lower_score_never_raises_the_lower_end(
    values: list[float], place: int, lower: float
) -> None:
    values = [1.0] * 60 + values[:2]
    worse = list(values)
    worse[60 + place % 2] *= lower
    first, second = mean_interval(values, bounds=(0, 1)), mean_interval(worse, bounds=(0, 1))
    assert second.low <= first.low + 1e-3


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 200).map(lambda one: one / 200), st.sampled_from("abcdefgh")),
        min_size=2,
        max_size=40,
    ),
    st.sampled_from([0.5, 0.9, 0.95, 0.999, 1 - 1e-6]),
)
def test_ends_lie_within_bounds_and_around_the_mean(rows: list, level: float) -> None:
    values, clusters = zip(*rows, strict=True)
    found = mean_interval(values, clusters, level, bounds=(0, 1))
    if found.clusters == 1:
        assert found.low is None
        return
    assert 0 <= found.low <= found.estimate + 1e-9
    assert found.estimate - 1e-9 <= found.high <= 1
    mirrored = mean_interval([1 - one for one in values], clusters, level, bounds=(0, 1))
    assert (1 - found.high, 1 - found.low) == pytest.approx((mirrored.low, mirrored.high), abs=1e-8)


def test_many_clusters_that_all_differ_have_the_t_interval() -> None:
    values = numpy.random.default_rng(1).random(20_000)
    found, plain = mean_interval(values, bounds=(0, 1)), mean_interval(values)
    assert (found.method, found.clusters) == (plain.method, plain.clusters)
    # The last bit depends on numpy's version.
    assert (found.low, found.high) == pytest.approx((plain.low, plain.high), rel=1e-12)
    few = mean_interval(numpy.where(values < 1e-3, 0.0, 1.0), bounds=(0, 1))
    assert few.method == EXACT, "twenty of twenty thousand are few"
    below = mean_interval(values[:900], bounds=(0, 1))
    width = below.high - below.low
    assert below.method == BAYESIAN
    assert mean_interval(values[:900]).low == pytest.approx(below.low, abs=0.05 * width)


@pytest.mark.long
def test_the_saddlepoint_agrees_with_random_weights() -> None:
    """Quantiles of a million weighted means of 12 documents of unequal size and a pseudo-document."""
    chance = numpy.random.default_rng(5)
    under = chance.integers(1, 21, 12).astype(float)
    over = under * chance.random(12) ** 0.3
    over, under, shapes = numpy.append(over, 0.0), numpy.append(under, 9.0), numpy.ones(13)
    shapes[-1] = 0.7
    weights = chance.gamma(shapes, size=(1_000_000, 13))
    means = (weights @ over) / (weights @ under)
    for share in (0.005, 0.025, 0.05, 0.25, 0.75, 0.95, 0.975, 0.995):
        found = weighted_quantile(over, under, shapes, NormalDist().inv_cdf(share))
        assert float((means <= found).mean()) == pytest.approx(share, abs=0.005)


@pytest.mark.parametrize(("a", "b"), [(3.0, 5.0), (1.0, 9.0)])
@pytest.mark.parametrize("share", [0.025, 0.3, 0.7, 0.975])
def test_a_sum_without_a_denominator_goes_beyond_any_rate(a: float, b: float, share: float) -> None:
    """The ratio of two gamma variables has a beta prime distribution."""
    over, under, shapes = numpy.array([1.0, 0.0]), numpy.array([0.0, 1.0]), numpy.array([a, b])
    for side in (-1, 1):
        z = NormalDist().inv_cdf(share)
        found = side * weighted_quantile(side * over, under, shapes, side * z)
        assert betainc(a, b, found / (1 + found)) == pytest.approx(share, abs=0.003)


@pytest.mark.parametrize(("a", "b"), [(3.0, 5.0), (1.0, 9.0), (40.0, 2.0)])
def test_the_saddlepoint_has_no_step_at_the_mean(a: float, b: float) -> None:
    """There its formula is 0 / 0, and its limit is used."""
    over, under, shapes = numpy.array([0.0, 1.0]), numpy.array([1.0, 1.0]), numpy.array([a, b])
    low, high = -3.0, 3.0
    for _ in range(60):
        middle = (low + high) / 2
        below = weighted_quantile(over, under, shapes, middle) < b / (a + b)
        low, high = (middle, high) if below else (low, middle)
    assert betainc(b, a, b / (a + b)) == pytest.approx(NormalDist().cdf(low), abs=2e-3)
    near = [weighted_quantile(over, under, shapes, low + step * 1e-3) for step in range(-9, 10)]
    assert near[9] == pytest.approx(b / (a + b), abs=1e-4)
    steps = numpy.diff(near)
    assert steps == pytest.approx(steps.mean(), rel=0.2)


@pytest.mark.parametrize(("groups", "weight"), [(5, 1.0), (10, 1.0), (40, 0.5), (90, 1 / 3)])
def test_a_side_without_a_bound_has_a_pseudo_cluster_that_many_clusters_outweigh(
    groups: int, weight: float
) -> None:
    """Its residual goes from three times the greatest one down to the greatest one."""
    over, under = numpy.random.default_rng(groups).random(groups), numpy.ones(groups)
    mean = over.mean()
    beyond = mean + (over.max() - mean) * (1 + 2 * weight)
    high = weighted_quantile(
        numpy.append(over, beyond),
        numpy.ones(groups + 1),
        numpy.append(under, weight),
        NormalDist().inv_cdf(0.975),
    )
    assert limits(over, under, (0, None), 0.95).high == pytest.approx(high, rel=1e-8)


def test_clusters_of_one_rate_have_no_residual_whatever_their_rounding() -> None:
    """A half is exact, a tenth is not."""
    sizes = numpy.arange(1.0, 12.0)
    exact, rounded = (limits(rate * sizes, sizes, (0, 2 * rate), 0.95) for rate in (0.5, 0.1))
    assert (rounded.low, rounded.high) == pytest.approx((exact.low / 5, exact.high / 5), rel=1e-8)


@pytest.mark.parametrize("sizes", [(1, 2), (2, 1)])
def test_clusters_of_unequal_sizes_are_not_counted_as_right_or_wrong(sizes: tuple) -> None:
    under = numpy.repeat(sizes, 5).astype(float)
    assert limits(numpy.repeat([0.0, 1.0], 5), under, (0, 1), 0.95).method == BAYESIAN
    assert limits(numpy.repeat([0.0, 1.0], 5), numpy.ones(10), (0, 1), 0.95).method == EXACT


def test_limits_follow_the_unit_of_the_denominator() -> None:
    chance = numpy.random.default_rng(3)
    over, under = chance.random(30), chance.integers(1, 9, 30).astype(float)
    found, quarter = limits(over, under, (0, None), 0.95), limits(over, 4 * under, (0, None), 0.95)
    assert (quarter.low, quarter.high) == pytest.approx((found.low / 4, found.high / 4), rel=1e-6)


def test_a_few_values_at_the_other_bound_count_like_values_near_it() -> None:
    over, under = numpy.random.default_rng(3).random(30), numpy.ones(30)
    over[:3] = 1
    at = limits(over, under, (0, 1), 0.95)
    over[:3] = 1 - 1e-9
    near = limits(over, under, (0, 1), 0.95)
    assert (at.low, at.high) == pytest.approx((near.low, near.high), rel=1e-6)


def test_one_more_wrong_answer_never_raises_the_lower_end() -> None:
    """In particular not the first one, though a single wrong answer hides whether they come together."""
    clusters = [number // 4 for number in range(400)]
    lows = [
        mean_interval([0] * wrong + [1] * (400 - wrong), clusters, bounds=(0, 1)).low
        for wrong in range(12)
    ]
    assert lows == sorted(lows, reverse=True)


def test_wrong_answers_that_come_together_are_worth_less() -> None:
    clusters = [number // 4 for number in range(400)]
    together = mean_interval([0] * 4 + [1] * 396, clusters, bounds=(0, 1))
    apart = mean_interval(
        [0 if number in (0, 40, 80, 120) else 1 for number in range(400)], clusters, bounds=(0, 1)
    )
    assert together.estimate == apart.estimate
    assert together.low < apart.low
    assert together.high > apart.high


@pytest.mark.parametrize(("share", "correlation"), [(0.97, 0.3), (0.99, 0.8), (0.03, 0.0)])
def test_shares_near_the_ends_are_covered_where_t_is_not(share: float, correlation: float) -> None:
    chance, rounds, hits, plain = numpy.random.default_rng(3), 300, 0, 0
    documents = numpy.repeat(numpy.arange(60), 5)
    for _ in range(rounds):
        size = 1 / correlation - 1 if correlation else 1e9
        rates = chance.beta(share * size, (1 - share) * size, 60)[documents]
        values = (chance.random(300) < rates).astype(float)
        found = mean_interval(values, documents, bounds=(0, 1))
        hits += found.low <= share <= found.high
        by_t = mean_interval(values, documents)
        plain += by_t.low is not None and by_t.low <= share <= by_t.high
    assert hits / rounds >= 0.93
    assert hits >= plain


def test_a_ratio_has_an_interval_without_random_numbers() -> None:
    chance = random.Random(3)
    under = [chance.randint(5, 50) for _ in range(60)]
    over = [chance.randint(0, length) for length in under]
    first = ratio_interval(over, under)
    assert first == ratio_interval(over, under)
    assert first.estimate == sum(over) / sum(under)
    assert first.low < first.estimate < first.high
    assert first.method == BAYESIAN
    wide = ratio_interval(over, under, level=0.99)
    assert wide.low < first.low < first.high < wide.high


def test_many_clusters_of_a_ratio_agree_with_theory() -> None:
    rows = [(i % 3, 2) for i in range(3000)]
    over, under = zip(*rows, strict=True)
    found = ratio_interval(over, under)
    standard_error = math.sqrt(2 / 3 / 3000) / 2
    assert found.low == pytest.approx(0.5 - 1.96 * standard_error, abs=1e-3)
    assert found.high == pytest.approx(0.5 + 1.96 * standard_error, abs=1e-3)


def test_ratio_of_equal_denominators_agrees_with_the_mean() -> None:
    chance = random.Random(5)
    values = [chance.random() for _ in range(400)]
    clusters = [i // 4 for i in range(400)]
    by_mean = mean_interval(values, clusters)
    by_sums = ratio_interval(values, [1] * 400, clusters, bounds=(0, 1))
    assert by_sums == mean_interval(values, clusters, bounds=(0, 1))
    assert by_sums.estimate == by_mean.estimate
    assert by_sums.low == pytest.approx(by_mean.low, abs=0.01)
    assert by_sums.high == pytest.approx(by_mean.high, abs=0.01)


def test_coverage_with_clusters() -> None:
    """With strongly dependent values, 95 % intervals hold the truth about 95 % of the time."""
    chance = random.Random(7)
    hits = naive_hits = 0
    rounds = 400
    for _ in range(rounds):
        values, clusters = [], []
        for cluster in range(15):
            level = chance.gauss(0, 1)
            values += [level + chance.gauss(0, 0.5) for _ in range(6)]
            clusters += [cluster] * 6
        found, naive = mean_interval(values, clusters), mean_interval(values)
        hits += found.low <= 0 <= found.high
        naive_hits += naive.low <= 0 <= naive.high
    assert 0.92 <= hits / rounds <= 0.98
    assert naive_hits / rounds < 0.75


def test_empty_references_take_part_in_a_ratio() -> None:
    found = ratio_interval([1, 2, 0, 3], [10, 12, 0, 9], ["a", "b", "c", "d"])
    assert found.estimate == 6 / 31
    assert found.low <= found.estimate <= found.high
    assert all(math.isfinite(end) for end in (found.low, found.high))
    assert ratio_interval([1, 1], [1, 1], bounds=(0, 1)).high == 1


@pytest.mark.parametrize(
    ("found", "method", "clusters"),
    [
        (mean_interval([0.5]), ONE_CLUSTER, 1),
        (mean_interval([0, 1], ["a", "a"]), ONE_CLUSTER, 1),
        (mean_interval([1, 1, 1]), NO_SPREAD, 3),
        (mean_interval([0.1] * 7), NO_SPREAD, 7),
        (mean_interval([1, 0, 1, 0], [1, 1, 2, 2]), NO_SPREAD, 2),
        (ratio_interval([1, 2], [3, 4], ["a", "a"]), ONE_CLUSTER, 1),
        (ratio_interval([0, 0], [3, 4]), NO_SPREAD, 2),
        (ratio_interval([1, 0.1], [3, 0.3]), NO_SPREAD, 2),
    ],
)
def test_undefined_intervals_say_why(found: object, method: str, clusters: int) -> None:
    assert (found.low, found.high) == (None, None)
    assert (found.method, found.clusters) == (method, clusters)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_interval([]), "at least one value"),
        (lambda: mean_interval([1.0, math.nan]), "not a finite number"),
        (lambda: mean_interval([1, 2], ["a"]), "2 values do not fit 1 clusters"),
        (lambda: mean_interval([1, 2], level=95), "level is 95; it must be between 0 and 1"),
        (lambda: mean_interval([1, 2], weights=[1]), "2 values do not fit 1 weights"),
        (lambda: mean_interval([1, 2], weights=[1, -1]), "weights must be 0 or more"),
        (lambda: mean_interval([1, 2], weights=[0, 0]), "not all 0"),
        (lambda: mean_interval([[1, 2]]), "2 dimensions"),
        (lambda: mean_interval([1e300, 1]), "beyond 1e"),
        (lambda: proportion_interval(0, 0), "at least one sample"),
        (lambda: proportion_interval(3, 2), "3 successes among 2 samples"),
        (lambda: ratio_interval([], []), "at least one value"),
        (lambda: ratio_interval([1], [1, 2]), "1 numerators do not fit 2 denominators"),
        (lambda: ratio_interval([1, 1], [0, 0]), "all denominators are 0"),
        (lambda: ratio_interval([1, 1], [1, -1]), "a denominator is negative"),
    ],
)
def test_refusals(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# --- quantiles ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.99])
def test_order_statistics_cover_a_quantile_at_least_as_often_as_they_say(share: float) -> None:
    """Exponential values, whose quantile is known; no other test knows what they look like."""
    chance, true, covered = random.Random(11), -math.log(1 - share), 0
    for _ in range(400):
        found = quantile_interval([chance.expovariate(1) for _ in range(500)], share)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= true <= found.high
    assert covered / 400 > 0.93


def test_the_ends_of_a_quantile_are_the_ranks_of_the_published_table() -> None:
    """Median of 100: ranks 40 and 61 (Conover 1999, Practical Nonparametric Statistics, table A3)."""
    found = quantile_interval([float(value) for value in range(1, 101)], 0.5)
    assert (found.low, found.estimate, found.high) == (40, 50.5, 61)


def test_a_quantile_of_few_values_has_no_upper_end_rather_than_a_made_up_one() -> None:
    found = quantile_interval(range(100), 0.99)
    assert found.high is None
    assert found.low == 96
    assert quantile_interval([7.0], 0.5).low is None


@settings(deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_a_quantile_lies_within_its_interval_and_its_values(
    values: list[float], share: float
) -> None:
    found = quantile_interval(values, share)
    assert min(values) <= found.estimate <= max(values)
    assert found.low is None or found.low <= found.estimate
    assert found.high is None or found.high >= found.estimate


@settings(deadline=None)
@given(st.integers(1, 3000), st.sampled_from([0.5, 0.9, 0.95, 0.99]) | st.floats(0.01, 0.99))
def test_ranks_are_those_of_asking_the_distribution_of_each(n: int, share: float) -> None:
    from scipy.special import bdtr, betainc

    below = bdtr(numpy.arange(n + 1, dtype=float), n, share)
    low, high = (below <= 0.025).sum(), (below < 0.975).sum() + 1
    found = quantile_interval(range(1, n + 1), share)
    assert found.low == (min(low, found.estimate) if low else None)
    assert found.high == (max(high, found.estimate) if high <= n else None)
    over = numpy.arange(1, n, dtype=float)
    passed = int((betainc(n - over, over + 1, share) <= 1 - 0.99).sum())
    assert early_stopping_estimate(range(n), share) == (n - passed if passed else None)


@pytest.mark.parametrize(("share", "fewest"), [(0.5, 7), (0.9, 44), (0.95, 90), (0.99, 459)])
def test_the_fewest_values_of_a_quantile_are_those_of_which_one_lies_above_it(
    share: float, fewest: int
) -> None:
    assert fewest_for_quantile(share) == fewest
    assert 1 - share**fewest >= 0.99 > 1 - share ** (fewest - 1)


@pytest.mark.parametrize(("share", "fewest"), [(0.9, 64), (0.95, 130), (0.97, 219), (0.99, 662)])
def test_early_stopping_needs_as_many_queries_as_mlperf_says(share: float, fewest: int) -> None:
    assert early_stopping_estimate(range(fewest - 1), share) is None
    assert early_stopping_estimate(range(fewest), share) == fewest - 1, (
        "nothing is dropped at first"
    )


def test_early_stopping_is_above_the_true_quantile_at_least_99_times_of_100() -> None:
    chance, true = random.Random(5), -math.log(0.1)
    above = 0
    for _ in range(500):
        bound = early_stopping_estimate([chance.expovariate(1) for _ in range(300)], 0.9)
        assert bound is not None
        above += bound >= true
    assert above >= 490


def test_a_share_that_is_none_is_refused() -> None:
    for share in (0.0, 1.0, 2.0):
        with pytest.raises(ValueError, match="share"):
            quantile_interval([1.0], share)


def test_the_ends_of_two_runs_make_the_interval_of_their_ratio() -> None:
    slow, fast = (80.0, 100.0, 125.0), (100.0, 150.0, 450.0)
    below, above = log_widths([slow], [fast]) or (0.0, 0.0)
    assert below == pytest.approx(math.hypot(math.log(1.5), math.log(1.25)))
    assert above == pytest.approx(math.hypot(math.log(3.0), math.log(1.25)))
    both = log_widths([slow, slow], [fast, fast])
    assert both == pytest.approx((below / math.sqrt(2), above / math.sqrt(2)))


@pytest.mark.parametrize("ends", [(None, 1.0, 2.0), (0.0, 1.0, 2.0), (0.5, 1.0, math.inf)])
def test_a_run_without_an_end_leaves_their_ratio_without_an_interval(
    ends: tuple[float | None, float, float],
) -> None:
    whole = (0.5, 1.0, 2.0)
    assert log_widths([whole, ends], [whole]) is None
    assert log_widths([whole], [ends]) is None
