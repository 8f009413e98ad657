"""Removes thoughts and marks around the answer, as reasoning models write them.

Thoughts come first. All blocks at the beginning are removed: several, nested, in any spelling. Where a chat
template writes the opening mark into the prompt, an answer begins within the thoughts and has only the
closing mark: all text before that mark is also thoughts, unless the mark is part of a JSON text. After a
block that never ends there is no answer.

Later blocks may belong to the page. `strip_reasoning` keeps them; `answer_in` is for answers that are no
transcriptions: it removes blocks within the answer, and where marks enclose the answer
(`<answer>…</answer>`), it returns only the enclosed text. It names both steps, as they change the reading.
Marks within the texts of a JSON object are words of that object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

VERSION = 2
"""Version of the removal of thoughts; raised when any answer may lose more or less text than before."""

UNFINISHED = "reasoning not finished"
"""Reason of an answer that never ends its thoughts."""

THOUGHTS = "thoughts amid the answer"
ANSWER_TAGS = "words outside the answer's tags"
SEVERAL_ANSWERS = "several answers, the last kept"

_THOUGHTS = re.compile(
    r"""
    <\s*(?P<end>/?)\s*
    (?P<name>think|thinking|thoughts?|reasoning|reflection|analysis|scratchpad|seed:think)
    (?:\s[^<>\n]{0,80})?>
    | \[(?P<square>/?)THINK(?:ING)?\]                                # Magistral
    | ◁(?P<kimi>/?)think▷                                            # Kimi-VL
    | <\|(?P<part>begin|end)_of_(?P<what>thought|thinking)\|>        # Sky-T1, OpenThinker
    | <\|(?P<cohere>START|END)_THINKING\|>                           # Command A
    | <\|inner_(?P<inner>prefix|suffix)\|>                           # Apertus
    | (?P<gemma><\|channel>\s*thought|<channel\|>)                   # Gemma 4
    """,
    re.IGNORECASE | re.VERBOSE,
)
_CHANNEL = (
    "<|channel|>"  # gpt-oss: <|channel|>analysis<|message|>…<|channel|>final<|message|>…<|return|>
)
_FINAL = re.compile(r"<\|channel\|>\s*final\b[^<]{0,40}<\|message\|>")
_CHANNEL_END = ("<|return|>", "<|end|>")
_BARE_CHANNEL = "analysis"
_BARE_FINAL = "assistantfinal"
"""The same where an engine has removed the special tokens: `analysis…assistantfinal…`."""

_OF_MODELS = re.compile(
    r"""
    <(?P<end>/?)(?P<name>answer|final[_ -]?answer)>
    | <\|(?P<part>begin|end)_of_(?P<what>box|solution|answer)\|>     # GLM-4.xV, Sky-T1
    | <\|(?P<cohere>START|END)_RESPONSE\|>                           # Command A
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OF_ANSWERS = re.compile(
    _OF_MODELS.pattern.replace(
        "answer|final", "answer|response|output|result|solution|conclusion|final", 1
    ),
    re.IGNORECASE | re.VERBOSE,
)
_TOKEN = r'\\.|(?<![^\s{\[,:(])"(?:[^"\\\n]|\\.)*"|'
"""Text that hides marks: JSON's texts, and any character after a backslash."""
_STRINGS = re.compile(_TOKEN + "(?!)")
_FIELDS = re.compile(r'(?:[{\[,:]|^)\s*"(?:[^"\\\n]|\\.)*"(?=\s*(?:[}\],:]|\Z))', re.MULTILINE)
"""Keys and values of an object that are texts."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer without thoughts."""

    text: str
    """The text to read."""
    marks: tuple[str, ...] = ()
    """Decisions of the removal, in words."""
    around: str = ""
    """The same with the words outside its tags; empty: there are no such words."""


def strip_reasoning(text: str) -> str | None:
    """The answer without thoughts before it and marks around it; None if it is all thoughts."""
    rest = _after_thoughts(text)
    if rest is None:
        return None
    blocks = _blocks(rest, _OF_MODELS)
    if len(blocks) == 1 and not _outside(rest, blocks):
        return rest[blocks[0].inner : blocks[0].closing]
    return rest


def answer_in(text: str) -> Answer | None:
    """The answer without any thoughts, and only the part within its marks; None if it is all thoughts."""
    rest = _after_thoughts(text)
    without = None if rest is None else _without_blocks(rest)
    if without is None:
        return None
    marks = () if without == rest else (THOUGHTS,)
    found = _blocks(without, _OF_ANSWERS)
    blocks = [one for one in found if without[one.inner : one.closing].strip()]
    if not blocks:
        return Answer("" if found and not _outside(without, found) else without, marks)
    last = blocks[-1]
    inner = without[last.inner : last.closing]
    if len({" ".join(without[one.inner : one.closing].split()) for one in blocks}) > 1:
        return Answer(inner, (*marks, SEVERAL_ANSWERS), without)
    if _outside(without, blocks):
        return Answer(inner, (*marks, ANSWER_TAGS), without)
    return Answer(inner, marks)


# --- thoughts before the answer -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Mark:
    """One opening or closing mark."""

    family: str
    opens: bool
    start: int
    end: int


def _mark(match: re.Match[str]) -> _Mark:
    given = {name: one for name, one in match.groupdict().items() if one is not None}
    family = str(given.get("name") or given.get("what") or match.lastgroup).lower()
    sign = next(one for name, one in given.items() if name not in ("name", "what")).lower()
    closes = sign in ("/", "end", "suffix", "<channel|>")
    return _Mark(family, not closes, *match.span())


def _after_thoughts(text: str) -> str | None:
    """The text after the blocks at the beginning; None: they never end."""
    start = text.lstrip()
    if start.startswith(("<|start|>assistant", _CHANNEL)):
        return _final_channel(start)
    if start.startswith(_BARE_CHANNEL) and _BARE_FINAL in start:
        return start.rpartition(_BARE_FINAL)[2]
    marks = [_mark(one) for one in _THOUGHTS.finditer(text)]
    at = place = 0
    while place < len(marks):
        if marks[place].opens and not text[at : marks[place].start].strip():
            end = _closing(marks, place)
            if end is None:
                return None
        else:
            end = _unopened(marks, place)
            if end is None or _within_json(text, at, marks[end].start):
                break
        at, place = marks[end].end, end + 1
    return text[at:]


def _closing(marks: Sequence[_Mark], place: int) -> int | None:
    """The mark that ends a block: of the same level, else the last of its family."""
    depth, last = 0, None
    for number in range(place, len(marks)):
        if marks[number].family == marks[place].family:
            depth += 1 if marks[number].opens else -1
            last = last if marks[number].opens else number
            if not depth:
                return number
    return last


def _unopened(marks: Sequence[_Mark], place: int) -> int | None:
    """The first mark that closes an unopened block, as when a chat template opens the block."""
    opened = {"analysis", "reflection", "scratchpad"}  # no template writes these marks
    for number in range(place, len(marks)):
        if marks[number].opens:
            opened.add(marks[number].family)
        elif marks[number].family not in opened:
            return number
    return None


def _within_json(text: str, start: int, at: int) -> bool:
    """Whether a place is within an answer's code fence, or a text of its JSON."""
    before = text[start:at].lstrip()
    if before.startswith("```"):
        return True
    if before.startswith(("{", "[")):
        return '"' in _STRINGS.sub("", before)
    if text.find("{", start, at) < 0:
        return False
    begin = max(start, text.rfind("\n", start, at) + 1)
    field = next((one for one in _FIELDS.finditer(text, begin) if one.end() > at), None)
    return field is not None and field.start() < at


def _final_channel(text: str) -> str | None:
    finals = list(_FINAL.finditer(text))
    if not finals:
        return None
    rest = text[finals[-1].end() :].rstrip()
    for end in _CHANNEL_END:
        rest = rest.removesuffix(end)
    return rest


# --- marks within the answer ----------------------------------------------------------------------------


def _unhidden(text: str, marks: re.Pattern[str]) -> Iterator[_Mark]:
    """Marks that are not words of a JSON text."""
    if marks.search(text) is None:
        return
    for match in _hiding(marks).finditer(text):
        if match.group()[0] not in '"\\':
            yield _mark(match)


@cache
def _hiding(marks: re.Pattern[str]) -> re.Pattern[str]:
    return re.compile(f"{_TOKEN}(?:{marks.pattern})", marks.flags)


def _without_blocks(text: str) -> str | None:
    """A text without the thoughts within it; None: it ends within thoughts that begin a line."""
    marks = list(_unhidden(text, _THOUGHTS))
    closed = {one.family: one.start for one in marks if not one.opens}
    pieces: list[str] = []
    at = place = 0
    while place < len(marks):
        one = marks[place]
        ends = one.opens and closed.get(one.family, -1) > one.start
        end = _closing(marks, place) if ends else None
        if end is not None:
            pieces.append(text[at : one.start])
            at, place = marks[end].end, end
        elif one.opens and _LINE_BEGIN.search(text, max(0, one.start - 40), one.start):
            return None
        place += 1
    return "".join((*pieces, text[at:])) if pieces else text


_LINE_BEGIN = re.compile(r"(?:\A|\n)[^\S\n]*\Z")


@dataclass(frozen=True, slots=True)
class _Block:
    """The text that marks enclose."""

    start: int
    """Start of its opening mark; of a closing mark alone, the beginning."""
    inner: int
    """Start of its content."""
    closing: int
    """End of its content."""
    end: int
    """Place after its closing mark."""


def _blocks(text: str, tags: re.Pattern[str]) -> list[_Block]:
    """Answers between marks, in order; the last may lack its closing mark, a single one its opening mark."""
    marks = list(_unhidden(text, tags))
    if marks and not any(one.opens for one in marks):
        last = marks[-1]
        return [] if text[last.end :].strip() else [_Block(0, 0, marks[0].start, len(text))]
    found: list[_Block] = []
    opening: _Mark | None = None
    for one in marks:
        if one.opens:
            opening = one
        elif opening is not None and one.family == opening.family:
            found.append(_Block(opening.start, opening.end, one.start, one.end))
            opening = None
    if opening is not None and (not found or opening.start >= found[-1].end):
        found.append(_Block(opening.start, opening.end, len(text), len(text)))
    return found


def _outside(text: str, blocks: Sequence[_Block]) -> bool:
    """Whether there are words outside the answers."""
    at = 0
    for one in blocks:
        if text[at : one.start].strip():
            return True
        at = one.end
    return bool(text[at:].strip(" \t\r\n.。"))
