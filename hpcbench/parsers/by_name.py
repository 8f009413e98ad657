"""Parsers by name, for an ML task's `parser` and for scripts: `JsonObject().parse(text)`.

Each parser says in `wants` what it reads; an ML task adds its schema and policies
(`hpcbench.parsers.reader`). Each has a `version`, which is raised when any answer may be read differently
than before; scores name it.
"""

from __future__ import annotations

from typing import ClassVar

from hpcbench.parsers import doctags, layout_json
from hpcbench.parsers.deepseek import layout
from hpcbench.parsers.otsl import tables_as_html
from hpcbench.parsers.structured import DataParser, Output
from hpcbench.parsers.wrapping import unwrapped
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


class LayoutJson:
    """The answer is a list of cells in JSON, with places, categories and texts, as dots.ocr gives it."""

    api: ClassVar[int] = 1

    def parse(self, text: str) -> Reading:
        found = layout_json.markdown_of(text)
        if found is None:
            return Reading(unwrapped(text.strip(), transcript=True)[0], form="text")
        words, repairs = found
        return Reading(words, form="layout_json", repairs=repairs)


class DocTags:
    """The answer is DocTags, as Granite-Docling gives it."""

    api: ClassVar[int] = 1

    def parse(self, text: str) -> Reading:
        if not doctags.is_doctags(text):
            return Reading(unwrapped(text.strip(), transcript=True)[0], form="text")
        words, whole = doctags.markdown_of(text)
        return Reading(words, form="doctags", repairs=() if whole else (OPEN_TAGS,))


class PageHtml:
    """The answer is HTML, with blocks that name their place and label, as Chandra gives it."""

    api: ClassVar[int] = 1

    def parse(self, text: str) -> Reading:
        from hpcbench.parsers import page_html  # lxml: no other parser needs it

        inner = unwrapped(text.strip(), transcript=True)[0]
        words = page_html.markdown_of(inner)
        return Reading(inner, form="text") if words is None else Reading(words, form="page_html")


class FrontMatter:
    """The answer is Markdown after a head of YAML between lines of `---`, as olmOCR gives it."""

    api: ClassVar[int] = 1

    def parse(self, text: str) -> Reading:
        text = unwrapped(text.strip(), transcript=True)[0]
        if not text.startswith("---\n"):
            return Reading(text, form="text")
        _, end, rest = text[4:].partition("\n---")
        if not end:  # the head has no end: nothing says where the page begins
            return Reading(text, form="text", repairs=(OPEN_TAGS,))
        return Reading(rest.strip(), form="front_matter")


class Otsl:
    """The answer is text in which tables are OTSL, as MinerU and PaddleOCR-VL give them."""

    api: ClassVar[int] = 1

    def parse(self, text: str) -> Reading:
        text = unwrapped(text.strip(), transcript=True)[0]
        written = tables_as_html(text)
        return Reading(written, form="text" if written == text else "otsl")


OPEN_TAGS = "open tags"
"""A block of the answer has no end."""
