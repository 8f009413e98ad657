"""Benchmarks as VLMEvalKit ships them: one TSV file with images as text.

Layout: `vlmeval/dataset/image_base.py` of VLMEvalKit at e8e78f0. Columns `index`, `image` (base64 or a list;
a text of at most 64 characters is the index of another row with the same image), `question`, `answer` (a
text, or a list as Python prints it), often `category` and `split`; options are columns `A`, `B` …
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from hpcbench.data.annotations import ChangedRows, Record, Rows, with_lists
from hpcbench.data.table import TableDataset
from hpcbench.errors import Problem
from hpcbench.schema.field_map import FieldMap

MOST_OF_AN_INDEX = 64
"""A longer text in the column `image` is an image."""


class VlmEvalKit(TableDataset):
    """Iterator over VLMEvalKit's TSV files."""

    preset: ClassVar[FieldMap] = FieldMap(
        id="index",
        images="image",
        references="answer",
        document=None,
        split=None,
        fields={"question": "question"},
        metadata={},
    )
    defaults: ClassVar[Mapping[str, Any]] = {"base64": True}

    @cached_property
    def _rows(self) -> Rows:
        rows = super()._rows
        good = (row for row in rows.light(None) if not isinstance(row, Problem))
        images = {str(row.get("index")): row.get("image") for row in good}

        def whole(row: Record) -> Record:
            image = row.get("image")
            if isinstance(image, str) and len(image) <= MOST_OF_AN_INDEX:
                image = images.get(image, image)
            return with_lists({**row, "image": image}, ("image", "answer"))

        return ChangedRows(rows, whole)
