"""Corrected estimates of verdicts: exact cases, properties, and coverage with planted errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from hpcbench.statistics import (
    agreement,
    corrected_share,
    difference_of_means,
    mean_interval,
    prediction_powered,
)

NONE = float("nan")


def judged(chance, documents=60, each=5, share=0.8, right=0.9, wrong=0.8, labels=100):
    """Verdicts with planted sensitivity and specificity, labels of a random choice, and documents."""
    place = np.repeat(np.arange(documents), each)
    truth = chance.random(len(place)) < share
    said = np.where(truth, chance.random(len(place)) < right, chance.random(len(place)) >= wrong)
    human = np.full(len(place), NONE)
    chosen = chance.choice(len(place), labels, replace=False)
    human[chosen] = truth[chosen]
    return said.astype(float), human, place


def test_the_binary_correction_inverts_known_errors() -> None:
    # 100 labelled right: 90 called right; 100 labelled wrong: 20 called right; 1,000 more, half called right.
    verdicts = [1] * 90 + [0] * 10 + [1] * 20 + [0] * 80 + [1] * 500 + [0] * 500
    labels = [1] * 100 + [0] * 100 + [NONE] * 1000
    found = corrected_share(verdicts, labels)
    assert found.estimate == pytest.approx((610 / 1200 + 0.8 - 1) / (0.9 + 0.8 - 1))
    assert found.low is not None and found.high is not None
    assert found.low < found.estimate < found.high
    found_out = agreement(verdicts, labels)
    assert found_out.sensitivity is not None and found_out.specificity is not None
    assert (found_out.sensitivity.estimate, found_out.specificity.estimate) == (0.9, 0.8)
    assert found_out.labels == 200


def test_limits_equal_those_of_lang_and_reiczigel_for_independent_samples() -> None:
    # The formula, written out again; t with 199 degrees of freedom takes the place of z.
    verdicts = [1] * 90 + [0] * 10 + [1] * 20 + [0] * 80 + [1] * 500 + [0] * 500
    labels = [1] * 100 + [0] * 100 + [NONE] * 1000
    from scipy.special import stdtrit

    def size(share: float, n: int) -> float:  # the clustered error has n - 1
        return n - 1

    z = float(stdtrit(199, 0.975))
    n = size(610 / 1200, 1200)
    p = (n * 610 / 1200 + z * z / 2) / (n + z * z)
    n += z * z
    s1, n1 = (99 * 0.9 + 1) / 101, 101
    s0, n0 = (99 * 0.8 + 1) / 101, 101
    middle, found_out = (p + s0 - 1) / (s1 + s0 - 1), s1 + s0 - 1
    v1, v0 = s1 * (1 - s1) / n1, s0 * (1 - s0) / n0
    error = math.sqrt(p * (1 - p) / n + middle**2 * v1 + (1 - middle) ** 2 * v0) / found_out
    shift = 2 * z * z * (middle * v1 - (1 - middle) * v0)
    found = corrected_share(verdicts, labels)
    assert found.low == pytest.approx(middle + shift - z * error, abs=1e-9)
    assert found.high == pytest.approx(middle + shift + z * error, abs=1e-9)


def test_a_judge_that_always_says_yes_has_no_weight() -> None:
    verdicts, labels = [1.0] * 100, [1.0] * 12 + [0.0] * 8 + [NONE] * 80
    found = prediction_powered(verdicts, labels)
    alone = mean_interval([1.0] * 12 + [0.0] * 8, bounds=(0.0, 1.0))
    assert (found.estimate, found.low, found.high) == (alone.estimate, alone.low, alone.high)
    assert corrected_share(verdicts, labels).method.startswith("undefined: the judge does not tell")


def test_without_enough_labels_there_is_a_reason_and_no_interval() -> None:
    verdicts = [1.0, 0.0, 1.0, 1.0]
    for one in (corrected_share, prediction_powered):
        found = one(verdicts, [NONE] * 4)
        assert (found.low, found.high, found.method) == (None, None, "undefined: no labels")
    assert corrected_share(verdicts, [1, 1, NONE, NONE]).low is None
    assert prediction_powered(verdicts, [1, 0, NONE, NONE], ["a", "a", "b", "c"]).low is None
    in_one = corrected_share(verdicts, [1, 0, NONE, NONE], ["a", "a", "b", "c"])
    assert in_one.method == "undefined: labels of one document"
    in_two = corrected_share(verdicts, [1, 0, NONE, NONE], ["a", "b", "b", "c"])
    assert in_two.low is not None and in_two.high is not None


def test_verdicts_and_labels_of_another_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        prediction_powered([1.0], [1.0, 0.0])
    with pytest.raises(ValueError, match="neither 0 nor 1"):
        corrected_share([0.5, 1.0], [1.0, 0.0])
    with pytest.raises(ValueError, match="not between 0 and 1"):
        prediction_powered([0.5, 1.5], [1.0, 0.0])


@settings(max_examples=40, deadline=None)
@given(seed=some.integers(0, 2**32 - 1))
def test_order_of_samples_and_names_of_documents_change_nothing(seed: int) -> None:
    chance = np.random.default_rng(seed)
    verdicts, labels, documents = judged(chance, documents=12, each=3, labels=20)
    order = chance.permutation(len(verdicts))
    for one in (corrected_share, prediction_powered):
        first = one(verdicts, labels, documents)
        other = one(verdicts[order], labels[order], [f"d{-n}" for n in documents[order]])
        assert other.method == first.method
        for mine, theirs in (
            (first.estimate, other.estimate), (first.low, other.low), (first.high, other.high),
        ):  # fmt: skip
            assert mine == theirs if mine is None else mine == pytest.approx(theirs, abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=some.integers(0, 2**32 - 1))
def test_the_share_of_wrong_answers_has_the_mirrored_interval(seed: int) -> None:
    verdicts, human, documents = judged(np.random.default_rng(seed), 12, 3, labels=24)
    for one in (corrected_share, prediction_powered):
        found, mirrored = one(verdicts, human, documents), one(1 - verdicts, 1 - human, documents)
        if found.low is not None:
            assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((found.low, found.high))


@settings(max_examples=40, deadline=None)
@given(seed=some.integers(0, 2**32 - 1), share=some.floats(0, 1), labels=some.integers(2, 36))
def test_estimates_and_ends_stay_between_0_and_1(seed: int, share: float, labels: int) -> None:
    chance = np.random.default_rng(seed)
    verdicts, human, documents = judged(chance, 12, 3, share=share, labels=labels)
    for one in (corrected_share, prediction_powered):
        found = one(verdicts, human, documents)
        assert 0 <= found.estimate <= 1
        if found.low is not None:
            assert found.high is not None
            assert 0 <= found.low <= found.estimate <= found.high <= 1


@settings(max_examples=20, deadline=None)
@given(seed=some.integers(0, 2**32 - 1))
def test_with_all_samples_labelled_both_give_the_share_of_labels(seed: int) -> None:
    verdicts, human, documents = judged(np.random.default_rng(seed), 20, 3, labels=60)
    truth = float(human.mean())
    assert prediction_powered(verdicts, human, documents).estimate == pytest.approx(truth)
    found = corrected_share(verdicts, human, documents)
    if found.low is not None:
        assert found.estimate == pytest.approx(truth)


def test_corrected_intervals_hold_the_truth_where_the_naive_one_does_not() -> None:
    # Few replications here; benchmarks/calibration.py has 2,500 of each of nine designs.
    chance, held = np.random.default_rng(7), np.zeros(3)
    for _ in range(60):
        verdicts, human, documents = judged(chance)
        every = (
            corrected_share(verdicts, human, documents),
            prediction_powered(verdicts, human, documents),
            mean_interval(verdicts, documents, bounds=(0.0, 1.0)),
        )
        for at, found in enumerate(every):
            assert found.low is not None and found.high is not None
            held[at] += found.low <= 0.8 <= found.high
    assert held[0] >= 54 and held[1] >= 54
    assert held[2] < 54


def test_verdicts_weigh_as_much_as_they_follow_the_labels() -> None:
    """Power tuning of prediction-powered inference (Angelopoulos and others 2023): covariance / variance."""
    chance = np.random.default_rng(11)
    human = chance.random(400)
    said = np.clip(0.3 + 0.4 * human + 0.1 * chance.standard_normal(400), 0, 1)
    labels = np.where(np.arange(400) < 80, human, NONE)
    own, right = said[:80], human[:80]
    weight = min(1.0, float(np.cov(own, right)[0, 1] / np.var(own, ddof=1)))
    assert weight > 0.5
    found = prediction_powered(said, labels)
    assert found.estimate == pytest.approx(
        float(np.mean(right - weight * own) + weight * said.mean())
    )


def test_the_error_of_a_difference_of_means_is_that_of_a_clustered_regression() -> None:
    """Least squares on an indicator, with the sandwich by document and CR1's factor G / (G - 1)."""
    from scipy.special import stdtrit

    chance = np.random.default_rng(12)
    place = chance.integers(0, 9, 60)
    kind = chance.integers(0, 2, 60)
    values = chance.random(60) + 0.2 * kind + 0.3 * chance.random(9)[place]
    design = np.stack([np.ones(60), kind], axis=1)
    bread = np.linalg.inv(design.T @ design)
    rest = values - design @ (bread @ design.T @ values)
    sums = np.stack([(design * rest[:, None])[place == one].sum(0) for one in np.unique(place)])
    error = math.sqrt((bread @ sums.T @ sums @ bread)[1, 1] * 9 / 8)
    found = difference_of_means(values, kind, place, 0.9)
    half = float(stdtrit(8, 0.95)) * error
    assert found.error == pytest.approx(error)
    assert (found.low, found.high) == pytest.approx((found.estimate - half, found.estimate + half))


def test_a_difference_of_means_counts_documents() -> None:
    values, kinds = [1.0, 1.0, 0.0, 1.0, 0.0, 0.0], [1, 1, 1, 0, 0, 0]
    found = difference_of_means(values, kinds)
    assert found.estimate == pytest.approx(1 / 3)
    assert found.low is not None and found.low < 0 < (found.high or 0)
    doubled = difference_of_means(values * 2, kinds * 2, [*range(6)] * 2)
    assert doubled.error == pytest.approx(found.error)
    with pytest.raises(ValueError, match="both kinds"):
        difference_of_means(values, [1] * 6)
