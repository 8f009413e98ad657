"""JSON in an answer: alone, in a code fence, or in prose."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace

from hpcbench.parsers.json_repair import (
    SURPLUS_BRACKETS,
    Broken,
    FoundJson,
    TooDeep,
    mend,
    strict,
)

MOST = 1000
"""Most objects of one answer to examine: the last ones."""

TRIES = 2_000
"""Most brackets of one answer to try: a text with more that begin no JSON is no JSON."""

_OPENING = re.compile(r"\{|\[(?=\s*\{)")
_OPENING_LIST = re.compile(r"[{\[]")
_SOUND = re.compile(r"\{\s*[\"}]|\[\s*[\[\]{\"\w-]")
_FENCE = re.compile(r"(?:```|~~~)[ \t]*[\w+-]*[ \t]*\r?\n?[ \t]*\Z")
_SURPLUS = re.compile(r"\s*[}\]]+")
_TWICE = re.compile(r"\{\s*(?:\\n|\s)*\\+\"")
_UNESCAPED = re.compile(r"\\([\\\"n])")

ESCAPED_TWICE = "escaped twice"


@dataclass(frozen=True, slots=True)
class Candidate:
    """JSON that may be the answer."""

    found: FoundJson
    """The JSON and its place."""
    form: str
    """`json`: it is the whole answer; `fence`: the content of a code fence; `prose`: within other text."""


@dataclass(frozen=True, slots=True)
class Search:
    """The JSON in an answer."""

    candidates: tuple[Candidate, ...]
    """Candidates in the order of the answer."""
    broken: bool = False
    """Some text looked like JSON and could not be mended."""
    given_up: str = ""
    """Why the search ended before the text; empty: it did not."""


def find(text: str, *, lists: bool = False, truncated: bool = False) -> Search:
    """All outermost objects of an answer, lists of objects too; with `lists` any list.

    Time is linear in the length of the text: a read or broken part is not read again. The search first tries
    to read sound JSON, within a budget.
    """
    search = _search(text, lists, truncated)
    if search.candidates or not _TWICE.search(text):
        return search
    plain = _UNESCAPED.sub(lambda one: "\n" if one[1] == "n" else one[1], text)
    again = _search(plain, lists, truncated)
    marked = tuple(_with_slip(one, ESCAPED_TWICE) for one in again.candidates)
    return replace(again, candidates=marked)


def _search(text: str, lists: bool, truncated: bool) -> Search:
    opening = _OPENING_LIST if lists else _OPENING
    found: deque[Candidate] = deque(maxlen=MOST)
    whole = len(text) - len(text.lstrip()), len(text.rstrip())
    comments = text.rfind("*/") if "/*" in text else -1
    broken = False
    within = _Within(text)
    budget, at = 4 * len(text) + 10_000, 0
    for _ in range(TRIES):
        match = opening.search(text, at)
        if match is None:
            return Search(tuple(found), broken)
        start = match.start()
        fenced = _FENCE.search(text, max(0, start - 40), start) is not None
        try:
            try:
                if budget < 0 or not _SOUND.match(text, start):
                    raise Broken(start)
                one = strict(text, start)
            except Broken as error:
                budget -= error.at + (error.at > start) * 1000  # json counts lines up to an error
                one = mend(text, start, truncated, fenced, comments)
        except Broken as error:
            # LaTeX and prose in braces are no broken JSON; an object that breaks after its first field is
            if _has_quote(text, start, error.at):
                broken = True
                within.begin(start)
            at = max(error.at, start + 1)
            continue
        except TooDeep:
            return Search(tuple(found), broken, "JSON nested too deeply")
        at = one.end
        if not within.holds(start):
            found.append(_placed(text, one, fenced, whole))
    return Search(tuple(found), broken, "JSON in too many pieces")


class _Within:
    """Finds places within a broken object: JSON there is a part of it, no answer."""

    __slots__ = ("at", "depth", "text")

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, len(text), 0

    def begin(self, start: int) -> None:
        """Start a broken object; a broken object within another counts as part of that."""
        if not self.holds(start):
            self.at = start

    def holds(self, place: int) -> bool:
        """Whether brackets opened before a place are not closed; calls must be in order of places."""
        while self.at < place and (token := _BRACKET.search(self.text, self.at, place)) is not None:
            self.at = token.end()
            self.depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token.group(), 0)
            if not self.depth:
                self.at = len(self.text)
        return self.depth > 0


_QUOTE = re.compile("[\"'“”„«‘’`]")
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)


def _has_quote(text: str, start: int, end: int) -> bool:
    return _QUOTE.search(text, start, end) is not None


def _placed(text: str, one: FoundJson, fenced: bool, whole: tuple[int, int]) -> Candidate:
    """A candidate with its form, in a text that spans `whole`; surplus brackets behind it belong to it."""
    surplus = _SURPLUS.match(text, one.end)
    end = one.end if surplus is None else surplus.end()
    if fenced:
        form = "fence"
    elif (one.start, end) == whole:
        form = "json"
    else:
        form = "prose"
    candidate = Candidate(one, form)
    return candidate if surplus is None else _with_slip(candidate, SURPLUS_BRACKETS)


def _with_slip(candidate: Candidate, slip: str) -> Candidate:
    found = candidate.found
    return replace(candidate, found=replace(found, repairs=(*found.repairs, slip)))
