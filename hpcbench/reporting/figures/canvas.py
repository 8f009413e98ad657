"""Common parts of all drawings of a figure: the page, colours, rings, scales, positions of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hpcbench.reporting.figures.figure_data import Axis, Ends, Figure
from hpcbench.reporting.figures.style import (
    MARKERS,
    NAMED,
    Page,
    clean,
    colour,
    finite,
    look,
    moment,
    outcome_colour,
    shortened,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

SHORT = 2000
"""A logarithmic axis whose end is less than this many times its start has ticks at 1, 2 and 5."""


class DrawnFigure:
    """A figure while it is drawn."""

    def __init__(self, figure: Figure, page: Page) -> None:
        self.figure = figure
        self.page = page
        self.notes = [clean(note) for note in figure.notes]
        """Notes below the drawing; a drawing adds what it leaves out."""
        self.labels: list[tuple[float, float, str]] = []
        """Points to label, and their labels."""
        self.dots: list[tuple[float, float]] = []
        """All points that a label should not hide."""
        self.names = shortened([one.name for one in figure.series[:NAMED]])
        """Names of the series that have their own colour."""
        self.ring: Line2D | None = None
        """The ring in the legend; None: there are no rings."""

    def shade(self, place: int) -> str:
        """A series' colour."""
        if self.figure.outcomes:
            return outcome_colour(self.figure.series[place].name)
        return colour(place) if place < NAMED else self.page.soft

    def name(self, place: int) -> str | None:
        """A series' name in the legend; None: the legend does not contain it."""
        return self.names[place] if place < NAMED else None

    def at(self, value: object, axis: Axis) -> float | None:
        """A number's position on this axis: for a time the days since 1970; None: no position."""
        found = finite(value)
        if found is None or (axis.scale == "log" and found <= 0):
            return None
        if axis.scale == "time":
            return None if moment(found) == "–" else found / 86400
        return found

    def ends(
        self, low: Ends | None, high: Ends | None, place: int, axis: Axis
    ) -> tuple[float, float] | None:
        """Both ends of a point's interval; None where one is missing."""
        if low is None or high is None:
            return None
        ends = self.at(low[place], axis), self.at(high[place], axis)
        return None if ends[0] is None or ends[1] is None else (ends[0], ends[1])

    def points(
        self, axes: Axes, xs: Sequence[float], ys: Sequence[float], place: int, size: float = 5.5
    ) -> None:
        """Markers of a series, and its place in the legend."""
        axes.plot(
            xs, ys, linestyle="none", marker=MARKERS[look(place)[0]], color=self.shade(place),
            markersize=size, markeredgewidth=0, label=self.name(place), zorder=3,
        )  # fmt: skip

    def rings(self, axes: Axes, xs: Sequence[float], ys: Sequence[float]) -> None:
        """Rings around marked points; the legend explains them."""
        if xs:
            (drawn,) = axes.plot(
                xs, ys, linestyle="none", marker="o", markersize=12, fillstyle="none",
                markeredgewidth=1.3, color=self.page.ink, zorder=3.5,
            )  # fmt: skip
            self.ring = self.ring or drawn

    def scale(self, axes: Axes, which: str, axis: Axis) -> None:
        """Set the scale and the limits of one direction from its axis."""
        ticks = axes.xaxis if which == "x" else axes.yaxis
        if axis.scale == "log":
            (axes.set_xscale if which == "x" else axes.set_yscale)("log")
            begin, end = ticks.get_view_interval()
            if begin > 0 and end / begin < SHORT:
                from matplotlib.ticker import LogLocator

                ticks.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=20))
            ticks.set_major_formatter(lambda value, _: f"{value:,.6g}".replace(",", " "))
            ticks.set_minor_formatter(lambda value, _: "")
        elif axis.scale == "time":
            from matplotlib import dates

            known: Any = dates  # matplotlib.dates has no types
            locator = known.AutoDateLocator(tz="UTC", minticks=3, maxticks=9)
            ticks.set_major_locator(locator)
            ticks.set_major_formatter(known.ConciseDateFormatter(locator, tz="UTC"))
        elif axis.whole:
            from matplotlib.ticker import MaxNLocator

            ticks.set_major_locator(MaxNLocator("auto", integer=True))
        low, high = self.at(axis.low, axis), self.at(axis.high, axis)
        if low is None or high is None or low < high:
            (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)

    def plain(self, axes: Axes, grid: Any, without: Sequence[str]) -> None:
        """No background, a faint grid, only the necessary frame."""
        axes.patch.set_alpha(0)
        if grid is not None:
            axes.grid(axis=grid, color=self.page.soft, alpha=0.25, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[list(without)].set_visible(False)
