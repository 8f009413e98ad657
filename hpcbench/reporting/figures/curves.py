"""Lines, points, steps and bins: y over x."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcbench.reporting.figures.canvas import DrawnFigure
from hpcbench.reporting.figures.figure_data import Mark, Series
from hpcbench.reporting.figures.style import (
    DASHES,
    MARKERS,
    NAMED,
    categories,
    finite,
    look,
    short,
    shortened,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 40
"""A line with more points has no markers."""

LABELS = 15
"""If more points have labels, only points with a ring show them."""

TICKS = 24
"""Most categories named below a line."""


def draw(drawn: DrawnFigure, axes: Axes) -> None:
    """All series of a line, scatter or ecdf figure."""
    figure = drawn.figure
    order = categories(figure.series) if figure.x.scale == "category" else []
    places = {name: place for place, name in enumerate(order)}
    few = sum(len(one.y) for one in figure.series if one.labels is not None) <= LABELS
    for place, one in enumerate(figure.series):
        _series(drawn, axes, one, place, places, few)
    if order:
        step = -(-len(order) // TICKS)
        labels = shortened(order, 24)[::step]
        axes.set_xticks(range(0, len(order), step), labels, rotation=30, ha="right")
        axes.tick_params(axis="x", length=0)
    else:
        drawn.scale(axes, "x", figure.x)
    drawn.scale(axes, "y", figure.y)
    if figure.kind == "ecdf":
        axes.set_ylim(0, 1.02)
    axes.set_xlabel(short(figure.x.titled, 110))
    axes.set_ylabel(short(figure.y.titled, 60))
    drawn.plain(axes, "both", ("top", "right"))


def _series(
    drawn: DrawnFigure, axes: Axes, one: Series, place: int, places: dict[str, int], few: bool
) -> None:
    figure = drawn.figure
    usual: dict[str, Mark] = {"line": "line", "ecdf": "step"}
    mark = one.mark or usual.get(figure.kind, "point")
    found: list[tuple[float, float, int]] = []
    for number, (x, y) in enumerate(zip(one.x, one.y, strict=True)):
        across = float(places[str(x)]) if places else drawn.at(x, figure.x)
        up = drawn.at(y, figure.y)
        if across is not None and up is not None:
            found.append((across, up, number))
    if not found:
        return
    xs, ys = [x for x, _, _ in found], [y for _, y, _ in found]
    named = place < NAMED
    dotted = mark == "point" or (mark == "line" and len(found) <= POINTS and named)
    if mark == "point":
        drawn.points(axes, xs, ys, place, 5.5 if named else 3.0)
    else:
        rising = figure.kind == "ecdf" and mark == "step"
        stepped: Any = "steps-post" if mark == "step" else "default"
        dotted = mark == "line" and len(found) <= POINTS and named
        marker, dash = look(place)
        axes.plot(
            [xs[0], *xs] if rising else xs, [0.0, *ys] if rising else ys, drawstyle=stepped,
            color=drawn.shade(place), linewidth=1.6 if named else 0.6, alpha=0.95 if named else 0.35,
            dashes=(DASHES[dash] if named else ()) or (None, None), label=drawn.name(place),
            marker=MARKERS[marker] if dotted else None, markersize=5.5, markeredgewidth=0,
            zorder=2.6 if named else 1.5,
        )  # fmt: skip
    _intervals(drawn, axes, one, place, found)
    ringed = [point for point in found if one.highlight is not None and one.highlight[point[2]]]
    drawn.rings(axes, [x for x, _, _ in ringed], [y for _, y, _ in ringed])
    drawn.dots += [(x, y) for x, y, _ in found] if mark != "step" else []
    if one.labels is not None:
        shown = found if few else ringed
        drawn.labels += [(x, y, short(one.labels[at], 28)) for x, y, at in shown if one.labels[at]]


def _intervals(
    drawn: DrawnFigure, axes: Axes, one: Series, place: int, found: list[tuple[float, float, int]]
) -> None:
    look_: Any = {"color": drawn.shade(place), "linewidth": 1.4, "alpha": 0.55}
    up = [(x, drawn.ends(one.low, one.high, at, drawn.figure.y)) for x, _, at in found]
    lines = [(x, *ends) for x, ends in up if ends is not None]
    if lines:
        axes.vlines(*zip(*lines, strict=True), **look_)
    across = [(y, drawn.ends(one.x_low, one.x_high, at, drawn.figure.x)) for _, y, at in found]
    lines = [(y, *ends) for y, ends in across if ends is not None]
    if lines:
        axes.hlines(*zip(*lines, strict=True), **look_)


def draw_bins(drawn: DrawnFigure, axes: Axes) -> None:
    """All series of a histogram: a single series filled, several as outlines."""
    alone = len(drawn.figure.series) == 1
    for place, one in enumerate(drawn.figure.series):
        edges = [finite(edge) or 0.0 for edge in one.x]
        counts = [finite(count) or 0.0 for count in one.y]
        named = place < NAMED
        dashes = DASHES[look(place)[1]] if named else ()
        axes.stairs(
            counts, edges, fill=alone, color=drawn.shade(place), alpha=0.9 if named else 0.35,
            linewidth=1.6 if named else 0.6, label=drawn.name(place),
            linestyle=(0, dashes) if dashes else "-",
        )  # fmt: skip
        if alone:  # bins of one colour need a line between them
            axes.vlines(edges, 0, [*counts, 0], color=drawn.page.soft, linewidth=0.4, alpha=0.6)
    drawn.scale(axes, "x", drawn.figure.x)
    drawn.scale(axes, "y", drawn.figure.y)
    axes.set_xlabel(short(drawn.figure.x.titled, 110))
    axes.set_ylabel(short(drawn.figure.y.titled, 60))
    drawn.plain(axes, "y", ("top", "right"))
