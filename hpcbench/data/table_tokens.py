"""Tables as PubTabNet's authors keep them: tokens of the structure apart from those of the cells.

Zhong et al. 2019 (arXiv 1911.10683); PubTabNet, FinTabNet and SynthTabNet have this form:

    {"structure": ["<tr>", "<td>", "</td>", "<td", " colspan=\"2\"", ">", "</td>", "</tr>"],
     "cells": [{"tokens": ["N", "e", "t"], "bbox": […]}, {"tokens": []}]}

The reference is the table as one text in HTML: the tokens of a cell go before its `</td>`, and single
characters are escaped, as in the publisher's notebook. `cells` may be a list in a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, ClassVar

from hpcbench.data.annotations import Record
from hpcbench.data.table import TableDataset
from hpcbench.schema.field_map import FieldMap

END_OF_CELL = "</td>"


class TableTokens(TableDataset):
    """Iterator over tables in tokens."""

    preset: ClassVar[FieldMap] = FieldMap(
        id="filename",
        images="filename",
        references={"structure": "html.structure.tokens", "cells": "html.cells"},
        document=None,
        split="split",
        fields={},
        metadata={},
    )

    def _complaint(self, index: int, record: Record) -> str | None:
        try:
            return super()._complaint(index, record)
        except ValueError as error:
            return str(error)

    def _answer(self, record: Record) -> Any:
        found = super()._answer(record)
        return html_of(found.get("structure") or (), found.get("cells") or ())


def html_of(structure: Sequence[str], cells: Sequence[Any]) -> str:
    """A table in HTML.

    Args:
        structure: tags, `<td` and its attributes in parts of their own.
        cells: one object with `tokens` for each cell, in the order of the structure.

    Raises:
        ValueError: they are not of one table.
    """
    flat = cells[0] if len(cells) == 1 and isinstance(cells[0], (list, tuple)) else cells
    if not all(isinstance(one, Mapping) for one in flat):
        raise ValueError("the cells of the table are no list of objects with 'tokens'")
    texts = [_text(one.get("tokens") or ()) for one in flat]
    if len(texts) != structure.count(END_OF_CELL):
        ends = structure.count(END_OF_CELL)
        raise ValueError(f"the table's structure has {ends} cells, and its contents {len(texts)}")
    contents = iter(texts)
    filled = (next(contents) + one if one == END_OF_CELL else one for one in structure)
    return f"<table>{''.join(filled)}</table>"


def _text(tokens: Sequence[str]) -> str:
    return "".join(escape(one) if len(one) == 1 else one for one in tokens)
