"""Figures: described once as plain data, then drawn, made interactive (Plotly) and written as a table.

    figure = Figure("pareto", "Quality and speed", "scatter", Axis("answers", "/s"), Axis("anls"), series)
    svg(figure), png(figure, "dark"), plotly(figure, "light"), table(figure)

Names in a figure come from plans, datasets and models, and are not trusted: every form treats them as text.
"""

from hpcbench.reporting.figures.drawing import png, svg
from hpcbench.reporting.figures.figure_data import (
    Axis,
    Figure,
    Flow,
    Kind,
    Mark,
    Matrix,
    Scale,
    Series,
)
from hpcbench.reporting.figures.plotly_json import plotly
from hpcbench.reporting.figures.style import Theme, described
from hpcbench.reporting.figures.tabled import Cell, table

__all__ = [
    "Axis",
    "Cell",
    "Figure",
    "Flow",
    "Kind",
    "Mark",
    "Matrix",
    "Scale",
    "Series",
    "Theme",
    "described",
    "plotly",
    "png",
    "svg",
    "table",
]
