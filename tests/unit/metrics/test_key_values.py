"""Key-value F1: OCRBench v2's vectors, micro against macro, nesting, and answers of any shape."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.metrics import KvF1, KvF1Macro, Parts, kv_f1, kv_f1_macro

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(alphabet="aAй \t", max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abй"), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abй"), JSON, max_size=3)


@pytest.mark.parametrize(
    ("prediction", "reference", "macro", "micro"),
    [
        ({"a": "1", "b": "2"}, {"a": "1", "b": "2"}, 1.0, 1.0),
        ({"a": "1"}, {"a": "1", "b": "2"}, 0.5, 0.6667),
        ({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "2"}, 0.6667, 0.8),
        ({"a": "x"}, {"a": "1"}, 0.0, 0.0),
        ({}, {"a": "1"}, 0.0, 0.0),
        ({"a": ""}, {"a": ""}, 1.0, 1.0),
        ({"a": ""}, {"a": "1"}, 0.0, 0.0),
        ({"A": "1"}, {"a": "1"}, 0.0, 0.0),
        ({"city": "New York"}, {"city": "newyork"}, 1.0, 1.0),
        ({"город": "НИЖНИЙ\nНовгород"}, {"город": "Нижний Новгород"}, 1.0, 1.0),
        ({"sum": "1,000"}, {"sum": "1000"}, 0.0, 0.0),
        ({"a": None}, {}, 1.0, 1.0),
    ],
)
def test_vectors(
    prediction: dict[str, str], reference: dict[str, str], macro: float, micro: float
) -> None:
    assert kv_f1_macro(prediction, reference) == pytest.approx(macro, abs=5e-5)
    assert kv_f1(prediction, reference) == pytest.approx(micro, abs=5e-5)


def test_both_empty_is_right_unless_ocrbench_is_asked_for() -> None:
    assert kv_f1({}, {}) == kv_f1_macro({}, {}) == 1.0
    assert kv_f1_macro({}, {}, empty_is_right=False) == 0.0


def test_micro_sums_pairs_over_samples() -> None:
    metric = KvF1()
    parts = [
        metric.score({"a": "1"}, [{"a": "1", "b": "2"}]),
        metric.score({"a": "x", "b": "2", "c": "3"}, [{"a": "1", "b": "2"}]),
        metric.score({}, [{}]),
    ]
    assert parts == [Parts(2, 3), Parts(2, 5), Parts(0, 0)]
    assert metric.aggregate(parts) == 0.5


def test_counts_give_precision_and_recall() -> None:
    counts = KvF1().count({"a": "1", "b": "x", "c": "3"}, {"a": "1", "b": "2"})
    assert (counts.right, counts.predicted, counts.expected, counts.keys) == (1, 3, 2, 3)
    assert (counts.precision, counts.recall) == (1 / 3, 1 / 2)
    nothing = KvF1().count(None, {})
    assert (nothing.precision, nothing.recall) == (None, None)


def test_nested_values_are_flattened() -> None:
    reference = {"seller": {"inn": 77}, "items": [{"name": "tea"}, {"name": "salt"}], "paid": True}
    swapped = {"seller": {"inn": "77"}, "items": [{"name": "salt"}, {"name": "tea"}], "paid": True}
    assert kv_f1(reference, reference) == 1.0
    assert kv_f1(swapped, reference) == 0.5
    assert KvF1().count({"a.b": "1"}, {"a": {"b": "1"}}).right == 0
    assert KvF1().count({"a": {"0": "x"}}, {"a": ["x"]}).right == 0


def test_no_value_is_no_pair() -> None:
    counts = KvF1().count({"a": None, "b": {}, "c": [], "d": ""}, {"a": "1"})
    assert (counts.predicted, counts.expected) == (1, 1)


@pytest.mark.parametrize("prediction", [None, "a: 1", 7, ["a", "1"]])
def test_an_unread_answer_is_never_right(prediction: object) -> None:
    assert KvF1().score(prediction, [{"a": "1", "b": "2"}]) == Parts(0, 2)
    assert KvF1().score(prediction, [{}]) == Parts(0, 1)
    assert KvF1Macro().score(prediction, [{}]) == Parts(0, 1)


def test_a_reference_must_be_a_mapping() -> None:
    with pytest.raises(
        TypeError, match="kv_f1_macro compares mappings; a reference is of type str"
    ):
        KvF1Macro().score({}, ["a"])


def test_the_closest_reference_counts() -> None:
    references = [{"a": "1", "b": "2"}, {"a": "1"}, {"c": "1"}]
    assert KvF1().score({"a": "1"}, references) == Parts(2, 2)
    assert KvF1().score({"a": "1"}, references[::-1]) == Parts(2, 2)
    assert kv_f1_macro({"a": "1"}, references) == 1.0


def test_depth_does_not_matter() -> None:
    deep: object = "x"
    for _ in range(5000):
        deep = [deep]
    assert kv_f1({"a": deep}, {"a": "x"}) == 0.0


def test_decomposed_keys_and_values_are_the_same() -> None:
    reference = {"район": "Зюзинский"}
    prediction = {unicodedata.normalize("NFD", k): v for k, v in reference.items()}
    assert kv_f1(prediction, reference) == 1.0
    assert kv_f1(prediction, reference, unicode="none") == 0.0


def test_signatures() -> None:
    assert KvF1().signature == "kv_f1|case:lower|ws:remove|unicode:nfc|v1"
    assert KvF1Macro().signature == "kv_f1_macro|empty:1|case:lower|ws:remove|unicode:nfc|v1"


@settings(deadline=None)
@given(JSON, OBJECTS)
def test_any_answer_scores_between_0_and_1(
    prediction: object, reference: dict[str, object]
) -> None:
    for metric in (KvF1(), KvF1Macro()):
        value = metric.aggregate([metric.score(prediction, [reference])])
        assert 0.0 <= value <= 1.0
        assert metric.aggregate([metric.score(reference, [reference])]) == 1.0


@settings(deadline=None)
@given(OBJECTS, OBJECTS)
def test_micro_is_the_harmonic_mean_of_precision_and_recall(
    prediction: dict[str, object], reference: dict[str, object]
) -> None:
    counts = KvF1().count(prediction, reference)
    p, r = counts.precision, counts.recall
    if p and r:
        assert kv_f1(prediction, reference) == pytest.approx(2 * p * r / (p + r))
