"""All scores as one CSV file; a cell that a spreadsheet would take for a formula gets an apostrophe."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

COLUMNS = (
    "experiment", "run_task", "metric", "value", "low", "high", "n", "clusters", "coverage", "signature",
)  # fmt: skip


def safe(value: object) -> object:
    """Text that begins like a formula gets an apostrophe before it; numbers stay numbers."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value


class CsvReport:
    """The report for hpcbench: `metrics.csv`."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

        delimiter: str = Field(default=",", min_length=1, max_length=1)

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = self.Options.model_validate(dict(options))

    def render(self, tables: Mapping[str, Any]) -> Mapping[str, str | bytes]:
        out = io.StringIO()
        writer = csv.writer(out, delimiter=self.options.delimiter, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([safe(cell) for cell in row] for row in _rows(tables))
        return {"metrics.csv": out.getvalue()}


def _rows(tables: Mapping[str, Any]) -> Iterator[list[object]]:
    for run_task, table in tables["metrics"]["run_tasks"].items():
        for metric, entry in table["metrics"].items():
            known = entry or {}
            yield [
                tables["id"], run_task, metric, known.get("value"), known.get("low"), known.get("high"),
                known.get("n", 0), known.get("clusters", 0), table["coverage"], known.get("signature"),
            ]  # fmt: skip
