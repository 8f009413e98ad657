"""The report's plots: every metric with its interval, and throughput against latency of every sweep."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpcbench.reporting.tables import MetricRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#7a828e"
"""A grey that can be read on white and on black: the plot has no background of its own."""

COLOURS = ("#3b82f6", "#f59e0b", "#10b981", "#ec4899", "#8b5cf6", "#ef4444", "#14b8a6", "#a3a312")


def plot_svg(rows: Sequence[MetricRow]) -> str | None:
    """Dots with error bars as SVG text, the same bytes for the same rows; None without any value."""
    shown = [row for row in rows if row.value is not None]
    return _svg(lambda: _draw(shown)) if shown else None


def sweep_svg(sweep: Mapping[str, Any], run_tasks: Mapping[str, Any]) -> str | None:
    """Latency over throughput, a dot with its intervals a point, the knee ringed; None below two points.

    Args:
        sweep: one of `performance.json`'s sweeps.
        run_tasks: its run tasks.
    """
    points = [
        (name, run_tasks[name])
        for name in sweep["points"]
        if run_tasks[name]["answers_per_s"] and run_tasks[name]["e2e_due_ms"]
    ]
    return _svg(lambda: _draw_sweep(points, sweep["knee"])) if len(points) > 1 else None


def _svg(draw: Callable[[], Figure]) -> str:
    """A figure as SVG text, the same bytes for the same figure, in colours for any background."""
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
    out = io.StringIO()
    with matplotlib.rc_context(settings):
        figure = draw()
        figure.patch.set_alpha(0)
        for axes in figure.axes:
            axes.patch.set_alpha(0)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    # Inline in HTML: the XML prologue with its reference to a DTD has no place there.
    return text[text.index("<svg") :]


def _draw(rows: Sequence[MetricRow]) -> Figure:
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
    return figure


def _draw_sweep(points: Sequence[tuple[str, Mapping[str, Any]]], knee: str | None) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for kind, colour, above in (("concurrency", COLOURS[0], -13), ("rate", COLOURS[1], 6)):
        curve = [one for one in points if (one[1]["load"]["rate"] is not None) == (kind == "rate")]
        dots = [(table["answers_per_s"], table["e2e_due_ms"]["mean"]) for _, table in curve]
        across = [rate["value"] for rate, _ in dots]
        up = [latency["value"] / 1000 for _, latency in dots]
        axes.plot(across, up, "-", color=colour, linewidth=1.2, alpha=0.55)
        for (name, table), (rate, latency) in zip(curve, dots, strict=True):
            place = rate["value"], latency["value"] / 1000
            if rate["low"] is not None:
                axes.plot([rate["low"], rate["high"]], [place[1]] * 2, color=colour, alpha=0.55)
            if latency["low"] is not None:
                ends = [latency["low"] / 1000, latency["high"] / 1000]
                axes.plot([place[0]] * 2, ends, color=colour, alpha=0.55)
            axes.plot(*place, "o" if table["valid"] else "x", color=colour, markersize=6)
            if name == knee:
                axes.plot(*place, "o", color=colour, markersize=13, fillstyle="none")
            label = f"{table['load'][kind]:g}{'/s' if kind == 'rate' else ''}"
            axes.annotate(label, place, xytext=(7, above), textcoords="offset points", color=INK)
    axes.set_xlabel("answers per second")
    axes.set_ylabel("E2E from due, mean, s")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(color=INK, alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
