"""Kinds of mistakes: each rule by examples, and what holds for any texts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.evaluation.mistakes import MISTAKES, mistake_of


@pytest.mark.parametrize(
    ("value", "reference", "kind"),
    [
        ("acme gmbh", "ACME GmbH", "case or accent"),
        ("Müller  AG", "Muller AG", "case or accent"),
        ("счет", "Счёт", "case or accent"),
        ("124.50", "1204.50", "digit dropped"),
        ("1 204,5", "1204.50", "digit dropped"),
        ("INV-204", "INV-1204", "digit dropped"),
        ("1294.50", "1204.50", "digit changed"),
        ("INX-1204", "INV-1204", None),
        ("7", "1234567", None),
        ("The contract ends", "The contract ends in May", "truncated"),
        ("Th", "The contract", None),
        ("total amount", "итоговая сумма", "wrong language"),
        ("合計金額です", "total amount", "wrong language"),
        ("合計です", "合計金額です", None),
        ("cat", "dog", None),
        ("same", "same", None),
        ("", "text", None),
    ],
)
def test_a_text_has_the_kind_of_its_rule(value: str, reference: str, kind: str | None) -> None:
    assert mistake_of(value, [reference]) == kind


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"total": "12.00", "date": "1 May"}, None),
        ({"total": "1 May", "date": "1 May"}, "neighbouring field"),
        ({"total": "12.00", "date": "1 May", "vat": "2.00"}, "hallucinated field"),
        ({"total": "12.00", "date": "1 MAY"}, "case or accent"),
        ({"total": "2.00", "date": "1 May"}, "digit dropped"),
        ({"total": None, "date": "1 May"}, None),
        ({"total": "1 May", "date": "1 may", "vat": "2.00"}, "hallucinated field"),
    ],
)
def test_an_object_has_the_most_telling_kind_of_its_fields(
    value: dict[str, Any], kind: str | None
) -> None:
    assert mistake_of(value, [{"total": "12.00", "date": "1 May", "vat": None}]) == kind


def test_an_answer_cut_at_max_tokens_is_truncated_whatever_it_says() -> None:
    assert mistake_of("cat", ["dog"], truncated=True) == "truncated"
    assert mistake_of("dog", ["dog"], truncated=True) is None


def test_of_several_references_each_is_examined() -> None:
    assert mistake_of("124", ["no number", "1204"]) == "digit dropped"
    assert mistake_of("124", []) is None


VALUES = st.one_of(
    st.text(max_size=30), st.integers(), st.none(), st.dictionaries(st.text(max_size=5), st.text())
)


@given(value=VALUES, references=st.lists(VALUES, max_size=3), truncated=st.booleans())
def test_any_value_has_one_kind_or_none_and_a_right_one_has_none(
    value: Any, references: list[Any], truncated: bool
) -> None:
    assert mistake_of(value, references, truncated) in (*MISTAKES, None)
    assert mistake_of(value, [*references, value], truncated) is None
