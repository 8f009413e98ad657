"""Metrics over texts by shared pieces: BLEU, chrF, ROUGE-L.

BLEU: Papineni et al. 2002, "BLEU: a Method for Automatic Evaluation of Machine Translation". chrF: Popović
2015, "chrF: character n-gram F-score for automatic MT evaluation". Both are counted by sacrebleu (2.4 or
later) and are its numbers, 0 to 100; what they make of sums is written here again, because it must also work
on many resamples at once. Two differences, neither under `compat="sacrebleu"`: texts are composed to NFC
first, and where nothing is expected and nothing said, the value is 100 and not 0.

ROUGE-L: Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries", as Google's package rouge-score
(0.1.2) computes it, save for what a word is. That package knows words of a-z and 0-9 only: Russian, Greek or
Chinese texts have none there and score 0. Ours are runs of letters, marks and digits of any script.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from hpcbench.metrics.base import (
    Aggregation,
    Bounds,
    Counts,
    Parts,
    acceptable,
    add_up,
    over_one,
    ratio_of_sums,
    take_dialect,
)
from hpcbench.metrics.kits import ROUGE_SCORE, SACREBLEU, Dialect
from hpcbench.metrics.normalise import (
    Case,
    UnicodeForm,
    compose,
    one_of,
    read_text,
    reference_text,
)

Tokenizer = Literal["13a", "intl", "zh", "char", "none"]
"""How BLEU parts words.

`13a` as WMT's script for European languages · `intl` at all punctuation and symbols of Unicode · `zh` Chinese
characters one by one · `char` every character · `none` at whitespace alone
"""

Smoothing = Literal["exp", "floor", "add-k", "none"]
"""What an order of n-grams with no match counts: Chen and Cherry 2014, with sacrebleu's values.

`exp` half, a quarter … of one match · `floor` 0.1 matches · `none` nothing, and the score is 0 ·
`add-k` all orders but the first get one match more, of one n-gram more
"""

_NEEDS_MORE = {
    **dict.fromkeys(("spm", "flores101", "flores200", "spBLEU-1K"), "downloads its model"),
    **dict.fromkeys(("ja-mecab", "ko-mecab"), "needs a dictionary that is no part of sacrebleu"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramMetric:
    """What BLEU and chrF share: counts of n-grams by sacrebleu, summed over samples."""

    api: ClassVar[int] = 1
    name: ClassVar[str]
    higher_is_better: ClassVar[bool] = True
    accepts: ClassVar[tuple[str, ...]] = ("text", "label")
    aggregation: ClassVar[Aggregation] = "corpus"
    bounds: ClassVar[Bounds] = (0.0, 100.0)
    dialects: ClassVar[Mapping[str, Dialect]] = {
        "sacrebleu": Dialect({"unicode": "none"}, SACREBLEU)
    }

    case: Case = "keep"
    """Does case count."""
    unicode: UnicodeForm = "nfc"
    """Normal form."""
    compat: str = ""
    """Compute as somebody else does, see `dialects`."""

    def __post_init__(self) -> None:
        take_dialect(self)
        one_of("case", self.case, get_args(Case))
        one_of("unicode", self.unicode, get_args(UnicodeForm))

    def score(self, prediction: object, references: Sequence[object]) -> Counts:
        """Counts of n-grams, by the names in `_names`. No text is scored as an empty one."""
        expected = [
            compose(reference_text(self.name, reference), self.unicode)
            for reference in acceptable(self.name, references)
        ]
        answer = compose(read_text(prediction) or "", self.unicode)
        # Private there, and yet the one way to chrF's counts; its significance tests are built on it.
        found = self._engine()._extract_corpus_statistics([answer], [[one] for one in expected])[0]
        counts = dict(zip(self._names(), found, strict=True))
        return {**counts, "some": 0 if self._nothing(found, answer, expected) else 1}

    def combine(self, sums: Mapping[str, Any]) -> Any:
        """Value of a set from the sums of its samples' counts, as sacrebleu's `corpus_score`.

        Args:
            sums: by name; numbers, or arrays of one shape with one element per resample.

        Returns:
            A number, or an array of that shape.
        """
        return self._valued(sums, False)

    def aggregate(self, parts: Sequence[Counts]) -> float:
        """Value of a set, which is not the mean of its samples' values.

        Raises:
            ValueError: no samples.
        """
        return float(self.combine(add_up(parts)))

    def value(self, parts: Counts) -> float:
        """Value of one sample, as sacrebleu's `sentence_score`."""
        return float(self._valued(parts, True))

    def describe(self, *options: str) -> str:
        """A signature: name, own options, shared options, versions."""
        other = [f"compat:{self.compat}"] if self.compat else []
        shared = [f"case:{self.case}", f"unicode:{self.unicode}", *other]
        return "|".join((self.name, *options, *shared, f"sacrebleu:{_version()}", "v1"))

    def _engine(self) -> Any:
        """sacrebleu's object that counts."""
        raise NotImplementedError

    def _names(self) -> tuple[str, ...]:
        """What the numbers are that sacrebleu gives for a sample, in its order."""
        raise NotImplementedError

    def _nothing(self, counts: Sequence[float], answer: str, expected: Sequence[str]) -> bool:
        """Is nothing said, as may be expected."""
        raise NotImplementedError

    def _of(self, table: Any, single: bool) -> Any:
        """Values of counts; table: one row per name, then the shape of the sums."""
        raise NotImplementedError

    def _valued(self, sums: Mapping[str, Any], single: bool) -> Any:
        import numpy

        rows = (numpy.asarray(sums.get(name, 0), float) for name in (*self._names(), "some"))
        table = numpy.stack(numpy.broadcast_arrays(*rows))
        values = self._of(table[:-1], single)
        return values if self.compat else numpy.where(table[-1] > 0, values, 100.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bleu(NgramMetric):
    """BLEU: how many n-grams of 1 to 4 words are right, with a penalty for brevity; 0 to 100.

    Of a set: all right n-grams over all n-grams. A set with no four right words in a row is worth 0, equal
    texts of fewer words too: that is BLEU, take chrF for short texts. Of one sample: over the orders that
    the answer has. N-grams of all references count, and the length of that nearest to the answer's.
    """

    name: ClassVar[str] = "bleu"

    tokenize: Tokenizer = "13a"
    """How words are parted."""
    smooth: Smoothing = "exp"
    """What an order with no match counts."""

    def __post_init__(self) -> None:
        NgramMetric.__post_init__(self)
        if self.tokenize in _NEEDS_MORE:
            why = _NEEDS_MORE[self.tokenize]
            known = ", ".join(get_args(Tokenizer))
            raise ValueError(f"tokenize {self.tokenize!r} {why}; offline it can be {known}")
        one_of("tokenize", self.tokenize, get_args(Tokenizer))
        one_of("smooth", self.smooth, get_args(Smoothing))

    @property
    def signature(self) -> str:
        """E.g. `bleu|tok:13a|smooth:exp|case:keep|unicode:nfc|sacrebleu:2.6.0|v1`."""
        return self.describe(f"tok:{self.tokenize}", f"smooth:{self.smooth}")

    def _engine(self) -> Any:
        return _bleu(self.tokenize, self.case == "lower")

    def _names(self) -> tuple[str, ...]:
        return _BLEU_NAMES

    def _nothing(self, counts: Sequence[float], answer: str, expected: Sequence[str]) -> bool:
        return not any(counts)

    def _of(self, table: Any, single: bool) -> Any:
        import numpy

        said, expected, right, total = table[0], table[1], table[2:6], table[6:10]
        some = right.any(axis=0)
        if self.smooth == "add-k":
            more = numpy.array([0.0, 1.0, 1.0, 1.0]).reshape(4, *[1] * said.ndim)
            right, total = right + more, total + more
        # An order without n-grams ends the sum: no longer ones are looked at.
        reached = numpy.logical_and.accumulate(total > 0, axis=0)
        missed = reached & (right == 0)
        if self.smooth == "exp":
            right = numpy.where(missed, 0.5 ** numpy.cumsum(missed, axis=0), right)
        elif self.smooth == "floor":
            right = numpy.where(missed, 0.1, right)
        orders = numpy.maximum(reached.sum(axis=0), 1) if single else 4
        with numpy.errstate(divide="ignore", invalid="ignore"):
            logarithms = numpy.log(right / total)
            logarithms = numpy.where(reached, logarithms, 0.0 if single else -numpy.inf)
            brevity = numpy.where(said < expected, numpy.exp(1 - expected / said), 1.0)
        values = 100 * brevity * numpy.exp(logarithms.sum(axis=0) / orders)
        return numpy.where(some, values, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chrf(NgramMetric):
    """chrF: F-score of shared n-grams of characters (chrF++ with `word_order=2`: of words too); 0 to 100.

    Whitespace does not count. Precision and recall are means over the orders that answer and reference
    have. Of several references the one with the best score counts, the first of equals as in sacrebleu.
    """

    name: ClassVar[str] = "chrf"

    char_order: int = 6
    """Longest n-grams of characters."""
    word_order: int = 0
    """Longest n-grams of words; 0: none."""
    beta: int = 2
    """How many times recall weighs as much as precision."""

    def __post_init__(self) -> None:
        NgramMetric.__post_init__(self)
        for option, least in (("char_order", 1), ("word_order", 0), ("beta", 1)):
            value = getattr(self, option)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{option} is {value!r}; it is a whole number from {least} on")

    @property
    def signature(self) -> str:
        """E.g. `chrf|char:6|word:0|beta:2|case:keep|unicode:nfc|sacrebleu:2.6.0|v1`."""
        orders = (f"char:{self.char_order}", f"word:{self.word_order}", f"beta:{self.beta}")
        return self.describe(*orders)

    def _engine(self) -> Any:
        return _chrf(self.char_order, self.word_order, self.beta, self.case == "lower")

    def _names(self) -> tuple[str, ...]:
        return _chrf_names(self.char_order, self.word_order)

    def _nothing(self, counts: Sequence[float], answer: str, expected: Sequence[str]) -> bool:
        # The counts do not tell: sacrebleu leaves out what is said where nothing is expected.
        return not answer.strip() and any(not text.strip() for text in expected)

    def _of(self, table: Any, single: bool) -> Any:
        import numpy

        said, expected, shared = table[0::3], table[1::3], table[2::3]
        both = (said > 0) & (expected > 0)
        orders = numpy.maximum(both.sum(axis=0), 1)
        with numpy.errstate(divide="ignore", invalid="ignore"):
            precision = numpy.where(both, shared / said, 0.0).sum(axis=0) / orders
            recall = numpy.where(both, shared / expected, 0.0).sum(axis=0) / orders
            weight = self.beta**2
            values = (1 + weight) * precision * recall / (weight * precision + recall)
        return numpy.where(precision + recall > 0, 100 * values, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RougeL:
    """ROUGE-L: F1 of the longest common subsequence of words; per sample the best reference, then the mean.

    Everything but words falls away: "a.b" is two words and "1,000" too. Where neither text has a word the
    value is 1, in rouge-score 0.
    """

    api: ClassVar[int] = 1
    name: ClassVar[str] = "rouge_l"
    higher_is_better: ClassVar[bool] = True
    accepts: ClassVar[tuple[str, ...]] = ("text", "label")
    aggregation: ClassVar[Aggregation] = "mean"
    bounds: ClassVar[Bounds] = (0.0, 1.0)
    dialects: ClassVar[Mapping[str, Dialect]] = {
        "rouge-score": Dialect({"ascii_words": True, "unicode": "none"}, ROUGE_SCORE)
    }

    ascii_words: bool = False
    """Are words made of a-z and 0-9 alone, so that other letters part them."""
    case: Case = "lower"
    """Does case count."""
    unicode: UnicodeForm = "nfc"
    """Normal form."""
    compat: str = ""
    """Compute as somebody else does, see `dialects`."""

    def __post_init__(self) -> None:
        take_dialect(self)
        one_of("case", self.case, get_args(Case))
        one_of("unicode", self.unicode, get_args(UnicodeForm))

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """F1 in [0, 1] with the closest reference, over 1. No text scores 0."""
        read = read_text(prediction)
        number: dict[str, int] = {}
        answer = self._words(read or "", number)
        most = 0.0
        for reference in acceptable(self.name, references):
            expected = self._words(reference_text(self.name, reference), number)
            most = max(most, self._share(answer, expected))
        return over_one(0.0 if read is None else most)

    def aggregate(self, parts: Sequence[Parts]) -> float:
        """Mean over samples."""
        return ratio_of_sums(parts)

    @property
    def signature(self) -> str:
        """E.g. `rouge_l|words:any|case:lower|unicode:nfc|v1`."""
        words = "ascii" if self.ascii_words else "any"
        other = [f"compat:{self.compat}"] if self.compat else []
        options = (f"words:{words}", f"case:{self.case}", f"unicode:{self.unicode}", *other)
        return "|".join((self.name, *options, "v1"))

    def _words(self, text: str, number: dict[str, int]) -> list[int]:
        """The words as numbers: rapidfuzz compares hashes, and those of small numbers cannot collide."""
        text = compose(text, self.unicode)
        if self.case == "lower":
            text = text.lower()
        words = _ASCII_WORD.findall(text) if self.ascii_words else text.translate(_PARTED).split()
        return [number.setdefault(word, len(number)) for word in words]

    def _share(self, answer: list[int], expected: list[int]) -> float:
        if not answer and not expected:
            return 0.0 if self.compat else 1.0
        common = _common()(answer, expected) if answer and expected else 0
        if not common:
            return 0.0
        precision, recall = common / len(answer), common / len(expected)
        return float(2 * precision * recall / (precision + recall))


class _Parted(dict[int, str]):
    """For `str.translate`: letters, marks and digits stay, other characters become spaces."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        self[code] = character if unicodedata.category(character)[0] in "LMN" else " "
        return self[code]


_PARTED = _Parted()
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_BLEU_NAMES = (
    "said",
    "expected",
    *(f"right{order}" for order in range(1, 5)),
    *(f"all{order}" for order in range(1, 5)),
)


@functools.cache
def _chrf_names(characters: int, words: int) -> tuple[str, ...]:
    orders = [f"c{order}" for order in range(1, characters + 1)]
    orders += [f"w{order}" for order in range(1, words + 1)]
    return tuple(f"{what}_{order}" for order in orders for what in ("said", "expected", "shared"))


@functools.cache
def _bleu(tokenize: str, lowercase: bool) -> Any:
    from sacrebleu import BLEU

    return BLEU(tokenize=tokenize, lowercase=lowercase, force=True)


@functools.cache
def _chrf(characters: int, words: int, beta: int, lowercase: bool) -> Any:
    from sacrebleu import CHRF

    return CHRF(char_order=characters, word_order=words, beta=beta, lowercase=lowercase)


@functools.cache
def _common() -> Callable[..., Any]:
    """rapidfuzz's length of the longest common subsequence, loaded when first used."""
    from rapidfuzz.distance import LCSseq

    return LCSseq.similarity


@functools.cache
def _version() -> str:
    return importlib.metadata.version("sacrebleu")
