"""Text in the form for comparisons: casefolded, normalized, without characters that databases refuse."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_BETWEEN = re.compile(r"[\W_]+|(?<=[^\W\d_])(?=\d)")
_CANNOT = re.compile("[\x00\ud800-\udfff]")

LONGEST = 200
"""Longest search text or name, characters."""

MOST_WORDS = 8
"""Most words of a search text or name."""


def clean(text: str) -> str:
    """Text without NUL and unpaired surrogates, which databases refuse."""
    return _CANNOT.sub("\ufffd", text)


def folded(text: str) -> str:
    """Text in the form for comparison: casefolded, with one form of each character."""
    return unicodedata.normalize("NFKC", clean(text)).casefold()


def asked(text: str) -> list[str]:
    """The words of a search, in the form for comparison."""
    return folded(text[:LONGEST]).split()[:MOST_WORDS]


@lru_cache(maxsize=4096)
def heads(name: str) -> tuple[str, ...]:
    """Texts from each word and number of a name on: `a-b7` → `a-b7`, `b7`, `7`; at most eight."""
    text = folded(name)[:LONGEST]
    begins = [0, *(match.end() for match in _BETWEEN.finditer(text))]
    found = [text[begin:] for begin in dict.fromkeys(begins) if begin < len(text)]
    return tuple(found[:MOST_WORDS])
