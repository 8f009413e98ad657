"""Benchmarks of pages with tests instead of texts, as their publishers ship them: olmOCR-bench, ParseBench.

    olmocr_bench/bench_data/{NAME.jsonl,pdfs/**}    `{"pdf": …, "page": 1, "id": …, "type": …, …}` a line
    parsebench/{NAME.jsonl,expected_markdown.json,…}  `{"pdf": …, "page": …, "category": …, "rule": …}` a line

A line is one test. All tests of a page, or of a document, are one sample: its reference is
`{"NAME.jsonl": [line, …]}` as JSON, which the publisher's scorer reads (hpcbench.metrics.publishers).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from hpcbench.data.annotations import ListedRows, Record, Rows
from hpcbench.data.pages import has_pages
from hpcbench.data.table import TableDataset
from hpcbench.errors import Problem
from hpcbench.schema.field_map import FieldMap

EXPECTED = "expected_markdown.json"
"""Texts of ParseBench's documents with tables, by document."""


class PageTests(TableDataset):
    """Iterator over lines of tests, grouped by page or document."""

    annotations: ClassVar[str] = "*.jsonl"
    preset: ClassVar[FieldMap] = FieldMap(
        id="id", images="image", references="tests", document="pdf", split=None, fields={},
        metadata={"part": "part"},
    )  # fmt: skip

    class Options(TableDataset.Options):
        """Options of these benchmarks."""

        unit: Literal["page", "document"] = "page"
        """One sample: the tests of a page, or of a document."""

    options: Options

    @cached_property
    def _rows(self) -> Rows:
        rows = super()._rows
        bad: list[tuple[Path, int, Record | Problem]] = []
        groups: dict[tuple[str, int | None], tuple[Path, int, list[tuple[str, Record]]]] = {}
        for index, row in enumerate(rows.light(None)):
            path, number = rows.place(index)
            wrong = row if isinstance(row, Problem) else _wrong(row, path, number)
            if wrong is not None:
                bad.append((path, number, wrong))
                continue
            assert not isinstance(row, Problem)
            page = int(row["page"]) if self.options.unit == "page" else None
            group = groups.setdefault((row["pdf"], page), (path, number, []))
            group[2].append((path.name, row))
        expected = self._expected()
        made = [
            (path, number, self._sample_row(pdf, page, tests, expected.get(pdf)))
            for (pdf, page), (path, number, tests) in groups.items()
        ]
        return ListedRows([*made, *bad])

    def _expected(self) -> Mapping[str, Any]:
        path = self.path.parent / EXPECTED
        found = self.tree.parsed(path) if self.tree.has(path) else {}
        return found if isinstance(found, Mapping) else {}

    def _sample_row(
        self, pdf: str, page: int | None, tests: list[tuple[str, Record]], expected: Any
    ) -> Record:
        files: dict[str, list[Record]] = {}
        for file, row in tests:
            if expected is not None and not files:
                row = {EXPECTED.partition(".")[0]: expected, **row}
            files.setdefault(file, []).append(row)
        below = self.path.parent
        folder = next((one for one in ("pdfs/", "") if self.tree.has(below / f"{one}{pdf}")), "")
        name = (below / f"{folder}{pdf}").relative_to(self.folder).as_posix()
        one_page = page is not None and has_pages(pdf)
        return {
            "id": pdf if page is None else f"{pdf}#{page}",
            "pdf": pdf,
            "image": f"{name}#page={page}" if one_page else name,
            "tests": json.dumps(files, ensure_ascii=False, sort_keys=True),
            "part": "+".join(sorted(Path(file).stem for file in files)),
        }


def _wrong(row: Record, path: Path, number: int) -> Problem | None:
    """Why a line is no test."""
    for key, kind, what in (("pdf", str, "the name of a file"), ("page", int, "a number")):
        value = row.get(key)
        if not isinstance(value, kind) or isinstance(value, bool) or not value:
            said = "is missing" if value is None else f"is {value!r}"
            return Problem(f"'{key}' {said}; it has to be {what}", str(path), number)
    return None
