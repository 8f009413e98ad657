"""What a report is made of: sections of paragraphs, tables, plots, lists and samples, before any format.

`sections` makes them of the tables; each format writes them in its own words. All text is plain text that
nobody has escaped yet: a format escapes all of it, names and answers of models alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from hpcbench.reporting.figures import Figure
from hpcbench.reporting.report_tables import WorstSample

Style = Literal["lead", "plain", "note", "warn"]


class Strong(str):
    """A cell that stands out: the best of its column."""

    __slots__ = ()


class Link(str):
    """A cell that leads to another place of the page."""

    __slots__ = ("to",)
    to: str
    """The anchor."""

    def __new__(cls, text: str, to: str) -> Link:
        made = super().__new__(cls, text)
        made.to = to
        return made


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    text: str
    style: Style = "plain"
    """`lead`: what a hurried reader reads; `note`: small print; `warn`: what must not be overlooked."""


@dataclass(frozen=True, slots=True)
class Code:
    """A command or a file, word by word."""

    text: str
    title: str = ""
    """Folded under this title where a format can fold; empty: shown."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose cells are formatted."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """As long as `heads` each."""
    names: int = 1
    """So many columns at the left name what the row is of."""
    texts: frozenset[int] = frozenset()
    """Columns beside those that hold text; all others hold numbers."""
    title: str = ""
    """Folded under this title where a format can fold; empty: shown."""


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a list."""

    name: str
    """What it is about; may be empty."""
    text: str
    inner: tuple[str, ...] = ()
    """Lines below it."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure, with the table of what it shows unless that stands beside it anyway."""

    figure: Figure
    with_table: bool = True


@dataclass(frozen=True, slots=True)
class Shown:
    """A sample with its answer, as `worst` of the tables has it."""

    run_task: str
    sample: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Flipped:
    """A sample that two runs did differently."""

    anchor: str
    """Where links lead to."""
    change: Literal["won", "lost"]
    """What the candidate did."""
    baseline: WorstSample
    """What the baseline made of it."""
    candidate: WorstSample
    """What the candidate made of it."""


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
    """What options call it, and the anchor."""
    title: str
    blocks: tuple[Block, ...] = ()
    parts: tuple[Part, ...] = field(default=())
