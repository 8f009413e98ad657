"""Text as the index compares it: without capitals, accents of no account, or what databases cannot hold."""

from __future__ import annotations

import re
import unicodedata

_BETWEEN = re.compile(r"[\W_]+|(?<=[^\W\d_])(?=\d)")
_CANNOT = re.compile("[\x00\ud800-\udfff]")

LONGEST = 200
"""Characters of a text that is searched for."""

MOST_WORDS = 8
"""Words of a text that is searched for."""


def clean(text: str) -> str:
    """Without NUL and halves of surrogate pairs, which databases refuse."""
    return _CANNOT.sub("\ufffd", text)


def folded(text: str) -> str:
    """As it is compared: small letters, one form of each."""
    return unicodedata.normalize("NFKC", clean(text)).casefold()


def asked(text: str) -> list[str]:
    """The words of a search, as they are compared."""
    return folded(text[:LONGEST]).split()[:MOST_WORDS]


def heads(name: str) -> list[str]:
    """What begins at each word and number of a name: `a-b7` → `a-b7`, `b7`, `7`; at most eight."""
    text = folded(name)[:LONGEST]
    begins = [0, *(match.end() for match in _BETWEEN.finditer(text))]
    return [text[begin:] for begin in dict.fromkeys(begins) if begin < len(text)][:MOST_WORDS]
