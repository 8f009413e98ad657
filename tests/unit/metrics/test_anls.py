"""ANLS against the vectors of the official code, shunk031/ANLS and anls_star."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_pairs import pairs

from hpcbench.metrics import Anls, Parts, anls
from hpcbench.metrics.base import value_of
from tests.campaign import cases

WORDS = st.text(alphabet="abCÜйЁщ1, .\t\n", max_size=12)


@pytest.mark.parametrize(
    ("prediction", "reference", "paper", "official"),
    [
        ("The Coca", "The Coca", 1.0, 1.0),
        ("", "abc", 0.0, 0.0),
        ("", "", 1.0, 1.0),
        ("1", "10", 0.0, 0.5),
        ("ABCD", "abxx", 0.0, 0.5),
        ("xx        ", "yy", 0.0, 0.8),
        ("kitten", "sitting", 0.5714, 0.5714),
        ("12,500", "12500", 0.8333, 0.8333),
        ("$12.50", "12.50", 0.8333, 0.8333),
        ("hello  world", "hello world", 1.0, 1.0),
        ("abc", "abxyz", 0.0, 0.0),
        ("САНКТ-ПЕТЕРБУРГ", "Санкт-Петербург", 1.0, 1.0),
        ("котик", "кетчик", 0.6667, 0.6667),
    ],
)
def test_vectors(prediction: str, reference: str, paper: float, official: float) -> None:
    assert anls(prediction, reference, inclusive=False) == pytest.approx(paper, abs=5e-5)
    assert anls(prediction, reference, raw_length=True) == pytest.approx(official, abs=5e-5)
    for ours, dialect in ((paper, "anls-0.0.2"), (paper, "st-vqa-paper"), (official, "lmms-eval")):
        assert anls(prediction, reference, compat=dialect) == pytest.approx(ours, abs=5e-5)


def test_padding_does_not_help() -> None:
    assert anls("xx        ", "yy") == 0.0
    assert anls("1", "10") == 0.5


def test_coca_cola_of_the_official_example() -> None:
    assert anls("CocaCola", ["The Coca Cola", "Coca Cola"]) == pytest.approx(0.8889, abs=5e-5)


def test_official_length_is_taken_in_upper_case() -> None:
    assert anls("ßx", "ßy", raw_length=True) == pytest.approx(2 / 3)
    assert anls("ßx", "ßy") == 0.5


def test_lowering_that_lengthens_never_goes_below_zero() -> None:
    assert anls("İ", "x", raw_length=True, tau=0) == 0.0


def test_no_answer_is_worse_than_an_empty_one() -> None:
    assert anls("", "") == 1.0
    assert Anls().score(None, [""]) == Parts(0.0, 1)
    assert Anls().score({"a": 1}, ["a"]) == Parts(0.0, 1)


def test_whole_numbers_are_texts() -> None:
    assert Anls().score(12, [12]) == Parts(1.0, 1)
    assert Anls().score(True, ["True"]) == Parts(0.0, 1)


def test_signature() -> None:
    assert Anls().signature == "anls|tau:0.5|incl|len:norm|case:lower|ws:collapse|unicode:nfc|v1"
    other = Anls(tau=0.7, inclusive=False, raw_length=True, case="keep", unicode="none")
    assert other.signature == "anls|tau:0.7|excl|len:raw|case:keep|ws:collapse|unicode:none|v1"


def test_tau_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"tau is 1\.5"):
        Anls(tau=1.5)


def test_a_dialect_shows_what_it_switches() -> None:
    official = "anls|tau:0.5|incl|len:raw|case:lower|ws:collapse|unicode:none|v1"
    assert Anls(compat="docvqa-official").signature == official
    assert Anls(raw_length=True, unicode="none").signature == official
    assert Anls(compat="lmms-eval").signature == official
    assert Anls(compat="vlmevalkit").signature == official
    package = "anls|tau:0.5|excl|len:upper|case:lower|ws:collapse|unicode:none|v1"
    assert Anls(compat="anls-0.0.2").signature == package
    with pytest.raises(ValueError, match="compat is 'anls'; it can be anls-0.0.2, docvqa-official"):
        Anls(compat="anls")
    with pytest.raises(ValueError, match="tau cannot be combined with compat"):
        Anls(compat="anls-0.0.2", tau=0.4)


def test_tau_is_exact_where_the_search_stops_early() -> None:
    reference = "a" * 300
    for wrong in range(301):
        similarity = 1 - wrong / 300
        prediction = "b" * wrong + "a" * (300 - wrong)
        for tau in (0.0, 0.1, 0.5, 0.9, 1.0):
            expected = similarity if similarity >= tau else 0.0
            assert anls(prediction, reference, tau=tau) == expected


def published_anls(prediction: str, references: list[str], raw: bool) -> float:
    """The rule of the official DocVQA code, lmms-eval and VLMEvalKit in words of our own; ours if not raw."""
    from rapidfuzz.distance import Levenshtein

    def distance(reference: str) -> float:
        said, expected = (" ".join(text.lower().split()) for text in (prediction, reference))
        longer = max(len(said), len(expected))
        if raw:
            longer = max(len(prediction.upper()), len(reference.upper()))
        return Levenshtein.distance(said, expected) / longer if longer else 0.0

    similarity = 1 - min(distance(reference) for reference in references)
    return 0.0 if similarity < 0.5 else similarity


@pytest.mark.long
def test_dialects_equal_their_sources_to_the_bit_on_12_000_pairs() -> None:
    import anls as package

    official, other = Anls(compat="docvqa-official"), Anls(unicode="none")
    shunk031 = Anls(compat="anls-0.0.2")
    found = list(pairs(1, cases(12_000)))
    for (prediction, reference), (_, further) in zip(found, found[1:] + found[:1], strict=True):
        references = [reference, further]
        ours = value_of(official, official.score(prediction, references))
        assert ours == published_anls(prediction, references, raw=True)
        ours = value_of(other, other.score(prediction, references))
        assert ours == published_anls(prediction, references, raw=False)
        ours = value_of(shunk031, shunk031.score(prediction, references))
        assert ours == package.anls_score(prediction, references, 0.5)


@settings(deadline=None)
@given(WORDS, st.lists(WORDS, min_size=1, max_size=4))
def test_equals_shunk031(prediction: str, references: list[str]) -> None:
    import anls as oracle

    expected = oracle.anls_score(prediction, references, 0.5)
    assert anls(prediction, references, inclusive=False, unicode="none") == pytest.approx(expected)


@settings(deadline=None)
@given(WORDS, st.lists(WORDS, min_size=1, max_size=4))
def test_equals_anls_star_on_leaves(prediction: str, references: list[str]) -> None:
    import anls_star as oracle

    expected = oracle.anls_score(tuple(references), prediction)
    assert anls(prediction, references, unicode="none") == pytest.approx(expected)


@settings(deadline=None)
@given(WORDS, st.lists(WORDS, min_size=1, max_size=4), WORDS)
def test_a_further_reference_never_lowers(
    prediction: str, references: list[str], further: str
) -> None:
    assert anls(prediction, [*references, further]) >= anls(prediction, references)


@settings(deadline=None)
@given(WORDS, WORDS)
def test_composed_and_decomposed_are_the_same_text(prediction: str, reference: str) -> None:
    decomposed = unicodedata.normalize("NFD", prediction)
    assert anls(decomposed, reference) == anls(prediction, reference)


def test_decomposed_letters_cost_without_normalisation() -> None:
    decomposed = unicodedata.normalize("NFD", "йод")
    assert anls(decomposed, "йод") == 1.0
    assert anls(decomposed, "йод", unicode="none") == 0.5
