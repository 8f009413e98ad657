"""CER and WER against jiwer 4."""

import random
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_pairs import pairs

from hpcbench.metrics import Cer, Parts, Wer, cer, wer
from hpcbench.metrics.base import value_of
from tests.campaign import cases

TEXT = st.text(alphabet="aB бЮй\t\n.", max_size=15)
PAIRS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("reference", "prediction", "words", "characters"),
    [
        ("hello world", "hello duck", 0.5, 0.454545),
        ("hello world", "hello", 0.5, 0.545455),
        ("", "", 0, 0),
        ("", "abc", 1.0, 3.0),
        ("abc", "", 1.0, 1.0),
        ("Hello", "hello", 1.0, 0.2),
        ("a b", "a\tb", 1.0, 0.333333),
        ("i can spell", "i kan cpell", 0.666667, 0.181818),
        ("x", "a b c d", 4.0, 7.0),
        ("привет мир", "привет мор", 0.5, 0.1),
    ],
)
def test_vectors(reference: str, prediction: str, words: float, characters: float) -> None:
    assert wer(prediction, reference) == pytest.approx(words, abs=5e-7)
    assert cer(prediction, reference) == pytest.approx(characters, abs=5e-7)


@pytest.mark.parametrize(
    ("metric", "references", "predictions", "rate"),
    [
        (Wer(), ["a b c d", "x"], ["a b c d", "y"], 0.2),
        (Wer(), ["a b", ""], ["a b", "c"], 0.5),
        (Cer(), ["ab", ""], ["ab", "c"], 0.5),
        (Cer(), ["", ""], ["a", "bc"], 3.0),
    ],
)
def test_sets_are_ratios_of_sums(
    metric: Cer | Wer, references: list[str], predictions: list[str], rate: float
) -> None:
    pairs = zip(predictions, references, strict=True)
    assert metric.aggregate([metric.score(p, [r]) for p, r in pairs]) == pytest.approx(rate)


@settings(deadline=None)
@given(PAIRS)
def test_equals_jiwer(pairs: list[tuple[str, str]]) -> None:
    import jiwer

    references, predictions = [r for r, _ in pairs], [p for _, p in pairs]
    for metric, oracle in ((Cer(compat="jiwer"), jiwer.cer), (Wer(compat="jiwer"), jiwer.wer)):
        parts = [metric.score(p, [r]) for r, p in pairs]
        assert metric.aggregate(parts) == pytest.approx(oracle(references, predictions))
        each = [metric.aggregate([part]) for part in parts]
        assert each == pytest.approx([oracle(r, p) for r, p in pairs])


@pytest.mark.long
@pytest.mark.parametrize("name", ["cer", "wer"])
def test_equals_jiwer_on_10_000_pairs(name: str) -> None:
    import jiwer

    metric, oracle = {"cer": (Cer, jiwer.cer), "wer": (Wer, jiwer.wer)}[name]
    metric = metric(compat="jiwer")
    found = list(pairs(2, cases(10_000)))
    parts = [metric.score(prediction, [reference]) for prediction, reference in found]
    for (prediction, reference), part in zip(found, parts, strict=True):
        assert value_of(metric, part) == pytest.approx(oracle(reference, prediction), abs=1e-9)
    for start in range(0, len(found), 100):
        predictions, references = zip(*found[start : start + 100], strict=True)
        expected = oracle(list(references), list(predictions))
        assert metric.aggregate(parts[start : start + 100]) == pytest.approx(expected, abs=1e-9)
    nothing = [(prediction, "") for prediction, _ in found[:100]]
    ours = metric.aggregate([metric.score(prediction, [""]) for prediction, _ in nothing])
    assert ours == oracle([""] * 100, [prediction for prediction, _ in nothing])


def test_a_page_of_text_equals_jiwer() -> None:
    import jiwer

    chance = random.Random(1)
    letters = string.ascii_letters + "абвгдеёжзий" + "  \n"
    reference = "".join(chance.choices(letters, k=3000))
    prediction = "".join(c for c in reference if chance.random() > 0.1)
    assert cer(prediction, reference) == pytest.approx(jiwer.cer(reference, prediction))
    assert wer(prediction, reference) == pytest.approx(jiwer.wer(reference, prediction))


def test_line_breaks_part_words_when_asked() -> None:
    assert wer("one two\nthree", "one\ntwo three") == 1.0
    assert wer("one two\nthree", "one\ntwo three", whitespace="collapse") == 0.0


def test_the_closest_reference_counts_in_any_order() -> None:
    references = ["abcd", "abxx", "ab", ""]
    assert Cer().score("abc", references) == Cer().score("abc", references[::-1]) == Parts(1, 4)
    assert Cer().score("", ["ab", "", "c"]) == Parts(0, 0)


def test_no_answer_is_an_empty_text() -> None:
    assert Cer().score(None, ["abc"]) == Parts(3, 3)
    assert Wer().score(["a"], ["a b"]) == Parts(2, 2)


def test_signatures() -> None:
    assert Cer().signature == "cer|case:keep|ws:strip|unicode:nfc|v1"
    assert Wer(case="lower").signature == "wer|case:lower|ws:runs|unicode:nfc|v1"
    assert Wer(compat="jiwer").signature == "wer|case:keep|ws:runs|unicode:none|v1"
    by_script = "wer|words:script|case:keep|ws:runs|unicode:nfc|v1"
    assert Wer(words="script").signature == by_script


def test_without_spaces_one_wrong_character_is_one_wrong_word_when_asked() -> None:
    assert wer("今天天气不好", "今天天气很好") == 1.0
    assert wer("今天天气不好", "今天天气很好", words="script") == pytest.approx(1 / 6)
    assert wer("今天\n天气不好。", "今天 天气很好。", words="script") == pytest.approx(1 / 7)
    assert wer("第 12 页, ok", "第12页, ok.", words="script") == 0.2
    assert wer("か\u3099", "が", words="script") == 0.0


def test_words_by_script_are_those_between_spaces_where_there_are_spaces() -> None:
    by_script = Wer(words="script")
    for prediction, reference in pairs(12, cases(2_000)):
        if not set("總計") & {*prediction, *reference}:
            assert by_script.score(prediction, [reference]) == Wer().score(prediction, [reference])
