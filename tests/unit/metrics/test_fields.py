"""Field F1: OCRBench v2's vectors, micro against macro, lists, types, and answers of any shape."""

import random
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.metrics import KieF1Fields, KieF1Macro, KieF1Micro, Parts, corpus_score, score
from hpcbench.metrics import kie_f1_macro as macro_f1
from hpcbench.metrics import kie_f1_micro as micro_f1
from tests.campaign import cases, examples

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
METRICS: tuple[Any, ...] = (KieF1Micro(), KieF1Macro(), KieF1Fields(), KieF1Micro(lists="position"))

# prediction, reference, macro, micro
VECTORS = [
    ({"a": "1", "b": "2"}, {"a": "1", "b": "2"}, 1.0, 1.0),
    ({"a": "1"}, {"a": "1", "b": "2"}, 0.5, 0.6667),
    ({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "2"}, 0.6667, 0.8),
    ({"a": "x"}, {"a": "1"}, 0.0, 0.0),
    ({}, {"a": "1"}, 0.0, 0.0),
    ({"a": ""}, {"a": ""}, 1.0, 1.0),
    ({"a": ""}, {"a": "1"}, 0.0, 0.0),
    ({"A": "1"}, {"a": "1"}, 0.0, 0.0),
    ({"city": "New York"}, {"city": "newyork"}, 1.0, 1.0),
    ({"sum": "1,000"}, {"sum": "1000"}, 0.0, 0.0),
    ({"a": 1, "b": 2}, {"a": "1", "b": "2"}, 1.0, 1.0),
]


@pytest.mark.parametrize(("prediction", "reference", "macro", "micro"), VECTORS)
def test_vectors(
    prediction: dict[str, object], reference: dict[str, str], macro: float, micro: float
) -> None:
    assert macro_f1(prediction, reference) == pytest.approx(macro, abs=5e-5)
    assert macro_f1(prediction, reference, compat="ocrbench-v2") == pytest.approx(macro, abs=5e-5)
    assert micro_f1(prediction, reference) == pytest.approx(micro, abs=5e-5)


def test_what_is_no_field_and_what_whitespace_counts_for() -> None:
    counts = KieF1Micro().count({"a": None, "b": {}, "c": [], "d": "", "e": [None, {}]}, {"a": "1"})
    assert (counts.predicted, counts.expected, counts.either) == (1, 1, 2)
    assert micro_f1({"a": None}, {}) == macro_f1({"a": None}, {}) == 1.0
    assert micro_f1({"город": "НИЖНИЙ\n\tНовгород"}, {"город": "Нижний Новгород"}) == 1.0


def test_as_ocrbench_has_it() -> None:
    def value(prediction: object, reference: dict[str, object]) -> float:
        return macro_f1(prediction, reference, compat="ocrbench-v2")

    assert macro_f1({}, {}) == 1.0
    assert value({}, {}) == value(None, {"a": "1"}) == value(["a"], {"a": "1"}) == 0.0
    assert value({"a": None}, {"a": "none"}) == 1.0
    assert value({"a": {"b": 1}}, {"a": "{'b':1}"}) == 1.0
    assert value({" a ": " New\nYork "}, {"a": "NEW YORK"}) == 1.0
    assert value({"a": "x\ty"}, {"a": "xy"}) == 0.0
    assert value({"a": "2", "b": "x"}, {"a": ["1", "2"], "b": ["x", "y"]}) == 1.0
    assert macro_f1({"a": "2"}, [{"a": "1"}, {"a": "2"}], compat="ocrbench-v2") == 1.0
    with pytest.raises(ValueError, match="lists cannot be combined with compat"):
        KieF1Macro(compat="ocrbench-v2", lists="position")


def test_micro_sums_fields_over_samples() -> None:
    predictions = [{"a": "1"}, {"a": "x", "b": "2", "c": "3"}, {}]
    references = [{"a": "1", "b": "2"}, {"a": "1", "b": "2"}, {}]
    metric = KieF1Micro()
    parts = [metric.score(p, [r]) for p, r in zip(predictions, references, strict=True)]
    assert parts == [Parts(2, 3), Parts(2, 5), Parts(0, 0)]
    assert metric.aggregate(parts) == 0.5
    assert corpus_score("kie_f1_micro", predictions, references, measure="precision") == 2 / 4
    assert corpus_score("kie_f1_micro", predictions, references, measure="recall") == 2 / 4
    assert corpus_score("kie_f1_micro", predictions, references, measure="accuracy") == 2 / 5
    assert corpus_score("kie_f1_macro", predictions, references) == (1 / 2 + 1 / 3 + 1) / 3
    assert corpus_score("kie_f1_macro", predictions, references, measure="precision") == (
        pytest.approx((1 + 1 / 3 + 1) / 3)
    )


def test_the_mean_over_fields_counts_rare_ones_as_much() -> None:
    predictions = [{"a": "1"}, {"a": "1"}, {"a": "1", "b": "x"}, {}]
    references = [{"a": "1"}, {"a": "1"}, {"a": "1", "b": "2"}, {}]
    assert corpus_score("kie_f1_fields", predictions, references) == 0.5
    assert corpus_score("kie_f1_micro", predictions, references) == 6 / 8
    assert corpus_score("kie_f1_fields", [{}], [{}]) == 1.0
    assert corpus_score("kie_f1_fields", ["a: 1"], [{}]) == 0.0


def test_the_mean_over_fields_works_on_many_resamples_at_once() -> None:
    import numpy

    metric = KieF1Fields()
    one, other = metric.score({"a": "1"}, [{"a": "1"}]), metric.score({}, [{"b": "1"}])
    names = sorted({*one, *other})
    weights = numpy.array([[2, 0, 1, 0], [0, 2, 1, 0]])  # of each sample in each resample
    sums = {n: weights[0] * one.get(n, 0) + weights[1] * other.get(n, 0) for n in names}
    assert metric.combine(sums).tolist() == [1.0, 0.0, 0.5, 1.0]


def test_tables_by_field() -> None:
    reference = {"no": "7", "items": [{"price": "1"}, {"price": "2"}], "seller": {"inn": "5"}}
    prediction = {"no": "7", "items": [{"price": "2"}, {"price": "3"}, {"qty": "1"}]}
    expected = {
        "items[].price": Parts(2, 4),
        "items[].qty": Parts(0, 1),
        "no": Parts(2, 2),
        "seller.inn": Parts(0, 1),
    }
    assert KieF1Micro().score_fields(prediction, [reference]) == expected
    total = KieF1Micro().score(prediction, [reference])
    assert total.numerator == sum(one.numerator for one in expected.values())
    assert total.denominator == sum(one.denominator for one in expected.values())
    by_field = KieF1Fields().score_fields(prediction, [reference])
    assert {name: KieF1Fields().aggregate([one]) for name, one in by_field.items()} == {
        "items[].price": 0.5, "items[].qty": 0.0, "no": 1.0, "seller.inn": 0.0,
    }  # fmt: skip
    assert KieF1Macro().score_fields(prediction, [reference]) == {
        "items[].price": Parts(1, 2),
        "items[].qty": Parts(0, 1),
        "no": Parts(1, 1),
        "seller.inn": Parts(0, 1),
    }
    assert KieF1Macro(compat="ocrbench-v2").score_fields(prediction, [reference]) == {}


def test_elements_are_paired_so_that_most_fields_are_right() -> None:
    table = [{"name": name, "price": str(price)} for price, name in enumerate("abcdef")]
    reference, prediction = {"items": table}, {"items": table[1:]}
    assert KieF1Micro().score(prediction, [reference]) == Parts(20, 22)
    assert KieF1Micro(lists="position").score(prediction, [reference]) == Parts(0, 22)
    # The first of the reference fits both, the second only one: greedy pairing would lose a field.
    reference = {"items": [{"a": "1", "b": "1"}, {"a": "1", "b": "2"}]}
    prediction = {"items": [{"a": "1", "b": "1"}, {"a": "9", "b": "1"}]}
    assert KieF1Micro().count(prediction, reference).right == 2
    assert micro_f1({"tags": ["b", "a"]}, {"tags": ["a", "b"]}) == 1.0
    assert micro_f1({"tags": "a"}, {"tags": ["a"]}) == 0.0
    nested = {"rows": [[1, 2], [3, 4]]}
    assert micro_f1({"rows": [[4, 3], [2, 1]]}, nested) == 1.0
    assert micro_f1({"rows": [[1, 3], [2, 4]]}, nested) == 0.5


@settings(deadline=None, max_examples=examples(50))
@given(OBJECTS, OBJECTS, st.randoms(use_true_random=False))
def test_with_matching_the_order_of_lists_does_not_matter(
    prediction: dict[str, object], reference: dict[str, object], rng: random.Random
) -> None:
    def shuffled(value: object) -> object:
        if isinstance(value, dict):
            return {key: shuffled(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return rng.sample([shuffled(inner) for inner in value], len(value))
        return value

    for name in ("kie_f1_micro", "kie_f1_macro"):
        value = score(name, prediction, reference)
        assert score(name, shuffled(prediction), reference) == value
        assert score(name, prediction, shuffled(reference)) == value


def test_nested_values_have_a_path() -> None:
    reference = {"seller": {"inn": 77}, "items": [{"name": "tea"}, {"name": "salt"}], "paid": True}
    swapped = {"seller": {"inn": "77"}, "items": [{"name": "salt"}, {"name": "tea"}], "paid": True}
    assert micro_f1(swapped, reference) == 1.0
    assert micro_f1(swapped, reference, lists="position") == 0.5
    assert KieF1Micro().count({"a.b": "1"}, {"a": {"b": "1"}}).right == 0
    assert KieF1Micro(lists="position").count({"a": {"0": "x"}}, {"a": ["x"]}).right == 0


TYPES = {"items[].price": "currency", "*date": "date", "qty": "number", "any*": "auto"}


@pytest.mark.parametrize(
    ("prediction", "reference", "right"),
    [
        ({"items": [{"price": "12.00 EUR"}]}, {"items": [{"price": "€ 12"}]}, True),
        ({"items": [{"price": "12.00 EUR"}]}, {"items": [{"price": "$ 12"}]}, False),
        ({"items": [{"price": 12}]}, {"items": [{"price": "12,00 €"}]}, True),
        ({"date": "01.03.2024"}, {"date": "2024-03-01"}, True),
        ({"due_date": "1 марта 2024"}, {"due_date": "1 March 2024"}, True),
        ({"date": "01/03/2024"}, {"date": "2024-03-01"}, False),
        ({"date": "unknown"}, {"date": "Un known"}, True),
        ({"qty": "1 000,50"}, {"qty": "1,000.50"}, True),
        ({"qty": 1000.5}, {"qty": "1,000.50"}, True),
        ({"qty": 1.0}, {"qty": 1}, True),
        ({"qty": 1000}, {"qty": "1,000"}, False),
        ({"qty": "5 EUR"}, {"qty": "5"}, False),
        ({"any1": "2024-03-01", "any2": "5,00"}, {"any1": "1 Mar 2024", "any2": 5}, True),
        ({"any": "007"}, {"any": "7"}, False),
        ({"any": float("nan")}, {"any": 7}, False),
        ({"other": "5.00"}, {"other": "5"}, False),
    ],
)
def test_typed_values(
    prediction: dict[str, object], reference: dict[str, object], right: bool
) -> None:
    assert micro_f1(prediction, reference, types=TYPES) == float(right)


def test_what_is_ambiguous_is_right_once_an_option_says_what_it_is() -> None:
    date, number = {"date": "2024-03-01"}, {"qty": 1000}
    assert micro_f1({"date": "01/03/2024"}, date, types=TYPES, date_order="dmy") == 1.0
    assert micro_f1({"date": "01/03/2024"}, date, types=TYPES, date_order="mdy") == 0.0
    assert micro_f1({"qty": "1,000"}, number, types=TYPES, decimal_mark="point") == 1.0
    assert micro_f1({"qty": "1,000"}, number, types=TYPES, decimal_mark="comma") == 0.0


def test_a_text_may_have_a_share_of_errors() -> None:
    reference = {"name": "abcdefghij klmnopqrst"}  # 20 characters as compared
    assert micro_f1({"name": "xyzdefghij klmnopqrst"}, reference) == 0.0
    assert micro_f1({"name": "xyzdefghij klmnopqrst"}, reference, max_cer=0.15) == 1.0
    assert micro_f1({"name": "wxyzefghij klmnopqrst"}, reference, max_cer=0.15) == 0.0
    assert micro_f1({"name": "a"}, {"name": ""}, max_cer=0.15) == 0.0
    assert micro_f1({"qty": "100"}, {"qty": "101"}, types={"*": "number"}, max_cer=0.5) == 0.0


@pytest.mark.parametrize("prediction", [None, "a: 1", 7, ["a", "1"]])
def test_an_unread_answer_is_never_right(prediction: object) -> None:
    assert KieF1Micro().score(prediction, [{"a": "1", "b": "2"}]) == Parts(0, 2)
    assert KieF1Micro().score(prediction, [{}]) == Parts(0, 1)
    assert KieF1Macro().score(prediction, [{}]) == Parts(0, 1)


def test_a_reference_must_be_a_mapping() -> None:
    with pytest.raises(TypeError, match="kie_f1_macro compares mappings; a reference is of type s"):
        KieF1Macro().score({}, ["a"])
    with pytest.raises(ValueError, match="kie_f1_fields needs at least one reference"):
        KieF1Fields().score({}, [])


def test_the_closest_reference_counts_whatever_their_order() -> None:
    references = [{"a": "1", "b": "2"}, {"a": "1"}, {"c": "1"}]
    assert KieF1Micro().score({"a": "1"}, references) == Parts(2, 2)
    assert KieF1Micro().score({"a": "1"}, references[::-1]) == Parts(2, 2)
    assert macro_f1({"a": "1"}, references) == 1.0
    either = [{"c": "1"}, {"b": "1"}]
    assert KieF1Fields().score({"a": "1"}, either) == KieF1Fields().score({"a": "1"}, either[::-1])


def test_depth_and_length_do_not_matter() -> None:
    deep: object = "x"
    for _ in range(cases(5000)):
        deep = [deep]
    assert micro_f1({"a": deep}, {"a": "x"}) == 0.0
    assert micro_f1({"a": deep}, {"a": deep}) == 1.0
    assert macro_f1({"a": deep}, {"a": "x"}, compat="ocrbench-v2") == 0.0
    huge = 10**5000
    assert micro_f1({"a": huge}, {"a": huge}) == 1.0
    assert micro_f1({"a": huge}, {"a": 1}, types={"a": "auto"}) == 0.0


def test_decomposed_keys_and_values_are_the_same() -> None:
    reference = {"район": "Зюзинский"}
    prediction = {unicodedata.normalize("NFD", k): v for k, v in reference.items()}
    assert micro_f1(prediction, reference) == 1.0
    assert micro_f1(prediction, reference, unicode="none") == 0.0


def test_signatures_name_every_option() -> None:
    shared = "case:lower|ws:remove|unicode:nfc|v1"
    usual = f"lists:match|types:-|decimal:-|dates:-|cer:0|{shared}"
    assert KieF1Micro().signature == f"kie_f1_micro|f1|{usual}"
    assert KieF1Macro().signature == f"kie_f1_macro|f1|empty:1|{usual}"
    assert KieF1Fields().signature == f"kie_f1_fields|{usual}"
    chosen = KieF1Micro(
        types={"a.*": "date", "b": "number"},
        measure="recall",
        lists="position",
        decimal_mark="comma",
        date_order="dmy",
        max_cer=0.15,
    )
    assert chosen.signature == (
        "kie_f1_micro|recall|lists:position|types:a.*=date,b=number|decimal:comma|dates:dmy|cer:0.15"
        f"|{shared}"
    )
    reported = (
        "kie_f1_macro|f1|empty:0|compat:ocrbench-v2|lists:position|types:-|decimal:-|dates:-|cer:0"
    )
    assert KieF1Macro(compat="ocrbench-v2").signature == (
        f"{reported}|case:lower|ws:keep|unicode:none|v1"
    )


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"lists": "best"}, "lists is 'best'; it can be match, position"),
        ({"types": {"a": "day"}}, "the type of a is 'day'; it can be text, number, currency"),
        ({"types": "date"}, "types is 'date'; it must be a mapping of paths to types"),
        ({"max_cer": 15}, "max_cer is 15; it must be between 0 and 1"),
        ({"measure": "f2"}, "measure is 'f2'; it can be f1, precision, recall, accuracy"),
    ],
)
def test_options_are_checked(options: dict[str, object], reported: str) -> None:
    with pytest.raises(ValueError, match=reported):
        KieF1Micro(**options)


@settings(deadline=None, max_examples=examples(60))
@given(JSON, OBJECTS)
def test_any_answer_scores_between_0_and_1(
    prediction: object, reference: dict[str, object]
) -> None:
    for metric in METRICS:
        value = metric.aggregate([metric.score(prediction, [reference])])
        assert 0.0 <= value <= 1.0
        assert metric.aggregate([metric.score(reference, [reference])]) == 1.0


@settings(deadline=None, max_examples=examples(60))
@given(OBJECTS, OBJECTS)
def test_micro_is_the_harmonic_mean_of_precision_and_recall(
    prediction: dict[str, object], reference: dict[str, object]
) -> None:
    p, r = (micro_f1(prediction, reference, measure=m) for m in ("precision", "recall"))
    if p and r and KieF1Micro().count(prediction, reference).predicted:
        assert micro_f1(prediction, reference) == pytest.approx(2 * p * r / (p + r))
