"""Exact match, containment, accuracy, and the text options all metrics share."""

import pytest

from hpcbench.metrics import Accuracy, Contains, ExactMatch, Parts, accuracy, contains, exact_match
from hpcbench.metrics.normalise import TextOptions


def test_exact_match() -> None:
    assert exact_match(" Москва\n", "Москва") == 1.0
    assert exact_match("москва", "Москва") == 0.0
    assert exact_match("москва", ["Москва", "москва"]) == 1.0
    assert exact_match("москва", "Москва", case="lower") == 1.0


def test_contains() -> None:
    assert contains("The total is 12.50 EUR.", "12.50") == 1.0
    assert contains("Итого:  САНКТ-\nПЕТЕРБУРГ", ["Москва", "Санкт- Петербург"]) == 1.0
    assert contains("Pari", "paris") == 0.0
    assert contains("no idea", "no") == 1.0  # it forgives the text around
    assert contains("Москва", "москва", case="keep") == 0.0


@pytest.mark.parametrize(
    ("prediction", "reference", "found"),
    [
        ("another", "no", 0.0),
        ("another, no.", "no", 1.0),
        ("112", "12", 0.0),
        ("1.12", "12", 1.0),
        ("US$5", "$5", 1.0),
        ("$50", "$5", 0.0),
        ("дома, дом", "дом", 1.0),
        ("дома", "дом", 0.0),
        ("a_b", "a", 0.0),
        ("(a)", "(a)", 1.0),
        ("☑ Ja", "☑", 1.0),
        ("今天天气很好", "天气", 1.0),  # no spaces there: each character is a word
        ("第12页", "12", 1.0),
        ("第112页", "12", 0.0),
        ("วันนี้อากาศดี", "อากาศ", 1.0),
        ("ดี", "ด", 0.0),  # a character goes on in its vowel sign
        ("हिन्दी", "हिन्द", 0.0),  # and so does a word
        ("हिन्दी में", "हिन्दी", 1.0),
        ("كِتَاب", "كِتَ", 0.0),
        ("대한민국은", "대한민국", 0.0),
        ("می\u200cخواهم", "می", 0.0),
    ],
)
def test_contains_whole_words(prediction: str, reference: str, found: float) -> None:
    assert contains(prediction, reference, words=True) == found
    assert contains(prediction, reference) == 1.0


def test_an_empty_reference_is_found_in_an_empty_answer_alone() -> None:
    assert contains("", "") == contains(" ", "", words=True) == 1.0
    assert contains("abc", "") == contains("abc", "", words=True) == 0.0
    assert Contains().score(None, [""]) == Parts(0, 1)


def test_a_bad_reference_is_seen_behind_a_right_one() -> None:
    for metric in (ExactMatch(), Contains()):
        with pytest.raises(TypeError, match="compares texts"):
            metric.score("a", ["a", None])


def test_accuracy_forgives_case_and_spacing() -> None:
    assert accuracy("tin  New", "TIN new") == 1.0
    assert accuracy("invoice.", "invoice") == 0.0
    assert Accuracy().score("7", [7]) == Accuracy().score(7, ["7"]) == Parts(1, 1)


@pytest.mark.parametrize("metric", [ExactMatch(), Accuracy()])
def test_an_unread_answer_is_wrong_even_where_none_is_expected(metric: ExactMatch) -> None:
    assert metric.score(None, [""]) == Parts(0, 1)
    assert metric.score("", [""]) == Parts(1, 1)


def test_aggregate_is_the_mean() -> None:
    parts = [Accuracy().score(p, ["a"]) for p in ("a", "b", "A", "")]
    assert Accuracy().aggregate(parts) == 0.5


def test_signatures() -> None:
    assert ExactMatch().signature == "exact_match|case:keep|ws:strip|unicode:nfc|v1"
    assert Contains().signature == "contains|words:any|case:lower|ws:collapse|unicode:nfc|v1"
    whole = "contains|words:whole|case:lower|ws:collapse|unicode:nfc|v2"
    assert Contains(words=True).signature == whole
    assert Accuracy().signature == "accuracy|case:lower|ws:collapse|unicode:nfc|v1"


@pytest.mark.parametrize(
    ("whitespace", "expected"),
    [
        ("keep", " a\tb \n c "),
        ("strip", "a\tb \n c"),
        ("runs", "a\tb c"),
        ("collapse", "a b c"),
        ("remove", "abc"),
    ],
)
def test_whitespace(whitespace: str, expected: str) -> None:
    assert TextOptions(whitespace=whitespace).normalise(" a\tb \n c ") == expected


@pytest.mark.parametrize(
    ("form", "expected"), [("none", "и\u0306１"), ("nfc", "й１"), ("nfkc", "й1")]
)
def test_unicode(form: str, expected: str) -> None:
    assert TextOptions(unicode=form).normalise("и\u0306１") == expected


def test_a_number_too_long_to_write_is_no_text() -> None:
    assert ExactMatch().score(10**5000, ["1"]) == Parts(0, 1)
