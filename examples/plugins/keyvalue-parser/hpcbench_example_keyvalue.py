"""Answers as lines of `Key: value`, the form that models fall into when they forget JSON."""

from __future__ import annotations

import re
from typing import ClassVar

_LINE = re.compile(r"^[\s>*\-•]*\**([^:*\n]{1,60}?)\**\s*:\**\s*(.*?)\s*$")


def read_lines(text: str) -> dict[str, str] | None:
    """Keys and values, the first of a key counts; None if no line has that form."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match and match[1].strip():
            found.setdefault(match[1].strip(), match[2].strip("*").strip())
    return found or None


class KeyValue:
    """The parser for hpcbench."""

    api: ClassVar[int] = 1

    def parse(self, text: str) -> dict[str, str] | None:
        return read_lines(text)
