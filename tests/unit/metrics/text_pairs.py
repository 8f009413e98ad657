"""Generated pairs of texts for holding metrics against the packages they follow."""

import random
import unicodedata
from collections.abc import Iterator

PIECES = [
    *"abcdeXYZ", *"абвгдЁЖй", *"0123456789", *" \t\n.,;-&$%€№", "ß", "İ", "é", "и\u0306", "１２", "ﬁ",
    "總", "計", "שלום", "مجموع", "🙂", "👩\u200d👧", "\u00a0", "\u200b", "  ", "\r\n", "<skipped>", "-\n",
    "&amp;", "the ", "total ", "итого ", "hello ", "мир ", "12.50 ", "1,000 ",
]  # fmt: skip
"""Characters and words of several scripts, and what distinguishes texts."""


def pairs(seed: int, count: int, longest: int = 12) -> Iterator[tuple[str, str]]:
    """(prediction, reference): alike texts and strangers, some empty, some padded."""
    chance = random.Random(seed)
    for _ in range(count):
        reference = text(chance, longest)
        kind = chance.random()
        if kind < 0.1:
            yield reference, reference
        elif kind < 0.7:
            yield damaged(chance, reference), reference
        else:
            yield text(chance, longest), reference


def text(chance: random.Random, longest: int) -> str:
    """A text of up to `longest` pieces."""
    return "".join(chance.choices(PIECES, k=chance.randrange(longest + 1)))


def damaged(chance: random.Random, reference: str) -> str:
    """A text that a model could have read instead."""
    rate = chance.choice((0.05, 0.2, 0.5))
    kept = [one if chance.random() > rate else chance.choice(PIECES) for one in reference]
    changed = "".join(one for one in kept if chance.random() > rate / 2)
    change = chance.randrange(6)
    if change == 0:
        return changed + " " * chance.randrange(9)
    if change == 1:
        return changed.upper()
    if change == 2:
        return unicodedata.normalize("NFD", changed)
    return changed
