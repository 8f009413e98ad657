"""DocTags, the answers of Granite-Docling and SmolDocling, as Markdown.

Its tags are those of `DocumentToken`, `TableToken` and `_CodeLanguageToken` in docling-core 2.104.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpcbench.parsers.otsl import table_of

_TAG = re.compile(r"<(/?)([a-z_]+[0-9]*)>")
_PLACE = re.compile(r"<loc_\d+>")
_LANGUAGE = re.compile(r"<_[^<>\n]{1,40}_>")
_OUTER = frozenset(
    {"doctag", "document", "unordered_list", "ordered_list", "picture", "inline", "group", "chart"}
)
_LEFT_OUT = frozenset({"page_header", "page_footer", "page_break"})
_TABLES = frozenset({"otsl", "table", "document_index", "chart"})
_TEXTS = frozenset(
    {
        *("caption", "footnote", "formula", "list_item", "text", "title", "code", "paragraph"),
        *("checkbox_selected", "checkbox_unselected", "reference", "handwritten_text", "smiles"),
        *_LEFT_OUT, *_TABLES,
    }
)  # fmt: skip
_HEADING = re.compile(r"section_header_level_([1-9])")


def is_doctags(text: str) -> bool:
    """Whether a text has at least one tag of a block."""
    return any(_is_block(match[2]) for match in _TAG.finditer(text))


def markdown_of(text: str) -> tuple[str, bool]:
    """DocTags as Markdown, and whether every block was closed; any text is accepted.

    Tables become HTML, formulas `$$ … $$`, pictures nothing but their captions. Headers and footers of the
    page are left out. A text without tags stays as it is. Time is linear in the length.
    """
    text = _PLACE.sub("", text)
    blocks = []
    whole = True
    for name, words, closed, numbered in _blocks(text):
        whole &= closed
        if written := _written(name, words, numbered):
            blocks.append(written)
    return "\n\n".join(blocks).strip(), whole


def _is_block(name: str) -> bool:
    return name in _TEXTS or _HEADING.fullmatch(name) is not None


def _blocks(text: str) -> Iterator[tuple[str, str, bool, int]]:
    """Name, words, whether the block was closed, and its number in an ordered list (0: in none)."""
    at, numbers = 0, list[int]()
    name: str | None = None
    begin = 0
    for match in _TAG.finditer(text):
        closes, tag = match[1] == "/", match[2]
        if name is not None:
            # a block ends at its own tag, or where another one begins although it should not
            if closes and tag == name:
                yield name, text[begin : match.start()], True, _next(numbers, name)
                name, at = None, match.end()
                continue
            if closes or not _is_block(tag) or name in _TABLES:
                continue
            yield name, text[begin : match.start()], False, _next(numbers, name)
            name = None
        elif between := text[at : match.start()].strip():
            yield "", between, True, 0
        at = match.end()
        if tag in ("ordered_list", "unordered_list"):
            if closes:
                numbers[-1:] = []
            else:
                numbers.append(1 if tag == "ordered_list" else 0)
        elif not closes and _is_block(tag) and tag != "page_break":
            name, begin = tag, match.end()
    if name is not None:
        yield name, text[begin:], False, _next(numbers, name)
    elif rest := text[at:].strip():
        yield "", rest, True, 0


def _next(numbers: list[int], name: str) -> int:
    if name != "list_item" or not numbers or not numbers[-1]:
        return 0
    numbers[-1] += 1
    return numbers[-1] - 1


def _written(name: str, words: str, number: int) -> str:
    if name in _LEFT_OUT:
        return ""
    if name in _TABLES:
        caption, words = _caption(words)
        rows = table_of(words) if re.search(r"<(?:fcel|ecel|ched|rhed|srow)>", words) else ""
        return "\n\n".join(part for part in (caption, rows) if part)
    if name == "code":
        return f"```\n{_LANGUAGE.sub('', words).strip()}\n```"
    words = _without_tags(words)
    if not words:
        return ""
    if (heading := _HEADING.fullmatch(name)) is not None:
        return f"{'#' * (int(heading[1]) + 1)} {words}"
    if name == "title":
        return f"# {words}"
    if name == "formula":
        return f"$$\n{words}\n$$"
    if name == "list_item":
        return f"{number}. {words}" if number else f"- {words}"
    if name.startswith("checkbox"):
        return f"- [{'x' if name == 'checkbox_selected' else ' '}] {words}"
    return words


def _caption(words: str) -> tuple[str, str]:
    """The caption within a table, and the rest."""
    before, mark, rest = words.partition("<caption>")
    if not mark:
        return "", words
    caption, _, after = rest.partition("</caption>")
    return _without_tags(caption), before + after


def _without_tags(words: str) -> str:
    """Words without tags of DocTags; other angle brackets stay."""
    return _TAG.sub(
        lambda match: "" if match[2] in _OUTER or _is_block(match[2]) else match[0], words
    ).strip()
