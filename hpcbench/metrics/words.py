"""Words of a text, whatever its script.

Most scripts put spaces between words. Chinese, Japanese, Thai, Lao, Khmer, Burmese and some others do not:
where a word ends there is known only to a dictionary, and dictionaries differ. Here each of their characters,
with the marks on it, is a word. That needs no data and is what sacrebleu's tokenizer `zh` does for Chinese.
Korean has spaces and keeps its words.

Which scripts these are: those of the line breaking classes ID and SA (Unicode Standard Annex 14: ideographs,
kana, South East Asian) and Balinese and Javanese. Kinds of characters are those of Python's `unicodedata`.
"""

from __future__ import annotations

import functools
import itertools
import re
import string
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence

_WITHOUT_SPACES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19FF),  # Tai Le, New Tai Lue, Khmer symbols
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x1B00, 0x1B7F),  # Balinese
    (0x2E80, 0x2FDF),  # radicals of Han
    (0x3001, 0x302D),  # punctuation, numerals and tones of Chinese and Japanese
    (0x3030, 0x303F),  # the same; Korean tones are between
    (0x3040, 0x312F),  # Hiragana, Katakana, Bopomofo
    (0x31A0, 0x31BF),  # Bopomofo
    (0x31F0, 0x31FF),  # Katakana
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),  # Han
    (0xA980, 0xA9FF),  # Javanese, Myanmar
    (0xAA60, 0xAADF),  # Myanmar, Tai Viet
    (0xF900, 0xFAFF),  # Han
    (0xFE30, 0xFE4F),  # vertical punctuation
    (0xFF66, 0xFF9F),  # Katakana of half width
    (0x16FE0, 0x18DFF),  # Tangut, Khitan
    (0x1AFF0, 0x1B2FF),  # kana, Nushu
)
_FURTHER_HAN = "\U00020000-\U0003fffd"
_TAGS = "\U000e0020-\U000e007f"  # of flags
_FULL_WIDTH_PUNCTUATION = "\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\uffe0-\uffee"

_UNSEEN = (
    "\u00ad\u034f\u061c\u180b-\u180f\u200c-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069"
    "\ufe00-\ufe0f\ufeff"
)
"""Soft hyphens, joiners, marks of direction, variation selectors."""
_INVISIBLE = re.compile(f"[{_UNSEEN}\U000e0100-\U000e01ef]")
_INVISIBLE_OR_HIGH = re.compile(f"[{_UNSEEN}\U00010000-\U0010ffff]")

_ASCII_BYTES = bytes(
    code if chr(code) in string.ascii_letters + string.digits else 0x20 for code in range(256)
)
_ASCII_TEXT = _ASCII_BYTES[:128].decode()


def ascii_words(text: str) -> list[str]:
    """Runs of a-z, A-Z and 0-9; all other characters part words."""
    if text.isascii():
        return text.translate(_ASCII_TEXT).split()
    return text.encode("ascii", "replace").translate(_ASCII_BYTES).decode().split()


def script_words(text: str) -> list[str]:
    """Words of a text; punctuation and spaces part them.

    A word is a run of letters, marks and digits; in scripts without spaces one character with its marks. A
    symbol beyond ASCII (☑ € №) is a word of its own; those of ASCII are punctuation, so that English words
    are those of ROUGE. Invisible characters do not count. A text without any word has its characters as
    words, so that "?" is not "!".
    """
    if text.isascii():
        words = text.translate(_ASCII_TEXT).split()
    else:
        rare = _INVISIBLE_OR_HIGH.search(text)
        word = _patterns().word_beyond if rare else _patterns().word
        words = word.findall(_INVISIBLE.sub("", text) if rare else text)
    return words or characters(text)


def characters(text: str) -> list[str]:
    """All characters but whitespace."""
    return list("".join(text.split()))


def spell(words: Iterable[str], number: dict[str, str]) -> str:
    """Words as a text of one character each, the same for equal words.

    So n-grams are slices, and rapidfuzz compares characters: it takes hashes of longer words for the words.

    Args:
        words: of a text, fewer than 1,114,112 different ones.
        number: the character of each word so far; further ones are added.
    """
    take = number.setdefault
    return "".join([take(word, chr(len(number))) for word in words])


def spaced(texts: Sequence[str]) -> list[str]:
    """Texts with spaces around each character of a script without spaces, and around its punctuation.

    Numbers stay whole. Where no text has such a character, all come back as they are, whatever their
    punctuation: the texts of one sample are treated alike.
    """
    if all(map(str.isascii, texts)) or not any(map(_patterns().character.search, texts)):
        return list(texts)
    return [" ".join(_patterns().part.split(text)) for text in texts]


def goes_on(before: str, after: str) -> bool:
    """Whether no word ends between two neighbouring characters; at the end of a text one is empty.

    An underscore and the joiners of width zero count as letters.
    """
    if not before or not after:
        return False
    if (before + after).isascii():
        return _is_ascii_word(before) and _is_ascii_word(after)
    pair = _LIKE_LETTERS.sub("a", before + after)
    found = _patterns().word_beyond.match(pair)
    return found is not None and found.end() == 2


def _is_ascii_word(character: str) -> bool:
    return character.isalnum() or character == "_"


_LIKE_LETTERS = re.compile("[_\u200c\u200d]")


class _Patterns:
    """Expressions made of all of Unicode, in some 25 ms; only texts beyond ASCII need them.

    Below U+10000 a class of an expression looks a character up; beyond, it tries range after range. So texts
    without characters from there on have an expression of their own.
    """

    def __init__(self) -> None:
        kinds = _kinds()
        letters = kinds["letter"] + kinds["mark"]
        marks = kinds["mark"] + kinds["own mark"]
        own = kinds["own letter"] + kinds["own mark"]
        symbols = kinds["symbol"] + kinds["own symbol"]
        low = _below(letters, "A-Za-z0-9")
        low_marks = f"{_below(marks)}*"
        self.word = re.compile(f"{low}+|{_below(own)}{low_marks}|{_below(symbols)}{low_marks}")
        run = f"(?:{low}+|{_beyond(letters)}+)+"
        every_mark = f"(?:{_below(marks)}|{_beyond(marks, _TAGS)})*"
        character = f"(?:{_below(own)}|{_beyond(own, _FURTHER_HAN)})"
        symbol, emoji = _below(symbols), _beyond(symbols)  # emoji first: they are the usual ones
        self.word_beyond = re.compile(
            f"{emoji}{every_mark}|{run}|{character}{every_mark}|{symbol}{every_mark}"
        )
        self.character = re.compile(character)
        others = _below(kinds["own symbol"] + kinds["own punctuation"], _FULL_WIDTH_PUNCTUATION)
        self.part = re.compile(f"({character}{every_mark}|{others})")


@functools.cache
def _patterns() -> _Patterns:
    return _Patterns()


def _kinds() -> dict[str, list[tuple[int, int]]]:
    """Kind of character → its ranges of code points; `own` are those of scripts without spaces.

    Digits are like letters in every script.
    """
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    begin = 0x80
    for first, last in (*_WITHOUT_SPACES, (_END, _END)):
        for own, codes in (("", range(begin, first)), ("own ", range(first, last + 1))):
            at = codes.start
            for category, same in itertools.groupby(map(unicodedata.category, map(chr, codes))):
                size = len(list(same))
                kind = "letter" if category == "Nd" else own + _KIND.get(category[0], "")
                if own and category == "Cn":
                    kind = "own letter"  # of a later Unicode
                found[kind].append((at, at + size - 1))
                at += size
        begin = last + 1
    return found


_KIND = {"L": "letter", "N": "letter", "M": "mark", "S": "symbol", "P": "punctuation"}
_END = 0x20000


def _below(runs: Iterable[tuple[int, int]], more: str = "") -> str:
    return _class((run for run in runs if run[0] < 0x10000), more)


def _beyond(runs: Iterable[tuple[int, int]], more: str = "") -> str:
    high = _class((run for run in runs if run[0] >= 0x10000), more)
    return f"(?:(?=[\U00010000-\U0010ffff]){high})"


def _class(runs: Iterable[tuple[int, int]], more: str = "") -> str:
    """A class of characters in a regular expression; neighbouring ranges become one."""
    edges: list[int] = []
    for first, last in sorted(runs):
        if edges and edges[-1] == first:
            edges.pop()
        else:
            edges.append(first)
        edges.append(last + 1)
    ranges = zip(edges[::2], edges[1::2], strict=True)
    return f"[{''.join(f'{chr(first)}-{chr(end - 1)}' for first, end in ranges)}{more}]"
