"""Tables in OTSL, five to nine marks of cells, as HTML.

OTSL is by Lysak et al., "Optimized Table Tokenization for Table Structure Recognition", ICDAR 2023. Its marks
here are those of `TableToken` in docling-core 2.104.0. Granite-Docling, MinerU and PaddleOCR-VL answer in it.
"""

from __future__ import annotations

import html
import re

MARKS = ("fcel", "ecel", "lcel", "ucel", "xcel", "ched", "rhed", "srow", "nl")
_MARK = re.compile(r"<(" + "|".join(MARKS) + r")>")
_HEADS = frozenset({"ched", "rhed", "srow"})


def tables_as_html(text: str) -> str:
    """A text with each run of rows in OTSL written as an HTML table; any text is accepted.

    Words before the first mark stay. A table ends where the text ends or where an empty line follows its last
    row. Time is linear in the length.
    """
    first = _MARK.search(text)
    if first is None:
        return text
    pieces = []
    for block in re.split(r"(\n[ \t]*\n)", text):
        mark = _MARK.search(block)
        if mark is None:
            pieces.append(block)
        else:
            pieces += [block[: mark.start()], table_of(block[mark.start() :])]
    return "".join(pieces)


def table_of(text: str) -> str:
    """Rows in OTSL as one HTML table.

    A cell spans the `lcel` to its right and the `ucel` below it; `xcel` fills the rest of such a block. A
    span without a cell to begin it becomes an empty cell. Words are escaped.
    """
    rows = _rows(text)
    written = ["<table>"]
    for y, row in enumerate(rows):
        written.append("<tr>")
        for x, (mark, words) in enumerate(row):
            if _covered(rows, y, x):
                continue
            tag = "th" if mark in _HEADS else "td"
            wide, high = _wide(row, x), _high(rows, y, x)
            spans = f' colspan="{wide}"' if wide > 1 else ""
            spans += f' rowspan="{high}"' if high > 1 else ""
            written.append(f"<{tag}{spans}>{html.escape(words, quote=False)}</{tag}>")
        written.append("</tr>")
    return "".join([*written, "</table>"])


Cell = tuple[str, str]
"""Mark and words of a cell."""


def _rows(text: str) -> list[list[Cell]]:
    pieces = _MARK.split(text)
    rows: list[list[Cell]] = [[]]
    for mark, words in zip(pieces[1::2], pieces[2::2], strict=True):
        if mark == "nl":
            rows.append([])
        else:
            rows[-1].append((mark, " ".join(words.split())))
    return [row for row in rows if row]


def _covered(rows: list[list[Cell]], y: int, x: int) -> bool:
    """Whether another cell's span reaches this place."""
    mark = rows[y][x][0]
    if mark == "lcel":
        return x > 0
    return mark in ("ucel", "xcel") and y > 0 and x < len(rows[y - 1])


def _wide(row: list[Cell], x: int) -> int:
    end = x + 1
    while end < len(row) and row[end][0] == "lcel":
        end += 1
    return end - x


def _high(rows: list[list[Cell]], y: int, x: int) -> int:
    end = y + 1
    while end < len(rows) and x < len(rows[end]) and rows[end][x][0] == "ucel":
        end += 1
    return end - y
