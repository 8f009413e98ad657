"""Kinds of document work: how an answer is read into a prediction.

A prediction of None means the answer could not be read; it is counted as such, never guessed at.
"""

from __future__ import annotations

import json
import re
from typing import ClassVar

from hpcbench.schema.records import Sample

_FENCE = re.compile(r"^\s*```[A-Za-z]*\s*\n(.*?)\n?\s*```\s*$", re.DOTALL)


class Vqa:
    """Visual question answering: the answer is the text."""

    api: ClassVar[int] = 1

    def parse(self, text: str, sample: Sample) -> str:
        return text.strip()


class Ocr:
    """Text recognition: the answer is the page's text, lines kept."""

    api: ClassVar[int] = 1

    def parse(self, text: str, sample: Sample) -> str:
        return text.strip()


class Kie:
    """Key-information extraction: the answer is one JSON object, with or without a code fence."""

    api: ClassVar[int] = 1

    def parse(self, text: str, sample: Sample) -> dict[str, object] | None:
        fenced = _FENCE.match(text)
        try:
            value = json.loads(fenced.group(1) if fenced else text)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


class Classification:
    """Document classification: the answer is the class's name."""

    api: ClassVar[int] = 1

    def parse(self, text: str, sample: Sample) -> str:
        return text.strip().strip(".\"'").casefold()
