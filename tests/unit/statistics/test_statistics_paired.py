"""Two runs compared: published vectors, exact tests, verdicts, many comparisons, false alarms."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import stdtrit

from hpcbench.statistics import (
    compare,
    documents_needed,
    holm,
    mcnemar,
    pair,
    ratio_interval,
    with_holm,
)
from hpcbench.statistics.limits import OPEN_CHANGE
from tests.campaign import examples, first


def runs_of_the_vector() -> tuple[list[int], list[int]]:
    """100 samples, 64 right and 70 right, 2 lost and 8 won."""
    baseline = [1] * 62 + [1] * 2 + [0] * 8 + [0] * 28
    return baseline, [1] * 62 + [0] * 2 + [1] * 8 + [0] * 28


def test_the_published_vector() -> None:
    """facts/metrics.md, section 4: difference 0.06, SE 0.031205, t 1.9228; McNemar exact 0.1094."""
    found = compare(*runs_of_the_vector(), bounds=(0, 1))
    assert (found.n, found.clusters) == (100, 100)
    assert (found.baseline, found.candidate) == (0.64, 0.7)
    assert found.interval.estimate == pytest.approx(0.06)
    assert found.interval.error == pytest.approx(0.031205, abs=5e-7)
    assert found.interval.low < 0.06 - 1.984217 * 0.031205, "ten documents that differ are few"
    assert found.reach == 1
    assert (found.wins, found.losses, found.ties) == (8, 2, 90)
    assert found.p_value == pytest.approx(0.1094, abs=5e-5)
    assert found.p_method == "McNemar, exact"
    assert found.odds == 4
    assert found.effect_size == pytest.approx(1.9228 / math.sqrt(100), abs=5e-6)
    assert found.effective_n == pytest.approx(100)
    assert found.detectable == pytest.approx(2.83 * 0.031205, rel=0.01)
    assert found.verdict == "inconclusive"


@pytest.mark.long
@pytest.mark.parametrize(
    ("won", "lost", "p_value"),
    [(8, 2, 0.109375), (2, 8, 0.109375), (0, 0, 1), (5, 5, 1), (6, 0, 0.03125), (1, 0, 1)],
)
def test_mcnemar_is_a_binomial_test(won: int, lost: int, p_value: float) -> None:
    assert mcnemar(won, lost) == pytest.approx(p_value)
    if won + lost:
        from scipy import stats

        assert mcnemar(won, lost) == pytest.approx(stats.binomtest(won, won + lost).pvalue)


def test_few_clusters_are_swapped_in_all_ways() -> None:
    chance = random.Random(3)
    baseline = [chance.random() for _ in range(24)]
    candidate = [one + chance.random() / 3 - 0.1 for one in baseline]
    clusters = [number // 3 for number in range(24)]
    sums = [
        math.fsum(candidate[i] - baseline[i] for i in range(24) if clusters[i] == cluster)
        for cluster in range(8)
    ]
    seen = abs(sum(sums)) - 1e-12
    ways = list(itertools.product((-1, 1), repeat=8))
    extreme = sum(abs(sum(map(math.prod, zip(way, sums, strict=True)))) >= seen for way in ways)
    found = compare(baseline, candidate, clusters)
    assert found.p_value == extreme / len(ways)
    assert found.p_method == "swapped clusters, all ways"


def test_random_swaps_agree_with_scipys_permutation_test() -> None:
    from scipy import stats

    chance = numpy.random.default_rng(5)
    baseline = chance.random(40)
    candidate = baseline + chance.normal(0.03, 0.1, 40)
    scipys = stats.permutation_test(
        (candidate - baseline,), lambda d, axis: d.sum(axis=axis), permutation_type="samples",
        vectorized=True, n_resamples=50_000, rng=numpy.random.default_rng(1),
    )  # fmt: skip
    found = compare(baseline, candidate)
    assert found.p_method == "swapped clusters, 9999 random ways"
    assert found.p_value == pytest.approx(scipys.pvalue, abs=0.02)


def test_a_p_value_of_random_ways_is_never_zero() -> None:
    found = compare(numpy.zeros(50), numpy.ones(50) + numpy.arange(50) / 99)
    assert found.p_value == 1 / 10_000


def test_many_clusters_take_the_normal_limit_and_it_agrees() -> None:
    chance = numpy.random.default_rng(8)
    baseline = chance.random(6000)
    candidate = baseline + chance.normal(0.004, 0.2, 6000)
    whole, part = (
        compare(baseline, candidate),
        compare(baseline, candidate, numpy.arange(6000) % 4000),
    )
    assert whole.p_method == "swapped clusters, normal limit"
    assert part.p_method == "swapped clusters, 9999 random ways"
    assert whole.p_value == pytest.approx(part.p_value, abs=0.03)


@pytest.mark.parametrize(
    ("shift", "noise", "margin", "verdict"),
    [
        (0.1, 0.1, None, "better"),
        (-0.1, 0.1, None, "worse"),
        (0.0, 0.1, None, "inconclusive"),
        (0.0, 0.1, 0.05, "equivalent"),
        (0.01, 0.001, 0.05, "equivalent"),  # seen surely, but it does not matter
        (0.1, 0.1, 0.05, "better"),
        (0.05, 0.9, 0.05, "inconclusive"),
    ],
)
@pytest.mark.parametrize("higher_is_better", [True, False])
def test_verdicts(
    shift: float, noise: float, margin: float | None, verdict: str, higher_is_better: bool
) -> None:
    chance = numpy.random.default_rng(1)
    baseline = chance.random(200)
    drawn = chance.normal(0, noise, 200)
    gained = baseline + shift + drawn - drawn.mean()
    candidate = gained if higher_is_better else 2 * baseline - gained
    found = compare(baseline, candidate, higher_is_better=higher_is_better, margin=margin)
    assert found.verdict == verdict
    assert (found.interval.estimate > 0) == ((shift > 0) == higher_is_better) or not shift
    if margin is None:
        assert found.non_inferior is None
    elif verdict in ("better", "equivalent"):
        assert found.non_inferior


def test_swapped_runs_mirror_everything() -> None:
    chance = numpy.random.default_rng(6)
    baseline, candidate = chance.random(60), chance.random(60) + 0.3
    clusters = numpy.arange(60) // 3
    there, back = compare(baseline, candidate, clusters), compare(candidate, baseline, clusters)
    assert (there.verdict, back.verdict) == ("better", "worse")
    assert (there.wins, there.losses) == (back.losses, back.wins)
    assert there.interval.low == pytest.approx(-back.interval.high)
    assert there.detectable == pytest.approx(back.detectable)


def test_equal_runs_are_equivalent_where_enough_documents_say_so() -> None:
    values = [1.0, 0.0] * 200
    many = compare(values, values, margin=0.02, bounds=(0, 1))
    assert (many.verdict, many.p_value, many.ties) == ("equivalent", 1, 400)
    assert many.interval.high == pytest.approx(0.00918, abs=1e-5), (
        "Clopper and Pearson's end of 0 in 400"
    )
    assert many.interval.low == -many.interval.high
    few = compare(values[:10], values[:10], margin=0.02, bounds=(0, 1))
    assert few.verdict == "inconclusive"
    one = compare(values, values, ["d"] * 400, margin=0.02, bounds=(0, 1))
    assert (one.interval.low, one.verdict) == (None, "inconclusive")


def test_equal_runs_without_bounds_could_differ_by_the_range_that_was_seen() -> None:
    parts = numpy.array([[2.0, 10], [0, 5], [3, 6]] * 100)
    found = compare(parts, parts, margin=0.01, bounds=(0, None), higher_is_better=False)
    assert found.interval.high == pytest.approx(3.689 / 300, rel=0.02), "a page may be all wrong"
    assert (found.verdict, found.reach) == ("inconclusive", 1)
    wide = compare(parts, parts, margin=0.02, bounds=(0, None), higher_is_better=False)
    assert wide.verdict == "equivalent"
    zeros = numpy.zeros(300)
    assert compare(zeros, zeros, margin=0.01).verdict == "inconclusive", "no range was seen"


def test_a_ratio_is_compared_by_its_sums() -> None:
    chance = numpy.random.default_rng(3)
    lengths = chance.integers(50, 500, 120).astype(float)
    baseline = numpy.stack([chance.poisson(0.10 * lengths), lengths], axis=1)
    candidate = numpy.stack([chance.poisson(0.05 * lengths), lengths], axis=1)
    clusters = numpy.arange(120) // 3
    found = compare(baseline, candidate, clusters, higher_is_better=False, bounds=(0, None))
    assert found.baseline == baseline[:, 0].sum() / lengths.sum()
    assert found.interval.low < found.interval.estimate < found.interval.high < 0
    assert found.interval.estimate == pytest.approx(found.candidate - found.baseline)
    assert found.p_value == 1 / 10_000
    assert (found.verdict, found.clusters) == ("better", 40)
    assert found.wins > found.losses
    assert found.odds is None
    errors, around = candidate[:, 0] - baseline[:, 0], (-found.reach, found.reach)
    one = ratio_interval(errors, lengths, clusters, bounds=around, caution=OPEN_CHANGE)
    assert (found.interval.low, found.interval.high) == (one.low, one.high), "equal references"


def test_a_corpus_metric_is_compared_by_its_own_function() -> None:
    def combine(sums: Any) -> Any:
        return numpy.sqrt(sums[:, 0] / sums[:, 1] * sums[:, 2] / sums[:, 1])

    chance = numpy.random.default_rng(2)
    baseline, candidate = (
        numpy.stack(
            [chance.binomial(20, p, 60), numpy.full(60, 20), chance.binomial(20, p, 60)], axis=1
        )
        for p in (0.5, 0.8)
    )
    found = compare(baseline, candidate, combine=combine)
    assert found.verdict == "better"
    assert found.baseline == pytest.approx(0.5, abs=0.03)
    mirrored = compare(candidate, baseline, combine=combine).interval
    assert (-mirrored.high, -mirrored.low) == pytest.approx(
        (found.interval.low, found.interval.high)
    )
    own = numpy.zeros(60), numpy.full(60, numpy.nan)
    reported = compare(baseline, candidate, combine=combine, values=own)
    assert (reported.wins, reported.losses, reported.ties) == (0, 0, 60), (
        "no value of its own: a tie"
    )


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 40), st.randoms(use_true_random=False))
def test_order_and_names_of_clusters_change_no_byte(
    seed: int, count: int, chance: random.Random
) -> None:
    drawn = numpy.random.default_rng(seed)
    baseline, candidate = drawn.random((count, 2)) + [0, 1], drawn.random((count, 2)) + [0, 1]
    clusters = drawn.integers(0, 30, count)
    order = chance.sample(range(count), count)
    names = [f"document {one}" for one in clusters[order]]
    for columns in (slice(0, 1), slice(0, 2)):
        first = compare(baseline[:, columns], candidate[:, columns], clusters)
        again = compare(baseline[order][:, columns], candidate[order][:, columns], names)
        assert first == again


def test_one_cluster_says_nothing() -> None:
    found = compare([0.1, 0.2], [0.3, 0.9], ["a", "a"], margin=0.1)
    assert (found.interval.low, found.detectable, found.verdict) == (None, None, "inconclusive")
    assert found.p_value == 1
    assert found.non_inferior is None


def test_the_same_step_everywhere_is_no_chance() -> None:
    found = compare([0.25, 0.5], [0.5, 0.75])
    assert (found.effect_size, found.verdict) == (None, "inconclusive"), "two documents"
    sure = compare([0] * 50, [1] * 50, margin=0.1, bounds=(0, 1))
    assert (sure.interval.high, sure.verdict) == (1, "better")
    assert sure.interval.low > 0.8
    assert compare([1] * 50, [0] * 50).verdict == "worse"


# --- few documents that differ --------------------------------------------------------------------------


def test_one_document_that_differs_proves_no_more_than_none() -> None:
    same = numpy.ones(30)
    other = same.copy()
    other[7] = 0
    none, one = (compare(same, run, margin=0.1, bounds=(0, 1)) for run in (same, other))
    assert one.interval.low < none.interval.low
    assert (none.verdict, one.verdict) == ("inconclusive", "inconclusive")


@pytest.mark.long
@pytest.mark.parametrize(
    ("documents", "margin"), first(1, [(10, 0.05), (30, 0.02), (100, 0.01), (60, 0.03)])
)
@pytest.mark.parametrize("graded", [False, True])
def test_a_candidate_that_is_worse_by_the_margin_seldom_passes(
    documents: int, margin: float, *, graded: bool
) -> None:
    """At most 2.5 %, and three errors of 400 rounds."""
    chance = numpy.random.default_rng(documents)
    passed = 0
    for _ in range(400):
        lost = chance.random(documents) < margin * (2 if graded else 1)
        fall = chance.random(documents) if graded else 1.0
        found = compare(
            numpy.ones(documents), 1 - lost * fall, margin=margin, bounds=(0, 1), seed=1
        )
        passed += bool(found.non_inferior)
    assert passed / 400 <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / 400)


def test_a_difference_that_is_found_takes_eight_documents_that_change() -> None:
    """For one change in 60 documents, t would promise to find 0.047: three changes, whose p is 0.25."""
    baseline = numpy.ones(60)
    candidate = baseline.copy()
    candidate[3] = 0
    found = compare(baseline, candidate, bounds=(0, 1))
    assert found.detectable == pytest.approx(8 / 60, rel=0.03)
    chance = numpy.random.default_rng(1)
    seen = sum(
        compare(baseline, 1.0 - (chance.random(60) < found.detectable)).p_value <= 0.05
        for _ in range(200)
    )
    assert 0.7 <= seen / 200 <= 0.9


@pytest.mark.parametrize(("changed", "factor"), [(12, 1.0), (8, 1.0), (5, math.sqrt(8 / 5))])
def test_what_is_found_is_as_many_errors_as_t_and_the_power_need(
    changed: int, factor: float
) -> None:
    candidate = numpy.where(numpy.arange(12) < changed, numpy.arange(1, 13) / 20, 0)
    found = compare(numpy.zeros(12), candidate, bounds=(0, 1))
    errors = stdtrit(11, 0.975) + stdtrit(11, 0.8)
    assert found.detectable == pytest.approx(errors * found.interval.error * factor)


def test_where_many_documents_differ_the_number_needed_is_that_of_the_normal_distribution() -> None:
    found = compare(numpy.full(400, 0.5), numpy.tile([0.2, 0.8], 200), bounds=(0, 1))
    needed = ((1.959964 + 0.841621) * 0.3 / 0.01) ** 2
    assert documents_needed(found, 0.01) == pytest.approx(needed, rel=0.02)


@pytest.mark.parametrize(("margin", "needed"), [(0.02, 190), (0.01, 370), (0.1, 37)])
def test_identical_answers_need_so_many_documents(margin: float, needed: int) -> None:
    few = numpy.ones(30)
    found = compare(few, few, margin=margin, bounds=(0, 1))
    assert documents_needed(found, margin) == pytest.approx(needed, rel=0.05)
    many = numpy.ones(needed + 1)
    assert compare(many, many, margin=margin, bounds=(0, 1)).non_inferior


def test_with_the_definitions_that_it_names_a_comparison_mostly_tells() -> None:
    chance = numpy.random.default_rng(3)

    def runs(documents: int) -> Any:
        lost, won = chance.random((2, documents)) < 0.05
        base = (chance.random(documents) < 0.5).astype(float)
        return base, numpy.where(base == 1, 1.0 * ~lost, 1.0 * won)

    found = compare(*runs(400), margin=0.03, bounds=(0, 1))
    needed = documents_needed(found, 0.03)
    passed = sum(
        bool(compare(*runs(needed), margin=0.03, bounds=(0, 1)).non_inferior) for _ in range(60)
    )
    assert 0.6 <= passed / 60 <= 0.98
    with pytest.raises(ValueError, match="above 0"):
        documents_needed(found, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compare([1], [1, 2]), "do not pair"),
        (lambda: compare([], []), "at least one value"),
        (lambda: compare([1, 2], [1, 2], margin=0), "margin is 0; it must be above 0"),
        (lambda: compare([1, 2], [1, 2], ["a"]), "2 values do not fit 1 clusters"),
        (lambda: compare(numpy.ones((2, 3)), numpy.ones((2, 3))), "3 parts per sample"),
        (lambda: compare([1, 2], [1, 2], values=([1], [1])), "do not fit 2 samples"),
        (lambda: mcnemar(-1, 2), "are impossible"),
        (lambda: holm([0.1, 1.2]), "a p-value is 1.2"),
        (lambda: pair(["a", "a"], ["b"]), "1 samples occur twice in the baseline"),
        (lambda: pair(["a"], ["b", "b"]), "twice in the candidate"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# --- many, and missing --------------------------------------------------------------------------------


def test_holm_as_in_his_paper() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=20), st.randoms(use_true_random=False))
def test_holm_is_between_the_p_value_and_bonferroni_and_keeps_the_order(
    p_values: list[float], chance: random.Random
) -> None:
    adjusted = holm(p_values)
    for one, other in zip(p_values, adjusted, strict=True):
        assert one <= other <= min(1.0, one * len(p_values))
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    assert [adjusted[i] for i in order] == sorted(adjusted)
    mixed = chance.sample(range(len(p_values)), len(p_values))
    assert holm([p_values[i] for i in mixed]) == [adjusted[i] for i in mixed]


def test_a_verdict_that_does_not_survive_holm_is_taken_back() -> None:
    chance = numpy.random.default_rng(4)
    baseline = chance.random(30)
    noise = chance.normal(0, 1, 30)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    weak = compare(baseline, baseline + 0.014 + 0.03 * noise)  # t = 2.56
    strong = compare(baseline, baseline + 0.2 + 0.03 * noise)
    assert weak.verdict == strong.verdict == "better"
    assert 0.005 < weak.p_value < 0.05
    found = with_holm([weak, *[compare(baseline, chance.permutation(baseline))] * 9, strong])
    assert found[0].verdict == "inconclusive"
    assert found[0].p_adjusted > 0.05
    assert found[-1].verdict == "better"
    assert found[-1].p_value == strong.p_value


def test_samples_without_a_partner_are_named() -> None:
    found = pair(["s1", "s2", "s3", "s4"], ["s4", "s9", "s1"])
    assert (found.baseline.tolist(), found.candidate.tolist()) == ([0, 3], [2, 0])
    assert (found.only_baseline, found.only_candidate) == (("s2", "s3"), ("s9",))
    nothing = pair(["a"], ["b"])
    assert nothing.baseline.tolist() == []
    reported = compare([1, 0], [1, 1], only_baseline=2, only_candidate=1)
    assert (reported.n, reported.only_baseline, reported.only_candidate) == (2, 2, 1)


# --- does 5 % mean 5 % --------------------------------------------------------------------------------


@pytest.mark.long
def test_false_alarms_stay_below_5_percent_where_questions_go_together() -> None:
    from scipy import stats

    chance = numpy.random.default_rng(12)
    rounds, ours, verdicts, plain = 300, 0, 0, 0
    documents = numpy.repeat(numpy.arange(25), 6)
    for _ in range(rounds):
        difficulty = chance.normal(0.5, 1, 150)
        baseline, candidate = (
            (difficulty + chance.normal(0, 1.5, 25)[documents] > 0).astype(float) for _ in "ab"
        )
        found = compare(baseline, candidate, documents, bounds=(0, 1))
        ours += found.p_value <= 0.05
        verdicts += found.verdict != "inconclusive"
        plain += stats.ttest_rel(baseline, candidate).pvalue <= 0.05
    assert max(ours, verdicts) / rounds <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / rounds)
    assert plain / rounds > 0.1
