"""The report's one plot: every metric with its interval, run tasks below each other."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from hpcbench.reporting.tables import MetricRow

INK = "#7a828e"
"""A grey that can be read on white and on black: the plot has no background of its own."""

COLOURS = ("#3b82f6", "#f59e0b", "#10b981", "#ec4899", "#8b5cf6", "#ef4444", "#14b8a6", "#a3a312")


def plot_svg(rows: Sequence[MetricRow]) -> str | None:
    """Dots with error bars as SVG text, the same bytes for the same rows; None without any value."""
    shown = [row for row in rows if row.value is not None]
    if not shown:
        return None
    import matplotlib

    settings: Any = {
        "svg.fonttype": "none",  # text stays text: any alphabet, searchable
        "svg.hashsalt": "hpcbench",
        "font.family": "sans-serif",
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with matplotlib.rc_context(settings):
        return _draw(shown)


def _draw(rows: Sequence[MetricRow]) -> str:
    from matplotlib.figure import Figure

    metrics = list(dict.fromkeys(row.metric for row in rows))
    figure = Figure(figsize=(8.6, 0.34 * len(rows) + 1.1), layout="constrained")
    axes = figure.add_subplot()
    for place, row in enumerate(rows):
        value = row.value or 0.0
        colour = COLOURS[metrics.index(row.metric) % len(COLOURS)]
        if row.low is not None and row.high is not None:
            axes.plot([row.low, row.high], [place, place], color=colour, linewidth=2.4, alpha=0.55)
        axes.plot([value], [place], "o", color=colour, markersize=6)
    arrows = ["↑" if row.higher_is_better else "↓" for row in rows]
    labels = [
        f"{row.run_task}  {row.metric} {arrow}" for row, arrow in zip(rows, arrows, strict=True)
    ]
    axes.set_yticks(range(len(rows)), labels)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    right = max([1.0, *(row.high if row.high is not None else row.value or 0.0 for row in rows)])
    axes.set_xlim(-0.02, right * 1.02)
    axes.set_xlabel("value with 95 % interval")
    axes.grid(axis="x", color=INK, alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    out = io.StringIO()
    figure.patch.set_alpha(0)
    axes.patch.set_alpha(0)
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    # Inline in HTML: the XML prologue with its reference to a DTD has no place there.
    return text[text.index("<svg") :]
