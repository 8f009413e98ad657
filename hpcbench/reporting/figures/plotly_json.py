"""Figures as Plotly's JSON, for a page that has Plotly's script; Plotly itself is not needed here.

Fields are those of Plotly's published schema (https://plotly.com/javascript/reference/).
"""

from __future__ import annotations

import itertools
from typing import Any

from hpcbench.reporting.figures.figure_data import Axis, Ends, Figure, Series
from hpcbench.reporting.figures.flows import laid_out, names_of
from hpcbench.reporting.figures.style import (
    COLOURS,
    NAMED,
    PAGES,
    SHADES,
    SYMBOLS,
    WORDS,
    Page,
    Theme,
    categories,
    clean,
    colour,
    described,
    finite,
    look,
    moment,
    number,
    outcome_colour,
    short,
)
from hpcbench.reporting.figures.tabled import spans

NAMES = 60
"""Letters of a name on an axis or in a legend; the hover text has all."""


LABELS = 15
"""Points of a series with more points show their labels only in the hover text."""


def plotly(figure: Figure, theme: Theme = "light") -> dict[str, Any]:
    """A figure as `{"data": […], "layout": {…}}`, plain data without NaN.

    `layout.meta` holds values without a place in Plotly: `described`, the alternative text, and `notes`.
    """
    page = PAGES[theme]
    if figure.kind == "sankey":
        traces = [_flows(figure, page)] if any(flow.count for flow in figure.flows) else []
    elif figure.kind == "heatmap":
        traces = [_cells(figure)] if figure.matrix is not None else []
    elif figure.kind == "histogram":
        traces = [_bins(figure, one, place) for place, one in enumerate(figure.series)]
    elif figure.kind in ("bar", "interval"):
        traces = [_lying(figure, one, place, page) for place, one in enumerate(figure.series)]
    else:
        traces = [_curve(figure, one, place, page) for place, one in enumerate(figure.series)]
    return {"data": traces, "layout": _layout(figure, page)}


def harmless(text: str) -> str:
    """A name that Plotly shows literally: it interprets tags and, with MathJax, `$`."""
    safe = clean(text)
    for letter, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("$", "&#36;")):
        safe = safe.replace(letter, entity)
    return safe


def _short(text: str) -> str:
    return harmless(short(text, NAMES))


def _layout(figure: Figure, page: Page) -> dict[str, Any]:
    rows = 0
    if figure.kind in ("bar", "interval"):
        abreast = min(NAMED, len(figure.series))
        rows = len(categories(figure.series)) * (22 + 8 * max(0, abreast - 1))
    if figure.matrix is not None:
        rows = 30 * len(figure.matrix.rows)
    layout: dict[str, Any] = {
        "title": {
            "text": harmless(short(figure.title, 110)),
            "x": 0.01,
            "xref": "container",
            "yref": "container",
            "automargin": True,
        },
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": page.ink, "family": "system-ui, sans-serif", "size": 13},
        "hoverlabel": {
            "bgcolor": page.paper,
            "bordercolor": page.soft,
            "font": {"color": page.ink},
        },
        "colorway": list(COLOURS),
        "height": max(420, min(4000, 170 + rows)),
        "margin": {"t": 60, "r": 20, "b": 60, "l": 70},
        "hovermode": "closest",
        "showlegend": len(figure.series) > 1,
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        "meta": {"described": described(figure), "notes": _notes(figure)},
    }
    if figure.kind == "sankey":
        return layout | {"annotations": _sankey_heads(figure)}
    return layout | _axes(figure, page)


def _sankey_heads(figure: Figure) -> list[dict[str, Any]]:
    """Names of both sides, above and below: side by side, long names collide on a narrow page."""
    heads = (
        (0, "left", 1.02, "bottom", figure.x.titled),
        (1, "right", -0.02, "top", figure.y.titled),
    )
    return [
        {
            "text": _short(text), "x": x, "xanchor": side, "y": y, "yanchor": edge,
            "xref": "paper", "yref": "paper", "showarrow": False,
        }
        for x, side, y, edge, text in heads
    ]  # fmt: skip


def _axes(figure: Figure, page: Page) -> dict[str, Any]:
    """Both axes, and how series share them."""
    if figure.kind in ("bar", "interval"):
        down = _axis(figure.x, page) | {
            "autorange": "reversed",
            "categoryorder": "array",
            "categoryarray": [harmless(name) for name in categories(figure.series)],
            "showgrid": False,
        }
        across = _axis(figure.y, page)
        mode = "barmode" if figure.kind == "bar" else "scattermode"
        return {"xaxis": across, "yaxis": down, mode: "group"}
    if figure.kind == "heatmap":
        plain = Axis("", scale="category")
        down = _axis(plain, page) | {"autorange": "reversed"}
        across = _axis(Axis(figure.x.label, scale="category"), page)
        return {"xaxis": across, "yaxis": down}
    found: dict[str, Any] = {"xaxis": _axis(figure.x, page), "yaxis": _axis(figure.y, page)}
    if figure.kind == "histogram":
        found["barmode"] = "overlay"
    if figure.kind == "ecdf":
        found["yaxis"] |= {"range": [0, 1.02], "autorange": False}
    return found


def _notes(figure: Figure) -> list[str]:
    """The notes below a drawing, and the legend's explanation of rings."""
    ringed = any(any(one.highlight or ()) for one in figure.series)
    notes = [*figure.notes, *([f"Ringed: {figure.marked}."] if ringed else [])]
    return [clean(note) for note in notes]


def _axis(axis: Axis, page: Page) -> dict[str, Any]:
    kinds = {"linear": "linear", "log": "log", "category": "category", "time": "date"}
    found: dict[str, Any] = {
        "title": {"text": harmless(short(axis.titled, 90))},
        "type": kinds[axis.scale],
        "gridcolor": _faded(page.soft, 0.25),
        "linecolor": page.soft,
        "zerolinecolor": _faded(page.soft, 0.5),
        "automargin": True,
    }
    low, high = axis.low, axis.high
    if axis.scale == "linear" and (low is not None or high is not None):
        if low is not None and high is not None:
            if axis.whole:
                found |= {"tick0": 0, "dtick": _step(high - low)}
            return found | {"range": [low, high], "autorange": False}
        # Plotly computes an open end itself.
        return found | {"range": [low, high], "autorange": "max" if high is None else "min"}
    return found


def _step(length: float) -> int:
    """The distance between whole numbers on an axis of this length: at most twelve are written."""
    steps = (int(digit * 10**power) for power in itertools.count() for digit in (1, 2, 5))
    return next(step for step in steps if length <= 12 * step)


def _curve(figure: Figure, one: Series, place: int, page: Page) -> dict[str, Any]:
    mark = one.mark or {"line": "line", "ecdf": "step"}.get(figure.kind, "point")
    modes = {"point": "markers", "line": "lines+markers", "step": "lines", "bar": "markers"}
    shade, named = (colour(place), True) if place < NAMED else (page.soft, False)
    _, dash = look(place)
    found: dict[str, Any] = {
        "type": "scatter",
        "name": _short(one.name),
        "mode": modes[mark],
        "x": [_placed(value, figure.x) for value in one.x],
        "y": [finite(value) for value in one.y],
        "line": {"color": shade, "dash": WORDS[dash], "width": 2 if named else 1},
        "opacity": 1 if named else 0.4,
        "marker": _markers(one, place, shade, page),
        "hoverinfo": "text",
        "hovertext": _hover(figure, one),
    }
    if mark == "step":
        found["line"]["shape"] = "hv"
    if one.labels is not None and len(one.labels) <= LABELS:
        found |= {
            "mode": f"{modes[mark]}+text",
            "text": [_short(label) for label in one.labels],
            "textposition": _sides(figure, one),
            "cliponaxis": False,
        }
    return found | _errors(one, "error_y", "error_x", shade)


def _sides(figure: Figure, one: Series) -> list[str]:
    """Labels are above their points and towards the middle, where there is space."""
    known = [finite(x) for other in figure.series for x in other.x]
    places = [x for x in known if x is not None]
    middle = (min(places) + max(places)) / 2 if places else 0.0
    return ["top left" if (finite(x) or 0.0) > middle else "top right" for x in one.x]


def _lying(figure: Figure, one: Series, place: int, page: Page) -> dict[str, Any]:
    shade = colour(place) if place < NAMED else page.soft
    if figure.outcomes:
        shade = outcome_colour(one.name)
    found: dict[str, Any] = {
        "name": _short(one.name),
        "orientation": "h",
        "x": [finite(value) for value in one.y],
        "y": [harmless(str(name)) for name in one.x],
        "hoverinfo": "text",
        "hovertext": _hover(figure, one),
        "offsetgroup": str(place),
    }
    if figure.kind == "bar":
        found |= {"type": "bar", "marker": {"color": shade, "opacity": 0.9}}
        return found | _errors(one, "error_x", "error_y", page.ink)
    found |= {"type": "scatter", "mode": "markers", "marker": _markers(one, place, shade, page)}
    return found | _errors(one, "error_x", "error_y", shade)


def _bins(figure: Figure, one: Series, place: int) -> dict[str, Any]:
    edges = [finite(edge) or 0.0 for edge in one.x]
    counts = [finite(count) or 0.0 for count in one.y]
    inner = list(zip(edges[:-1], edges[1:], strict=True))
    texts = [
        f"{_short(one.name)}<br>{_span(span)}: {number(count)}"
        for span, count in zip(spans(one, figure.x), counts, strict=True)
    ]
    found: dict[str, Any] = {"name": _short(one.name), "hoverinfo": "text", "hovertext": texts}
    if len(figure.series) == 1:
        return found | {
            "type": "bar",
            "x": [(low + high) / 2 for low, high in inner],
            "width": [high - low for low, high in inner],
            "y": counts,
            "marker": {"color": colour(place), "opacity": 0.85},
        }
    _, dash = look(place)
    line = {"color": colour(place), "dash": WORDS[dash], "shape": "hv"}
    last = counts[-1:]
    return found | {
        "type": "scatter",
        "mode": "lines",
        "x": edges,
        "y": [*counts, *last],
        "line": line,
    }


def _span(ends: tuple[float | None, float | None]) -> str:
    """`0.5 to 1`; of whole numbers `3 to 5`, or the only one."""
    texts = (f"{end:,}" if isinstance(end, int) else number(end) for end in ends)
    return " to ".join(dict.fromkeys(texts))


def _cells(figure: Figure) -> dict[str, Any]:
    matrix = figure.matrix
    if matrix is None:
        return {"type": "heatmap"}
    known = [[finite(cell) for cell in row] for row in matrix.values]
    texts = matrix.texts or tuple(tuple(number(cell) for cell in row) for row in known)
    found: dict[str, Any] = {
        "type": "heatmap",
        "x": [harmless(name) for name in matrix.columns],
        "y": [harmless(name) for name in matrix.rows],
        "z": known,
        "text": [[harmless(text) for text in row] for row in texts],
        "colorscale": [[0, SHADES[0]], [1, SHADES[1]]],
        "colorbar": {"title": {"text": harmless(figure.y.titled)}},
        "xgap": 1,
        "ygap": 1,
        "hoverinfo": "x+y+text",
    }
    if len(matrix.columns) <= NAMED:
        found["texttemplate"] = "%{text}"
    if figure.y.low is not None and figure.y.high is not None:
        found |= {"zmin": figure.y.low, "zmax": figure.y.high}
    return found


def _flows(figure: Figure, page: Page) -> dict[str, Any]:
    flows = [flow for flow in figure.flows if flow.count]
    names = names_of(flows)
    shades = {
        name: outcome_colour(name) if figure.outcomes else colour(place)
        for place, name in enumerate(names)
    }
    blocks = laid_out(flows)[:2]
    left, right = ([one.name for one in side] for side in blocks)
    return {
        "type": "sankey",
        "arrangement": "snap",
        "node": {
            "label": [_short(name) for name in (*left, *right)],
            "color": [shades[name] for name in (*left, *right)],
            # Plotly would sort both sides itself; it reads 0 and 1 as: no place is given.
            "x": [0.001] * len(left) + [0.999] * len(right),
            "y": [_inside(1 - (one.low + one.high) / 2) for side in blocks for one in side],
            "line": {"width": 0},
            "pad": 14,
        },
        "link": {
            "source": [left.index(flow.source) for flow in flows],
            "target": [len(left) + right.index(flow.target) for flow in flows],
            "value": [flow.count for flow in flows],
            "color": [
                _faded(shades[flow.source], 0.25 if flow.source == flow.target else 0.6)
                for flow in flows
            ],
        },
        "textfont": {"color": page.ink},
    }


def _inside(part: float) -> float:
    return min(0.999, max(0.001, part))


def _markers(one: Series, place: int, shade: str, page: Page) -> dict[str, Any]:
    marker, _ = look(place)
    ringed = one.highlight or (False,) * len(one.y)
    return {
        "color": shade,
        "symbol": SYMBOLS[marker],
        "opacity": 1,  # where sizes differ Plotly's default is 0.7
        "size": [12 if ring else 8 for ring in ringed],
        "line": {"color": page.ink, "width": [2 if ring else 0 for ring in ringed]},
    }


def _errors(one: Series, up: str, across: str, shade: str) -> dict[str, Any]:
    found = {}
    upright, level = (one.y, one.low, one.high), (one.x, one.x_low, one.x_high)
    for name, (values, low, high) in ((up, upright), (across, level)):
        if low is not None and high is not None:
            below, above = _distances(values, low), _distances(values, high)
            found[name] = {
                "type": "data", "symmetric": False, "array": above, "arrayminus": below,
                "color": shade, "thickness": 1.5, "width": 0,
            }  # fmt: skip
    return found


def _distances(values: tuple[Any, ...], ends: Ends) -> list[float]:
    pairs = ((finite(value), finite(end)) for value, end in zip(values, ends, strict=True))
    return [0.0 if one is None or other is None else abs(one - other) for one, other in pairs]


def _hover(figure: Figure, one: Series) -> list[str]:
    """The hover text of each point: name, label, values with their intervals."""
    texts = []
    for place, value in enumerate(one.y):
        known = None if one.low is None or one.high is None else (one.low[place], one.high[place])
        ends = ""
        if known is not None and None not in known:
            ends = f" [{number(finite(known[0]))}, {number(finite(known[1]))}]"
        x = one.x[place]
        across = clean(x) if isinstance(x, str) else number(finite(x))
        if figure.x.scale == "time" and not isinstance(x, str):
            across = moment(x)
        lines = [
            one.name,
            one.labels[place] if one.labels is not None else "",
            f"{figure.x.titled}: {across}",
            f"{figure.y.titled}: {number(finite(value))}{ends}",
            figure.marked if one.highlight is not None and one.highlight[place] else "",
        ]
        texts.append("<br>".join(harmless(line) for line in lines if line))
    return texts


def _placed(value: float | str, axis: Axis) -> float | str | None:
    if isinstance(value, str):
        return harmless(value)
    return moment(value) if axis.scale == "time" else finite(value)


def _faded(shade: str, part: float) -> str:
    red, green, blue = (int(shade[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{part})"
