"""Elements of a report: sections of paragraphs, tables, plots, lists and samples, before any format.

`sections` builds them from the tables; each format writes them in its syntax. All text is plain and
unescaped: a format escapes all of it, names and answers of models alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from hpcbench.reporting.figures import Figure
from hpcbench.reporting.report_tables import WorstSample

Style = Literal["lead", "plain", "note", "warn"]


class Strong(str):
    """A highlighted cell: the best of its column."""

    __slots__ = ()


class Link(str):
    """A cell that links to another place of the page."""

    __slots__ = ("to",)
    to: str
    """The anchor."""

    def __new__(cls, text: str, to: str) -> Link:
        made = super().__new__(cls, text)
        made.to = to
        return made


def code_pieces(text: str) -> list[tuple[bool, str]]:
    """Text of hpcbench's own in pieces, each with whether it is code: what was between two backticks."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return [(False, text)]
    return [(bool(n % 2), one) for n, one in enumerate(pieces)]


def with_outer_spaces(text: str, escaped: str) -> str:
    """A text in its escaped form, with a space at each end where the text has one."""
    before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    return f"{before and ' '}{escaped}{after and ' '}" if text.strip() else before and " "


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    text: str
    style: Style = "plain"
    """`lead`: for a hurried reader; `note`: small print; `warn`: a reader must not overlook it."""


@dataclass(frozen=True, slots=True)
class Code:
    """A command or a file, verbatim."""

    text: str
    title: str = ""
    """Folded under this title where a format can fold; empty: shown."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with formatted cells."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """Each row is as long as `heads`."""
    names: int = 1
    """Number of columns at the left that name the row's subject."""
    texts: frozenset[int] = frozenset()
    """Further columns that hold text; all others hold numbers."""
    title: str = ""
    """Folded under this title where a format can fold; empty: shown."""


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a list."""

    name: str
    """Its subject; may be empty."""
    text: str
    inner: tuple[str, ...] = ()
    """Lines below it."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure, with a table of its data unless the report has that table already."""

    figure: Figure
    with_table: bool = True


@dataclass(frozen=True, slots=True)
class Shown:
    """A sample with its answer, an entry of the tables' `worst`."""

    run_task: str
    sample: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Flipped:
    """A sample whose value differs between two runs."""

    anchor: str
    """Target of links."""
    change: Literal["won", "lost"]
    """Whether the candidate won or lost the sample."""
    baseline: WorstSample
    """The sample in the baseline."""
    candidate: WorstSample
    """The sample in the candidate."""


Block = Text | Code | Table | Items | Plot | Shown | Flipped


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks below a heading of the third level."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks below a heading of the second level."""

    name: str
    """Its name in options, and the anchor."""
    title: str
    blocks: tuple[Block, ...] = ()
    parts: tuple[Part, ...] = field(default=())
