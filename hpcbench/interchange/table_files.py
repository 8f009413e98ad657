"""Tables as files: CSV, JSON, JSONL, Parquet. Memory holds one batch of rows, whatever the table's size.

CSV is for spreadsheets, so no cell may be read as a formula: model answers are hostile text. Text that begins
like a formula gets an apostrophe before it, as OWASP's page on CSV injection says; numbers stay numbers. The
other three formats hold every text unchanged.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from hpcbench.errors import EnvironmentFault
from hpcbench.files.atomic import replacing
from hpcbench.installed import pip
from hpcbench.interchange.result_tables import Table

Format = Literal["csv", "json", "jsonl", "parquet"]
"""Formats of tables."""

FORMATS: tuple[Format, ...] = get_args(Format)

ROW_GROUP = 50_000
"""Most rows in a row group of a Parquet file: a reader has to hold them at once."""

FORMULA = r"^(?:[\s\p{Cc}\p{Cf}]*[=+\-@＝＋－＠]|[\t\r\n])"
"""Text that a spreadsheet may run, also after blanks and invisible characters."""

NUMBER = r"^[+\-]\d[\d.,]*(?:[eE][+\-]?\d+)?$"
"""Text that begins with a sign but is a number."""

Progress = Callable[[int], None]
"""Receives the number of rows written so far."""


def write(
    table: Table,
    form: Format,
    out: Path | None,
    progress: Progress = lambda rows: None,
    *,
    excel: bool = False,
) -> int:
    """Write a complete table or no file; standard output gets the rows before a failure.

    Args:
        table: the rows.
        form: the format.
        out: the file, which appears when it is complete; None: standard output, not for Parquet.
        progress: receives the number of rows so far.
        excel: begin CSV with a byte order mark, without which Excel does not detect UTF-8.

    Returns:
        The number of rows.

    Raises:
        OSError: the file cannot be written; the old file is unchanged.
    """
    count = _Count(table, progress)
    if form == "parquet":
        assert out is not None
        with replacing(out) as temporary:
            _write_parquet(count, temporary)
        return count.rows
    if out is None:
        sys.stdout.buffer.writelines(_MAKERS[form](count, excel))
        sys.stdout.buffer.flush()
        return count.rows
    with replacing(out) as temporary, temporary.open("wb") as file:
        file.writelines(_MAKERS[form](count, excel))
    return count.rows


class _Count:
    """The frames of a table, counted as they pass."""

    def __init__(self, table: Table, progress: Progress) -> None:
        self.schema, self._table, self._progress = table.schema, table, progress
        self.rows = 0
        self.failed: BaseException | None = None
        """The error in reading, which a library may hide."""

    def __iter__(self) -> Iterator[Any]:
        try:
            for frame in self._table.frames():
                self.rows += frame.height
                yield frame
                self._progress(self.rows)
        except BaseException as error:
            self.failed = error
            raise

    def empty(self) -> Any:
        import polars

        return polars.DataFrame(schema=dict(self.schema))


def _write_parquet(rows: _Count, path: Path) -> None:
    """Write with polars' streaming engine, which requests a frame when it can hold one."""
    import polars

    try:
        from polars.io.plugins import register_io_source
    except ImportError as error:
        raise EnvironmentFault(
            f"polars {polars.__version__} cannot write Parquet in batches",
            remedy=f"{pip('install')} --upgrade polars",
        ) from error

    def source(
        with_columns: list[str] | None, predicate: Any, n_rows: int | None, batch_size: int | None
    ) -> Iterator[Any]:
        for frame in rows:
            found = frame if predicate is None else frame.filter(predicate)
            yield found if with_columns is None else found.select(with_columns)

    lazy = register_io_source(source, schema=dict(rows.schema))
    try:
        # Given a name, polars may create the file again after a failure: it opens the file in a thread of its
        # own.
        with path.open("wb") as file:
            lazy.sink_parquet(file, row_group_size=ROW_GROUP, compression="zstd")
    except Exception as error:
        if rows.failed is not None:
            raise rows.failed from error
        raise
    if not rows.rows:
        rows.empty().write_parquet(path)


def pieces(table: Table, form: Format) -> Iterator[bytes]:
    """A table as bytes, a batch of rows at a time: CSV, JSON or JSONL.

    Args:
        table: the rows.
        form: the format; not Parquet, which is no stream.
    """
    return _MAKERS[form](_Count(table, lambda _: None), False)


def _csv_pieces(rows: _Count, excel: bool) -> Iterator[bytes]:
    if excel:
        yield b"\xef\xbb\xbf"
    yield _csv(rows.empty(), header=True)
    for frame in rows:
        yield _csv(frame, header=False)


def _csv(frame: Any, *, header: bool) -> bytes:
    buffer = io.BytesIO()
    cells = [_cell(name, kind) for name, kind in frame.schema.items()]
    frame.select(cells).write_csv(buffer, include_header=header)
    return buffer.getvalue()


def _cell(name: str, kind: Any) -> Any:
    """The form of a column in CSV: text made harmless, lists as JSON, times in ISO 8601."""
    import polars

    column = polars.col(name)
    if kind == polars.String:
        danger = column.str.contains(FORMULA) & ~column.str.contains(NUMBER)
        return polars.when(danger).then(polars.lit("'") + column).otherwise(column).alias(name)
    if isinstance(kind, polars.List):
        return column.map_elements(_listed, return_dtype=polars.String)
    return _instant(name) if isinstance(kind, polars.Datetime) else column


def _instant(name: str) -> Any:
    """A time as text, `2026-11-20T14:32:00.125Z`."""
    import polars

    return polars.col(name).dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ")


def _listed(values: Any) -> str:
    import json

    return json.dumps(values.to_list(), ensure_ascii=False)


def _jsonl_pieces(rows: _Count, excel: bool) -> Iterator[bytes]:
    for frame in rows:
        yield _lines(frame)


def _json_pieces(rows: _Count, excel: bool) -> Iterator[bytes]:
    """An array with one row per line."""
    before = b"[\n"
    for frame in rows:
        yield before + _lines(frame)[:-1].replace(b"}\n{", b"},\n{")
        before = b",\n"
    yield b"[]\n" if before == b"[\n" else b"\n]\n"


_MAKERS: Mapping[Format, Callable[[_Count, bool], Iterator[bytes]]] = {
    "csv": _csv_pieces,
    "json": _json_pieces,
    "jsonl": _jsonl_pieces,
}


def _lines(frame: Any) -> bytes:
    import polars

    times = [name for name, kind in frame.schema.items() if isinstance(kind, polars.Datetime)]
    buffer = io.BytesIO()
    frame.with_columns([_instant(name) for name in times]).write_ndjson(buffer)
    return buffer.getvalue()
