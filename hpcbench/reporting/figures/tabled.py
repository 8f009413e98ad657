"""The table of a figure: its data, as numbers to read and copy."""

from __future__ import annotations

import math

from hpcbench.reporting.figures.figure_data import Axis, Figure, Series
from hpcbench.reporting.figures.style import clean, finite, moment

Cell = float | int | str | None
"""A value; None: unknown."""

SHARES = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Columns of a distribution's table."""


def table(figure: Figure) -> tuple[list[str], list[list[Cell]]]:
    """Heads and rows of a figure: values as numbers, names complete and on one line.

    A distribution (`ecdf`) is given by its quantiles: the least value that such a share is at or below.
    """
    makers = {
        "sankey": _of_flows,
        "heatmap": _of_matrix,
        "histogram": _of_bins,
        "ecdf": _of_shares,
    }
    heads, rows = makers.get(figure.kind, _of_points)(figure)
    return [clean(head) for head in heads], rows


def _of_flows(figure: Figure) -> tuple[list[str], list[list[Cell]]]:
    heads = [figure.x.label or "from", figure.y.label or "to", "samples"]
    return heads, [[clean(one.source), clean(one.target), one.count] for one in figure.flows]


def _of_matrix(figure: Figure) -> tuple[list[str], list[list[Cell]]]:
    matrix = figure.matrix
    if matrix is None:
        return [figure.y.titled], []
    heads = [figure.y.titled, *matrix.columns]
    rows: list[list[Cell]] = []
    for place, name in enumerate(matrix.rows):
        cells: list[Cell] = [finite(value) for value in matrix.values[place]]
        if matrix.texts is not None:
            cells = [clean(text) or "–" for text in matrix.texts[place]]
        rows.append([clean(name), *cells])
    return heads, rows


def _of_bins(figure: Figure) -> tuple[list[str], list[list[Cell]]]:
    heads = ["", f"{figure.x.titled} from", "to", figure.y.titled]
    rows: list[list[Cell]] = [
        [clean(one.name), *span, finite(count)]
        for one in figure.series
        for span, count in zip(spans(one, figure.x), one.y, strict=True)
    ]
    return _without_single_name(figure, heads, rows)


def spans(one: Series, axis: Axis) -> list[tuple[float | None, float | None]]:
    """From where to where each bin of a histogram goes; of whole numbers, its first and its last one."""
    edges = [finite(edge) for edge in one.x]
    found = zip(edges[:-1], edges[1:], strict=True)
    if not axis.whole:
        return [*found]
    return [
        (None if low is None else math.ceil(low), None if high is None else math.ceil(high) - 1)
        for low, high in found
    ]


def _of_shares(figure: Figure) -> tuple[list[str], list[list[Cell]]]:
    heads = [figure.x.titled, *(f"{share * 100:g} %" for share in SHARES), "greatest"]
    rows: list[list[Cell]] = []
    for one in figure.series:
        points = [(finite(x), finite(y)) for x, y in zip(one.x, one.y, strict=True)]
        known = sorted((y, x) for x, y in points if x is not None and y is not None)
        # A share of n-ths may be below 0.05 by the last bit of a float.
        cells: list[Cell] = [
            next((x for y, x in known if y >= share - 1e-9), None) for share in SHARES
        ]
        rows.append([clean(one.name), *cells, max((x for _, x in known), default=None)])
    return heads, rows


def _of_points(figure: Figure) -> tuple[list[str], list[list[Cell]]]:
    columns = {
        "low": f"{figure.y.label} low",
        "high": f"{figure.y.label} high",
        "x_low": f"{figure.x.label} low",
        "x_high": f"{figure.x.label} high",
        "labels": "label",
        "highlight": figure.marked,
    }
    there = [
        name
        for name in columns
        if any(any(cell is not None for cell in getattr(one, name) or ()) for one in figure.series)
    ]
    heads = ["", figure.x.titled, figure.y.titled, *(columns[name] for name in there)]
    rows: list[list[Cell]] = [
        [
            clean(one.name),
            _placed(one.x[place], figure.x),
            finite(value),
            *(_cell(one, name, place) for name in there),
        ]
        for one in figure.series
        for place, value in enumerate(one.y)
    ]
    return _without_single_name(figure, heads, rows)


def _placed(place: float | str, axis: Axis) -> Cell:
    if isinstance(place, str):
        return clean(place)
    return moment(place) if axis.scale == "time" else finite(place)


def _cell(one: Series, name: str, place: int) -> Cell:
    column = getattr(one, name)
    cell = None if column is None else column[place]
    if name == "highlight":
        return "yes" if cell else ""
    if name == "labels":
        return clean(cell or "")
    return finite(cell)


def _without_single_name(
    figure: Figure, heads: list[str], rows: list[list[Cell]]
) -> tuple[list[str], list[list[Cell]]]:
    """A table without the name of its only series, which the title contains."""
    if len(figure.series) > 1:
        return ["series", *heads[1:]], rows
    return heads[1:], [row[1:] for row in rows]
