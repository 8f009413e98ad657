"""`report.html`: one file for people, offline, light and dark; it runs no script and fetches nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from hpcbench import number_format as form
from hpcbench.reporting import figures
from hpcbench.reporting.blocks import Link, Plot, Section, Strong, Table, code_pieces
from hpcbench.reporting.formats import Format, drawn
from hpcbench.reporting.formats import Options as Shared
from hpcbench.reporting.thumbnails import thumbnails
from hpcbench.visible import finalize


class Options(Shared):
    """Options of the HTML report."""

    images: bool = True
    """Whether worst samples are shown with small copies of their images."""
    images_mb: Annotated[float, Field(gt=0, le=200)] = 3.0
    """Most MiB of images in the file; samples beyond it have none."""


class Html(Format):
    """`report.html`, with its plots and images inside."""

    Options = Options

    def render(self, tables: Mapping[str, Any]) -> Mapping[str, str | bytes]:
        """The report."""
        return {"report.html": page(tables, self.options)}


def page(tables: Mapping[str, Any], options: Options, *, printed: bool = False) -> str:
    """The page as text.

    Args:
        tables: the report as data.
        options: what to show.
        printed: for paper: nothing is folded, and long content for machines is left out.
    """
    images = {}
    if options.images and "worst" in options.sections and "worst" not in options.without:
        images = thumbnails(tables, options.worst, options.images_mb)
    return written(tables, options.of(tables), images, printed=printed)


def written(
    tables: Mapping[str, Any],
    sections: Sequence[Section],
    images: Mapping[Any, Any],
    *,
    printed: bool = False,
) -> str:
    """A page with any sections.

    Args:
        tables: `id`, `plan` with its `name` and `description`, `manifest`: content of its head and foot.
        sections: the sections to show.
        images: images of samples, see `thumbnails`.
        printed: see `page`.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("hpcbench.reporting"),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"value": form.value, "code_pieces": code_pieces, "anchor": anchor}
    environment.globals |= {
        "kind": lambda block: type(block).__name__,
        "is_link": lambda text: isinstance(text, Link),
        "is_strong": lambda text: isinstance(text, Strong),
        "drawn": drawn,
        "described": figures.described,
        "table_of": _table_of,
    }
    return environment.get_template("page.html.j2").render(
        tables=tables, sections=sections, images=images, printed=printed
    )


def anchor(text: str) -> str:
    """An id for a heading."""
    return re.sub(r"[^\w-]+", "-", text).strip("-").lower() or "part"


def _table_of(plot: Plot) -> Table:
    """The table of a figure's data."""
    heads, rows = figures.table(plot.figure)
    cells = tuple(tuple(_text(cell) for cell in row) for row in rows)
    numbers = {
        place for row in rows for place, cell in enumerate(row) if isinstance(cell, (int, float))
    }
    texts = frozenset(set(range(len(heads))) - numbers)
    return Table(plot.figure.title, tuple(heads), cells, 1, texts)


def _text(cell: Any) -> str:
    if cell is None:
        return form.DASH
    if isinstance(cell, bool) or not isinstance(cell, (int, float)):
        return str(cell)
    return form.count(cell) if isinstance(cell, int) else form.figure(cell)
