"""Pages as HTML, the answers of Chandra, as Markdown with tables in HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lxml.html import HtmlElement

_LEFT_OUT = frozenset({"Page-Header", "Page-Footer", "Image", "Figure", "Blank-Page"})
_KEPT = re.compile(r'\s+(?!(?:colspan|rowspan)=)[\w-]+="[^"]*"')
_BLOCKS = frozenset({"p", "div", "ul", "ol", "pre", "hr", "body", "caption", "blockquote"})
_DEEPEST = 100
"""Deepest nesting that is read; libxml2 itself stops at 256."""
_TAG = re.compile(r"<[a-zA-Z][^<>]*>")


def markdown_of(text: str) -> str | None:
    """The Markdown of a page; None: the text has no tag, or libxml2 cannot read it.

    As in the authors' own converter (`parse_markdown` of chandra-ocr 0.2.0, without its options), headers and
    footers of the page and pictures are left out, tables stay HTML, and formulas get `$` or `$$`. Unlike it,
    this function escapes no character of Markdown, and removes attributes of tables but their spans.
    """
    if not _TAG.search(text):
        return None
    # Here, not at the top: it takes 8 MB, and most processes, the portal among them, read no such page.
    from lxml import etree
    from lxml import html as lxml_html

    try:
        # libxml2 takes no characters that XML forbids
        root = lxml_html.document_fromstring("".join(c for c in text if c >= " " or c in "\t\n"))
    except (etree.LxmlError, ValueError):
        return None
    body = root.find("body")
    written = "".join(_inside(root if body is None else body, 0))
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", written)).strip()


def _inside(element: HtmlElement, depth: int) -> Iterator[str]:
    yield _words(element.text)
    for child in element:
        if isinstance(child.tag, str) and child.get("data-label") not in _LEFT_OUT:
            yield from _element(child, depth + 1)
        yield _words(child.tail)


def _words(text: str | None) -> str:
    return re.sub(r"\s+", " ", text) if text else ""


def _element(one: HtmlElement, depth: int) -> Iterator[str]:
    tag = one.tag
    if depth > _DEEPEST:
        yield _words(one.text_content())
    elif tag == "table":
        from lxml import etree

        table = etree.tostring(one, encoding="unicode", method="html", with_tail=False)
        yield f"\n\n{_KEPT.sub('', table)}\n\n"
    elif tag == "math":
        formula = (one.text_content() or "").strip()
        yield f"\n$$\n{formula}\n$$\n" if one.get("display") == "block" else f"${formula}$"
    elif tag == "br":
        yield "\n"
    elif tag in ("img", "input"):
        yield ("- [x] " if one.get("checked") is not None else "- [ ] ") if tag == "input" else ""
    elif len(tag) == 2 and tag[0] == "h" and tag[1] in "123456":
        yield f"\n\n{'#' * int(tag[1])} {''.join(_inside(one, depth)).strip()}\n\n"
    elif tag == "li":
        parent = one.getparent()
        ordered = parent is not None and parent.tag == "ol"
        place = 1 + sum(1 for _ in one.itersiblings("li", preceding=True)) if ordered else 0
        yield f"\n{f'{place}.' if ordered else '-'} {''.join(_inside(one, depth)).strip()}"
    elif tag in ("b", "strong"):
        yield _around("**", "".join(_inside(one, depth)))
    elif tag in ("i", "em"):
        yield _around("*", "".join(_inside(one, depth)))
    elif tag in ("sup", "sub"):
        yield f"<{tag}>{''.join(_inside(one, depth))}</{tag}>"
    elif tag == "pre":
        yield f"\n\n```\n{(one.text_content() or '').strip()}\n```\n\n"
    elif tag in _BLOCKS:
        yield "\n\n"
        yield from _inside(one, depth)
        yield "\n\n"
    else:
        yield from _inside(one, depth)


def _around(mark: str, words: str) -> str:
    inner = words.strip()
    return words.replace(inner, f"{mark}{inner}{mark}", 1) if inner else words
