"""Metrics over texts by characters and words: equality, containment, edit distances.

ANLS: Biten et al. 2019, "Scene Text Visual Question Answering" (arXiv 1905.13648), as the official DocVQA
code computes it. We differ from that code in one place: it divides by the length of the *raw* texts, so
that padding an answer with spaces raises its score ("xx" and 8 spaces against "yy" gets 0.8); we divide by
the length of what is compared. `compat="docvqa-official"` gives the official numbers to the bit.

CER, WER: (substitutions + deletions + insertions) / length of the reference, in code points and in words;
defaults and edge cases are jiwer's (4.0). A set of samples is a ratio of sums.

Normalised edit distance: the same edits / the longer of both lengths, in [0, 1] (OmniDocBench's edit_dist).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from hpcbench.metrics.base import (
    Aggregation,
    Bounds,
    Parts,
    acceptable,
    best,
    divide,
    over_one,
    take_dialect,
)
from hpcbench.metrics.kits import ANLS, DOCVQA, JIWER, LMMS_EVAL, MTVQA, ST_VQA, VLMEVALKIT, Dialect
from hpcbench.metrics.normalise import (
    Case,
    TextMetric,
    TextOptions,
    Whitespace,
    one_of,
    read_text,
    reference_text,
)
from hpcbench.metrics.words import goes_on, spaced, spell

WerWords = Literal["spaces", "script"]
"""Definition of a word for WER.

`spaces` what is between spaces, as in jiwer · `script` the same, but in scripts without spaces each character
is a word, and so is their punctuation
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactMatch(TextMetric):
    """1 if the prediction equals a reference, else 0; over samples the mean. Case counts.

    Signature: `exact_match|case:keep|ws:strip|unicode:nfc|v1`.
    """

    name: ClassVar[str] = "exact_match"

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """0 or 1, over 1. No text scores 0, even where an empty one is expected."""
        read = read_text(prediction)
        answer = None if read is None else self.normalise(read)
        equal = False
        for reference in acceptable(self.name, references):
            if self.normalise(reference_text(self.name, reference)) == answer:
                equal = True
        return over_one(equal)


Stops = Literal["keep", "answer", "both"]
"""Full stops that are dropped before texts are compared: none, the answer's, those of both sides."""

_BOTH_STOPS = {"stops": "both", "whitespace": "strip", "unicode": "none"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contains(TextMetric):
    """1 if the prediction contains a reference, else 0; over samples the mean.

    For answers in sentences. It forgives anything beside the reference, so a model that lists many answers
    does well. An empty reference, which every text contains, matches only an empty prediction.
    """

    name: ClassVar[str] = "contains"

    dialects: ClassVar[Mapping[str, Dialect]] = {
        "mtvqa": Dialect(
            {"stops": "answer", "whitespace": "strip", "unicode": "none"},
            MTVQA,
            ("scripts/acc.py",),
        ),
        "vlmevalkit": Dialect(_BOTH_STOPS, VLMEVALKIT, ("vlmeval/dataset/image_vqa.py",)),
        "lmms-eval": Dialect(_BOTH_STOPS, LMMS_EVAL, ("lmms_eval/tasks/mtvqa/utils.py",)),
    }
    """All are rules of MTVQA; an empty reference is in every answer."""

    words: bool = False
    """Whether only whole words match: then "another" does not contain "no", nor "112" "12".

    In scripts without spaces each character is a word, so that "天气" is in "今天天气很好".
    """
    stops: Stops = "keep"
    """Whether full stops go: from the `answer`, or from `both`, so that "12.5" is "125" there."""
    case: Case = "lower"
    whitespace: Whitespace = "collapse"
    compat: str = ""
    """Compute the metric as this kit does for MTVQA: mtvqa, its publishers' script; vlmevalkit, lmms-eval."""

    def __post_init__(self) -> None:
        take_dialect(self)
        TextOptions.__post_init__(self)
        one_of("stops", self.stops, get_args(Stops))

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """0 or 1, over 1. No text scores 0."""
        read = read_text(prediction)
        answer = None if read is None else self.normalise(read)
        if answer is not None and self.stops != "keep":
            answer = answer.replace(".", "")
        found = False
        for reference in acceptable(self.name, references):
            expected = self.normalise(reference_text(self.name, reference))
            if self.stops == "both":
                expected = expected.replace(".", "")
            if answer is None or found:
                continue
            if not expected and not self.compat:
                found = not answer
            elif self.words:
                found = _stands_alone(expected, answer)
            else:
                found = expected in answer
        return over_one(found)

    @property
    def signature(self) -> str:
        """E.g. `contains|words:any|case:lower|ws:collapse|unicode:nfc|v1`; of whole words it is v2."""
        own = () if self.stops == "keep" else (f"stops:{self.stops}",)
        if self.words:
            options, _, _ = self.describe(self.name, "words:whole", *own).rpartition("|")
            return f"{options}|v2"
        return self.describe(self.name, "words:any", *own)


_OFFICIAL = {"raw_length": True, "unicode": "none"}
"""The evaluation code of the DocVQA challenge, which lmms-eval and VLMEvalKit copied."""
_PAPER = {"inclusive": False, "unicode": "none"}
"""Biten et al. 2019, equation 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anls(TextMetric):
    """Average normalised Levenshtein similarity: 1 - distance / longer length, 0 below `tau`.

    Per sample the best reference, over samples the mean. Both texts empty is 1.
    """

    name: ClassVar[str] = "anls"
    dialects: ClassVar[Mapping[str, Dialect]] = {
        "docvqa-official": Dialect(_OFFICIAL, DOCVQA, ("eval_mm/infographicsvqa_eval.py",)),
        "lmms-eval": Dialect(_OFFICIAL, LMMS_EVAL, ("lmms_eval/api/metrics.py",)),
        "vlmevalkit": Dialect(_OFFICIAL, VLMEVALKIT, ("vlmeval/dataset/utils/vqa_eval.py",)),
        # The length is that of the compared text in upper case.
        "anls-0.0.2": Dialect(_PAPER, ANLS, ("anls/metrics/score.py",)),
        # The paper does not mention case and whitespace.
        "st-vqa-paper": Dialect(_PAPER, ST_VQA),
    }

    tau: float = 0.5
    """Similarities below it count as 0."""
    inclusive: bool = True
    """Whether a similarity of exactly `tau` counts: yes in the official code, no in the paper."""
    raw_length: bool = False
    """Divide by the length before whitespace is dropped, as the official code does."""
    case: Case = "lower"
    whitespace: Whitespace = "collapse"
    compat: str = ""
    """Compute the metric as this other kit does, see `dialects`."""

    def __post_init__(self) -> None:
        take_dialect(self)
        TextOptions.__post_init__(self)
        if not 0 <= self.tau <= 1:
            raise ValueError(f"tau is {self.tau}; it must be between 0 and 1")

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Similarity in [0, 1] to the closest reference, over 1. No text scores 0."""
        read = read_text(prediction)
        answer = "" if read is None else self.normalise(read)
        most = 0.0
        for reference in acceptable(self.name, references):
            expected = reference_text(self.name, reference)
            if read is None or most == 1:
                continue
            compared = self.normalise(expected)
            if answer == compared:
                most = 1.0
            else:
                length = max(len(answer), len(compared))
                if self.raw_length:
                    length = _upper_length(self.compose(read), self.compose(expected))
                elif self.compat == "anls-0.0.2":
                    length = _upper_length(answer, compared)
                most = max(most, self._similarity(answer, compared, length))
        return over_one(most)

    @property
    def signature(self) -> str:
        """E.g. `anls|tau:0.5|incl|len:norm|case:lower|ws:collapse|unicode:nfc|v1`."""
        threshold = "incl" if self.inclusive else "excl"
        length = "raw" if self.raw_length else "upper" if self.compat == "anls-0.0.2" else "norm"
        return self.describe(self.name, f"tau:{self.tau:g}", threshold, f"len:{length}")

    def _similarity(self, first: str, second: str, length: int) -> float:
        # Beyond this distance the similarity is below tau, whatever is rounded; the search stops there.
        enough = int((1 - self.tau) * length) + 1
        similarity = 1 - _distance()(first, second, score_cutoff=enough) / length if length else 0.0
        kept = similarity >= self.tau if self.inclusive else similarity > self.tau
        return similarity if kept and similarity > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cer(TextMetric):
    """Character error rate: edits that turn the reference into the prediction / its characters.

    Case, punctuation and inner whitespace count. Can exceed 1. A ratio of sums: an empty reference adds
    its insertions to the numerator and 0 to the denominator; where all references are empty, the rate is
    the number of insertions (jiwer). Signature: `cer|case:keep|ws:strip|unicode:nfc|v1`.
    """

    name: ClassVar[str] = "cer"
    higher_is_better: ClassVar[bool] = False
    aggregation: ClassVar[Aggregation] = "ratio"
    bounds: ClassVar[Bounds] = (0.0, None)
    dialects: ClassVar[Mapping[str, Dialect]] = {"jiwer": Dialect({"unicode": "none"}, JIWER)}

    compat: str = ""
    """Compute the metric as this other kit does, see `dialects`."""

    def __post_init__(self) -> None:
        take_dialect(self)
        TextOptions.__post_init__(self)

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Edits over code points of the reference with the lowest rate (if equal, the shorter one).

        No text is scored as an empty one: everything is missing.
        """
        answer = self.normalise(read_text(prediction) or "")

        def cost(reference: object) -> tuple[float, float, Parts]:
            return _errors(self.normalise(reference_text(self.name, reference)), answer)

        return best(self.name, references, cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wer(TextMetric):
    """Word error rate: like `Cer`, over the words between spaces.

    As in jiwer, a lone tab or newline does *not* part words ("a⇥b" is one word), two whitespace
    characters in a row do; for pages of text set `whitespace="collapse"`, where all whitespace does.
    A Chinese sentence is one word, and one wrong character is a rate of 1: take `words="script"`, which
    the literature calls mixed error rate, or `Cer`.
    """

    name: ClassVar[str] = "wer"
    higher_is_better: ClassVar[bool] = False
    aggregation: ClassVar[Aggregation] = "ratio"
    bounds: ClassVar[Bounds] = (0.0, None)
    dialects: ClassVar[Mapping[str, Dialect]] = {"jiwer": Dialect({"unicode": "none"}, JIWER)}

    words: WerWords = "spaces"
    """`spaces`: what is between spaces; `script`: the same, but one character where a script has none."""
    whitespace: Whitespace = "runs"
    compat: str = ""
    """Compute the metric as this other kit does, see `dialects`."""

    def __post_init__(self) -> None:
        take_dialect(self)
        TextOptions.__post_init__(self)
        one_of("words", self.words, get_args(WerWords))

    @property
    def signature(self) -> str:
        """E.g. `wer|case:keep|ws:runs|unicode:nfc|v1`, or `wer|words:script|case:keep|…|v1`."""
        return self.describe(self.name, *([] if self.words == "spaces" else ["words:script"]))

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Edits over words of the reference with the lowest rate (if equal, the shorter one).

        No text is scored as an empty one: everything is missing.
        """
        known = acceptable(self.name, references)
        texts = [read_text(prediction) or "", *(reference_text(self.name, one) for one in known)]
        if self.words == "script":
            texts = spaced([self.compose(text) for text in texts])
        number: dict[str, str] = {}
        answer, *expected = [
            spell(filter(None, self.normalise(text).split(" ")), number) for text in texts
        ]
        return best(self.name, expected, lambda one: _errors(one, answer))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ned(TextMetric):
    """Normalised edit distance: edits / the longer of both lengths, in [0, 1]; over samples the mean.

    Case, punctuation and inner whitespace count. Both texts empty is 0. Symmetric, unlike `Cer`.
    Signature: `ned|case:keep|ws:strip|unicode:nfc|v1`.
    """

    name: ClassVar[str] = "ned"
    higher_is_better: ClassVar[bool] = False

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Distance to the closest reference, over 1. No text scores 1."""
        read = read_text(prediction)
        parts = self._closest("" if read is None else self.normalise(read), references)
        return over_one(1.0 if read is None else divide(parts.numerator, parts.denominator))

    def _closest(self, answer: str, references: Sequence[object]) -> Parts:
        """Edits over the longer length, of the reference where this is least; if equal, the shorter one."""

        def cost(reference: object) -> tuple[float, float, Parts]:
            expected = self.normalise(reference_text(self.name, reference))
            longer = max(len(expected), len(answer))
            edits = _distance()(expected, answer)
            return divide(edits, longer), longer, Parts(edits, longer)

        return best(self.name, references, cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class NedMicro(Ned):
    """Normalised edit distance of a set: all edits / all longer lengths, so that long texts weigh more.

    As OmniDocBench weighs the blocks of a page. Signature: `ned_micro|case:keep|ws:strip|unicode:nfc|v1`.
    """

    name: ClassVar[str] = "ned_micro"
    aggregation: ClassVar[Aggregation] = "ratio"

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Edits over the longer length. No text is scored as an empty one: everything is missing."""
        return self._closest(self.normalise(read_text(prediction) or ""), references)


def _upper_length(*texts: str) -> int:
    """Length of the longer text in upper case, where "ß" counts twice: so others measure them."""
    return max(len(text.upper()) for text in texts)


def _stands_alone(piece: str, text: str) -> bool:
    """Whether a text contains a piece, not empty, where no word continues at either end of it."""
    at = text.find(piece)
    while at >= 0:
        end = at + len(piece)
        before, after = text[max(at - 1, 0) : at], text[end : end + 1]
        if not (goes_on(before, piece[0]) or goes_on(piece[-1], after)):
            return True
        at = text.find(piece, at + 1)
    return False


def _errors(expected: Sequence[Hashable], answer: Sequence[Hashable]) -> tuple[float, float, Parts]:
    """(rate, length of the reference, parts) between two texts or two lists."""
    errors = _distance()(expected, answer)
    return divide(errors, len(expected)), len(expected), Parts(errors, len(expected))


@functools.cache
def _distance() -> Callable[..., Any]:
    """rapidfuzz's Levenshtein distance, loaded when first used."""
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.distance
