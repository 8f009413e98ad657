"""Normalised edit distance: per sample, and of a set by length."""

import pytest
from text_pairs import pairs

from hpcbench.metrics import Ned, NedMicro, Parts, corpus_score, ned, ned_micro
from hpcbench.metrics.base import value_of
from tests.campaign import cases


@pytest.mark.parametrize(
    ("prediction", "reference", "distance"),
    [
        ("", "", 0.0),
        ("", "abc", 1.0),
        ("abc", "", 1.0),
        ("abc", "abd", 1 / 3),
        ("kitten", "sitting", 3 / 7),
        ("a b c d", "x", 1.0),
        (" йод ", "иод", 1 / 3),
        ("и\u0306од", "йод", 0.0),
        ("Hello", "hello", 0.2),
    ],
)
def test_vectors(prediction: str, reference: str, distance: float) -> None:
    assert ned(prediction, reference) == distance
    assert ned(reference, prediction) == distance
    assert ned_micro(prediction, reference) == distance


def test_the_closest_reference_counts_in_any_order() -> None:
    references = ["abcd", "abxx", "ab", ""]
    assert Ned().score("abc", references) == Ned().score("abc", references[::-1]) == Parts(0.25, 1)
    assert NedMicro().score("abc", references[::-1]) == Parts(1, 4)


def test_no_answer_is_the_worst() -> None:
    assert Ned().score(None, [""]) == Parts(1.0, 1)
    assert Ned().score({"a": 1}, ["abc"]) == Parts(1.0, 1)
    assert NedMicro().score(None, ["abc"]) == Parts(3, 3)


def test_a_set_is_the_mean_or_weighs_by_length() -> None:
    predictions, references = ["a", "bbbx"], ["x", "bbbb"]
    assert corpus_score("ned", predictions, references) == (1 + 0.25) / 2
    assert corpus_score("ned_micro", predictions, references) == 2 / 5
    assert corpus_score("ned_micro", ["", ""], ["", ""]) == 0.0


def test_equals_rapidfuzz_and_the_weights_of_omnidocbench_on_10_000_pairs() -> None:
    from rapidfuzz.distance import Levenshtein

    options = {"unicode": "none", "whitespace": "keep"}
    found = list(pairs(3, cases(10_000)))
    rates = [Levenshtein.normalized_distance(p, r) for p, r in found]
    metric, micro = Ned(**options), NedMicro(**options)
    for (prediction, reference), rate in zip(found, rates, strict=True):
        for one in (metric, micro):
            assert value_of(one, one.score(prediction, [reference])) == pytest.approx(
                rate, abs=1e-9
            )
    lengths = [max(len(p), len(r)) for p, r in found]
    weighted = sum(r * n for r, n in zip(rates, lengths, strict=True)) / sum(lengths)
    assert micro.aggregate([micro.score(p, [r]) for p, r in found]) == pytest.approx(weighted)


def test_signatures() -> None:
    assert Ned().signature == "ned|case:keep|ws:strip|unicode:nfc|v1"
    assert NedMicro(case="lower").signature == "ned_micro|case:lower|ws:strip|unicode:nfc|v1"
