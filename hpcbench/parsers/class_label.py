"""The label of a known list that an answer names; an uncertain answer is refused with a reason.

An answer is read in this order:

1. It is the label, or the letter or number of an option, alone or before its name: `B`, `(b)`, `2.`,
   `B) invoice`.
2. It is JSON whose field for the answer holds a text of kind 1: `{"label": "invoice", "confidence": 0.9}`.
3. A sentence announces the label or concludes with it: `The answer is B`, `Ответ: счёт`, `\\boxed{B}`,
   `…, so it is an invoice`, or the label alone on the last line. Earlier considerations do not count.
4. A sentence says what the document is, and the rest of the answer names no other label, and denies, doubts
   or corrects nothing: `This is an invoice, because …`.

In a sentence, every word before the label in its clause must be a word that changes nothing (`label_words`),
and the next words must end the clause or continue it in one of a few ways. So `not an invoice`,
`a proforma invoice`, `an invoice number` name no invoice, in any language. Case, Unicode forms, invisible
characters and marks of Markdown and LaTeX do not count. Time is linear in the length of the answer.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache

from hpcbench.parsers import label_words as words
from hpcbench.parsers.label_sentences import (
    NO_ONE,
    NONE,
    ONE_LETTER_WORDS,
    SEVERAL,
    Answer,
    Mention,
    is_carrier,
    is_noun,
)
from hpcbench.parsers.label_text import FENCE, OPEN, folded, name, normalised, shown, spaced

_LATIN, _CYRILLIC = "abcdefghijklmnopqrstuvwxyz", "абвгдежзиклмнопрстуфхцчшщэюя"
_LOOK_ALIKE = dict(zip("авекмнорстух", "abekmhopctyx", strict=True))
_BEFORE_WORD = re.compile(
    r"\s+(?!(?:or|and|oder|und|ou|et|или|is|was|has|does|can|cannot|could|might|would|should|ist|est|es)\b)"
    r"[^\W\d_A-ZА-ЯЁ]"
)
_MARK = re.compile(
    rf"(?:(?<![\w'.,/$€£¥%+\-–−=<>&@*^\\])|(?<=[{OPEN}]))(?P<open>[(\[]?)"
    rf"(?P<mark>[A-Za-zА-Яа-я]|\d{{1,3}})(?P<close>[)\]]?)(?:(?!\w|'\w)|(?=[{OPEN}]))"
)
_SEPARATED = re.compile(r"[)\].:]{1,2}\s{0,9}|\s{1,9}[-–—]\s{1,9}|,\s{1,9}(?=[(\"']?)")
_OPTION = re.compile(
    r"[(\[{\"']{0,3}(?P<mark>[A-Za-zА-Яа-я]|\d{1,3})(?:[)\].:,!\"'}]{0,3}|(?P<separated>[)\].:,]{1,2}|\s{1,9}[-–—]\s)"
    r"\s*(?P<name>\S.*))",
    re.DOTALL,
)


Read = tuple["int | None", str]
"""Place of a label in the list, or None and the reason."""


def read_label(text: str, labels: Sequence[str]) -> tuple[str | None, str]:
    """The label that an answer names, in the spelling of the list.

    Returns:
        The label and an empty text, or None and the reason, one of `label_sentences.REASONS`.
    """
    known = _Known.of(tuple(labels))
    place, reason = known.read(text)
    return (None, reason) if place is None else (known.labels[place], "")


class _Known:
    """A list of labels, prepared for reading."""

    def __init__(self, labels: tuple[str, ...]) -> None:
        self.labels = labels
        self.written = {
            normalised(one.strip(), "NFC"): place for place, one in enumerate(labels) if one.strip()
        }
        self.names: dict[str, int] = {}
        self.phrases: dict[str, int] = {}
        for place, one in enumerate(labels):
            dressed = shown(one)
            for table, key in (
                (self.names, name(dressed)),
                (self.phrases, _phrase(dressed)),
            ):
                if key and (key in table or any(map(str.isalnum, key))):
                    other = table.setdefault(key, place)
                    table[key] = place if labels[other] == labels[place] else NO_ONE
        for table in (self.names, self.phrases):
            if "是" in table:
                table.setdefault("是的", table["是"])
        phrases = sorted((one for one in self.phrases if one), key=len, reverse=True)
        self.pattern = re.compile("|".join(map(_bounded, phrases)) or "(?!)")
        self.letters, self.numbers = self._marks()

    @staticmethod
    @lru_cache(maxsize=256)
    def of(labels: tuple[str, ...]) -> _Known:
        return _Known(labels)

    def _marks(self) -> tuple[bool, bool]:
        """Whether letters and numbers can mean options: no label contains another letter or number."""
        if any(len(name) == 1 or name.isdigit() and len(name) < 4 for name in self.names):
            return False, False
        letters = numbers = True
        for place, one in enumerate(self.labels):
            text = folded(shown(one))
            own = {alphabet[place] for alphabet in (_LATIN, _CYRILLIC) if place < len(alphabet)}
            alone = {word.strip("()[].:,") for word in text.split()}
            letters &= all(
                one in own for one in alone if len(one) == 1 and one in _LATIN + _CYRILLIC
            )
            numbers &= all(int(one) == place + 1 for one in re.findall(r"\d{1,9}", text))
        return letters, numbers

    def places(self, mark: str) -> set[int]:
        """Labels that this letter or number may mean; a Cyrillic В is the third letter, or looks like B."""
        if mark.isdigit():
            return {int(mark) - 1} if self.numbers and mark[0] != "0" else set()
        if not self.letters:
            return set()
        mark = mark.casefold()
        found = {_LATIN.find(_LOOK_ALIKE.get(mark, mark)), _CYRILLIC.find(mark)} - {-1}
        return found if any(place < len(self.labels) for place in found) else set()

    def place(self, mark: str) -> int | None:
        """The label that this letter or number means, if there is exactly one."""
        found = self.places(mark)
        place = found.pop() if len(found) == 1 else len(self.labels)
        return place if 0 <= place < len(self.labels) else None

    # --- whole answers --------------------------------------------------------------------------------

    def read(self, text: str) -> Read:
        """The label that an answer names, or why it names none."""
        place = self.written.get(normalised(text.strip(), "NFC"))
        if place is not None:
            return place, ""
        return self._json(text) or self._plain(text)

    def _plain(self, text: str) -> Read:
        """The label named by a text that is no JSON."""
        dressed = shown(text).strip()
        if dressed[:1] == '"' == dressed[-1:] and dressed.count('"') == 2:
            dressed = dressed[1:-1]
        return self._alone(dressed) or self._sentences(dressed).read()

    def _sentences(self, text: str) -> Answer:
        return Answer(text, self.mentions(text))

    def _alone(self, text: str) -> Read | None:
        """The label of a text that is a label, or an option's letter or number with or without its name."""
        text = re.sub(r"^[-•+#>]{1,6}\s+(?=[^\d\s])", "", text.strip())
        if len(text) > 2000:
            return None
        place = self.names.get(name(text))
        if place is not None:
            return (None, SEVERAL) if place == NO_ONE else (place, "")
        match = _OPTION.fullmatch(text)
        if match is None:
            return None
        if match["name"] is None:
            place = self.place(match["mark"])
            return None if place is None else (place, "")
        places, named = self.places(match["mark"]), self.names.get(name(match["name"]))
        if not places or named is None:
            return None
        return (named, "") if named in places else (None, SEVERAL)

    # --- JSON -----------------------------------------------------------------------------------------

    def _json(self, text: str) -> Read | None:
        """The label that a JSON value names; None: no JSON, or the text around it mentions labels."""
        text = FENCE.sub("\n", text).strip("\ufeff\u200b \t\r\n")
        if not text.startswith(("{", "[")):
            start, end = text.find("{"), text.rfind("}") + 1
            around = text[:start] + "\n" + text[end:]
            if start < 0 or end <= start or not self._sentences(shown(around)).is_neutral:
                return None
            text = text[start:end]
        try:
            value = json.loads(text, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError):
            return None
        return self._value(value, 8) or (None, self._sentences(shown(text)).why())

    def _value(self, value: object, depth: int) -> Read | None:
        """The label in a value that holds the answer."""
        if isinstance(value, str):
            place = self.written.get(normalised(value.strip(), "NFC"))
            return self._plain(value) if place is None else (place, "")
        if isinstance(value, bool):
            place = self.names.get("true" if value else "false")
            return None if place is None else (place, "")
        if isinstance(value, int):
            return self._plain(str(value)) if abs(value) < 10**9 else None
        if not depth or not isinstance(value, list):
            return None
        if not isinstance(value, _Pairs):
            return self._value(value[0], depth - 1) if len(value) == 1 else None
        answers = [one for key, one in value if _is_answer(key)]
        if not answers:
            answers = [one for key, one in value if _is_aspect(key, one)]
        if not answers and len(value) == 1 and not self._is_about(value[0][0]):
            answers = [one for _, one in value if not isinstance(one, int)]
        read = [self._value(one, depth - 1) for one in answers]
        known = {one for one in read if one is not None and one[1] != NONE}
        if len(known) == 1:
            return known.pop()
        return (None, SEVERAL) if len(known) > 1 else None

    def _is_about(self, key: str) -> bool:
        """Whether a key is about labels, as in `{"invoice": "no"}` or `{"excluded": "invoice"}`."""
        return _is_denied(key) or bool(self.mentions(shown(key[:200])))

    # --- mentions -------------------------------------------------------------------------------------

    def mentions(self, text: str) -> list[Mention]:
        """Places where a text names labels or options, in order; a name within another does not count."""
        named = [
            Mention(one.start(), one.end(), self.phrases[_phrase(one.group())])
            for one in self.pattern.finditer(folded(text))
            if not (one.group() == "是" and _ANNOUNCING.match(text, max(0, one.start() - 2)))
        ]
        if not (self.letters or self.numbers):
            return named
        starts, ends = {one.start: one for one in named}, [one.end for one in named]
        found, taken = [], set()
        for match in _MARK.finditer(text):
            after = bisect_left(ends, match.start() + 1)
            if after < len(named) and named[after].start < match.end():
                continue
            separated = _SEPARATED.match(text, match.end("mark"))
            option = starts.get(_past_quotes(text, separated.end())) if separated else None
            places, place = self.places(match["mark"]), self.place(match["mark"])
            if option is not None and places:
                taken.add(option.start)
                agreed = option.place if option.place in places else NO_ONE
                found.append(Mention(match.start(), option.end, agreed))
            elif place is not None:
                start, end = match.span()
                found.append(Mention(start, end, place, match["mark"], _counts(text, match)))
        kept = [one for one in named if one.start not in taken]
        return sorted(kept + found, key=lambda one: one.start)


class _Pairs(list[tuple[str, object]]):
    """A JSON object as its pairs, with repeated keys."""


_BETWEEN_WORDS = r"(?:\s+|(?<=[^\W\d_])[_-](?=[^\W\d_]))"
_ANNOUNCING = re.compile(rf"(?:{words.CJK_NOUNS})是\s?:")
"""`是` as the verb before a label, not as a label."""


def _bounded(phrase: str) -> str:
    """A pattern of a label as whole words; next to scripts without spaces, a word may end anywhere."""
    before = "" if re.match(f"[{OPEN}]", phrase) else rf"(?:(?<!\w)|(?<=[{OPEN}]))"
    after = "" if re.match(f"[{OPEN}]", phrase[-1]) else rf"(?:(?!\w)|(?=[{OPEN}]))"
    if len(phrase) == 1 and phrase.isalpha():
        before, after = before and before + r"(?<!\w')", after and after + r"(?!'\w)"  # I'd
    if phrase == "はい":
        after = "(?!いえ)"  # いいえ after は
    return before + _BETWEEN_WORDS.join(map(re.escape, phrase.split())) + after


def _phrase(text: str) -> str:
    """A label or its mention as a key for comparison."""
    return " ".join(spaced(folded(text)).split())


def _counts(text: str, match: re.Match[str]) -> bool:
    """Whether a mark certainly means an option: a letter in brackets, or a capital that is no article."""
    mark = match["mark"]
    if mark.isdigit() or match["close"]:
        return not mark.isdigit()
    article = mark.casefold() in ONE_LETTER_WORDS and _BEFORE_WORD.match(text, match.end())
    return mark.isupper() and not article


def _past_quotes(text: str, at: int) -> int:
    while at < len(text) and text[at] in "\"'(":
        at += 1
    return at


_KEY_WORD = re.compile(r"[^\W_]+")


def _key_words(key: str) -> list[str]:
    return _KEY_WORD.findall(folded(shown(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", key[:100]))))


def _is_answer(key: str) -> bool:
    parts = _key_words(key)
    known = words.CARRIERS | {"predicted", "doc", "name", "output", "value"}
    return (
        bool(parts)
        and all(is_carrier(one) or one in known for one in parts)
        and any(map(is_noun, parts))
    )


def _is_aspect(key: str, value: object) -> bool:
    """Whether a key names what a label describes, as in `{"sentiment": "positive"}` and `{"score": 4}`."""
    named = words.MEASURES if isinstance(value, int) else words.ASPECTS
    parts = _key_words(key)
    return any(one in named for one in parts) and all(
        one in words.ASPECTS or is_carrier(one) for one in parts
    )


def _is_denied(key: str) -> bool:
    text = " ".join(_key_words(key))
    return bool(
        words.NEGATION.search(text)
        or words.DOUBT.search(text)
        or words.OTHER_KEYS & set(text.split())
    )
