"""A matrix as coloured cells, and flows between two sides as bands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcbench.reporting.figures.canvas import DrawnFigure
from hpcbench.reporting.figures.figure_data import Matrix
from hpcbench.reporting.figures.flows import Ribbon, Side, laid_out, names_of
from hpcbench.reporting.figures.style import (
    NAMED,
    ROWS,
    SHADES,
    blend,
    colour,
    finite,
    number,
    outcome_colour,
    readable_on,
    short,
    shortened,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 40
"""Most columns of a matrix that a drawing shows."""


def draw_matrix(drawn: DrawnFigure, axes: Axes) -> float:
    """A heatmap; with few columns the cells contain the values, with many a scale is beside them.

    Returns:
        Inches that the figure needs from top to bottom.
    """
    import numpy
    from matplotlib.colors import LinearSegmentedColormap

    matrix = drawn.figure.matrix
    assert matrix is not None  # else there is nothing to draw
    for most, names, what in ((ROWS, matrix.rows, "rows"), (COLUMNS, matrix.columns, "columns")):
        if len(names) > most:
            note = f"The first {most} of {len(names)} {what} are drawn; the table has all."
            drawn.notes.append(note)
    rows, columns = matrix.rows[:ROWS], matrix.columns[:COLUMNS]
    known = [[finite(cell) for cell in row[: len(columns)]] for row in matrix.values[: len(rows)]]
    values = numpy.array([[numpy.nan if cell is None else cell for cell in row] for row in known])
    low, high = _span(drawn, known)
    shades = LinearSegmentedColormap.from_list("one hue", SHADES)
    axes.pcolormesh(values, cmap=shades, vmin=low, vmax=high, edgecolor="#8f98a3", linewidth=0.3)
    axes.invert_yaxis()
    axes.set_yticks([place + 0.5 for place in range(len(rows))], shortened(rows))
    level = sum(len(short(name, 26)) + 2 for name in columns) <= 84
    axes.set_xticks(
        [place + 0.5 for place in range(len(columns))], shortened(columns, 26),
        rotation=0 if level else 35, ha="center" if level else "right",
        rotation_mode="default" if level else "anchor", fontsize=8 if len(columns) <= NAMED else 6.5,
    )  # fmt: skip
    axes.tick_params(length=0)
    drawn.plain(axes, None, ("top", "right", "left", "bottom"))
    axes.set_xlabel(short(drawn.figure.x.titled, 110))
    if len(columns) <= NAMED:
        _write_cells(drawn, axes, matrix, known, (low, high))
    else:
        drawn.notes.append(
            f"Palest: {number(low)}, darkest: {number(high)} ({drawn.figure.y.titled})."
        )
    longest = 0 if level else max(len(short(name, 26)) for name in columns)
    return 0.55 + 0.3 * len(rows) + 0.045 * longest


def _span(drawn: DrawnFigure, known: list[list[float | None]]) -> tuple[float, float]:
    """Values of the palest and of the darkest shade."""
    there = [cell for row in known for cell in row if cell is not None]
    low, high = drawn.figure.y.low, drawn.figure.y.high
    low = min(there, default=0.0) if low is None else low
    high = max(there, default=1.0) if high is None else high
    return (low, high) if low < high else (low, low + (abs(low) or 1.0))


def _write_cells(
    drawn: DrawnFigure,
    axes: Axes,
    matrix: Matrix,
    known: list[list[float | None]],
    span: tuple[float, float],
) -> None:
    low, high = span
    room = max(5, 84 // len(known[0]))
    for row, cells in enumerate(known):
        for column, cell in enumerate(cells):
            text = number(cell) if matrix.texts is None else matrix.texts[row][column]
            ink = drawn.page.ink
            if cell is not None:
                part = min(1.0, max(0.0, (cell - low) / (high - low)))
                ink = readable_on(blend(SHADES[0], SHADES[1], part))
            axes.text(
                column + 0.5, row + 0.5, short(text, room), ha="center", va="center", fontsize=8, color=ink
            )  # fmt: skip


def draw_flows(drawn: DrawnFigure, axes: Axes) -> float:
    """A sankey: blocks on two sides; bands between blocks of one name are pale, all others strong.

    Returns:
        Inches that the figure needs from top to bottom.
    """
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.path import Path

    figure = drawn.figure
    left, right, ribbons = laid_out(figure.flows)
    names = names_of(figure.flows)

    def shade_of(name: str) -> str:
        return outcome_colour(name) if figure.outcomes else colour(names.index(name))

    height = min(9.0, max(2.6, 0.5 + 0.42 * max(len(left), len(right))))
    codes = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3, Path.CLOSEPOLY]
    for ribbon in ribbons:
        shade = shade_of(ribbon.source)
        moved = ribbon.source != ribbon.target
        band = Path(_corners(ribbon), codes)
        axes.add_patch(PathPatch(band, facecolor=shade, alpha=0.65 if moved else 0.25, linewidth=0))
    for sides, x, align in ((left, 0.0, "right"), (right, 1.0, "left")):
        for side in sides:
            shade = shade_of(side.name)
            corner, tall = (x - 0.012, side.low), side.high - side.low
            axes.add_patch(Rectangle(corner, 0.024, tall, color=shade, linewidth=0))
        _write_sides(axes, sides, x + (0.025 if align == "left" else -0.025), align, height)
    for x, align, text in ((0.012, "right", figure.x.label), (0.988, "left", figure.y.label)):
        axes.text(x, 1.03, short(text, 36), ha=align, va="bottom", fontweight="bold")
    axes.set_xlim(-0.5, 1.5)
    axes.set_ylim(-0.03, 1.0 + 0.3 / height)
    axes.axis("off")
    return height


def _write_sides(axes: Axes, sides: list[Side], x: float, align: str, height: float) -> None:
    """Names beside their blocks; pushed down where blocks are thinner than a line."""
    line = 0.19 / height
    lowest = 2.0
    for side in sides:  # from top to bottom
        lowest = min((side.low + side.high) / 2, lowest - line)
        text = f"{short(side.name, 28)}  {side.count:,}"
        axes.text(x, lowest, text, ha=align, va="center", fontsize=8.5)


def _corners(ribbon: Ribbon) -> list[tuple[float, float]]:
    """Corners of a band with horizontal ends: cubic curves with both handles in the middle."""
    left, right, half = 0.012, 0.988, 0.5
    return [
        (left, ribbon.source_high),
        (half, ribbon.source_high), (half, ribbon.target_high), (right, ribbon.target_high),
        (right, ribbon.target_low),
        (half, ribbon.target_low), (half, ribbon.source_low), (left, ribbon.source_low),
        (left, ribbon.source_high),
    ]  # fmt: skip
