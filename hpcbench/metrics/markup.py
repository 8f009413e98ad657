"""Tables in what models write: HTML, whole or in pieces, and Markdown with pipes.

A reader of our own, not a browser's: it knows only what makes a table, so that any text is read, in time
that grows with its length alone, without recursion, and the same with every version of every library.

HTML: `<th>` is a cell like `<td>`; `<thead>`, `<tbody>`, `<tfoot>` and all tags inside a cell are dropped and
their text is kept (`<br>`, paragraphs, list items and the like leave a space); captions, comments and text
outside cells are left out; a table inside a cell is text of the cell. Missing end tags and a missing
`<table>` are supplied; a table that is cut off ends where the text ends.

Markdown: lines with pipes, one after the other, with a delimiter row (`|---|---|`) under the first, or all
beginning with a pipe. `\\|` is a pipe of the text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

# Each piece ends at the next "<" at the latest, and no two of its repetitions can share characters.
_TAG = re.compile(
    r"<(?:!--|(/?)([a-zA-Z][a-zA-Z0-9]*)"
    r"((?:[\s/][^<>\"']*(?:(?:\"[^\"<]*\"|'[^'<]*')[^<>\"']*)*|[\s/][^<>]*)?)>)"
)
_SPAN = {
    name: re.compile(rf"(?:^|[\s/\"']){name}\s*=[\s\"']*([0-9]{{1,9}})", re.IGNORECASE)
    for name in ("colspan", "rowspan")
}
_BREAKS = {
    "br",
    "p",
    "div",
    "li",
    "tr",
    "td",
    "th",
    "table",
    "hr",
    "ul",
    "ol",
    "dd",
    "dt",
    "h1",
    "h2",
    "h3",
}
_LONG_NUMBER = re.compile(r"&#[0-9]{9,};?")
_BOLD = re.compile(r"\*\*([^*]+)\*\*")
_PIPE = re.compile(r"(?<!\\)\|")
_DELIMITER = re.compile(r":?-+:?")


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table."""

    text: str
    """Without tags, character references resolved, whitespace as written."""
    colspan: int = 1
    """Columns it covers; what is no positive number counts as 1."""
    rowspan: int = 1
    """Rows it covers."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table and where it was found."""

    begin: int
    """Place of its first character in the text."""
    end: int
    """Place after its last."""
    rows: list[list[Cell]]
    """Cells as written, row by row; a row can be empty."""
    columns: int = 0
    """Cells that a shorter row is filled up to: the header's in Markdown, none in HTML."""

    @property
    def nodes(self) -> int:
        """Rows and cells, filled up."""
        return sum(1 + max(len(row), self.columns) for row in self.rows)


def read_tables(text: str, markdown: bool = True) -> list[Table]:
    """The tables of a text in its order, none inside another.

    Args:
        text: anything.
        markdown: also those with pipes.
    """
    found = list(_html_tables(text)) if "<" in text else []
    if not markdown or "|" not in text:
        return found
    at, tables = 0, []
    for table in found:
        tables += [*_pipe_tables(text, at, table.begin), table]
        at = table.end
    return [*tables, *_pipe_tables(text, at, len(text))]


def plain_text(text: str) -> str:
    """A piece of HTML without its tags, character references resolved."""
    if "<" in text:
        text = "".join(_without_tags(text))
    if "&" in text:  # Python refuses to read numbers of thousands of digits
        text = html.unescape(_LONG_NUMBER.sub("\N{REPLACEMENT CHARACTER}", text))
    return text


def _without_tags(text: str) -> Iterator[str]:
    at = 0
    for begin, end, name, _, _ in _tags(text):
        yield text[at:begin]
        if name in _BREAKS:
            yield " "
        at = end
    yield text[at:]


def _tags(text: str) -> Iterator[tuple[int, int, str, bool, str]]:
    """(begin, end, name in lower case, is it an end tag, attributes); of a comment the name is empty."""
    at, comments = 0, True
    while match := _TAG.search(text, at):
        begin, at = match.span()
        if match[2] is not None:
            yield begin, at, match[2].lower(), bool(match[1]), match[3]
        elif comments:
            end = text.find("-->", at)
            comments = end >= 0  # one that is not closed is text, and so are all after it
            if comments:
                at = end + 3
                yield begin, at, "", False, ""


class _Reading:
    """A table that is being read."""

    def __init__(self, begin: int) -> None:
        self.begin = self.end = begin
        self.rows: list[list[Cell]] = []
        self.row_open = False
        self.pieces: list[str] | None = None
        """Text of the open cell."""
        self.spans = (1, 1)
        self.inside = 0
        """Tables open inside the cell."""

    def open_row(self) -> None:
        self.close_row()
        self.rows.append([])
        self.row_open = True

    def open_cell(self, attributes: str) -> None:
        self.close_cell()
        if not self.row_open:
            self.open_row()
        self.pieces = []
        self.spans = (_span("colspan", attributes), _span("rowspan", attributes))

    def close_row(self) -> None:
        self.close_cell()
        self.row_open = False

    def close_cell(self) -> None:
        if self.pieces is not None:
            self.rows[-1].append(Cell(plain_text("".join(self.pieces)), *self.spans))
            self.pieces, self.inside = None, 0

    def close(self, end: int) -> Table:
        self.close_row()
        return Table(self.begin, end, self.rows)


def _span(name: str, attributes: str) -> int:
    match = _SPAN[name].search(attributes) if attributes else None
    return max(1, int(match[1])) if match else 1


def _html_tables(text: str) -> Iterator[Table]:
    table: _Reading | None = None
    at = 0
    for begin, end, name, closes, attributes in _tags(text):
        if table is None:
            if closes or name not in ("table", "tr", "td", "th"):
                continue
            table = _Reading(begin)
        elif table.pieces is not None:
            table.pieces.append(text[at:begin])
        at = end
        if table.pieces is not None and _is_content(table, name, closes):
            if name in _BREAKS:
                table.pieces.append(" ")
            continue
        if name == "table":
            if closes or table.begin != begin:
                yield table.close(end if closes else table.end)
                table = None if closes else _Reading(begin)
        elif name == "tr":
            table.close_row() if closes else table.open_row()
        elif name in ("td", "th"):
            table.close_cell() if closes else table.open_cell(attributes)
        elif name in ("thead", "tbody", "tfoot"):
            table.close_row()
        if table is not None and name:
            table.end = end
    if table is not None:
        cut = table.pieces is not None
        if table.pieces is not None:
            table.pieces.append(text[at:])
        yield table.close(len(text) if cut else table.end)


def _is_content(table: _Reading, name: str, closes: bool) -> bool:
    """Does a tag belong to the open cell of a table: it does not end it."""
    if name == "table" and not closes:
        table.inside += 1
        return True
    if table.inside:
        table.inside -= name == "table"
        return True
    return name not in ("table", "tr", "td", "th", "thead", "tbody", "tfoot")


def _pipe_tables(text: str, begin: int, end: int) -> Iterator[Table]:
    """Tables with pipes in a stretch of text."""
    run: list[str] = []
    first = at = begin
    for line in [*text[begin:end].splitlines(keepends=True), ""]:
        if "|" in line:
            if not run:
                first = at
            run.append(line)
        elif run:
            yield from _pipe_table(run, first)
            run = []
        at += len(line)


def _pipe_table(lines: list[str], begin: int) -> Iterator[Table]:
    """The table that a run of lines with pipes is, if it is one."""
    rows = [_pipe_row(line) for line in lines]
    delimiters = [all(_DELIMITER.fullmatch(cell) for cell in row) for row in rows]
    skip = 0
    if any(delimiters[1:]):
        skip = delimiters.index(True, 1) - 1  # its header is the line above it
    elif not any(delimiters) and (
        len(lines) < 2 or not all(line.lstrip().startswith("|") for line in lines)
    ):
        return
    kept = [
        [Cell(_BOLD.sub(r"\1", plain_text(cell))) for cell in row]
        for row, delimiter in zip(rows[skip:], delimiters[skip:], strict=True)
        if not delimiter
    ]
    if kept:
        end = begin + sum(map(len, lines))
        begin += sum(map(len, lines[:skip]))
        yield Table(begin, end, kept, len(kept[0]))


def _pipe_row(line: str) -> list[str]:
    line = line.strip()
    line = line.removeprefix("|")
    if line.endswith("|") and not line.endswith("\\|"):
        line = line[:-1]
    if "\\" not in line:
        return [cell.strip() for cell in line.split("|")]
    return [cell.replace("\\|", "|").strip() for cell in _PIPE.split(line)]
