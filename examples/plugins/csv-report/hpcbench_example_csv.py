"""All scores as one CSV file; a cell that a spreadsheet would take for a formula gets an apostrophe."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

COLUMNS = (
    "experiment", "run_task", "metric", "value", "low", "high", "n", "clusters", "coverage", "signature",
)  # fmt: skip

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
# After a separator too: a spreadsheet that parts cells at another one than ours would see a cell begin there.
_FORMULA = re.compile(r"(^\s*|[,;|\t]\s*)(?=[=+\-@＝＋－＠])")  # noqa: RUF001 - full-width forms count


def safe(value: object) -> object:
    """Text that begins like a formula gets an apostrophe before it; numbers stay numbers.

    Line ends and other control characters become spaces, so a row is a line.
    """
    if not isinstance(value, str):
        return value
    return _FORMULA.sub(r"\1'", _CONTROL.sub(" ", value))


def rows(tables: Mapping[str, Any]) -> Iterator[list[object]]:
    """A row per run task and metric, in the order of `COLUMNS`; a metric without a value has empty cells."""
    for run_task, table in tables["metrics"]["run_tasks"].items():
        for metric, entry in table["metrics"].items():
            known = entry or {}
            yield [
                tables["id"], run_task, metric, known.get("value"), known.get("low"), known.get("high"),
                known.get("n", 0), known.get("clusters", 0), table["coverage"], known.get("signature"),
            ]  # fmt: skip


class CsvReport:
    """The report for hpcbench: `metrics.csv`."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        """Options of the csv report."""

        model_config = ConfigDict(extra="forbid")

        delimiter: Literal[",", ";", "\t", "|"] = ","
        """Between cells; spreadsheets set to German or French want `;`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = self.Options.model_validate(dict(options))

    def render(self, tables: Mapping[str, Any]) -> Mapping[str, str | bytes]:
        """`metrics.csv` in UTF-8, numbers with a point and all their digits."""
        out = io.StringIO()
        writer = csv.writer(out, delimiter=self.options.delimiter, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([safe(cell) for cell in row] for row in rows(tables))
        return {"metrics.csv": out.getvalue()}
