"""Balanced accuracy, macro F1: small cases by hand, scikit-learn on generated labels."""

import random
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.metrics import corpus_score, metric, score
from hpcbench.metrics.base import add_up
from hpcbench.metrics.classification import BalancedAccuracy, MacroF1

LABELS = ["invoice", "паспорт", "tin new", "7", "смета", "act"]
NAMES = ["balanced_accuracy", "macro_f1"]


def drawn(rng: random.Random, invented: bool) -> tuple[list[str], list[str]]:
    """References and predictions, some classes rare."""
    size = rng.choice([1, 2, 5, 20, 100, 1000])
    weights = [rng.random() ** 3 for _ in LABELS]
    right = rng.choices(LABELS, weights, k=size)
    pool = [*LABELS, "new class", "?"] if invented else sorted(set(right))
    return right, [one if rng.random() < 0.6 else rng.choice(pool) for one in right]


def test_balanced_accuracy_is_the_mean_of_recalls() -> None:
    right = ["a"] * 8 + ["b"] * 2
    assert corpus_score("balanced_accuracy", ["a"] * 10, right) == 0.5
    assert corpus_score("accuracy", ["a"] * 10, right) == 0.8


def test_macro_f1_is_the_mean_of_f1() -> None:
    right, said = ["a", "a", "b", "b"], ["a", "b", "b", "b"]
    assert corpus_score("macro_f1", said, right) == pytest.approx((2 / 3 + 4 / 5) / 2)
    right, said = ["a", "a", "a", "b"], ["a", "b", "a", "b"]
    assert corpus_score("macro_f1", said, right, average="weighted") == pytest.approx(
        (3 * 4 / 5 + 2 / 3) / 4
    )


@pytest.mark.parametrize("nothing", [None, 1.5, {}, [], b"a"])
@pytest.mark.parametrize("name", NAMES)
def test_an_unread_answer_is_wrong_and_no_class(name: str, nothing: object) -> None:
    assert score(name, nothing, "a") == 0.0
    expected = {"balanced_accuracy": 0.75, "macro_f1": (2 / 3 + 1) / 2}[name]
    assert corpus_score(name, ["a", nothing, "b"], ["a", "a", "b"]) == pytest.approx(expected)


@pytest.mark.parametrize("name", NAMES)
def test_an_invented_label_is_as_wrong_as_an_unread_one(name: str) -> None:
    right = ["a", "a", "b"]
    assert corpus_score(name, ["a", "of no class", "b"], right) == corpus_score(
        name, ["a", None, "b"], right
    )


@pytest.mark.parametrize("name", NAMES)
def test_labels_are_compared_as_in_accuracy(name: str) -> None:
    assert corpus_score(name, ["TIN  new", 7], ["tin New", "7"]) == 1.0
    assert corpus_score(name, ["A"], ["a"], case="keep") == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_of_several_right_labels_the_predicted_one_is_the_class(name: str) -> None:
    assert metric(name).score("b", ["a", "b"]) == {"of:b": 1, "right:b": 1, "said:b": 1}
    assert metric(name).score("c", ["b", "a"]) == {"of:a": 1, "said:c": 1}
    assert metric(name).score(None, ["b", "a"]) == {"of:a": 1}


@pytest.mark.long
def test_numbers_are_those_of_scikit_learn() -> None:
    from sklearn.metrics import balanced_accuracy_score, f1_score

    rng = random.Random(8)
    pairs = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of labels that only predictions have
        for _ in range(60):
            right, said = drawn(rng, invented=rng.random() < 0.5)
            pairs += len(right)
            classes = sorted(set(right))
            value = corpus_score("balanced_accuracy", said, right)
            assert value == pytest.approx(balanced_accuracy_score(right, said), abs=1e-9)
            for average in ("macro", "weighted"):
                value = corpus_score("macro_f1", said, right, average=average)
                theirs = f1_score(right, said, labels=classes, average=average, zero_division=0)
                assert value == pytest.approx(theirs, abs=1e-9)
    assert pairs >= 10_000


@pytest.mark.parametrize("chosen", [BalancedAccuracy(), MacroF1(), MacroF1(average="weighted")])
def test_sums_of_many_resamples_are_combined_at_once(chosen: BalancedAccuracy | MacroF1) -> None:
    rng = random.Random(10)
    right, said = drawn(rng, invented=True)
    counts = [chosen.score(one, [other]) for one, other in zip(said, right, strict=True)]
    draws = [rng.choices(counts, k=len(counts)) for _ in range(20)]
    each = [add_up(draw) for draw in draws]
    names = sorted({name for sums in each for name in sums})
    together = {name: np.array([sums.get(name, 0) for sums in each]) for name in names}
    values = chosen.combine(together)
    assert values.shape == (20,)
    assert list(values) == pytest.approx([chosen.aggregate(draw) for draw in draws], abs=1e-12)
    assert chosen.combine({}) == 0  # a resample of nothing


@given(st.lists(st.tuples(st.sampled_from([*LABELS, None]), st.sampled_from(LABELS)), min_size=1))
def test_values_stay_in_range_in_any_order_and_are_full_for_the_truth(
    pairs: list[tuple[str | None, str]],
) -> None:
    for chosen in (BalancedAccuracy(), MacroF1(), MacroF1(average="weighted")):
        counts = [chosen.score(said, [right]) for said, right in pairs]
        value = chosen.aggregate(counts)
        assert 0 <= value <= 1
        assert chosen.aggregate(counts[::-1]) == value
        assert chosen.aggregate([chosen.score(right, [right]) for _, right in pairs]) == 1.0


@given(st.text())
def test_any_text_is_a_label(text: str) -> None:
    for name in NAMES:
        assert score(name, text, [text]) == 1.0


def test_signatures_and_refusals() -> None:
    assert BalancedAccuracy().signature == "balanced_accuracy|case:lower|ws:collapse|unicode:nfc|v1"
    assert MacroF1().signature == "macro_f1|average:macro|case:lower|ws:collapse|unicode:nfc|v1"
    with pytest.raises(ValueError, match="average is 'micro'; it can be macro, weighted"):
        MacroF1(average="micro")  # type: ignore[arg-type]
    for name in NAMES:
        with pytest.raises(ValueError, match="no samples"):
            metric(name).aggregate([])
        with pytest.raises(ValueError, match=f"^{name} needs at least one reference"):
            metric(name).score("a", [])
        with pytest.raises(TypeError, match=f"^{name} compares texts; .* of type NoneType"):
            metric(name).score("a", [None])
