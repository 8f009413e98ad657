"""Transcribed texts of OCRBench v2: BLEU, METEOR and F-measure against nltk, stems against its stemmer."""

import functools
import importlib.util
import math
import random
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.metrics import metric, ocrbench_v2
from hpcbench.metrics.stems import stem
from hpcbench.metrics.transcripts import bleu, f_measure, meteor, split, synonyms_in
from tests.campaign import cases

PAIRS = cases(10_000)
WORDS = [
    "the", "The", "cat", "cats", "feline", "running", "runs", "run", "go", "goes", "move", "car",
    "automobile", "auto", "cars", "a", "one", "1", ".", "Москва", "x",
]  # fmt: skip
SUFFIXES = [
    "ational", "tional", "enci", "anci", "izer", "abli", "alli", "entli", "eli", "ousli", "ization",
    "ation", "ator", "alism", "iveness", "fulness", "ousness", "aliti", "iviti", "biliti", "fulli",
    "logi", "icate", "ative", "alize", "iciti", "ical", "ful", "ness", "al", "ance", "ence", "er", "ic",
    "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti", "ous", "ive", "ize",
    "ed", "ing", "eed", "ied", "ies", "sses", "ss", "s", "y", "e", "ll", "at", "bl", "iz",
]  # fmt: skip


def transcript(answer: str, reference: str, **options: Any) -> float:
    return ocrbench_v2(answer, [reference], kind="transcript", **options)


class Thesaurus:
    """The part of nltk's WordNet that METEOR asks."""

    groups = (
        ["cat", "feline", "big_cat"],
        ["run", "go", "move"],
        ["car", "automobil", "auto"],
        ["a", "one"],
    )

    def synsets(self, word: str) -> list[Any]:
        return [Meaning(group) for group in self.groups if word in group]


class Meaning:
    def __init__(self, names: list[str]) -> None:
        self.names = names

    def lemmas(self) -> list[Any]:
        return [Lemma(name) for name in self.names]


class Lemma:
    def __init__(self, text: str) -> None:
        self.text = text

    def name(self) -> str:
        return self.text


class Nothing(Thesaurus):
    groups = ()


def pairs() -> list[tuple[list[str], list[str]]]:
    rng = random.Random("transcripts")
    found = []
    for _ in range(PAIRS):
        said = rng.choices(WORDS, k=rng.randint(0, 12))
        known = list(said) if rng.random() < 0.6 else rng.choices(WORDS, k=rng.randint(0, 12))
        for _ in range(rng.randint(0, 4)):
            if known:
                known[rng.randrange(len(known))] = rng.choice(WORDS)
        found.append((said, known))
    return found


# --- against nltk ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_as_published_bleu_meteor_and_f_measure_are_nltks() -> None:
    from nltk.metrics import edit_distance
    from nltk.metrics import f_measure as theirs
    from nltk.translate.bleu_score import sentence_bleu
    from nltk.translate.meteor_score import single_meteor_score

    meanings = functools.partial(synonyms_in, Thesaurus())
    for said, known in pairs():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # short texts
            their_bleu = sentence_bleu([known], said)
        assert bleu(said, known, published=True) == pytest.approx(their_bleu, abs=1e-12)
        for wordnet, ours in ((Thesaurus(), meanings), (Nothing(), None)):
            value = single_meteor_score(known, said, wordnet=wordnet)
            assert meteor(said, known, ours, published=True) == pytest.approx(value, abs=1e-12)
        shared = theirs(set(known), set(said)) or 0
        assert f_measure(said, known, published=True) == pytest.approx(shared)
        answer, reference = " ".join(said), " ".join(known)
        edits = edit_distance(answer, reference) / max(len(answer), len(reference), 1)
        expected = (their_bleu + value + shared + 1 - edits) / 4 if answer else 0
        assert transcript(answer, reference, compat="ocrbench-v2") == pytest.approx(expected)


@pytest.mark.long
def test_stems_are_those_of_nltks_stemmer() -> None:
    from nltk.stem.porter import PorterStemmer

    theirs = PorterStemmer()
    rng = random.Random("stems")
    words = ["dying", "lying", "skies", "news", "innings", "proceed", "yyyy", "", "y", "ies", "ed"]
    for _ in range(20_000):
        beginning = "".join(rng.choices("abcdeilostuyzéд1", k=rng.randint(0, 6)))
        words.append(beginning + "".join(rng.choices(SUFFIXES, k=rng.randint(0, 2))))
    for word in words:
        assert stem(word) == theirs.stem(word), word


# Words of Porter's paper (Program 14:130, 1980) and their stems by nltk 3.9, whose rules differ in some.
STEMS = """
caresses=caress ponies=poni ties=tie cats=cat feed=feed agreed=agre plastered=plaster bled=bled sing=sing
motoring=motor conflated=conflat troubled=troubl sized=size hopping=hop tanned=tan falling=fall hissing=hiss
fizzed=fizz failing=fail filing=file happy=happi sky=sky enjoy=enjoy relational=relat rational=ration
conditional=condit valenci=valenc hesitanci=hesit digitizer=digit conformabli=conform radicalli=radic
differentli=differ vileli=vile analogousli=analog vietnamization=vietnam predication=predic operator=oper
feudalism=feudal decisiveness=decis hopefulness=hope callousness=callous formaliti=formal sensitiviti=sensit
sensibiliti=sensibl triplicate=triplic formative=form formalize=formal electriciti=electr electrical=electr
goodness=good revival=reviv allowance=allow inference=infer airliner=airlin gyroscopic=gyroscop adoption=adopt
adjustable=adjust defensible=defens irritant=irrit replacement=replac dependent=depend homologou=homolog
communism=commun activate=activ angulariti=angular homologous=homolog effective=effect bowdlerize=bowdler
probate=probat rate=rate cease=ceas controll=control roll=roll tried=tri died=die spied=spi totally=total
geologi=geolog is=is guaranteed=guarante
"""


def test_stems_are_those_of_the_published_examples() -> None:
    for word, expected in (pair.split("=") for pair in STEMS.split()):
        assert stem(word) == expected, word


# --- by hand --------------------------------------------------------------------------------------------


def test_the_mean_of_four() -> None:
    # Of "a b c d" and "a b c e": 3/4 words, 2/3 pairs, 1/2 triples, no four; one chunk of three pairs.
    value = transcript("a b c d", "a b c e")
    assert value == pytest.approx((0 + (1 - 0.5 / 27) * 0.75 + 0.75 + 6 / 7) / 4)
    assert transcript("cats", "cat") == pytest.approx((0 + 1 + 0 + 3 / 4) / 4)  # equal stems
    assert transcript("", "a") == transcript("x", "yz") == 0.0


@pytest.mark.parametrize("published", [False, True])
def test_bleu_is_the_geometric_mean_of_four_shares(published: bool) -> None:
    said, known = list("abcde"), list("abcdf")
    assert bleu(said, known, published) == pytest.approx((4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4))
    assert bleu(said[:4], known, published) == pytest.approx(math.exp(1 - 5 / 4))  # too short


def test_a_short_text_that_is_right_is_not_1_as_published() -> None:
    assert transcript("cat", "cat") == 1.0
    # BLEU has no pairs of words to count, and METEOR one chunk of one word.
    assert transcript("cat", "cat", compat="ocrbench-v2") == pytest.approx((0 + 0.5 + 1 + 1) / 4)
    long = "a b c d e f g h"
    published = (1 + 1 - 0.5 / 8**3 + 1 + 1) / 4
    assert transcript(long, long, compat="ocrbench-v2") == pytest.approx(published)
    assert transcript("", "", compat="ocrbench-v2") == 0.0
    assert transcript("", "") == 1.0


def test_chinese_is_split_into_characters() -> None:
    assert split("北京，OK", "x y", "characters") == (["北", "京", "，OK"], ["x", "y"])
    assert transcript("北京 大学", "北京大学") == pytest.approx((1 + 1 + 1 + 4 / 5) / 4)


def test_synonyms_are_paired_if_they_are_known() -> None:
    said, known = ["a", "go"], ["a", "run"]
    assert meteor(said, known) == pytest.approx(0.25)  # half of a half: one chunk of one pair
    assert meteor(said, known, functools.partial(synonyms_in, Thesaurus())) == 1.0
    assert synonyms_in(Thesaurus(), "cat") == {"cat", "feline"}  # no names of several words


def test_a_metric_of_a_package_that_is_not_here_can_be_made_and_says_so_where_it_scores() -> None:
    with pytest.raises(ValueError, match="needs nltk and its data"):
        metric("ocrbench_v2", synonyms="wordnet").check_here()
    assert importlib.util.find_spec("jieba") is None, "the tests' requirements do not have it"
    with pytest.raises(ValueError, match="words 'jieba' needs the package jieba"):
        metric("ocrbench_v2", words="jieba", compat="ocrbench-v2").check_here()
    metric("ocrbench_v2").check_here()


# --- any text -------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.text(alphabet="aAbсБ 北\n.,") | st.text(), st.text(alphabet="aAbсБ 北\n.,") | st.text())
def test_a_text_is_like_itself_and_values_stay_in_bounds(one: str, other: str) -> None:
    assert transcript(one, one) == pytest.approx(1.0)
    for compat in ("", "ocrbench-v2"):
        assert 0 <= transcript(one, other, compat=compat) <= 1


def test_a_long_page_takes_no_time() -> None:
    page = " ".join(f"word{number % 700}ing" for number in range(20_000))
    assert transcript(page, page) == 1.0
    assert 0.5 < transcript(page[: len(page) // 2], page) < 1


@given(st.text(alphabet="aeiouybcdlstzing") | st.text())
def test_a_word_has_a_stem_no_longer_than_itself(word: str) -> None:
    assert len(stem(word)) <= len(word) + 1
