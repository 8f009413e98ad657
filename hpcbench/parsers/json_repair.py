"""JSON from models: sound, or mended in one pass, with a name for every slip.

`strict` reads sound JSON with Python's own reader. `mend` reads nearly sound JSON: it never goes back and
never calls itself, so any text takes time in proportion to its length. Neither guesses: text that no rule
covers is broken. json-repair (PyPI, 0.64) would read more, but turns prose into objects, is silent on NaN,
equal keys and curly quotes, names slips only in free words, and falls over deep nesting with a
RecursionError.

Where a text ends is the hard question, because quotes within one are often not escaped (`"ООО "Ромашка""`).
First every quote ends a text; if that fails, a quote ends a text only where the next characters could follow
a text in JSON. So each bracket is read twice at most.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from hpcbench.parsers import escapes

DEPTH = 64
"""Most levels of brackets: no task needs more, and later code must not run out of stack."""

CLOSED_BRACKETS = "closed brackets"
CLOSED_TEXT = "closed a text"
HALF_FIELD = "dropped a half-written field"
SINGLE_QUOTES = "single quotes"
CURLY_QUOTES = "curly quotes"
PYTHON_LITERALS = "Python literals"
UNQUOTED_KEYS = "unquoted keys"
UNQUOTED_TEXT = "unquoted text"
TRAILING_COMMA = "trailing comma"
MISSING_COMMA = "missing comma"
SURPLUS_COMMA = "surplus comma"
SURPLUS_BRACKETS = "surplus brackets"
COMMENTS = "comments"
NOT_A_NUMBER = "NaN or infinity"
ODD_NUMBERS = "odd numbers"
EQUAL_KEYS = "equal keys, the last kept"
INNER_QUOTES = "unescaped quotes"
CONTROLS = "unescaped line breaks"
ODD_ESCAPES = "odd escapes"
MISSING_VALUE = "missing value"
WIDE_PUNCTUATION = "full-width punctuation"

Json = dict[str, Any] | list[Any]


@dataclass(frozen=True, slots=True)
class FoundJson:
    """A JSON object or list in a text."""

    value: Json
    """Its value."""
    start: int
    """Place of its first character."""
    end: int
    """Place after its last character."""
    repairs: tuple[str, ...] = ()
    """Mended slips, each kind once; empty: the JSON is sound."""
    cut: bool = False
    """The text ended before its brackets were closed."""


class Broken(Exception):
    """The text is no JSON, or no rule mends it."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at
        """Place where reading failed."""


class TooDeep(Exception):
    """More than `DEPTH` levels of brackets."""


# --- sound JSON -----------------------------------------------------------------------------------------


def strict(text: str, start: int) -> FoundJson:
    """The JSON value that begins at `start`; equal keys, NaN and LaTeX, which Python reads, are slips.

    Raises:
        Broken: the JSON is not sound.
        TooDeep: too many levels.
    """
    slips: dict[str, None] = {}

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            slips[EQUAL_KEYS] = None
        return found

    def constant(_: str) -> None:
        slips[NOT_A_NUMBER] = None

    def number(written: str) -> int | float | str:
        found, kept = number_of(written)
        if not kept:
            slips[ODD_NUMBERS] = None
        return found

    decoder = json.JSONDecoder(
        object_pairs_hook=object_of,
        parse_constant=constant,
        parse_float=number,
        parse_int=number,
    )
    try:
        value, end = decoder.raw_decode(text, start)
        written, marks = escapes.with_latex(text[start:end])
        if marks:
            value = decoder.decode(written)
            slips |= dict.fromkeys(marks)
    except json.JSONDecodeError as error:
        raise Broken(error.pos) from None
    except RecursionError:
        raise TooDeep from None
    if not isinstance(value, (dict, list)):
        raise Broken(start)
    check_depth(value)
    return FoundJson(value, start, end, tuple(slips))


DIGITS = 4300
"""Most digits of a whole number: Python reads no more of them at once."""


DECIMALS = 17
"""Digits that a float keeps."""


def number_of(written: str) -> tuple[int | float | str, bool]:
    """A number of JSON, and whether it keeps all written digits.

    A number too large or too small for Python stays a text; a fraction with more than `DECIMALS` digits
    becomes the nearest float.
    """
    if not set(written) & set(".eE"):
        return (int(written), True) if len(written) <= DIGITS else (written, False)
    value = float(written)
    digits = written.lower().partition("e")[0].lstrip("+-").replace(".", "").strip("0")
    if math.isinf(value) or (value == 0 and digits):
        return written, False
    return value, len(digits) <= DECIMALS


def check_depth(value: object) -> None:
    """Raise TooDeep if a value has more than `DEPTH` levels."""
    level = [value]
    for _ in range(DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise TooDeep


# --- nearly JSON ----------------------------------------------------------------------------------------

_CLOSERS = {
    '"': '"', "'": "'", "“": "”“\"", "”": "”\"", "„": "“”\"", "«": "»", "‘": "’'", "’": "’'", "`": "`",
}  # fmt: skip
"""Opening quote → the quotes that may close it."""
_SLIP_OF_QUOTE = {"'": SINGLE_QUOTES, "`": SINGLE_QUOTES}
_STOP = {
    quote: re.compile(f"[{re.escape(closers)}\\\\\\x00-\\x1f]")
    for quote, closers in _CLOSERS.items()
}
_QUOTE = "[\"'“”„«‘’`]"
_KEY_LENGTH = 200
_KEY = rf"{_QUOTE}[^\"\n{{}}]{{0,{_KEY_LENGTH}}}?[\"'”“»’`]\s*[:：]"
_BARE_KEY = re.compile(r"(?:[^\W\d]|\$)[\w .$/№()-]{0,80}?(?=\s*[:：])|-?\d{1,18}(?=\s*[:：])")
_NEXT_FIELD = re.compile(rf"\s*{_KEY}")
_NO_KEY = re.compile(r"[{}\[\]]|,\s*\Z")
"""Characters that no key with quotes in it has: such text is no key, but values without their colons."""
_AFTER_KEY = re.compile(r"\s*(?:[:：]|\Z)")
_HALF_KEY = rf"{_QUOTE}[^\"\n{{}}]{{0,{_KEY_LENGTH}}}{_QUOTE}?\s*\Z"
_AFTER_FIELD = re.compile(
    rf"\s*(?:\Z|[}}\]]|```|//|/\*|[,，]\s*(?:\Z|[}}\]]|//|/\*|\#|{_KEY}|{_HALF_KEY}))|\s+{_KEY}"
)
_AFTER_FIELD_BARE = re.compile(rf"[^\S\n]*(?:\n|[,，])\s*{_BARE_KEY.pattern}")
_AFTER_ITEM = re.compile(
    rf"\s*(?:\Z|[}}\]]|```|//|/\*|[,，]\s*(?:\Z|[}}\]\[{{\d-]|//|{_QUOTE}|(?:true|false|null|None|True|False)\b))"
    rf"|[^\S\n]*\n\s*{_QUOTE}"
)
_NUMBER_END = r"(?=\s*(?:[,，}\]]|\Z|\n|```|//|/\*|\#))"
_NUMBER = re.compile(
    rf"(?P<json>-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?){_NUMBER_END}"
    rf"|(?P<odd>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?){_NUMBER_END}",
    re.ASCII,
)
_COMMAS = re.compile("[,，]+")
_DECIMAL_COMMA = re.compile(r"-?\d[\d .'\u00a0\u202f]*,\d")
_WORD = re.compile(r"-?[A-Za-z]{2,9}(?![\w.-])")
_LITERALS: dict[str, tuple[object, str | None]] = {
    "true": (True, None), "false": (False, None), "null": (None, None),
    "True": (True, PYTHON_LITERALS), "False": (False, PYTHON_LITERALS),
    "None": (None, PYTHON_LITERALS), "TRUE": (True, PYTHON_LITERALS),
    "FALSE": (False, PYTHON_LITERALS), "NULL": (None, PYTHON_LITERALS), "Null": (None, PYTHON_LITERALS),
    "undefined": (None, NOT_A_NUMBER), "NaN": (None, NOT_A_NUMBER), "nan": (None, NOT_A_NUMBER),
    "Infinity": (None, NOT_A_NUMBER), "-Infinity": (None, NOT_A_NUMBER),
    "inf": (None, NOT_A_NUMBER), "-inf": (None, NOT_A_NUMBER),
}  # fmt: skip
_BARE_END = {
    True: re.compile(rf"[,，](?=\s*(?:{_KEY}|{_BARE_KEY.pattern}))|[}}\]\n]|\Z"),
    False: re.compile(r"[,，\]}\n]|\Z"),
}
"""Ends of text without quotes: True in an object, False in a list."""
_SPACE = re.compile(r"[\s\ufeff\u200b-\u200d\u2060]*")
_ESCAPES = {
    '"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
}  # fmt: skip
_QUOTED_KEY = re.compile(r"[\"']\s?[:：]")
_HALF_ESCAPE = re.compile(r"u[0-9A-Fa-f]{0,3}")
_HEX = {"u": re.compile(r"[0-9A-Fa-f]{4}"), "x": re.compile(r"[0-9A-Fa-f]{2}")}

_Role = Literal["key", "field", "item"]


class _Cut(Exception):
    """The text ends within a key or a value that has no meaning yet."""


def mend(
    text: str, start: int, truncated: bool = False, fenced: bool = False, comments: int = -1
) -> FoundJson:
    """The object or list that begins at `start`, its slips mended.

    Args:
        text: an answer.
        start: place of its first bracket.
        truncated: the answer was cut at max_tokens: a number at its very end may have lost digits.
        fenced: the JSON begins a code fence, so it ends with the fence.
        comments: place of the last `*/` of the text; -1: there are no such comments.

    Raises:
        Broken: no rule mends the text.
        TooDeep: too many levels.
    """
    try:
        return _Mender(text, start, truncated, fenced, comments).run()
    except Broken:
        mender = _Mender(text, start, truncated, fenced, comments)
        mender.inner_quotes = True
        return mender.run()


class _Mender:
    """One pass over a text. A container joins its parent when it opens, so an early end loses nothing."""

    __slots__ = ("at", "bare_keys", "comments", "fenced", "frames", "inner_quotes", "open", "root", "slips",
                 "start", "text", "truncated")  # fmt: skip

    def __init__(self, text: str, start: int, truncated: bool, fenced: bool, comments: int) -> None:
        self.text, self.start, self.at = text, start, start + 1
        self.truncated, self.fenced, self.comments = truncated, fenced, comments
        self.root: Json = {} if text[start] == "{" else []
        self.frames: list[tuple[Json, bool]] = [(self.root, False)]
        """Open containers; for each, whether its last element was a value, so that a comma must follow."""
        self.open: dict[type, int] = {
            dict: int(text[start] == "{"),
            list: int(text[start] == "["),
        }
        self.slips: dict[str, None] = {}
        self.bare_keys = False
        self.inner_quotes = False
        """Whether a text may contain unescaped quotes; else every quote ends it."""

    def run(self) -> FoundJson:
        comma = False
        while self.frames:
            line_break = self.skip()
            container, due = self.frames[-1]
            if self.over():
                return self.ended()
            char = self.text[self.at]
            if char in "}]":
                if comma and not due:
                    self.slip(TRAILING_COMMA)
                comma = False
                self.close(char)
            elif char in ",，":
                commas = _COMMAS.match(self.text, self.at)
                assert commas is not None
                if "，" in commas.group():
                    self.slip(WIDE_PUNCTUATION)
                if not due or len(commas.group()) > 1:
                    self.slip(SURPLUS_COMMA)
                self.frames[-1] = (container, False)
                comma, self.at = True, commas.end()
            else:
                if due and not self.goes_on(container):
                    if len(self.frames) == 1 and line_break:
                        self.slip(CLOSED_BRACKETS)
                        return self.found(cut=False)
                    raise Broken(self.at)
                if due:
                    self.slip(MISSING_COMMA)
                comma = False
                self.frames[-1] = (container, True)
                try:
                    self.entry(container)
                except _Cut:
                    self.slip(HALF_FIELD)
                    self.at = len(self.text)
                    return self.ended()
        return self.found(cut=False)

    def slip(self, name: str) -> None:
        self.slips[name] = None

    def found(self, *, cut: bool) -> FoundJson:
        return FoundJson(self.root, self.start, self.at, tuple(self.slips), cut)

    def skip(self) -> bool:
        """Skip white space and comments; return whether a line ended in them."""
        begin, text = self.at, self.text
        while True:
            self.at = _SPACE.match(text, self.at).end()  # type: ignore[union-attr]
            if text.startswith("//", self.at) or text.startswith("# ", self.at):
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif text.startswith("/*", self.at) and self.at < self.comments:
                self.at = text.index("*/", self.at) + 2
            else:
                break
            self.slip(COMMENTS)
        return text.find("\n", begin, self.at) >= 0

    def over(self) -> bool:
        return self.at >= len(self.text) or (self.fenced and self.text.startswith("```", self.at))

    def ended(self) -> FoundJson:
        """Close all open brackets at the end of the text."""
        inner = self.frames[-1][0]
        if not inner and len(self.frames) > 1 and isinstance(self.frames[-2][0], list):
            self.frames[-2][0].pop()  # an empty entry
        self.slip(CLOSED_BRACKETS)
        return self.found(cut=True)

    def close(self, char: str) -> None:
        """A closing bracket; it also closes the brackets that were opened after its own."""
        kind = dict if char == "}" else list
        self.at += 1
        if not self.open[kind]:
            self.slip(SURPLUS_BRACKETS)
            return
        while True:
            container, _ = self.frames.pop()
            self.open[type(container)] -= 1
            if type(container) is kind:
                return
            self.slip(CLOSED_BRACKETS)

    def goes_on(self, container: Json) -> bool:
        """Whether a field or item begins here although the comma is missing."""
        if isinstance(container, list):
            return self.text[self.at] in "{[\"'“"
        if _NEXT_FIELD.match(self.text, self.at):
            return True
        return self.bare_keys and _BARE_KEY.match(self.text, self.at) is not None

    def entry(self, container: Json) -> None:
        """A field of an object, or an item of a list."""
        if isinstance(container, list):
            container.append(self.value("item"))
            self.enter(container[-1])
            return
        key = self.key()
        self.skip()
        if self.at >= len(self.text):
            raise _Cut
        char = self.text[self.at]
        if char not in ":：":
            raise Broken(self.at)
        if char == "：":
            self.slip(WIDE_PUNCTUATION)
        self.at += 1
        self.skip()
        if self.over():
            raise _Cut
        if key in container:
            self.slip(EQUAL_KEYS)
        if self.text[self.at] in ",}":
            self.slip(MISSING_VALUE)
            container[key] = None
            return
        container[key] = value = self.value("field")
        self.enter(value)

    def enter(self, value: object) -> None:
        """Continue inside a container that was just opened."""
        if isinstance(value, (dict, list)):
            if len(self.frames) >= DEPTH:
                raise TooDeep
            self.frames.append((value, False))
            self.open[type(value)] += 1

    def key(self) -> str:
        char = self.text[self.at]
        if char in _CLOSERS:
            return self.quoted("key")
        bare = _BARE_KEY.match(self.text, self.at)
        if bare is None:
            raise Broken(self.at)
        self.slip(UNQUOTED_KEYS)
        self.bare_keys = True
        self.at = bare.end()
        return bare.group().strip()

    def value(self, role: _Role) -> object:
        """A scalar, or an empty container that has just been opened."""
        text, char = self.text, self.text[self.at]
        if char in "{[":
            self.at += 1
            return {} if char == "{" else []
        if char in _CLOSERS:
            return self.quoted(role)
        number = None if self.decimal_comma(role) else _NUMBER.match(text, self.at)
        if number is not None and (given := self.number(number)) is not None:
            return given
        word = _WORD.match(text, self.at)
        if word is not None and word.group() in _LITERALS:
            value, slip = _LITERALS[word.group()]
            if slip is not None:
                self.slip(slip)
            self.at = word.end()
            return value
        return self.bare(role)

    def decimal_comma(self, role: _Role) -> bool:
        """Whether a number with a decimal comma is here: after a comma between fields, a key follows."""
        match = _DECIMAL_COMMA.match(self.text, self.at) if role == "field" else None
        return match is not None and _BARE_KEY.match(self.text, match.end() - 1) is None

    def number(self, match: re.Match[str]) -> int | float | str | None:
        if self.truncated and match.end() >= len(self.text):
            raise _Cut
        written = match.group()
        bare = written.lstrip("+-")
        if match["json"] is None and bare[:2].isdigit() and bare.startswith("0"):
            return None  # 007 is a code, not a number
        value, kept = number_of(written)
        if match["json"] is None or not kept:
            self.slip(ODD_NUMBERS)
        self.at = match.end()
        return value

    def bare(self, role: _Role) -> str:
        """Text without quotes; in the outermost list, such text would be prose in brackets."""
        if len(self.frames) == 1 and role == "item":
            raise Broken(self.at)
        end = _BARE_END[role == "field"].search(self.text, self.at)
        stop = len(self.text) if end is None else end.start()
        words = self.text[self.at : stop].strip()
        if stop >= len(self.text) and any(one.startswith(words) for one in _LITERALS):
            raise _Cut
        if not words or words[0] in ":=" or words.strip(" ,.…") == "":
            raise Broken(self.at)  # `...` marks an omission
        if _QUOTED_KEY.search(words):
            raise Broken(self.at)
        self.slip(UNQUOTED_TEXT)
        self.at = stop
        if words[-1] in ",，":
            self.slip(TRAILING_COMMA)
        return words.rstrip(" ,，")

    def quoted(self, role: _Role) -> str:
        """Text in quotes of any kind."""
        text, quote, begin = self.text, self.text[self.at], self.at + 1
        if quote != '"':
            self.slip(_SLIP_OF_QUOTE.get(quote, CURLY_QUOTES))
        stop, place, pieces = _STOP[quote], begin, list[str]()
        while (hit := stop.search(text, place)) is not None:
            char, after = hit.group(), hit.end()
            pieces.append(text[place : hit.start()])
            if role == "key" and (char == "\n" or after - begin > _KEY_LENGTH):
                raise Broken(begin)
            if char == "\\":
                piece, place = self.escape(after)
                pieces.append(piece)
            elif char in _CLOSERS[quote]:
                if self.closes(after, role):
                    self.at = after
                    return "".join(pieces)
                if role == "key" and _NO_KEY.search(text, begin, hit.start()):
                    raise Broken(begin)
                self.slip(INNER_QUOTES)
                pieces.append(char)
                place = after
            elif char == "\n" and self.lost(after, role):
                return self.unclosed("".join(pieces), hit.start())
            else:
                self.slip(CONTROLS)
                pieces.append(char)
                place = after
        if role == "key":
            half = len(text) - begin <= _KEY_LENGTH and "}" not in text[begin:]
            raise _Cut if half else Broken(begin)
        self.slip(CLOSED_TEXT)
        self.at = len(text)
        return "".join((*pieces, text[place:]))

    def unclosed(self, words: str, end: int) -> str:
        """Text whose closing quote was lost before a line break; a comma at its end separates fields."""
        self.slip(CLOSED_TEXT)
        self.at = end
        if words.rstrip().endswith(","):
            words = words.rstrip()[:-1]
            self.at = self.text.rindex(",", self.start, end)
        return words

    def closes(self, after: int, role: _Role) -> bool:
        """Whether a quote ends a text: the next characters could follow a text that ends with it."""
        if not self.inner_quotes:
            return True
        if role == "key":
            return _AFTER_KEY.match(self.text, after) is not None
        if role == "item":
            return _AFTER_ITEM.match(self.text, after) is not None
        if _AFTER_FIELD.match(self.text, after) is not None:
            return True
        if len(self.frames) == 1 and _PROSE.match(self.text, after):
            return True
        return self.bare_keys and _AFTER_FIELD_BARE.match(self.text, after) is not None

    def lost(self, after: int, role: _Role) -> bool:
        """Whether a text's closing quote is missing before a line break."""
        if self.fenced and self.text.startswith("```", after):
            return True
        return role == "field" and _NEXT_FIELD.match(self.text, after) is not None

    def escape(self, at: int) -> tuple[str, int]:
        """The meaning of the characters after a backslash, and the place of their end."""
        char = self.text[at : at + 1]
        if char and char in "bfnrtu":
            latex, mark = escapes.command(self.text, at - 1)
            if mark:
                self.slip(mark)
            if latex:
                return "\\", at
        if char in _ESCAPES and char:
            return _ESCAPES[char], at + 1
        digits = _HEX[char].match(self.text, at + 1) if char in _HEX else None
        if digits is not None:
            if char == "x":
                self.slip(ODD_ESCAPES)
            return chr(int(digits.group(), 16)), digits.end()
        if at >= len(self.text) or (char == "u" and _HALF_ESCAPE.fullmatch(self.text, at)):
            return "", len(self.text)  # cut off within the escape
        self.slip(ODD_ESCAPES)
        return (char, at + 1) if char in "'`\n" else ("\\", at)


_PROSE = re.compile(r"[^\S\n]*\n\s*\n\s*[^\W\d]")
"""An empty line and words: the object was never closed, and prose follows."""
