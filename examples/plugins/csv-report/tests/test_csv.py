"""The file is read back, and holds no formula."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from hpcbench_example_csv import COLUMNS, CsvReport, safe
from pydantic import ValidationError


def tables(**metrics: Any) -> dict[str, Any]:
    return {"id": "e", "metrics": {"run_tasks": {"a": {"coverage": 1.0, "metrics": metrics}}}}


def rendered(given: dict[str, Any], delimiter: str = ",") -> list[list[str]]:
    (text,) = CsvReport({"delimiter": delimiter}).render(given).values()
    return list(csv.reader(io.StringIO(str(text), newline=""), delimiter=delimiter))


ENTRY = {"value": 0.5, "low": None, "high": None, "n": 2, "clusters": 1, "signature": "anls|v1"}


def test_every_metric_is_a_row() -> None:
    text = str(CsvReport({"delimiter": ";"}).render(tables(anls=ENTRY, x=None))["metrics.csv"])
    assert text.splitlines() == [
        ";".join(COLUMNS),
        "e;a;anls;0.5;;;2;1;1.0;anls|v1",
        "e;a;x;;;;0;0;1.0;",
    ]


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "  '=1"),
        ("\t=1", " '=1"),
        ("＝1", "'＝1"),  # noqa: RUF001 - the full-width sign is the point
        ("a;=1", "a;'=1"),
        ('x", =HYPERLINK("y")', 'x", \'=HYPERLINK("y")'),
        ("a\r\n=1", "a =1"),
        ("anls|threshold:0.5|v1", "anls|threshold:0.5|v1"),
        ("f-score", "f-score"),
        ("", ""),
    ],
)
def test_a_formula_is_text(text: str, becomes: str) -> None:
    assert safe(text) == becomes


def test_numbers_stay_numbers() -> None:
    assert safe(-1.5) == -1.5
    assert rendered(tables(x={**ENTRY, "value": -1e-9}))[1][3] == "-1e-09"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_what_is_hostile_comes_back_as_one_cell(delimiter: str) -> None:
    hostile = 'a"b,c;d|e\tf\ng\rh, =1'
    (_, row) = rendered(tables(**{hostile: ENTRY}), delimiter)
    assert len(row) == len(COLUMNS)
    assert row[2] == "a\"b,c;d|e f g h, '=1"


@pytest.mark.parametrize("options", [{"delimiter": "\n"}, {"delimiter": '"'}, {"delimeter": ";"}])
def test_options_of_no_use_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        CsvReport(options)
