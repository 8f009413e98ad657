"""The rows of a spreadsheet (.xlsx), each cell as the sheet shows it.

A cell holds a number and a format. References are compared with printed text, so a number gets as many
decimals as its format has, and a date is written year first.
"""

from __future__ import annotations

import datetime
import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.installed import install_hint

_DECIMALS = re.compile(r"^[#0,.\s]*?[#0]\.(0+)")
"""The decimals of a number format such as `#,##0.00`."""


def read_sheet(
    data: bytes, path: Path, sheet: str | None = None
) -> Iterator[tuple[int, Mapping[str, Any] | Problem]]:
    """Yield the rows under the header of one sheet, each with its number in the sheet.

    Args:
        data: the file's bytes.
        path: its path, for messages.
        sheet: name of the sheet; None: the first.

    Raises:
        UserError: the file is no spreadsheet, has no such sheet, or two columns have the same name.
        EnvironmentFault: openpyxl is not installed.
    """
    with workbook(data, path, "save the sheet as CSV") as book:
        yield from _rows(book, path, sheet)


@contextmanager
def workbook(data: bytes, path: Path, instead: str) -> Iterator[Any]:
    """Open a spreadsheet for reading row by row, with the computed values of formulas.

    Args:
        data: its bytes; openpyxl keeps an open file open if not all rows are read.
        path: its path, for messages.
        instead: the alternative to an installation of openpyxl.

    Raises:
        UserError: the file is no spreadsheet.
        EnvironmentFault: openpyxl is not installed.
    """
    try:
        from openpyxl import load_workbook
        from openpyxl.utils.exceptions import InvalidFileException
    except ImportError as error:
        raise EnvironmentFault(
            f"{path}: spreadsheets need openpyxl", remedy=f"{install_hint('excel')}, or {instead}"
        ) from error
    try:
        book = load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    except (
        zipfile.BadZipFile, InvalidFileException, KeyError, ValueError, OSError, TypeError, SyntaxError,
    ) as error:  # fmt: skip
        what = f"not a readable spreadsheet: {error}"
        raise UserError(Problem(what, str(path), remedy="save it again as .xlsx")) from error
    try:
        yield book
    finally:
        book.close()


def _rows(
    book: Any, path: Path, sheet: str | None
) -> Iterator[tuple[int, Mapping[str, Any] | Problem]]:
    if sheet is not None and sheet not in book.sheetnames:
        what = f"no sheet '{sheet}' (there are: {', '.join(book.sheetnames)})"
        raise UserError(Problem(what, str(path), remedy="name one of them as the option `records`"))
    if not book.worksheets:
        raise UserError(Problem("it has no sheet with cells", str(path)))
    chosen = book[sheet] if sheet is not None else book.worksheets[0]
    names: list[str] | None = None
    for number, row in enumerate(chosen.iter_rows(), 1):
        cells = [_text(cell) for cell in row]
        if not any(map(str.strip, cells)):
            continue
        if names is None:
            names = [name.strip() for name in cells]
            if twice := {name for name in names if name and names.count(name) > 1}:
                what = f"more than one column is named {', '.join(map(repr, sorted(twice)))}"
                raise UserError(Problem(what, str(path), number, remedy="give each its own name"))
            continue
        if any(text.strip() for text in cells[len(names) :]):
            what = f"the header has {len(names)} columns, this row has {len(cells)}"
            yield number, Problem(what, str(path), number)
            continue
        filled = cells + [""] * (len(names) - len(cells))
        yield (
            number,
            {name: value for name, value in zip(names, filled, strict=False) if name or value},
        )


def _text(cell: Any) -> str:
    """The text that a cell shows."""
    value = cell.value
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return _number(value, cell.number_format or "General")
    if isinstance(value, datetime.datetime):
        at_midnight = value.time() == datetime.time()
        return value.date().isoformat() if at_midnight else value.isoformat(" ")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value)


def _number(value: float, shape: str) -> str:
    decimals = _DECIMALS.match(shape)
    if decimals is not None and "%" not in shape:
        return f"{value:.{len(decimals[1])}f}"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
