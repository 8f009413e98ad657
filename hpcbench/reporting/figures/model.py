"""What a figure shows, as plain data: axes, series, flows, a matrix, and the words around them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Scale = Literal["linear", "log", "category", "time"]
"""How an axis counts; `time`: seconds since 1970, shown as dates in UTC."""

Mark = Literal["point", "line", "bar", "step"]
"""How a series is drawn."""

Kind = Literal["bar", "line", "scatter", "histogram", "ecdf", "heatmap", "sankey", "interval"]
"""What is drawn.

`bar`, `interval`: x are categories, y their values; drawn lying on the side, since names are long.
`line`, `scatter`: y over x.
`histogram`: x are edges of the bins, one more than y, which counts.
`ecdf`: y is the share of values that are at most x.
`heatmap`: a matrix. `sankey`: flows; the axes name the two sides.
"""

Ends = tuple["float | None", ...]
"""Ends of intervals, one a point; None where there is none."""


@dataclass(frozen=True, slots=True)
class Axis:
    """What one direction of a figure measures."""

    label: str
    """What it is, in words."""
    unit: str = ""
    """`ms`, `GiB`, `tokens/s`; empty: it has none, or the label says it."""
    scale: Scale = "linear"
    """How it counts."""
    low: float | None = None
    """Where it begins; None: as the data want."""
    high: float | None = None
    """Where it ends; None: as the data want."""

    @property
    def titled(self) -> str:
        """`E2E, ms`."""
        return f"{self.label}, {self.unit}" if self.unit and self.label else self.label or self.unit


@dataclass(frozen=True, slots=True)
class Series:
    """Points that belong together. A value that is None, not a number or not finite is not drawn."""

    name: str
    """What the legend calls it."""
    x: tuple[float | str, ...]
    """Where each point is: numbers, or names on an axis of categories."""
    y: tuple[float | None, ...]
    """Values."""
    low: Ends | None = None
    """Lower ends of the values' intervals."""
    high: Ends | None = None
    """Upper ends of the values' intervals."""
    labels: tuple[str, ...] | None = None
    """What is written beside each point, as far as there is room."""
    mark: Mark | None = None
    """How it is drawn; None: as the kind of figure does."""
    highlight: tuple[bool, ...] | None = None
    """Points that get a ring; `Figure.marked` says what that means."""
    x_low: Ends | None = None
    """Lower ends of the intervals of x."""
    x_high: Ends | None = None
    """Upper ends of the intervals of x."""


@dataclass(frozen=True, slots=True)
class Flow:
    """So many went from here to there."""

    source: str
    """On the left side."""
    target: str
    """On the right side."""
    count: int
    """How many; not below 0."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Cells of a heatmap."""

    rows: tuple[str, ...]
    """Names, from top to bottom."""
    columns: tuple[str, ...]
    """Names, from left to right."""
    values: tuple[tuple[float | None, ...], ...]
    """(rows, columns); None: nothing is known."""
    texts: tuple[tuple[str, ...], ...] | None = None
    """(rows, columns): what stands in the cells; None: the values."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that can be drawn, made interactive, and read as a table.

    Raises:
        ValueError: its parts do not fit together.
    """

    name: str
    """Stem of its files, and of the ids within the page: letters, digits, `-`, `_`, `.`."""
    title: str
    """What stands above it."""
    kind: Kind
    """What is drawn."""
    x: Axis
    """Across; of bars and intervals the categories."""
    y: Axis
    """Up; of bars and intervals the values. Of a heatmap what its values are."""
    series: tuple[Series, ...] = ()
    """What is drawn, in the order of the legend."""
    flows: tuple[Flow, ...] = ()
    """Of a sankey."""
    matrix: Matrix | None = None
    """Of a heatmap."""
    notes: tuple[str, ...] = ()
    """What a reader must know; stands below it."""
    described: str = ""
    """Alternative text: what a reader who cannot see it must know; empty: made of the data."""
    marked: str = "marked"
    """What a ring around a point means."""
    outcomes: bool = False
    """Whether series, and ends of flows, are outcomes of samples: each has one colour everywhere."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", self.name):
            raise ValueError(f"figure '{self.name}': only letters, digits, - _ . name a file")
        for one in self.series:
            self._check(one)
        matrix = self.matrix
        if matrix is not None:
            for cells in (matrix.values, matrix.texts or ()):
                widths = {len(row) for row in cells}
                if cells and (len(cells) != len(matrix.rows) or widths != {len(matrix.columns)}):
                    raise ValueError(f"figure '{self.name}': the matrix is not rows × columns")
        if any(flow.count < 0 for flow in self.flows):
            raise ValueError(f"figure '{self.name}': a flow below 0")

    def _check(self, one: Series) -> None:
        count = len(one.y)
        if len(one.x) != count + (self.kind == "histogram"):
            raise ValueError(f"figure '{self.name}', series '{one.name}': x and y do not fit")
        for more in (one.low, one.high, one.labels, one.highlight, one.x_low, one.x_high):
            if more is not None and len(more) != count:
                raise ValueError(f"figure '{self.name}', series '{one.name}': lengths differ")
        if self.x.scale != "category" and any(isinstance(place, str) for place in one.x):
            raise ValueError(f"figure '{self.name}', series '{one.name}': x must be numbers")
        if self.kind in ("bar", "interval") and self.x.scale != "category":
            raise ValueError(f"figure '{self.name}': the x of a {self.kind} are categories")
