"""Letters of options, shared words, answers on charts: what counts by default. Kits' values are vectors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.metrics import chartqapro, choice, dude, token_f1
from hpcbench.metrics.benchmarks import ChartQAPro, Choice, Dude, TokenF1


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("B", 1), ("b", 1), ("B.", 1), ("(B) a dog", 1), ("**B**", 1), ("B: a dog", 1), ("b) a dog", 1),
        ("The answer is B.", 1), ("Option B", 1), ("answer: (b)", 1),
        ("The answer is A, no, the answer is B", 1),
        ("Because it barks", 0), ("B dog", 0), ("A", 0), ("", 0), ("AB", 0), ("5", 0),
    ],
)  # fmt: skip
def test_the_letter_of_an_option_is_read_alone_or_behind_answer(answer: str, right: int) -> None:
    assert choice(answer, "B") == right


def test_a_word_that_begins_the_answer_is_no_option() -> None:
    assert choice("A dog is shown", "A") == 0
    assert choice("I think so", "I") == 0


def test_shared_words_count_as_often_as_both_have_them() -> None:
    assert token_f1("the the cat", "the cat") == pytest.approx(0.8)
    assert token_f1("The  CAT", "the cat") == 1
    assert token_f1("", "") == 1
    assert token_f1("", "x") == 0
    assert token_f1("no", ["yes", "no"]) == 1


def test_a_reference_says_how_its_words_are_taken() -> None:
    assert token_f1("今天", {"answer": "今天天气", "kind": "characters"}) == pytest.approx(2 / 3)
    assert token_f1("caf 5-000!", {"answer": "CAF 5,000", "kind": "latin"}) == 1
    with pytest.raises(ValueError, match="kind of a reference"):
        token_f1("x", {"answer": "x", "kind": "letters"})


@given(st.text(min_size=1).filter(str.strip))
def test_a_text_shares_all_words_with_itself(text: str) -> None:
    assert token_f1(text, text) == 1  # also of "###", a mark of unreadable words


@given(st.text(), st.text())
def test_values_stay_within_bounds(answer: str, reference: str) -> None:
    for metric in (Choice(), TokenF1(), TokenF1(tokens="set"), TokenF1(tokens="members")):
        assert 0 <= metric.score(answer, [reference]).numerator <= 1


def test_an_answer_on_a_chart_is_a_near_number_an_exact_year_or_a_like_text() -> None:
    plain = {"answer": ["40"], "years": ["NO"], "type": "Factoid"}
    assert chartqapro("41.5", plain) == 1
    assert chartqapro("44", plain) == 0
    assert chartqapro("2011", {**plain, "answer": ["2010"], "years": ["YES"]}) == 0
    assert chartqapro("Untied States", {**plain, "answer": "United States"}) == pytest.approx(
        11 / 13
    )
    assert chartqapro("['a', 'b']", {**plain, "answer": ["[a, b]"]}) == 1
    assert chartqapro("yes", {**plain, "answer": ["Yes"], "type": "Fact Checking"}) == 1


def test_answers_of_dude_are_lists_texts_or_none() -> None:
    listed = {"answer": ["AF0055", "AF1044"], "type": "list/extractive"}
    assert dude("AF1044, AF0055", listed) == 1
    assert dude("AF1044", listed) == 0.5
    assert dude("AF1044, AF0055, Moscow", listed) == pytest.approx(2 / 3)
    assert dude("the question is Not Answerable", listed) == 0
    missing = {"answer": [], "type": "not-answerable"}
    assert dude("Not answerable.", missing) == 1
    assert dude("", missing) == 1
    assert dude("Paris", missing) == 0
    assert dude("Paris", {"answer": ["London", "Paris"], "type": "extractive"}) == 1
    assert Dude().score(None, [missing]).numerator == 0
    assert dude("xx", "yy        ") == 0
    assert Dude(compat="dudeeval").score("xx", ["yy        "]).numerator == 0.8
    assert dude("two\nlines", "two\nlines") == dude("two\nlines", "two lines") == 1
    assert Dude(compat="dudeeval").score("two\nlines", ["twolines"]).numerator == 1


def test_a_reference_that_is_no_text_is_named() -> None:
    with pytest.raises(TypeError, match="dude compares texts"):
        Dude().score("x", [{"answer": [1.5, {}], "type": "list"}])
    with pytest.raises(TypeError, match="chartqapro compares texts"):
        ChartQAPro().score("40", [{"answer": [{}]}])
