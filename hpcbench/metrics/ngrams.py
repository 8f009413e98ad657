"""Metrics over texts by shared pieces: BLEU, chrF, ROUGE-L.

BLEU: Papineni et al. 2002, "BLEU: a Method for Automatic Evaluation of Machine Translation". chrF: Popović
2015, "chrF: character n-gram F-score for automatic MT evaluation". Both give sacrebleu's numbers (2.4 or
later), 0 to 100. The counting is written here again: it must be quick on short texts, and the formulas must
also work on many resamples at once. Three differences, none under `compat="sacrebleu"`: texts are composed to
NFC first; where nothing is expected and nothing said, the value is 100 and not 0; and in scripts without
spaces each character is a word of BLEU.

ROUGE-L: Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries", as Google's package rouge-score
(0.1.2) computes it, save for what a word is. That package knows words of a-z and 0-9 only: Russian, Greek or
Chinese texts have none there and score 0. Ours are those of any script (hpcbench.metrics.words); of English
texts they are the same words.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from hpcbench.metrics.base import (
    Bounds,
    CorpusMetric,
    Counts,
    Parts,
    SampleMetric,
    acceptable,
    over_one,
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
from hpcbench.metrics.words import ascii_words, characters, script_words, spaced, spell

Tokenizer = Literal["script", "13a", "intl", "zh", "char", "none"]
"""How BLEU parts words.

`script` characters of scripts without spaces one by one, all else as `13a` · `13a` as WMT's script for
European languages · `intl` at all punctuation and symbols of Unicode · `zh` Chinese characters one by one ·
`char` every character · `none` at whitespace alone
"""

RougeWords = Literal["script", "ascii"]
"""Definition of a word for ROUGE-L.

`script` a run of letters, marks and digits; in scripts without spaces one character · `ascii` a run of a-z
and 0-9, as in rouge-score
"""

Smoothing = Literal["exp", "floor", "add-k", "none"]
"""Count of an order of n-grams without a match: Chen and Cherry 2014, with sacrebleu's values.

`exp` half, a quarter … of one match · `floor` 0.1 matches · `none` nothing, and the score is 0 ·
`add-k` all orders but the first get one match more, of one n-gram more
"""

_NEEDS_MORE = {
    **dict.fromkeys(("spm", "flores101", "flores200", "spBLEU-1K"), "downloads its model"),
    **dict.fromkeys(("ja-mecab", "ko-mecab"), "needs a dictionary that sacrebleu does not contain"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramMetric(CorpusMetric):
    """Common part of BLEU and chrF: counts of n-grams by sacrebleu, summed over samples."""

    bounds: ClassVar[Bounds] = (0.0, 100.0)
    dialects: ClassVar[Mapping[str, Dialect]] = {
        "sacrebleu": Dialect({"unicode": "none"}, SACREBLEU)
    }

    case: Case = "keep"
    """Whether case counts."""
    unicode: UnicodeForm = "nfc"
    """Unicode normal form."""
    compat: str = ""
    """Compute the metric as this other kit does, see `dialects`."""

    def __post_init__(self) -> None:
        take_dialect(self)
        one_of("case", self.case, get_args(Case))
        one_of("unicode", self.unicode, get_args(UnicodeForm))

    def score(self, prediction: object, references: Sequence[object]) -> Counts:
        """Counts of n-grams, by the names in `_names`. No text is scored as an empty one."""
        expected = [
            _comparable(reference_text(self.name, reference), self.unicode, self.case)
            for reference in acceptable(self.name, references)
        ]
        answer = _comparable(read_text(prediction) or "", self.unicode, self.case)
        found = self._count(answer, expected)
        counts: dict[str, float] = dict(zip(self._names(), found, strict=True))
        counts["some"] = 0 if self._nothing(found, answer, expected) else 1
        return counts

    def combine(self, sums: Mapping[str, Any]) -> Any:
        """Value of a set from the sums of its samples' counts, as sacrebleu's `corpus_score`.

        Args:
            sums: by name; numbers, or arrays of one shape with one element per resample.

        Returns:
            A number, or an array of that shape.
        """
        import numpy

        rows = (numpy.asarray(sums.get(name, 0), float) for name in (*self._names(), "some"))
        table = numpy.stack(numpy.broadcast_arrays(*rows))
        values = self._of(table[:-1])
        return values if self.compat else numpy.where(table[-1] > 0, values, 100.0)

    def value(self, parts: Counts) -> float:
        """Value of one sample, as sacrebleu's `sentence_score`."""
        if not self.compat and not parts.get("some", 0):
            return 100.0
        return self._of_one([parts.get(name, 0) for name in self._names()])

    def describe(self, *options: str) -> str:
        """A signature: name, own options, shared options, versions."""
        other = [f"compat:{self.compat}"] if self.compat else []
        shared = [f"case:{self.case}", f"unicode:{self.unicode}", *other]
        return "|".join((self.name, *options, *shared, f"sacrebleu:{_version()}", "v1"))

    def _names(self) -> tuple[str, ...]:
        """Names of a sample's counts, in their order."""
        raise NotImplementedError

    def _count(self, answer: str, expected: Sequence[str]) -> Sequence[float]:
        """The counts of a sample."""
        raise NotImplementedError

    def _nothing(self, counts: Sequence[float], answer: str, expected: Sequence[str]) -> bool:
        """Whether the prediction is empty, and a reference is empty too."""
        raise NotImplementedError

    def _of_one(self, counts: Sequence[float]) -> float:
        """Value of the counts of one sample."""
        raise NotImplementedError

    def _of(self, table: Any) -> Any:
        """Values of sums of counts; table: one row per name, then the shape of the sums."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Bleu(NgramMetric):
    """BLEU: how many n-grams of 1 to 4 words are right, with a penalty for brevity; 0 to 100.

    For a set: all right n-grams over all n-grams. A set with no four right words in a row scores 0, also if
    equal texts have fewer words: that is BLEU, take chrF for short texts. For one sample: over the orders
    that the answer has. N-grams of all references count, and the length of that nearest to the answer's.
    """

    name: ClassVar[str] = "bleu"

    dialects: ClassVar[Mapping[str, Dialect]] = {
        "sacrebleu": Dialect({"tokenize": "13a", "unicode": "none"}, SACREBLEU)
    }

    tokenize: Tokenizer = "script"
    """`script`: as `13a`, but each character of a script without spaces is a word; others are sacrebleu's."""
    smooth: Smoothing = "exp"
    """How to count an order of n-grams without a match."""

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
        """E.g. `bleu|tok:script|smooth:exp|case:keep|unicode:nfc|sacrebleu:2.6.0|v1`."""
        return self.describe(f"tok:{self.tokenize}", f"smooth:{self.smooth}")

    def _names(self) -> tuple[str, ...]:
        return _BLEU_NAMES

    def _count(self, answer: str, expected: Sequence[str]) -> Sequence[float]:
        part = _tokenizer(self.tokenize)
        if self.tokenize == "script":
            answer, *expected = spaced([answer, *expected])
        said = part(answer)
        known = [said if text == answer else part(text) for text in expected]
        size = len(said)
        nearest = min((abs(size - len(words)), len(words)) for words in known)[1]
        every = [max(size - order, 0) for order in range(_ORDERS)]
        if said in known:
            return (size, nearest, *every, *every)
        number: dict[str, str] = {}
        text = spell(said, number)
        right = shared_ngrams(text, [spell(words, number) for words in known], _ORDERS)
        return (size, nearest, *right, *every)

    def _nothing(self, counts: Sequence[float], answer: str, expected: Sequence[str]) -> bool:
        return not any(counts)

    def _of_one(self, counts: Sequence[float]) -> float:
        import numpy

        said, expected, right, total = counts[0], counts[1], counts[2:6], counts[6:10]
        if not any(right):
            return 0.0
        shares: list[float] = []
        missed = 0
        for order in range(_ORDERS):
            more = 1.0 if self.smooth == "add-k" and order else 0.0
            found, every = right[order] + more, total[order] + more
            if not every:  # longer ones are not counted
                break
            if not found:
                if self.smooth == "none":
                    return 0.0
                missed += 1
                found = 0.5**missed if self.smooth == "exp" else 0.1
            shares.append(found / every)
        # numpy's functions, as for sets: those of `math` may differ in the last bit.
        logarithm = numpy.add.reduce(numpy.log(shares)) / len(shares)
        brevity = numpy.exp(1 - expected / said) if said < expected else 1.0
        return float(100 * brevity * numpy.exp(logarithm))

    def _of(self, table: Any) -> Any:
        import numpy

        said, expected, right, total = table[0], table[1], table[2:6], table[6:10]
        some = right.any(axis=0)
        if self.smooth == "add-k":
            more = numpy.array([0.0, 1.0, 1.0, 1.0]).reshape(_ORDERS, *[1] * said.ndim)
            right, total = right + more, total + more
        # An order without n-grams ends the sum: the value is 0.
        reached = numpy.logical_and.accumulate(total > 0, axis=0)
        missed = reached & (right == 0)
        if self.smooth == "exp":
            right = numpy.where(missed, 0.5 ** numpy.cumsum(missed, axis=0), right)
        elif self.smooth == "floor":
            right = numpy.where(missed, 0.1, right)
        with numpy.errstate(divide="ignore", invalid="ignore"):
            logarithms = numpy.where(reached, numpy.log(right / total), -numpy.inf)
            brevity = numpy.where(said < expected, numpy.exp(1 - expected / said), 1.0)
        values = 100 * brevity * numpy.exp(logarithms.sum(axis=0) / _ORDERS)
        return numpy.where(some, values, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chrf(NgramMetric):
    """chrF: F-score of shared n-grams of characters (chrF++ with `word_order=2`: of words too); 0 to 100.

    Whitespace does not count. Precision and recall are means over the orders that answer and reference
    have. If there are several, the best score counts, the first of equals as in sacrebleu.
    """

    name: ClassVar[str] = "chrf"

    char_order: int = 6
    """Longest n-grams of characters."""
    word_order: int = 0
    """Longest n-grams of words; 0: none."""
    beta: int = 2
    """Weight of recall relative to precision."""

    def __post_init__(self) -> None:
        NgramMetric.__post_init__(self)
        for option, least in (("char_order", 1), ("word_order", 0), ("beta", 1)):
            value = getattr(self, option)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(
                    f"{option} is {value!r}; it must be a whole number, at least {least}"
                )

    @property
    def signature(self) -> str:
        """E.g. `chrf|char:6|word:0|beta:2|case:keep|unicode:nfc|sacrebleu:2.6.0|v1`."""
        orders = (f"char:{self.char_order}", f"word:{self.word_order}", f"beta:{self.beta}")
        return self.describe(*orders)

    def _names(self) -> tuple[str, ...]:
        return _chrf_names(self.char_order, self.word_order)

    def _count(self, answer: str, expected: Sequence[str]) -> Sequence[float]:
        found = [self._against(answer, text) for text in expected]
        return found[0] if len(found) == 1 else max(found, key=self._of_one)

    def _against(self, answer: str, text: str) -> list[float]:
        """Counts of one reference: n-grams said, expected and shared, order by order."""
        found: list[float] = []
        said, known = "".join(answer.split()), "".join(text.split())
        _triples(said, known, self.char_order, found)
        if self.word_order:
            number: dict[str, str] = {}
            said, known = (spell(_chrf_words(one), number) for one in (answer, text))
            _triples(said, known, self.word_order, found)
        return found

    def _nothing(self, counts: Sequence[float], answer: str, expected: Sequence[str]) -> bool:
        # The counts do not tell: sacrebleu leaves out what is said where nothing is expected.
        return not answer.strip() and any(not text.strip() for text in expected)

    def _of_one(self, counts: Sequence[float]) -> float:
        import numpy

        orders = 0
        precisions, recalls = [], []
        for said, expected, shared in zip(counts[0::3], counts[1::3], counts[2::3], strict=True):
            both = said > 0 and expected > 0
            orders += both
            precisions.append(shared / said if both else 0.0)
            recalls.append(shared / expected if both else 0.0)
        if not any(precisions):
            return 0.0
        # Added up by numpy, as for sets: the order of the terms decides the last bit.
        precision = float(numpy.add.reduce(precisions)) / orders
        recall = float(numpy.add.reduce(recalls)) / orders
        weight = self.beta**2
        return 100 * ((1 + weight) * precision * recall / (weight * precision + recall))

    def _of(self, table: Any) -> Any:
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
class RougeL(SampleMetric):
    """ROUGE-L: F1 of the longest common subsequence of words; per sample the best reference, then the mean.

    Punctuation and spaces part words and fall away: "a.b" is two words and "1,000" too. A text that has
    nothing else is compared by its characters. Two empty texts are 1, in rouge-score 0.
    """

    name: ClassVar[str] = "rouge_l"
    dialects: ClassVar[Mapping[str, Dialect]] = {
        "rouge-score": Dialect({"words": "ascii", "unicode": "none"}, ROUGE_SCORE)
    }

    words: RougeWords = "script"
    """`script`: words of any script, one character where it has no spaces; `ascii`: runs of a-z and 0-9."""
    case: Case = "lower"
    """Whether case counts."""
    unicode: UnicodeForm = "nfc"
    """Unicode normal form."""
    compat: str = ""
    """Compute the metric as this other kit does, see `dialects`."""

    def __post_init__(self) -> None:
        take_dialect(self)
        one_of("words", self.words, get_args(RougeWords))
        one_of("case", self.case, get_args(Case))
        one_of("unicode", self.unicode, get_args(UnicodeForm))

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """F1 in [0, 1] with the closest reference, over 1. No text scores 0."""
        read = read_text(prediction)
        answer = _comparable(read or "", self.unicode, self.case)
        said: list[str] | None = None
        most = 0.0
        for reference in acceptable(self.name, references):
            text = reference_text(self.name, reference)
            expected = _comparable(text, self.unicode, self.case)
            if expected == answer and not self.compat:
                most = 1.0
            elif read is not None and most < 1:
                said = self._words(answer) if said is None else said
                most = max(most, self._share(said, self._words(expected)))
        return over_one(0.0 if read is None else most)

    @property
    def signature(self) -> str:
        """E.g. `rouge_l|words:script|case:lower|unicode:nfc|v2`."""
        options = [f"words:{self.words}", f"case:{self.case}", f"unicode:{self.unicode}"]
        if self.compat:
            return "|".join((self.name, *options, f"compat:{self.compat}", "v1"))
        return "|".join((self.name, *options, "v2"))

    def _words(self, text: str) -> list[str]:
        if self.words == "script":
            return script_words(text)
        # In rouge-score all texts without a word are alike, and worth 0.
        return ascii_words(text) or ([] if self.compat else characters(text))

    def _share(self, said: list[str], expected: list[str]) -> float:
        if said == expected:
            return 1.0 if said or not self.compat else 0.0
        if not said or not expected:
            return 0.0
        number: dict[str, str] = {}
        common = _common()(spell(said, number), spell(expected, number))
        if not common:
            return 0.0
        precision, recall = common / len(said), common / len(expected)
        return float(2 * precision * recall / (precision + recall))


def _comparable(text: str, unicode: UnicodeForm, case: Case) -> str:
    text = compose(text, unicode)
    return text.lower() if case == "lower" else text


def shared_ngrams(said: str, expected: Sequence[str], longest: int) -> list[int]:
    """How many n-grams of 1 to `longest` characters a text shares with others.

    Each counts at most as often as the one text has it that has it most often.
    """
    found = [0] * longest
    for size in range(1, longest + 1):
        left: dict[str, int] = {}
        for text in expected:
            counts: dict[str, int] = {} if left else left
            for at in range(len(text) - size + 1):
                gram = text[at : at + size]
                counts[gram] = counts.get(gram, 0) + 1
            if counts is not left:
                for gram, count in counts.items():
                    if count > left.get(gram, 0):
                        left[gram] = count
        shared = 0
        for at in range(len(said) - size + 1):
            gram = said[at : at + size]
            count = left.get(gram, 0)
            if count:
                left[gram] = count - 1
                shared += 1
        if not shared:  # nor do they share a longer one
            break
        found[size - 1] = shared
    return found


def _triples(said: str, expected: str, longest: int, found: list[float]) -> None:
    """n-grams said, expected and shared, for orders 1 to `longest`, at the end of `found`."""
    shared = None if said == expected else shared_ngrams(said, [expected], longest)
    for order in range(longest):
        known = max(len(expected) - order, 0)
        every = max(len(said) - order, 0) if known else 0
        found += every, known, known if shared is None else shared[order]


def _chrf_words(text: str) -> list[str]:
    """Words of chrF++: one mark of punctuation at the end of a word, else at its start, is a word."""
    found: list[str] = []
    for word in text.split():
        if len(word) > 1 and word[-1] in string.punctuation:
            found += word[:-1], word[-1]
        elif len(word) > 1 and word[0] in string.punctuation:
            found += word[0], word[1:]
        else:
            found.append(word)
    return found


def words_of_13a(text: str) -> list[str]:
    """Words as NIST's script mteval-v13a.pl parts them.

    Punctuation of ASCII is separated from its neighbours, except the apostrophe; full stops and commas not
    between digits; hyphens only after a digit. The rules apply one after the other.
    """
    text = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    if "&" in text:
        for written, meant in _ENTITIES:
            text = text.replace(written, meant)
    text = " ".join(_PUNCTUATION.split(f" {text} "))
    if "." in text or "," in text:
        text = _AFTER_NO_DIGIT.sub(r"\1 \2 ", text)
        text = _BEFORE_NO_DIGIT.sub(r" \1 \2", text)
    if "-" in text:
        text = _HYPHEN.sub(r"\1 - ", text)
    return text.split()


_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
_PUNCTUATION = re.compile(r"([!-&(-+/:-@\[-`{-~])")
_AFTER_NO_DIGIT = re.compile(r"([^0-9])([.,])")
_BEFORE_NO_DIGIT = re.compile(r"([.,])([^0-9])")
_HYPHEN = re.compile(r"([0-9])-")

_ORDERS = 4
_BLEU_NAMES = (
    "said",
    "expected",
    *(f"right{order}" for order in range(1, _ORDERS + 1)),
    *(f"all{order}" for order in range(1, _ORDERS + 1)),
)


@functools.cache
def _chrf_names(characters: int, words: int) -> tuple[str, ...]:
    orders = [f"c{order}" for order in range(1, characters + 1)]
    orders += [f"w{order}" for order in range(1, words + 1)]
    return tuple(f"{what}_{order}" for order in orders for what in ("said", "expected", "shared"))


@functools.cache
def _tokenizer(name: str) -> Callable[[str], list[str]]:
    """Parts a text into words; those that are not written here are sacrebleu's."""
    if name in ("script", "13a"):
        return words_of_13a
    if name == "none":
        return str.split
    from sacrebleu import BLEU

    part = BLEU(tokenize=name, force=True).tokenizer
    return lambda text: list(part(text.rstrip()).split())


@functools.cache
def _common() -> Callable[..., Any]:
    """rapidfuzz's length of the longest common subsequence, loaded when first used."""
    from rapidfuzz.distance import LCSseq

    return LCSseq.similarity


@functools.cache
def _version() -> str:
    return importlib.metadata.version("sacrebleu")
