"""Pages as lists of cells in JSON, the answers of dots.ocr and Infinity-Parser2, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpcbench.parsers.find_json import find

_LEFT_OUT = frozenset({"page-header", "page-footer", "picture", "header", "footer", "figure"})


def markdown_of(text: str) -> tuple[str, tuple[str, ...]] | None:
    """The Markdown of a page's cells, and what had to be repaired; None: the text holds no such list.

    As in the authors' own scripts (`layoutjson2md` of dots.ocr, commit 36d72488), the texts of cells follow
    each other in the order of the answer, with an empty line between, and a formula without delimiters gets
    `$$`. Headers and footers of the page are left out, as in the files that those scripts call `nohf`, and so
    are pictures. Unlike them, this function repairs an answer that breaks off by closing its JSON.
    """
    for candidate in reversed(find(text, lists=True, truncated=True).candidates):
        cells = _cells(candidate.found.value)
        if cells:
            repairs = candidate.found.repairs + (("cut off",) if candidate.found.cut else ())
            written = (_written(cell) for cell in cells)
            return "\n\n".join(part for part in written if part), repairs
    return None


def _cells(value: object) -> Sequence[Mapping[str, object]]:
    """The cells in a list, or in the one list of an object."""
    if isinstance(value, Mapping):
        lists = [one for one in value.values() if isinstance(one, list)]
        value = lists[0] if len(lists) == 1 else [value]
    if not isinstance(value, list):
        return []
    return [
        one for one in value if isinstance(one, Mapping) and ("category" in one or "bbox" in one)
    ]


def _written(cell: Mapping[str, object]) -> str:
    category, words = cell.get("category"), cell.get("text")
    kind = category.strip().lower() if isinstance(category, str) else ""
    if not isinstance(words, str) or kind in _LEFT_OUT:
        return ""
    words = words.strip()
    if kind == "formula" and words and not any(mark in words for mark in ("$", "\\[", "\\(")):
        return f"$$\n{words}\n$$"
    return words
