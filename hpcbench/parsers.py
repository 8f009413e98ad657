"""How an answer is read into a prediction, whatever the kind of work.

A prediction of None means the answer could not be read; it is counted as such, never guessed at.
"""

from __future__ import annotations

import json
import re
from typing import ClassVar

_FENCE = re.compile(r"^\s*```[A-Za-z]*\s*\n(.*?)\n?\s*```\s*$", re.DOTALL)


class Text:
    """The answer is the text, without white space around it."""

    api: ClassVar[int] = 1

    def parse(self, text: str) -> str:
        return text.strip()


class Label:
    """The answer is the name of a class: case, quotes and a full stop do not count."""

    api: ClassVar[int] = 1

    def parse(self, text: str) -> str:
        return text.strip().strip(".\"'").casefold()


class JsonObject:
    """The answer is one JSON object, with or without a code fence."""

    api: ClassVar[int] = 1

    def parse(self, text: str) -> dict[str, object] | None:
        fenced = _FENCE.match(text)
        try:
            value = json.loads(fenced.group(1) if fenced else text)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None
