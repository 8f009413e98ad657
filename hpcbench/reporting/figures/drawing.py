"""Figures as pictures: SVG for any page, PNG for a light or a dark one. matplotlib draws both."""

from __future__ import annotations

import io
import textwrap
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hpcbench.reporting.figures import curves, horizontal_bars, tiles
from hpcbench.reporting.figures.canvas import DrawnFigure
from hpcbench.reporting.figures.figure_data import Figure
from hpcbench.reporting.figures.safe_svg import as_element
from hpcbench.reporting.figures.style import INK, NAMED, PAGES, Page, Theme, clean, finite, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas
    from matplotlib.text import Annotation

WIDTH = 8.6
"""Inches."""

LINE = 0.21
"""Inches for a line of the legend."""

NOTE = 0.15
"""Inches for a line of the notes."""

_LOCK = threading.Lock()
"""matplotlib's settings are global in the process: one drawing at a time."""


def svg(figure: Figure) -> str:
    """A figure as one SVG element; equal figures give equal bytes; text stays text.

    It has no background and is readable on white and on dark paper. On a page that sets the property `--ink`
    text and axes have that colour. `<title>` and `<desc>` describe it to readers who cannot see it.
    """
    out = io.StringIO()
    with _drawn(figure, Page("none", INK, INK)) as canvas:
        canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return as_element(figure, out.getvalue())


def png(figure: Figure, theme: Theme = "light") -> bytes:
    """A figure as PNG, 150 dots per inch, with the background of the theme."""
    out = io.BytesIO()
    with _drawn(figure, PAGES[theme]) as canvas:
        canvas.savefig(out, format="png", dpi=150, metadata={"Software": None})
    return out.getvalue()


@contextmanager
def _drawn(figure: Figure, page: Page) -> Iterator[Canvas]:
    """The figure on its canvas, within the settings that saving requires."""
    import matplotlib

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": figure.name,
        "font.family": "sans-serif",
        "font.size": 9,
        "text.parse_math": False,  # a name with two $ is a name
        "text.color": page.ink,
        "axes.labelcolor": page.ink,
        "axes.edgecolor": page.ink,
        "xtick.color": page.ink,
        "ytick.color": page.ink,
        "savefig.facecolor": page.paper,
    }
    with _LOCK, warnings.catch_warnings(), matplotlib.rc_context():
        # A letter that the font lacks: for SVG the reader's own font has it.
        warnings.filterwarnings("ignore", message=r"Glyph \d+")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support")
        matplotlib.rcdefaults()  # no matplotlibrc changes the picture
        matplotlib.rcParams.update(settings)
        yield _canvas(figure, page)


def _canvas(figure: Figure, page: Page) -> Canvas:
    """Title, legend, the drawing itself, notes: from top to bottom."""
    from matplotlib.figure import Figure as Canvas

    drawn = DrawnFigure(figure, page)
    title = textwrap.wrap(short(figure.title, 180), 92) or [""]
    canvas = Canvas(figsize=(WIDTH, 4.0))
    axes = canvas.add_subplot()
    height = 3.3
    if _empty(figure):
        axes.axis("off")
        axes.text(0.5, 0.5, "nothing to show", ha="center", va="center", color=page.ink)
        height = 0.8
    elif figure.kind in ("bar", "interval"):
        height = horizontal_bars.draw(drawn, axes)
    elif figure.kind == "heatmap":
        height = tiles.draw_matrix(drawn, axes)
    elif figure.kind == "sankey":
        height = tiles.draw_flows(drawn, axes)
    elif figure.kind == "histogram":
        curves.draw_bins(drawn, axes)
    else:
        curves.draw(drawn, axes)
    if len(figure.series) > NAMED:
        drawn.notes.append(f"{len(figure.series) - NAMED} more series are grey; the table has all.")
    notes = [line for note in drawn.notes for line in textwrap.wrap(short(note, 400), 128)]
    handles, names = axes.get_legend_handles_labels()
    if drawn.ring is not None:
        handles, names = [*handles, drawn.ring], [*names, short(figure.marked)]
    if len(names) < 2:
        handles, names = [], []
    columns = max(1, min(4, 112 // (max(map(len, names), default=1) + 9)))
    lines = -(-len(names) // columns)
    top = 0.12 + 0.2 * len(title) + LINE * lines
    bottom = 0.04 + NOTE * len(notes)
    whole = top + height + bottom
    canvas.set_size_inches(WIDTH, whole)
    canvas.set_layout_engine("constrained", rect=(0, bottom / whole, 1, 1 - (top + bottom) / whole))
    beside: dict[str, Any] = {"ha": "left", "va": "top", "in_layout": False}
    canvas.text(0.01, 1 - 0.07 / whole, "\n".join(title), fontsize=11, fontweight="bold", **beside)
    if names:
        legend = canvas.legend(
            handles, names, loc="upper left", ncols=columns, frameon=False, fontsize=8.5,
            bbox_to_anchor=(0.002, 1 - (0.07 + 0.2 * len(title)) / whole), borderaxespad=0,
            handlelength=2.6, columnspacing=1.6,
        )  # fmt: skip
        legend.set_in_layout(False)
    if notes:
        place = (NOTE * len(notes) + 0.01) / whole
        canvas.text(0.01, place, "\n".join(notes), fontsize=7.5, linespacing=1.25, **beside)
    if drawn.labels:
        _write_labels(drawn, axes, canvas)
    return canvas


def _empty(figure: Figure) -> bool:
    if figure.kind == "sankey":
        return not any(flow.count for flow in figure.flows)
    if figure.kind == "heatmap":
        return figure.matrix is None or not (figure.matrix.rows and figure.matrix.columns)
    return not any(finite(value) is not None for one in figure.series for value in one.y)


_PLACES = ((7, 5), (-7, 5), (7, -5), (-7, -5), (9, 0), (-9, 0), (0, 9), (0, -9))
"""Possible places of a label beside its point, in points of type; diagonal first, away from intervals."""


def _write_labels(drawn: DrawnFigure, axes: Axes, canvas: Canvas) -> None:
    """Write labels beside their points, on free space; a label without space appears only in the table."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.transforms import Bbox

    canvas.draw_without_rendering()  # this computes where the points are
    agg: Any = FigureCanvasAgg(canvas)
    inside = axes.get_window_extent(agg.get_renderer())
    dots = [
        Bbox.from_bounds(x - 3, y - 3, 6, 6)
        for x, y in (axes.transData.transform(dot) for dot in drawn.dots)
    ]
    written: list[Bbox] = []
    for x, y, text in drawn.labels:
        note = axes.annotate(
            clean(text), (x, y), xytext=(0, 0), textcoords="offset points", fontsize=7.5
        )
        note.set_in_layout(False)
        best: tuple[int, tuple[int, int], Bbox] | None = None
        for right, up in _PLACES:
            _place(note, right, up)
            box = note.get_window_extent(agg.get_renderer())
            across = inside.x0 <= box.x0 and box.x1 <= inside.x1 + 4
            upright = inside.y0 <= box.y0 and box.y1 <= inside.y1 + 8
            if across and upright and not any(box.overlaps(one) for one in written):
                hidden = sum(box.overlaps(dot) for dot in dots)
                if best is None or hidden < best[0]:
                    best = hidden, (right, up), box
                if not hidden:
                    break
        if best is None:
            note.remove()
        else:
            _place(note, *best[1])
            written.append(best[2])


def _place(note: Annotation, right: int, up: int) -> None:
    """Move a label to one side of its point."""
    note.set_position((right, up))
    note.set_horizontalalignment("left" if right > 0 else "right" if right else "center")
    note.set_verticalalignment("center" if not up else "bottom" if up > 0 else "top")
