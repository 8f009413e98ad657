"""Objects and lists in what models write: JSON or Python's literals, in fences and prose.

Nothing is run, and any text is read in time that grows with its length alone. The result is a guess
if the text is not such a value; hpcbench.parsers reads answers strictly, for metrics over objects.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

_FENCE = re.compile(r"```(?:python|json)?\n", re.IGNORECASE)
_RUN = re.compile(r"[\w\s]+")
_REST = re.compile(r"[\"']?\s*[:=]\s*[\"']?([^\n,\"'{}]+)[\"']?")
_LONGEST = 1_000_000
"""Characters of a text above which it is not read as Python's literal: its parser takes much memory."""
_DEEPEST = 80
"""Brackets within brackets above which it is not either: Python's parser has its own limits near 100."""


def read_object(text: str) -> Mapping[Any, Any] | None:
    """The object of a text: in a fence, the text itself, or what its outermost braces hold; else `key: value`
    pairs of its lines, if there are some."""
    for piece in _pieces(text, "{", "}"):
        for value in _values(piece):
            if isinstance(value, Mapping):
                return value
    return read_pairs(text) or None


def read_list(text: str) -> list[Any] | None:
    """The list (or tuple) of a text: in a fence, the text itself, or what its outermost brackets hold."""
    for piece in _pieces(text, "[", "]"):
        for value in _values(piece):
            if isinstance(value, (list, tuple)):
                return list(value)
    return None


def fences(text: str) -> Iterator[str]:
    """The contents of fences of three backticks, without a language or with that of Python or JSON."""
    at = 0
    while match := _FENCE.search(text, at):
        end = text.find("\n```", match.end())
        if end < 0:
            return
        yield text[match.end() : end]
        at = end + 4


def read_pairs(text: str) -> dict[str, str]:
    """`key: value` and `key = value` in a text, quotes around them aside; the last of equal keys."""
    found: dict[str, str] = {}
    at = 0
    while run := _RUN.search(text, at):
        rest = _REST.match(text, run.end())
        if rest:
            found[run.group().strip()] = rest[1].strip()
        at = rest.end() if rest else run.end()
    return found


def literal(text: str) -> Any:
    """Python's literal; None where the text is none (or it is None).

    Leading spaces and tabs are left out, as `ast.literal_eval` does.
    """
    if len(text) > _LONGEST or _depth(text) > _DEEPEST:
        return None
    try:
        with warnings.catch_warnings():  # of escapes that Python does not know, e.g. in formulas
            warnings.simplefilter("ignore")
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def parsed_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is none, or too deep.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _values(text: str) -> Iterator[Any]:
    try:
        yield parsed_json(text)
    except ValueError:
        yield literal(text.strip())


def _pieces(text: str, opens: str, closes: str) -> Iterator[str]:
    yield from fences(text)
    yield text
    begin, end = text.find(opens), text.rfind(closes)
    if 0 <= begin < end:
        yield text[begin : end + 1]


def _depth(text: str) -> int:
    """Most brackets open at once, and unary signs in a row, which Python's parser nests, too."""
    deepest = depth = signs = 0
    for character in text:
        signs = signs + 1 if character in "+-~" else 0
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        deepest = max(deepest, depth + signs)
    return deepest
