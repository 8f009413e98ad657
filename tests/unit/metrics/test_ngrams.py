"""BLEU and chrF against sacrebleu, ROUGE-L against rouge-score."""

import importlib.metadata
import itertools
from typing import Any

import numpy
import pytest
from text_pairs import pairs

from hpcbench.metrics import Bleu, Chrf, RougeL, bleu, chrf, corpus_score, rouge_l
from hpcbench.metrics.base import add_up, value_of
from tests.campaign import cases

BLEU_OPTIONS = [
    {},
    {"tokenize": "13a", "case": "lower"},
    *({"tokenize": one} for one in ("intl", "zh", "char", "none")),
    *({"tokenize": "13a", "smooth": one} for one in ("floor", "add-k", "none")),
]
CHRF_OPTIONS = [{}, {"case": "lower"}, {"word_order": 2}, {"char_order": 3, "beta": 1}]


def in_their_words(options: dict[str, Any]) -> dict[str, Any]:
    names = {"smooth": "smooth_method"}
    other = {names.get(name, name): value for name, value in options.items() if name != "case"}
    return {**other, "lowercase": options.get("case") == "lower"}


@pytest.mark.parametrize(
    ("prediction", "references", "expected"),
    [
        ("the cat sat on mat", ["the cat sat on the mat"], 57.893),
        ("the", ["the cat sat on the mat"], 0.6738),
        ("", ["abc"], 0.0),
        ("abc", [""], 0.0),
        ("The Cat", ["the cat"], 0.0),
        ("the cat is on the mat", ["there is a cat on the mat", "the cat is on a mat"], 67.56),
    ],
)
def test_bleu_vectors(prediction: str, references: list[str], expected: float) -> None:
    assert bleu(prediction, references) == pytest.approx(expected, abs=5e-5)


def test_bleu_of_a_set_vector() -> None:
    predictions = ["the cat sat on the mat", "hello world"]
    references = ["the cat sat on the mat", "hello there world"]
    assert corpus_score("bleu", predictions, references) == pytest.approx(84.3175, abs=5e-5)


def test_short_equal_texts_are_right_alone_and_worth_nothing_as_a_set() -> None:
    assert bleu("hello world", "hello world") == 100.0
    assert corpus_score("bleu", ["hello world"] * 9, ["hello world"] * 9) == 0.0
    assert corpus_score("chrf", ["hello world"] * 9, ["hello world"] * 9) == 100.0


@pytest.mark.long
@pytest.mark.parametrize("options", BLEU_OPTIONS, ids=str)
def test_bleu_equals_sacrebleu(options: dict[str, Any]) -> None:
    from sacrebleu import BLEU

    compat = {"compat": "sacrebleu"} if not options else {"unicode": "none"}
    metric = Bleu(**options, **compat)
    alone = BLEU(**in_their_words(options), effective_order=True)
    as_set = BLEU(**in_their_words(options), force=True)
    equals_sacrebleu(metric, alone, as_set, cases(10_000) if not options else 500)


@pytest.mark.long
@pytest.mark.parametrize("options", CHRF_OPTIONS, ids=str)
def test_chrf_equals_sacrebleu(options: dict[str, Any]) -> None:
    from sacrebleu import CHRF

    compat = {"compat": "sacrebleu"} if not options else {"unicode": "none"}
    theirs = CHRF(**in_their_words(options))
    count = cases(10_000) if not options else 500
    equals_sacrebleu(Chrf(**options, **compat), theirs, theirs, count)


def equals_sacrebleu(metric: Any, alone: Any, as_set: Any, count: int) -> None:
    """Each pair with one reference, sets of 50 with two, to 1e-9."""
    found = list(pairs(4, count, longest=16))
    references = [
        [reference, further]
        for (_, reference), (_, further) in zip(found, found[1:] + found[:1], strict=True)
    ]
    for prediction, reference in found:
        ours = value_of(metric, metric.score(prediction, [reference]))
        theirs = alone.sentence_score(prediction, [reference]).score
        if metric.compat or prediction.strip() or reference.strip():
            assert ours == pytest.approx(theirs, abs=1e-9), (prediction, reference)
    for start in range(0, count, 50):
        chosen = slice(start, start + 50)
        predictions = [prediction for prediction, _ in found[chosen]]
        parts = [metric.score(p, r) for p, r in zip(predictions, references[chosen], strict=True)]
        streams = [list(stream) for stream in zip(*references[chosen], strict=True)]
        theirs = as_set.corpus_score(predictions, streams).score
        assert metric.aggregate(parts) == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize(
    "metric",
    [*(Bleu(**one) for one in BLEU_OPTIONS), *(Chrf(**one) for one in CHRF_OPTIONS)],
    ids=lambda metric: metric.signature,
)
def test_sums_of_many_resamples_at_once_give_what_each_alone_gives(metric: Any) -> None:
    parts = [metric.score(prediction, [reference]) for prediction, reference in pairs(5, 60)]
    sets = [
        parts[start : start + size] for start, size in itertools.product((0, 7, 40), (1, 2, 20))
    ]
    sums = [add_up(one) for one in sets]
    together = {name: numpy.array([one[name] for one in sums]).reshape(3, 3) for name in sums[0]}
    values = metric.combine(together)
    assert values.shape == (3, 3)
    assert values.ravel().tolist() == pytest.approx([metric.aggregate(one) for one in sets])


def test_an_absent_name_is_zero() -> None:
    sums = {"said": numpy.array([0.0, 4.0]), "expected": 4.0, "some": 1}
    assert Bleu().combine(sums).tolist() == [0.0, 0.0]
    assert Chrf().combine({}) == 100.0


def test_nothing_where_nothing_is_expected() -> None:
    for metric in (bleu, chrf):
        assert metric("", "") == metric(None, " ") == 100.0
        assert metric("", "", compat="sacrebleu") == metric("a", "") == 0.0
        assert metric("", ["a b", ""]) == metric("", ["", "a b"]) == 100.0
    assert rouge_l("", "") == rouge_l(" ", "") == 1.0
    assert rouge_l("", "", compat="rouge-score") == 0.0
    assert rouge_l(None, "") == 0.0


@pytest.mark.parametrize("name", ["spm", "flores101", "flores200", "spBLEU-1K"])
def test_tokenizers_that_need_the_network_are_refused(name: str) -> None:
    with pytest.raises(
        ValueError, match=f"tokenize '{name}' downloads its model; offline it can be script, 13a"
    ):
        Bleu(tokenize=name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenize": "ja-mecab"}, "needs a dictionary"),
    ],
)
def test_bleu_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Bleu(**options)


@pytest.mark.parametrize(
    "options", [{"char_order": 0}, {"word_order": -1}, {"beta": 0.5}, {"beta": True}]
)
def test_chrf_refuses(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="it must be a whole number, at least [01]"):
        Chrf(**options)


def test_signatures_name_the_version_that_counts() -> None:
    version = importlib.metadata.version("sacrebleu")
    own = f"bleu|tok:script|smooth:exp|case:keep|unicode:nfc|sacrebleu:{version}|v1"
    assert Bleu().signature == own
    assert Bleu(tokenize="13a").signature == own.replace("script", "13a")
    dialect = "bleu|tok:13a|smooth:exp|case:keep|unicode:none|compat:sacrebleu"
    assert Bleu(compat="sacrebleu").signature == f"{dialect}|sacrebleu:{version}|v1"
    theirs = (
        f"chrf|char:6|word:0|beta:2|case:keep|unicode:none|compat:sacrebleu|sacrebleu:{version}|v1"
    )
    assert Chrf(compat="sacrebleu").signature == theirs
    assert RougeL().signature == "rouge_l|words:script|case:lower|unicode:nfc|v2"
    assert RougeL(words="ascii").signature == "rouge_l|words:ascii|case:lower|unicode:nfc|v2"
    dialect = "rouge_l|words:ascii|case:lower|unicode:none|compat:rouge-score|v1"
    assert RougeL(compat="rouge-score").signature == dialect


# --- ROUGE-L --------------------------------------------------------------------------------------------


def test_rouge_l_of_lin_2004() -> None:
    # The paper's example: "police killed the gunman" shares two words in order with the first, three with
    # the second.
    reference = "police killed the gunman"
    assert rouge_l("police kill the gunman", reference) == 0.75
    assert rouge_l("the gunman kill police", reference) == 0.5


def test_words_of_any_script_count() -> None:
    assert rouge_l("итого к оплате", "Итого: к оплате!") == 1.0
    assert rouge_l("итого к оплате", "Итого к доплате") == pytest.approx(2 / 3)
    assert rouge_l("итого к оплате", "Итого к оплате", compat="rouge-score") == 0.0
    assert rouge_l("हिन्दी में", "हिन्दी") == pytest.approx(2 / 3)  # vowel signs do not part a word
    assert rouge_l("и\u0306од", "йод") == 1.0
    assert rouge_l("1,000", "1 000") == 1.0


def test_the_best_reference_counts() -> None:
    assert rouge_l("a b c", ["x", "a b", "a b c d"]) == pytest.approx(6 / 7)


@pytest.mark.long
def test_equals_rouge_score_on_10_000_pairs() -> None:
    from rouge_score.rouge_scorer import RougeScorer

    theirs = RougeScorer(["rougeL"], use_stemmer=False)
    metric = RougeL(compat="rouge-score")
    found = list(pairs(6, cases(10_000), longest=16))
    for (prediction, reference), (_, further) in zip(found, found[1:] + found[:1], strict=True):
        ours = value_of(metric, metric.score(prediction, [reference]))
        assert ours == theirs.score(reference, prediction)["rougeL"].fmeasure
        ours = value_of(metric, metric.score(prediction, [reference, further]))
        best = theirs.score_multi([reference, further], prediction)["rougeL"].fmeasure
        assert ours == best


# --- counts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", BLEU_OPTIONS[:6], ids=str)
def test_counts_of_bleu_are_those_of_sacrebleu(options: dict[str, Any]) -> None:
    from sacrebleu import BLEU

    compat = {"compat": "sacrebleu"} if not options else {"unicode": "none"}
    has_counts_of(BLEU(**in_their_words(options), force=True), Bleu(**options, **compat))


@pytest.mark.parametrize("options", CHRF_OPTIONS, ids=str)
def test_counts_of_chrf_are_those_of_sacrebleu(options: dict[str, Any]) -> None:
    from sacrebleu import CHRF

    compat = {"compat": "sacrebleu"} if not options else {"unicode": "none"}
    has_counts_of(CHRF(**in_their_words(options)), Chrf(**options, **compat))


def has_counts_of(theirs: Any, metric: Any) -> None:
    """For one to three references, to the bit."""
    found = list(pairs(14, 900, longest=16))
    for at, (prediction, reference) in enumerate(found):
        references = [reference, *(found[at - one][1] for one in range(1, 1 + at % 3))]
        counts = list(metric.score(prediction, references).values())[:-1]
        stream = [[one] for one in references]
        assert counts == theirs._extract_corpus_statistics([prediction], stream)[0], references


def test_a_text_may_have_more_words_than_one_plane_of_unicode() -> None:
    words = [str(number) for number in range(70_000)]
    assert 0.9999 < rouge_l(" ".join(words[:-1]), " ".join(words)) < 1.0
    assert bleu(" ".join(words[:-1]), " ".join(words)) == pytest.approx(100.0, abs=1e-2)
