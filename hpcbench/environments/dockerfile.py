"""Parses a Dockerfile as Docker does: instructions, words, variables, each with its position.

https://docs.docker.com/reference/dockerfile/, without the parts that recipes do not use.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from hpcbench.errors import Problem, UserError

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Variable:
    """`$NAME` or `${NAME}` in a word."""

    name: str


Pieces: TypeAlias = tuple["str | Variable", ...]
"""A value: text, and variables whose values the file does not give."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of an instruction, its quotes and backslashes resolved."""

    offset: int
    """Offset of the word in the instruction's text."""
    pieces: Pieces

    @property
    def plain(self) -> str:
        """The word with its variables as written: for names and options."""
        return "".join(p if isinstance(p, str) else f"${{{p.name}}}" for p in self.pieces)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; lines that a backslash continues are joined."""

    keyword: str
    """In capitals."""
    text: str
    """The text after the keyword."""
    file: str
    start: int
    """Offset of the text, in characters from the keyword's first."""
    places: tuple[tuple[int, int, int], ...]
    """Start of each of its lines: offset from the keyword's first character, line, column."""

    @property
    def line(self) -> int:
        """1-based line of its keyword."""
        return self.places[0][1]

    def wrong(self, message: str, remedy: str, offset: int | None = None) -> UserError:
        """The error at an offset of the text; None: at the keyword."""
        position = 0 if offset is None else self.start + offset
        begins = [begin for begin, _, _ in self.places]
        begin, line, column = self.places[bisect_right(begins, position) - 1]
        return UserError(Problem(message, self.file, line, column + position - begin, remedy))

    def words(self) -> list[Word]:
        """The words, separated by blanks; a quoted text is one word."""
        return list(_words(self))

    def as_list(self) -> list[str] | None:
        """The JSON form, `["a", "b"]`; None for any other text, which Docker gives to a shell."""
        try:
            found = json.loads(self.text) if self.text.startswith("[") else None
        except ValueError:
            return None
        if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
            return None
        if any(_CONTROL.search(word) for word in found):
            raise self.wrong("a control character in an argument", "put it into a file", 0)
        return found


def instructions(text: str, file: str) -> Iterator[Instruction]:
    """The instructions of a Dockerfile.

    Raises:
        UserError: a line does not begin with a word, or sets another escape character.
    """
    joined, places = "", list[tuple[int, int, int]]()
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        bare = line.strip()
        if control := _CONTROL.search(line):
            problem = Problem("a control character", file, number, control.start() + 1)
            raise UserError(problem._replace(remedy="remove it"))
        if re.match(r"#\s*escape\s*=", bare, re.IGNORECASE):
            problem = Problem("the escape character cannot be changed", file, number, 1)
            raise UserError(problem._replace(remedy="use the backslash"))
        if not bare or bare.startswith("#"):  # Docker skips it inside an instruction, too
            continue
        kept = line if places else line.lstrip()
        places.append((len(joined), number, len(line) - len(kept) + 1))
        # An escaped backslash does not continue the line.
        continued = re.sub(r"(?:(?<=[^\\])|^)\\[ \t]*$", "", kept)
        joined += continued
        if continued == kept:
            yield _instruction(joined, file, places)
            joined, places = "", []
    if places:
        yield _instruction(joined, file, places)


def substituted(pieces: Pieces, known: Mapping[str, Pieces]) -> Pieces:
    """The value, with each known variable replaced by its value."""
    found: list[str | Variable] = []
    for piece in pieces:
        found += known.get(piece.name, (piece,)) if isinstance(piece, Variable) else (piece,)
    return tuple(found)


def _instruction(joined: str, file: str, places: list[tuple[int, int, int]]) -> Instruction:
    match = re.match(r"([A-Za-z]+)(?:[ \t]+|$)", joined)
    if match is None:
        problem = Problem(
            "this line does not begin with an instruction",
            file,
            *places[0][1:],
            remedy="begin it with FROM, RUN, …; `\\` at the end of a line continues it",
        )
        raise UserError(problem)
    text = joined[match.end() :].rstrip()
    return Instruction(match[1].upper(), text, file, match.end(), tuple(places))


_VARIABLE = r"\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})|(?P<modified>\$\{)"
_QUOTED = re.compile(
    rf"""\\(?P<escaped>["\\$])|(?P<quote>")|{_VARIABLE}|(?P<text>.)""", re.DOTALL | re.ASCII
)
_BARE = re.compile(
    rf"""(?P<blank>\s+)|\\(?P<escaped>.)|'(?P<literal>[^']*)'|(?P<quote>")|(?P<open>')"""
    rf"|{_VARIABLE}|(?P<text>.)",
    re.DOTALL | re.ASCII,
)


def _words(one: Instruction) -> Iterator[Word]:
    pieces: list[str | Variable] = []
    begin = at = 0
    opened: int | None = None
    while at < len(one.text):
        match = (_BARE if opened is None else _QUOTED).match(one.text, at)
        assert match is not None  # the last alternative takes any character
        kind = str(match.lastgroup)
        value = match[kind]
        if kind == "modified":
            raise one.wrong("a variable with a modifier", "write ${NAME}, or its value", at)
        if kind == "open":
            raise one.wrong("a quote that is not closed", "close it", at)
        if kind == "blank":
            if pieces:
                yield Word(begin, _merged(pieces))
            pieces, begin = [], match.end()
        elif kind == "quote":
            opened = at if opened is None else None
            pieces.append("")  # "" is a word, too
        else:
            pieces.append(Variable(value) if kind in ("name", "braced") else value)
        at = match.end()
    if opened is not None:
        raise one.wrong("a quote that is not closed", "close it", opened)
    if pieces:
        yield Word(begin, _merged(pieces))


def _merged(pieces: list[str | Variable]) -> Pieces:
    merged: list[str | Variable] = []
    for piece in pieces:
        if merged and isinstance(piece, str) and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    return tuple(merged)
