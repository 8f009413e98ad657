"""Kinds of mistakes in wrong answers, by rules that need no metric: docs/scores.md states each.

    >>> mistake_of("124.50", ["1204.50"])
    'digit dropped'

An answer has at most one kind: of those that apply to it, the first in `MISTAKES`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

Mistake = Literal[
    "hallucinated field", "neighbouring field", "wrong language", "digit dropped", "digit changed",
    "truncated", "case or accent",
]  # fmt: skip
"""Kind of a mistake.

`hallucinated field` a field has a value, and the reference has none · `neighbouring field` a field has the
value of another field · `wrong language` most letters are of another script · `digit dropped` one or two
digits are missing, the rest is equal · `digit changed` one digit is another, the rest is equal · `truncated`
the answer is the beginning of the reference, or was cut at max_tokens · `case or accent` only case, accents
or white space differ.
"""

MISTAKES: tuple[Mistake, ...] = get_args(Mistake)
"""All kinds, the most telling first."""

SHORTEST_BEGINNING = 4
"""Characters that the beginning of a reference must have to count as `truncated`."""

FEWEST_LETTERS = 3
"""Letters that both texts must have to compare their scripts."""

DROPPED = 2
"""Most digits that may be missing for `digit dropped`."""

_SPACE = re.compile(r"\s+")
_NOT_DIGIT = re.compile(r"\D+")
_LETTER = re.compile(r"[^\W\d_]")

_SCRIPTS = {
    one: one
    for one in (
        "LATIN", "CYRILLIC", "GREEK", "ARABIC", "HEBREW", "DEVANAGARI", "THAI", "HANGUL", "BENGALI",
        "TAMIL", "GEORGIAN", "ARMENIAN",
    )
} | {"CJK": "CJK", "HIRAGANA": "CJK", "KATAKANA": "CJK"}  # fmt: skip
"""First word of a character's Unicode name → script; Japanese mixes three."""


def mistake_of(value: Any, references: Sequence[Any], truncated: bool = False) -> Mistake | None:
    """The kind of mistake in an answer.

    Args:
        value: the value that was read from the answer, a text or an object.
        references: acceptable values.
        truncated: the answer was cut at max_tokens.

    Returns:
        The kind; None: the answer equals a reference, there is none, or no rule applies.
    """
    if not references or not isinstance(value, (str, Mapping)) or value in references:
        return None
    found: set[Mistake] = {"truncated"} if truncated else set()
    for reference in references:
        if isinstance(value, Mapping) and isinstance(reference, Mapping):
            found.update(_of_fields(value, reference))
        elif isinstance(value, str) and isinstance(reference, str):
            found.update(_of_texts(value, reference))
    return next((kind for kind in MISTAKES if kind in found), None)


def _of_fields(value: Mapping[str, Any], reference: Mapping[str, Any]) -> Iterator[Mistake]:
    """Mistakes of an object, field by field."""
    wanted = {name: _plain(one) for name, one in reference.items()}
    for name, one in value.items():
        said, right = _plain(one), wanted.get(name, "")
        if not said or said == right:
            continue
        if not right:
            yield "hallucinated field"
        elif any(said == other for field, other in wanted.items() if field != name):
            yield "neighbouring field"
        else:
            yield from _of_texts(said, right)


def _of_texts(said: str, right: str) -> Iterator[Mistake]:
    """Mistakes of a text; nothing for equal texts."""
    if not said or not right or said == right:
        return
    mine, theirs = _folded(said), _folded(right)
    if mine == theirs:
        yield "case or accent"
        return
    if len(mine) >= SHORTEST_BEGINNING and theirs.startswith(mine):
        yield "truncated"
    if (kind := _of_digits(mine, theirs)) is not None:
        yield kind
    scripts = {_script(said), _script(right)}
    if len(scripts) == 2 and "" not in scripts:
        yield "wrong language"


def _of_digits(said: str, right: str) -> Mistake | None:
    """Whether digits alone differ: separators may differ too, letters may not."""
    if _letters(said) != _letters(right):
        return None
    mine, theirs = _NOT_DIGIT.sub("", said), _NOT_DIGIT.sub("", right)
    missing = len(theirs) - len(mine)
    if mine and 0 < missing <= DROPPED and _is_subsequence(mine, theirs):
        return "digit dropped"
    if not missing and sum(one != other for one, other in zip(mine, theirs, strict=True)) == 1:
        return "digit changed"
    return None


def _is_subsequence(part: str, whole: str) -> bool:
    rest = iter(whole)
    return all(one in rest for one in part)


def _plain(value: Any) -> str:
    """A field's value as text; empty for no value."""
    return "" if value is None else str(value).strip()


def _letters(text: str) -> str:
    return "".join(_LETTER.findall(text))


def _folded(text: str) -> str:
    """A text without case, accents and extra white space."""
    if not text.isascii():
        text = "".join(
            one for one in unicodedata.normalize("NFKD", text) if not unicodedata.combining(one)
        )
    return _SPACE.sub(" ", text.casefold()).strip()


def _script(text: str) -> str:
    """The script of most of a text's letters; empty where there are too few letters, or no majority."""
    letters = _LETTER.findall(text)
    if len(letters) < FEWEST_LETTERS:
        return ""
    if text.isascii():
        return "LATIN"
    counts: dict[str, int] = {}
    for one in letters:
        script = _SCRIPTS.get(unicodedata.name(one, "").partition(" ")[0], "")
        counts[script] = counts.get(script, 0) + 1
    most = max(counts, key=counts.__getitem__)
    return most if 2 * counts[most] > len(letters) else ""
