"""Parsers by name, for an ML task's `parser` and for scripts: `JsonObject().parse(text)`.

Each parser says in `wants` what it reads; an ML task adds its schema and policies
(`hpcbench.parsers.reader`). Each has a `version`, which is raised when any answer may be read differently
than before; scores name it.
"""

from __future__ import annotations

from typing import ClassVar

from hpcbench.parsers.deepseek import layout
from hpcbench.parsers.structured import DataParser, Output
from hpcbench.schema.records import Reading


class Text:
    """The answer is the text, without white space around it."""

    api: ClassVar[int] = 1
    wants: ClassVar[Output] = "text"
    version: ClassVar[int] = 2

    def parse(self, text: str) -> str:
        return text.strip()


class Label:
    """The answer is the name of a class, regardless of case, quotes and a full stop."""

    api: ClassVar[int] = 1
    wants: ClassVar[Output] = "label"
    version: ClassVar[int] = 2

    def parse(self, text: str) -> str:
        return text.strip().strip(".\"'").casefold()


class JsonObject:
    """The answer is one JSON object, in any wrapping."""

    api: ClassVar[int] = 1
    wants: ClassVar[Output] = "object"
    version: ClassVar[int] = 2

    def parse(self, text: str) -> object | None:
        return DataParser("object").read(text).value


class DeepSeekOcr:
    """The answer is DeepSeek-OCR's: Markdown with places on the page, which are removed."""

    api: ClassVar[int] = 1

    def parse(self, text: str) -> Reading:
        page = layout(text)
        repairs = (BROKEN_REGIONS,) if page.malformed else ()
        return Reading(page.markdown, form="deepseek_ocr", repairs=repairs)


BROKEN_REGIONS = "broken regions"
"""Some places on the page could not be read; the words are kept."""
