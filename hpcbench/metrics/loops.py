"""How many answers end in a loop: the way long readings of pages go wrong without a wrong character in them.

The DeepSeek-OCR-2 paper reports such a rate for its readings of pages without ground truth, but does not
define it; the definition here is ours. An answer repeats if it ends in at least `TIMES` copies of one piece
of text, the last of them perhaps cut off, that are `LENGTH` characters or more together. Said without
pieces: for some period p, the last L characters all equal the one p before, L >= TIMES * p and L >= LENGTH.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hpcbench.metrics.base import Parts
from hpcbench.metrics.normalise import (
    TextMetric,
    Whitespace,
    read_text,
    reference_text,
)

LENGTH = 100
"""Characters of a loop, at least."""
TIMES = 4
"""Copies in a loop, at least: three alike lines happen on pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition(TextMetric):
    """Share of answers that end in a loop; an answer whose reference also ends in a loop is left out.

    No text counts as one. A loop that the answer gets out of is not seen.
    """

    name: ClassVar[str] = "repetition"
    higher_is_better: ClassVar[bool] = False
    accepts: ClassVar[tuple[str, ...]] = ("text",)

    whitespace: Whitespace = "collapse"

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """1 if the answer ends in a loop and no reference does, else 0; over 1."""
        if not references:
            raise ValueError(f"{self.name} needs at least one reference")
        expected = [reference_text(self.name, reference) for reference in references]
        answer = read_text(prediction)
        if answer is None:
            return Parts(1, 1)
        repeats = self.loop(answer) > 0 and not any(self.loop(text) for text in expected)
        return Parts(float(repeats), 1)

    @property
    def signature(self) -> str:
        """E.g. `repetition|len:100|times:4|case:keep|ws:collapse|unicode:nfc|v1`."""
        return self.describe(self.name, f"len:{LENGTH}", f"times:{TIMES}")

    def loop(self, text: str) -> int:
        """Length of the loop a text ends in, in characters of the normalised text; 0: none."""
        backwards = self.normalise(text)[::-1]
        longest = 0
        for period, more in enumerate(_prefixes(backwards)):
            length = period + more
            if period and length >= max(TIMES * period, LENGTH):
                longest = max(longest, length)
        return longest


def _prefixes(text: str) -> list[int]:
    """For each place, how many characters from there on equal those from the start on: the Z-function.

    Linear in the text: D. Gusfield, Algorithms on Strings, Trees and Sequences, 1997, section 1.3.
    """
    size = len(text)
    found = [0] * size
    left = right = 0  # the stretch text[left:right] equals the text's start, right as far as known
    for at in range(1, size):
        length = min(right - at, found[at - left]) if at < right else 0
        while at + length < size and text[length] == text[at + length]:
            length += 1
        found[at] = length
        if at + length > right:
            left, right = at, at + length
    return found
