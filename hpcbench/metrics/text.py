"""Metrics over texts: ANLS, character and word error rate, exact match.

ANLS: Biten et al. 2019, "Scene Text Visual Question Answering" (arXiv 1905.13648), as the official DocVQA
code computes it. We differ from that code in one place: it divides by the length of the *raw* texts, so
that padding an answer with spaces raises its score ("xx" and 8 spaces against "yy" gets 0.8); we divide by
the length of what is compared. `raw_length=True, unicode="none"` gives the official numbers to the bit.

CER, WER: (substitutions + deletions + insertions) / length of the reference, in code points and in words;
defaults and edge cases are jiwer's (4.0). A set of samples is a ratio of sums.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hpcbench.metrics.base import Aggregation, Bounds, Parts, best, divide, ratio_of_sums
from hpcbench.metrics.normalise import (
    Case,
    TextOptions,
    Whitespace,
    read_text,
    reference_text,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anls(TextOptions):
    """Average normalised Levenshtein similarity: 1 - distance / longer length, 0 below `tau`.

    Per sample the best reference, over samples the mean. Both texts empty is 1.
    """

    api: ClassVar[int] = 1
    name: ClassVar[str] = "anls"
    higher_is_better: ClassVar[bool] = True
    accepts: ClassVar[tuple[str, ...]] = ("text", "label")
    aggregation: ClassVar[Aggregation] = "mean"
    bounds: ClassVar[Bounds] = (0.0, 1.0)

    tau: float = 0.5
    """Similarities below it count as 0."""
    inclusive: bool = True
    """Does a similarity of exactly `tau` stay: yes in the official code, no in the paper."""
    raw_length: bool = False
    """Divide by the length before whitespace is dropped, as the official code does."""
    case: Case = "lower"
    whitespace: Whitespace = "collapse"

    def __post_init__(self) -> None:
        TextOptions.__post_init__(self)
        if not 0 <= self.tau <= 1:
            raise ValueError(f"tau is {self.tau}; it lies between 0 and 1")

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Similarity in [0, 1] to the closest reference, over 1. No text scores 0."""
        answer = read_text(prediction)

        def cost(reference: object) -> tuple[float, float, Parts]:
            expected = reference_text(self.name, reference)
            similarity = 0.0 if answer is None else self._similarity(answer, expected)
            return -similarity, 0, Parts(similarity, 1)

        return best(self.name, references, cost)

    def aggregate(self, parts: Sequence[Parts]) -> float:
        """Mean over samples."""
        return ratio_of_sums(parts)

    @property
    def signature(self) -> str:
        """E.g. `anls|tau:0.5|incl|len:norm|case:lower|ws:collapse|unicode:nfc|v1`."""
        threshold = "incl" if self.inclusive else "excl"
        length = "raw" if self.raw_length else "norm"
        return self.describe(self.name, f"tau:{self.tau:g}", threshold, f"len:{length}")

    def _similarity(self, answer: str, expected: str) -> float:
        from rapidfuzz.distance import Levenshtein

        first, second = self.normalise(answer), self.normalise(expected)
        if self.raw_length:  # the official code takes the length in upper case: "ß" counts twice
            length = max(len(self.compose(text).upper()) for text in (answer, expected))
        else:
            length = max(len(first), len(second))
        similarity = 1 - Levenshtein.distance(first, second) / length if length else 1.0
        kept = similarity >= self.tau if self.inclusive else similarity > self.tau
        return max(similarity, 0.0) if kept else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cer(TextOptions):
    """Character error rate: edits that turn the reference into the prediction / its characters.

    Case, punctuation and inner whitespace count. Can exceed 1. A ratio of sums: an empty reference adds
    its insertions to the numerator and 0 to the denominator; where all references are empty, the rate is
    the number of insertions (jiwer).
    """

    api: ClassVar[int] = 1
    name: ClassVar[str] = "cer"
    higher_is_better: ClassVar[bool] = False
    accepts: ClassVar[tuple[str, ...]] = ("text", "label")
    aggregation: ClassVar[Aggregation] = "ratio"
    bounds: ClassVar[Bounds] = (0.0, None)

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Edits over code points of the reference with the lowest rate (if equal, the shorter one).

        No text is scored as an empty one: everything is missing.
        """
        answer = self.normalise(read_text(prediction) or "")

        def cost(reference: object) -> tuple[float, float, Parts]:
            return _errors(self.normalise(reference_text(self.name, reference)), answer)

        return best(self.name, references, cost)

    def aggregate(self, parts: Sequence[Parts]) -> float:
        """All edits over all reference characters."""
        return ratio_of_sums(parts)

    @property
    def signature(self) -> str:
        """E.g. `cer|case:keep|ws:strip|unicode:nfc|v1`."""
        return self.describe(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wer(TextOptions):
    """Word error rate: like `Cer`, over the words between spaces.

    As in jiwer, a lone tab or newline does *not* part words ("a⇥b" is one word), two whitespace
    characters in a row do; for pages of text set `whitespace="collapse"`, where all whitespace does.
    """

    api: ClassVar[int] = 1
    name: ClassVar[str] = "wer"
    higher_is_better: ClassVar[bool] = False
    accepts: ClassVar[tuple[str, ...]] = ("text", "label")
    aggregation: ClassVar[Aggregation] = "ratio"
    bounds: ClassVar[Bounds] = (0.0, None)

    whitespace: Whitespace = "runs"

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Edits over words of the reference with the lowest rate (if equal, the shorter one).

        No text is scored as an empty one: everything is missing.
        """
        # Words become numbers: rapidfuzz compares hashes, and those of small numbers cannot collide.
        number: dict[str, int] = {}
        answer = self._words(read_text(prediction) or "", number)

        def cost(reference: object) -> tuple[float, float, Parts]:
            return _errors(self._words(reference_text(self.name, reference), number), answer)

        return best(self.name, references, cost)

    def aggregate(self, parts: Sequence[Parts]) -> float:
        """All edits over all reference words."""
        return ratio_of_sums(parts)

    @property
    def signature(self) -> str:
        """E.g. `wer|case:keep|ws:runs|unicode:nfc|v1`."""
        return self.describe(self.name)

    def _words(self, text: str, number: dict[str, int]) -> list[int]:
        words = [word for word in self.normalise(text).split(" ") if word]
        return [number.setdefault(word, len(number)) for word in words]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactMatch(TextOptions):
    """1 if the prediction equals a reference, else 0; over samples the mean. Case counts."""

    api: ClassVar[int] = 1
    name: ClassVar[str] = "exact_match"
    higher_is_better: ClassVar[bool] = True
    accepts: ClassVar[tuple[str, ...]] = ("text", "label")
    aggregation: ClassVar[Aggregation] = "mean"
    bounds: ClassVar[Bounds] = (0.0, 1.0)

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """0 or 1, over 1. No text scores 0, even where an empty one is expected."""
        read = read_text(prediction)
        answer = None if read is None else self.normalise(read)

        def cost(reference: object) -> tuple[float, float, Parts]:
            equal = self.normalise(reference_text(self.name, reference)) == answer
            return -equal, 0, Parts(float(equal), 1)

        return best(self.name, references, cost)

    def aggregate(self, parts: Sequence[Parts]) -> float:
        """Mean over samples."""
        return ratio_of_sums(parts)

    @property
    def signature(self) -> str:
        """E.g. `exact_match|case:keep|ws:strip|unicode:nfc|v1`."""
        return self.describe(self.name)


def _errors(expected: Sequence[Hashable], answer: Sequence[Hashable]) -> tuple[float, float, Parts]:
    """(rate, length of the reference, parts) between two texts or two lists."""
    from rapidfuzz.distance import Levenshtein

    errors = Levenshtein.distance(expected, answer)
    return divide(errors, len(expected)), len(expected), Parts(errors, len(expected))
