"""Contents of a figure, as plain data: axes, series, flows, a matrix, and texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Scale = Literal["linear", "log", "category", "time"]
"""Scale of an axis; `time`: seconds since 1970, shown as dates in UTC."""

Mark = Literal["point", "line", "bar", "step"]
"""How a series is drawn."""

Kind = Literal["bar", "line", "scatter", "histogram", "ecdf", "heatmap", "sankey", "interval"]
"""The type of a figure.

`bar`, `interval`: x are categories, y their values; drawn horizontally, since names are long.
`line`, `scatter`: y over x.
`histogram`: x are edges of the bins, one more than y, which counts.
`ecdf`: y is the share of values that are at most x.
`heatmap`: a matrix. `sankey`: flows; the axes name the two sides.
"""

Ends = tuple["float | None", ...]
"""Ends of intervals, one for each point; None: no end."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of a figure."""

    label: str
    """Its subject, in words."""
    unit: str = ""
    """`ms`, `GiB`, `tokens/s`; empty: no unit, or the label contains it."""
    scale: Scale = "linear"
    """Its scale."""
    low: float | None = None
    """Where it starts; None: the data decide."""
    high: float | None = None
    """Where it ends; None: the data decide."""
    whole: bool = False
    """Whether it counts whole things: a bin from -0.5 to 2.5 has 0 to 2, only whole numbers are written."""

    @property
    def titled(self) -> str:
        """`E2E, ms`."""
        return f"{self.label}, {self.unit}" if self.unit and self.label else self.label or self.unit


@dataclass(frozen=True, slots=True)
class Series:
    """Points that belong together. A value that is None, not a number or not finite is not drawn."""

    name: str
    """Its name in the legend."""
    x: tuple[float | str, ...]
    """Position of each point: numbers, or names on an axis of categories."""
    y: tuple[float | None, ...]
    """Values."""
    low: Ends | None = None
    """Lower ends of the values' intervals."""
    high: Ends | None = None
    """Upper ends of the values' intervals."""
    labels: tuple[str, ...] | None = None
    """Text beside each point, where there is space."""
    mark: Mark | None = None
    """How the series is drawn; None: as usual for the kind of figure."""
    highlight: tuple[bool, ...] | None = None
    """Points with a ring; `Figure.marked` explains it."""
    x_low: Ends | None = None
    """Lower ends of the intervals of x."""
    x_high: Ends | None = None
    """Upper ends of the intervals of x."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A number of samples that go from one side's name to the other's."""

    source: str
    """Name on the left side."""
    target: str
    """Name on the right side."""
    count: int
    """How many samples; not below 0."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Cells of a heatmap."""

    rows: tuple[str, ...]
    """Names, from top to bottom."""
    columns: tuple[str, ...]
    """Names, from left to right."""
    values: tuple[tuple[float | None, ...], ...]
    """(rows, columns); None: unknown."""
    texts: tuple[tuple[str, ...], ...] | None = None
    """(rows, columns): texts of the cells; None: the values."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that can be drawn, made interactive, and read as a table.

    Raises:
        ValueError: the parts do not match each other.
    """

    name: str
    """Stem of its files, and of the ids within the page: letters, digits, `-`, `_`, `.`."""
    title: str
    """Its heading."""
    kind: Kind
    """The type of the figure."""
    x: Axis
    """Horizontal axis; for bars and intervals the categories."""
    y: Axis
    """Vertical axis; for bars and intervals the values. For a heatmap the axis of its values."""
    series: tuple[Series, ...] = ()
    """The series, in the order of the legend."""
    flows: tuple[Flow, ...] = ()
    """Flows of a sankey."""
    matrix: Matrix | None = None
    """Matrix of a heatmap."""
    notes: tuple[str, ...] = ()
    """Notes for the reader, below the figure."""
    described: str = ""
    """Alternative text, for readers who cannot see the figure; empty: derived from the data."""
    marked: str = "marked"
    """Meaning of a ring around a point."""
    outcomes: bool = False
    """Whether series, and ends of flows, are outcomes of samples: each has one colour everywhere."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.+-]+", self.name):
            raise ValueError(
                f"figure '{self.name}': use only letters, digits and - _ . + in the name of a file"
            )
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
