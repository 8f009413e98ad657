"""Bars and intervals: categories down, values across."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcbench.reporting.figures.canvas import DrawnFigure
from hpcbench.reporting.figures.figure_data import Series
from hpcbench.reporting.figures.style import NAMED, ROWS, categories, short, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW = 0.26
"""Inches for a category with one series."""

MORE = {"bar": 0.11, "interval": 0.08}
"""Inches for every further series."""


TALL = 18.0
"""Inches that all rows together may take."""


def draw(drawn: DrawnFigure, axes: Axes) -> float:
    """All series of a figure.

    Returns:
        Inches that the figure needs from top to bottom.
    """
    figure = drawn.figure
    names = categories(figure.series)
    abreast = min(NAMED, len(figure.series))
    each = ROW + MORE[figure.kind] * (abreast - 1)
    most = min(ROWS, int(TALL / each))
    shown = {name: place for place, name in enumerate(names[:most])}
    if len(names) > most:
        drawn.notes.append(f"The first {most} of {len(names)} are drawn; the table has all.")
    step = 0.8 / abreast
    for place, one in enumerate(figure.series):
        offset = (min(place, NAMED - 1) - (abreast - 1) / 2) * step
        _series(drawn, axes, one, place, shown, offset, step)
    axes.set_yticks(range(len(shown)), shortened(list(shown)))
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlabel(short(figure.y.titled, 110))
    drawn.scale(axes, "x", figure.y)
    if figure.kind == "bar" and figure.y.low is None and figure.y.scale == "linear":
        axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    if len(figure.series) > 1:
        lines = [line + 0.5 for line in range(len(shown) - 1)]
        axes.hlines(
            lines, 0, 1, transform=axes.get_yaxis_transform(), color=drawn.page.soft, alpha=0.2,
            linewidth=0.5,
        )  # fmt: skip
    drawn.plain(axes, "x", ("top", "right", "left"))
    axes.tick_params(axis="y", length=0)
    return 0.7 + len(shown) * each


def _series(
    drawn: DrawnFigure,
    axes: Axes,
    one: Series,
    place: int,
    shown: dict[str, int],
    offset: float,
    step: float,
) -> None:
    bar = drawn.figure.kind == "bar"
    values, rows, lines, ringed = [], [], [], []
    for number, (name, raw) in enumerate(zip(one.x, one.y, strict=True)):
        value = drawn.at(raw, drawn.figure.y)
        if value is None or str(name) not in shown:
            continue
        row = shown[str(name)] + offset
        values.append(value)
        rows.append(row)
        ends = drawn.ends(one.low, one.high, number, drawn.figure.y)
        if ends is not None:
            lines.append((row, *ends))
        if one.highlight is not None and one.highlight[number]:
            ringed.append((value, row))
        if one.labels is not None and one.labels[number]:
            right = max(value, ends[1] if ends else value)
            axes.annotate(
                short(one.labels[number], 40), (right, row), xytext=(5, 0),
                textcoords="offset points", va="center", fontsize=7.5,
            )  # fmt: skip
    if not values:
        return
    if bar:
        axes.barh(
            rows, values, step * 0.86, color=drawn.shade(place), alpha=0.85, label=drawn.name(place)
        )
    else:
        drawn.points(axes, values, rows, place)
    if lines:
        at, low, high = zip(*lines, strict=True)
        shade, width = (drawn.page.ink, 1.2) if bar else (drawn.shade(place), 2.0)
        axes.hlines(
            at, low, high, color=shade, linewidth=width, alpha=0.9 if bar else 0.6, zorder=2.5
        )
    drawn.rings(axes, [x for x, _ in ringed], [y for _, y in ringed])
