"""The invoice method: fields at CER 0.15, line items at F1 0.85, the number of right items."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.metrics import (
    InvoiceItemF1,
    ItemCountAccuracy,
    Parts,
    corpus_score,
    invoice_field_f1,
    item_count_accuracy,
    score,
)
from tests.campaign import examples

WORDS = ("milk", "bread", "salt", "tea", "rice", "oil", "soap", "ham", "jam", "wine")


def item(number: int, wrong: int = 0) -> dict[str, str]:
    """A line of 20 fields, the first of them wrong."""
    return {f"f{i}": "?" if i < wrong else WORDS[number] for i in range(20)}


def test_a_field_is_right_up_to_a_cer_of_15_percent() -> None:
    reference = {"name": "abcdefghijklmnopqrst"}
    assert invoice_field_f1({"name": "XYZdefghijklmnopqrst"}, reference) == 1.0
    assert invoice_field_f1({"name": "wxyzefghijklmnopqrst"}, reference) == 0.0
    assert invoice_field_f1({"name": reference["name"], "more": "1"}, reference) == 2 / 3


def test_an_item_is_right_from_a_field_f1_of_85_percent() -> None:
    metric = InvoiceItemF1()
    reference = {"items": [item(1)]}
    assert metric.score({"items": [item(1, wrong=3)]}, [reference]) == Parts(2, 2)  # 17 of 20
    assert metric.score({"items": [item(1, wrong=4)]}, [reference]) == Parts(0, 2)


def test_items_are_paired_so_that_most_are_right() -> None:
    reference = {"items": [{"a": "1", "b": "2"}, {"a": "1"}]}
    prediction = {"items": [{"a": "1"}, {"a": "1", "b": "2"}]}
    assert InvoiceItemF1().count_items(prediction, reference).right == 2
    loose = InvoiceItemF1(item_f1=0.6)
    reference = {"items": [{"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "2"}]}
    prediction = {"items": [{"a": "1", "b": "2", "d": "x"}, {"a": "1"}]}
    assert loose.count_items(prediction, reference).right == 2


def test_measures_over_items() -> None:
    predictions = [{"items": [item(1), item(9)]}, {"items": []}]
    references = [{"items": [item(1)]}, {"items": [item(2)]}]
    values = {"f1": 2 / 4, "precision": 1 / 2, "recall": 1 / 2, "accuracy": 1 / 3}
    for measure, value in values.items():
        assert corpus_score("invoice_item_f1", predictions, references, measure=measure) == value


def test_the_number_of_right_items_is_that_of_the_reference() -> None:
    reference = {"no": "7", "items": [item(1), item(2)]}
    assert item_count_accuracy({"items": [item(2), item(1, wrong=3)]}, reference) == 1.0
    assert item_count_accuracy({"items": [item(1), item(3), item(2)]}, reference) == 1.0
    assert item_count_accuracy({"items": [item(1), item(3)]}, reference) == 0.0
    assert item_count_accuracy({}, {"no": "7"}) == 1.0
    assert item_count_accuracy(None, {"no": "7"}) == 0.0
    assert item_count_accuracy({"items": [item(1)]}, [reference, {"items": [item(1)]}]) == 1.0


def test_which_lists_hold_items() -> None:
    reference = {"order": {"lines": [item(1)]}, "taxes": [{"rate": "20"}], "tags": ["a"]}
    prediction = {"order": {"lines": [item(1)]}, "tags": ["b"]}
    assert InvoiceItemF1().score(prediction, [reference]) == Parts(2, 3)
    chosen = InvoiceItemF1(items="order.lines")
    assert chosen.score(prediction, [reference]) == Parts(2, 2)
    assert chosen.signature.startswith(
        "invoice_item_f1|f1|item_f1:0.85|items:order.lines|lists:match|"
    )
    assert ItemCountAccuracy().signature == (
        "item_count_accuracy|item_f1:0.85|items:-|lists:match|types:-|decimal:-|dates:-|cer:0.15"
        "|case:lower|ws:collapse|unicode:nfc|v1"
    )


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"lists": "position"}, "lists is 'position'; invoice_item_f1 pairs items, so it is match"),
        ({"item_f1": 0}, "item_f1 is 0; it must be above 0"),
    ],
)
def test_options_are_checked(options: dict[str, object], reported: str) -> None:
    with pytest.raises(ValueError, match=reported):
        InvoiceItemF1(**options)


def test_an_unread_answer_is_never_right() -> None:
    assert InvoiceItemF1().score("items", [{}]) == Parts(0, 1)
    assert InvoiceItemF1().score(None, [{"items": [item(1)]}]) == Parts(0, 1)
    with pytest.raises(
        TypeError, match="invoice_item_f1 compares mappings; a reference is of type l"
    ):
        InvoiceItemF1().score({}, [[item(1)]])


INVOICES = st.fixed_dictionaries(
    {},
    optional={
        "no": st.text(max_size=3),
        "items": st.lists(
            st.dictionaries(st.sampled_from("ab"), st.text(max_size=2), max_size=2)
            | st.text(max_size=1),
            max_size=3,
        ),
    },
)


@settings(deadline=None, max_examples=examples(60))
@given(INVOICES | st.none() | st.text(), INVOICES)
def test_equality_is_best_and_values_stay_in_bounds(
    prediction: object, reference: dict[str, object]
) -> None:
    for name in ("invoice_field_f1", "invoice_item_f1", "item_count_accuracy"):
        assert score(name, reference, reference) == 1.0
        assert 0.0 <= score(name, prediction, reference) <= 1.0
