"""How much of a transcribed text is right: OCRBench v2's mean of BLEU, METEOR, F-measure and 1 - edits.

Fu et al., "OCRBench v2" (arXiv 2501.00321): `page_ocr_metric.py`, and the mean in `eval.py`, of its code
(`kits.OCRBENCH`). All compare the words of answer and reference:

- BLEU (Papineni et al. 2002): geometric mean of the precisions of 1- to 4-grams, times exp(1 - reference's /
  answer's length) if the answer is the shorter, without smoothing;
- METEOR (Lavie and Agarwal 2007) with alpha 0.9, beta 3, gamma 0.5: words are paired from the last one back,
  equal ones first, then equal stems, then synonyms; P·R / (0.9 P + 0.1 R) · (1 - 0.5 (chunks / pairs)³);
- F-measure of the two sets of words; and 1 - Levenshtein distance of the texts / the longer one.

The published code computes the first three with nltk. Two of its rules give less than 1 for a text against
itself, and are followed only if `published`: an order of n-grams that a text of fewer than four words does
not have counts 2e-308, and one word that is right has METEOR 0.5. Ours takes the orders that both texts have,
and no penalty where all words of both are paired in one chunk, as METEOR 1.5 itself has it.
"""

from __future__ import annotations

import functools
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from hpcbench.metrics.stems import stem

Words = Literal["characters", "jieba"]
"""How Chinese is split into words: each character is one, or by the package jieba, as published."""

Synonyms = Literal["no", "wordnet"]
"""Does METEOR pair synonyms: by nltk's WordNet, as published, if its data are installed."""

Meanings = Callable[[str], Iterable[str]]
"""Synonyms of a word."""

_CHINESE = re.compile("[\u4e00-\u9fa5]")
_PIECE = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]|[^\s\u3400-\u9fff\uf900-\ufaff]+")
_ORDERS = 4


def transcript_score(
    answer: str, reference: str, words: Words, synonyms: Synonyms, published: bool
) -> float:
    """The mean of the four, in [0, 1].

    Args:
        answer: what a model read.
        reference: the right transcript.
        words: how Chinese is split.
        synonyms: whether METEOR pairs them.
        published: to the bit as published; there an empty answer is 0.

    Raises:
        ValueError: jieba or WordNet is asked for and not there.
    """
    if published and not answer:
        return 0.0
    said, expected = split(answer, reference, words, published)
    value = bleu(said, expected, published)
    value += meteor(said, expected, _meanings(synonyms), published)
    value += f_measure(said, expected, published)
    value += 1 - _edits(answer, reference)
    return min(1.0, value / 4)


def split(
    answer: str, reference: str, words: Words, published: bool = False
) -> tuple[list[str], list[str]]:
    """Words of both: Chinese is split, other text at whitespace.

    With jieba, and in the published code, jieba splits both if either has Chinese.
    """
    chinese = bool(_CHINESE.search(reference) or _CHINESE.search(answer))
    if chinese and words == "jieba":
        cut = _jieba()
        return cut(answer), cut(reference)
    if chinese or not published:
        return _PIECE.findall(answer), _PIECE.findall(reference)
    return answer.split(), reference.split()


def bleu(said: Sequence[str], expected: Sequence[str], published: bool = False) -> float:
    """BLEU of one text in [0, 1] without smoothing; see the module for short texts."""
    if not said or not expected:
        return float(not published and not said and not expected)
    orders = _ORDERS if published else min(_ORDERS, len(said), len(expected))
    logarithms = []
    for order in range(1, orders + 1):
        grams, known = _grams(said, order), _grams(expected, order)
        right = sum(min(count, known[gram]) for gram, count in grams.items())
        if not right and (order == 1 or not published):
            return 0.0
        share = right / (len(said) - order + 1) if right else sys.float_info.min
        logarithms.append(math.log(share) / orders)
    brevity = math.exp(min(0.0, 1 - len(expected) / len(said)))
    return brevity * math.exp(math.fsum(logarithms))


def _grams(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[start:] for start in range(order)), strict=False))


def meteor(
    said: Sequence[str],
    expected: Sequence[str],
    meanings: Meanings | None = None,
    published: bool = False,
) -> float:
    """METEOR of one text in [0, 1], case aside; without `meanings` of equal words and stems alone."""
    if not said or not expected:
        return float(not published and not said and not expected)
    pairs = _pairs([word.lower() for word in said], [word.lower() for word in expected], meanings)
    if not pairs:
        return 0.0
    precision, recall = len(pairs) / len(said), len(pairs) / len(expected)
    mean = precision * recall / (0.9 * precision + (1 - 0.9) * recall)
    chunks = 1 + sum(
        (after[0] - before[0], after[1] - before[1]) != (1, 1)
        for before, after in zip(pairs, pairs[1:], strict=False)
    )
    if not published and chunks == 1 and len(pairs) == len(said) == len(expected):
        return 1.0
    return float(1 - 0.5 * (chunks / len(pairs)) ** 3) * mean


def _pairs(
    said: list[str], expected: list[str], meanings: Meanings | None
) -> list[tuple[int, int]]:
    """Places of the words that belong together, by the first text's order."""
    found: list[tuple[int, int]] = []
    left = list(enumerate(said))
    free: dict[str, list[int]] = _places(enumerate(expected))
    left = _paired(left, free, lambda word: (word,), found)
    free = _places(sorted((place, stem(word)) for word, places in free.items() for place in places))
    left = _paired([(place, stem(word)) for place, word in left], free, lambda word: (word,), found)
    if meanings is not None:  # of stems, as nltk asks for them
        _paired(left, free, meanings, found)
    return sorted(found)


def _places(words: Iterable[tuple[int, str]]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = defaultdict(list)
    for place, word in words:
        places[word].append(place)
    return places


def _paired(
    left: list[tuple[int, str]],
    free: dict[str, list[int]],
    alike: Meanings,
    found: list[tuple[int, int]],
) -> list[tuple[int, str]]:
    """Pair words, the last ones first, each with the last free one like it; gives those without one."""
    alone: list[tuple[int, str]] = []
    for place, word in reversed(left):
        best = max(
            (other for other in alike(word) if free.get(other)),
            key=lambda other: free[other][-1],
            default=None,
        )
        if best is None:
            alone.append((place, word))
        else:
            found.append((place, free[best].pop()))
    return alone[::-1]


def f_measure(said: Sequence[str], expected: Sequence[str], published: bool = False) -> float:
    """Harmonic mean of precision and recall of the two sets of words."""
    given, wanted = set(said), set(expected)
    if not given or not wanted:
        return float(not published and not given and not wanted)
    shared = len(given & wanted)
    return 2 * shared / (len(given) + len(wanted))


def _edits(answer: str, reference: str) -> float:
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.normalized_distance(answer, reference)


def check_tools(words: Words, synonyms: Synonyms) -> None:
    """Refuse what is not installed here.

    Raises:
        ValueError: with what to install.
    """
    if words == "jieba":
        _jieba()
    _meanings(synonyms)


@functools.cache
def _jieba() -> Callable[[str], list[str]]:
    import warnings

    try:
        with warnings.catch_warnings():  # its sources have escapes that newer Pythons warn of
            warnings.simplefilter("ignore")
            import jieba  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise ValueError("words 'jieba' needs the package jieba: pip install jieba") from error
    jieba.setLogLevel(60)
    cut: Callable[[str], list[str]] = jieba.lcut
    return cut


@functools.cache
def _meanings(synonyms: Synonyms) -> Meanings | None:
    if synonyms == "no":
        return None
    try:
        from nltk.corpus import wordnet  # type: ignore[import-not-found,import-untyped,unused-ignore]

        wordnet.ensure_loaded()
    except (ImportError, LookupError) as error:
        what = (
            "synonyms 'wordnet' needs nltk and its data: pip install nltk, nltk.download('wordnet')"
        )
        raise ValueError(what) from error
    return functools.partial(synonyms_in, wordnet)


def synonyms_in(wordnet: object, word: str) -> set[str]:
    """A word, and the names of one word that a WordNet of nltk's form has for its meanings."""
    names = {
        lemma.name()
        for meaning in wordnet.synsets(word)  # type: ignore[attr-defined]
        for lemma in meaning.lemmas()
    }
    return {name for name in names if "_" not in name} | {word}
