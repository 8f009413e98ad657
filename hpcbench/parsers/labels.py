"""A label out of a known list, as answers name it.

In this order, and no further: (1) the answer is the label; (2) it is a JSON object with one text in it, which
is the label; (3) it is the letter or number of an option, alone or before its name (`B`, `(b)`, `2.`,
`B) invoice`), where no label is itself so short; (4) a sentence introduces it (`The answer is B`, `Ответ:
счёт`, `\\boxed{B}`); (5) exactly one label stands in the answer as whole words. Case, punctuation and marks
of Markdown do not count. Two labels are none: `not an invoice but a receipt` is not guessed at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache

NONE = "no label of the list"
SEVERAL = "several labels"

_AROUND = " \t\r\n.,;:!?\"'`*_()[]{}<>«»“”„’‘"
_INTRODUCED = re.compile(
    r"(?:(?:the\s+)?(?:correct\s+|final\s+|right\s+)?(?:answer|label|class|category|type|option)\b"
    r"|(?:правильный\s+|верный\s+)?(?:ответ|класс|категория|тип|метка|вариант)\b)"
    r"[^\S\n]{0,3}(?:(?:is|это|[—–-])(?=\W)[^\S\n]{0,3})?:?[^\S\n]{0,3}(?P<what>[^\n]{1,300})"
    r"|\\boxed\{(?P<boxed>[^{}\n]{1,300})\}",
    re.IGNORECASE,
)
_OPTION = re.compile(
    r"[(\[]?(?P<mark>[A-Za-zА-Яа-я]|\d{1,3})(?:[)\].:]+\s*(?P<name>.*))?", re.DOTALL
)
_CYRILLIC = "абвгдежзиклмнопрстуфхцчшщэюя"
_LATIN = "abcdefghijklmnopqrstuvwxyz"


def read_label(text: str, labels: Sequence[str]) -> tuple[str | None, str]:
    """The label of the list that an answer names, as the list writes it, else None and why."""
    known = _Known.of(tuple(labels))
    found = known.named(text) or known.named(_only_text(text)) or known.option(text)
    if found is None:
        for match in reversed(list(_INTRODUCED.finditer(text))):
            what = match["what"] or match["boxed"]
            found = known.named(what) or known.option(what.strip()) or known.first(what)
            if found is not None:
                break
    if found is not None:
        return found, ""
    if known.contradicts(text):
        return None, SEVERAL
    within = known.within(text)
    return (within.pop(), "") if len(within) == 1 else (None, SEVERAL if within else NONE)


class _Known:
    def __init__(self, labels: tuple[str, ...]) -> None:
        self.labels = labels
        self.by_name = {plain(one): one for one in labels}
        self.marked = all(
            len(name) > 3 or not name.isdigit() and len(name) > 1 for name in self.by_name
        )
        longest_first = sorted((name for name in self.by_name if name), key=len, reverse=True)
        self.words = re.compile(
            rf"(?<!\w)(?:{'|'.join(re.escape(one) for one in longest_first) or '(?!)'})(?!\w)"
        )

    @staticmethod
    @lru_cache(maxsize=256)
    def of(labels: tuple[str, ...]) -> _Known:
        return _Known(labels)

    def named(self, text: str | None) -> str | None:
        return None if text is None or len(text) > 2000 else self.by_name.get(plain(text))

    def option(self, text: str) -> str | None:
        """The label whose letter or number this is; one whose name follows must have that name."""
        match = _OPTION.fullmatch(text.strip(" \t\r\n*_`\"'")) if len(text) < 2000 else None
        if match is None or not self.marked:
            return None
        mark = match["mark"].lower()
        place = (
            int(mark) - 1
            if mark.isdigit()
            else (_LATIN if mark in _LATIN else _CYRILLIC).find(mark)
        )
        if not 0 <= place < len(self.labels):
            return None
        named = plain(match["name"] or "")
        return self.labels[place] if not named or named == plain(self.labels[place]) else None

    def contradicts(self, text: str) -> bool:
        """Whether it is an option's letter before the name of another."""
        match = _OPTION.fullmatch(text.strip()) if len(text) < 2000 else None
        return self.marked and match is not None and plain(match["name"] or "") in self.by_name

    def first(self, text: str) -> str | None:
        """The label that a text begins with."""
        match = self.words.match(plain(text))
        return None if match is None else self.by_name[match.group()]

    def within(self, text: str) -> set[str]:
        """All labels that stand in a text as whole words; one inside another does not count."""
        return {self.by_name[one] for one in self.words.findall(" ".join(text.casefold().split()))}


def plain(text: str) -> str:
    """A label as it is compared."""
    return " ".join(text.casefold().split()).strip(_AROUND)


def _only_text(text: str) -> str | None:
    """The text of an object that holds one."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    texts = list(value.values()) if isinstance(value, dict) else []
    return texts[0] if len(texts) == 1 and isinstance(texts[0], str) else None
