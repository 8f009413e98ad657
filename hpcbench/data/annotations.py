"""The rows of annotation files: JSONL, JSON, CSV, TSV and XLSX in memory, Parquet and Arrow in place.

    rows = open_rows(tree, [path, …], how)
    rows.light({"id", "row.question"}) all rows, only the columns of these keys
    rows.at([3, 4, 100])               whole rows, a block at a time
    rows.at([3, 4, 100], {"id"})       the same, light

Light rows do not read bytes: `BYTES` replaces each value. An unreadable row is a `Problem` in place of its
record, so that row numbers stay right.
"""

from __future__ import annotations

import ast
import bisect
import csv
import io
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from pydantic_core import from_json

from hpcbench.data.sheets import read_sheet
from hpcbench.data.tree import Tree
from hpcbench.errors import EnvironmentFault, Problem, UserError, first_line
from hpcbench.files.user import not_json

Record = Mapping[str, Any]

BLOCK_ROWS = 256
"""Most rows of a Parquet or Arrow file in memory at once."""

BLOCK_BYTES = 32 << 20
"""Most bytes of these rows, if they have the average size of their files; one row is always read."""

LIGHT_ROWS = 16 * BLOCK_ROWS
"""Most rows without their bytes in memory at once."""

BYTES = b"\0"
"""Replaces unread bytes in light rows."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read annotation files."""

    records: str | None = None
    """Key of a JSON file's list, with dots for nested objects; `*`: the file is an object whose entries are
    the records, with their keys as `key`. For a spreadsheet: the sheet."""
    delimiter: str | None = None
    """Delimiter of the columns of a CSV file; None: `,`, and a tab in .tsv."""
    encoding: str = "utf-8"
    """Encoding of text files."""
    keys: Collection[str] | None = None
    """Keys that are read: two CSV columns may not share the name of one. None: all keys."""


class Rows(Protocol):
    """Rows of all files together, counted from 0."""

    def light(self, keys: Collection[str] | None) -> Iterable[Record | Problem]: ...
    def at(
        self, places: Iterable[int], keys: Collection[str] | None = None
    ) -> Iterator[Record]: ...
    def place(self, index: int) -> tuple[Path, int]: ...
    def names(self) -> Mapping[str, bool] | None: ...


def open_rows(tree: Tree, files: Sequence[Path], how: ReadOptions) -> Rows:
    """The rows of files of one form.

    Raises:
        UserError: no reader knows the files' form.
    """
    suffix = files[0].suffix.lower()
    if suffix == ".parquet":
        return ParquetRows(files)
    if suffix == ".arrow":
        return ArrowRows(files)
    if suffix not in TEXTS and suffix != ".xlsx":
        known = ", ".join([*TEXTS, ".xlsx", ".parquet", ".arrow"])
        raise UserError(Problem(f"annotations must end in one of {known}", str(files[0])))
    return ListedRows(_text_rows(tree, files, how))


def first_rows(rows: Rows, most: int) -> Iterable[Record | Problem]:
    """The first rows without their bytes; of big files only these rows are read."""
    if isinstance(rows, ParquetRows):
        return rows.at(range(most), rows.names())
    return itertools.islice(rows.light(None), most)


class ListedRows:
    """Rows in memory: each with its file, its line or number in the file, and its record."""

    def __init__(self, rows: Iterable[tuple[Path, int, Record | Problem]]) -> None:
        self._rows = list(rows)

    def light(self, keys: Collection[str] | None) -> Iterable[Record | Problem]:
        """All rows, whole: they are in memory."""
        return [record for _, _, record in self._rows]

    def at(self, places: Iterable[int], keys: Collection[str] | None = None) -> Iterator[Record]:
        """Rows at some places; problems are left out."""
        rows = (self._rows[place][2] for place in places)
        return (one for one in rows if not isinstance(one, Problem))

    def place(self, index: int) -> tuple[Path, int]:
        """File of a row, and its line or its number in the list."""
        return self._rows[index][:2]

    def names(self) -> None:
        """None: each row has its own columns."""
        return


class ChangedRows:
    """Rows of which each is changed by a function; a function of a row without some columns, too."""

    def __init__(self, rows: Rows, change: Callable[[Record], Record]) -> None:
        self._rows, self._change = rows, change

    def light(self, keys: Collection[str] | None) -> Iterable[Record | Problem]:
        """All rows, light: only the columns of these keys, without bytes."""
        for row in self._rows.light(keys):
            yield row if isinstance(row, Problem) else self._change(row)

    def at(self, places: Iterable[int], keys: Collection[str] | None = None) -> Iterator[Record]:
        """Rows at some places, in rising order; whole, or light with the columns of `keys`."""
        return map(self._change, self._rows.at(places, keys))

    def place(self, index: int) -> tuple[Path, int]:
        """File of a row, and its line or number."""
        return self._rows.place(index)

    def names(self) -> Mapping[str, bool] | None:
        """Column → whether it contains bytes."""
        return self._rows.names()


def with_lists(row: Record, columns: Sequence[str]) -> Record:
    """A row in which texts of some columns that say a list are lists."""
    found = {name: list_of(row[name]) for name in columns if isinstance(row.get(name), str)}
    return {**row, **{name: one for name, one in found.items() if one is not None}}


class EachRows:
    """Rows with lists in some columns: a row for each entry, which takes the place of the list.

    The lists of one row are equally long. A list may be a text: JSON, or as Python prints it.
    """

    def __init__(self, rows: Rows, columns: Sequence[str]) -> None:
        self._rows, self._columns = rows, columns

    def light(self, keys: Collection[str] | None) -> Iterable[Record | Problem]:
        """All rows, light: only the columns of these keys, without bytes."""
        more = None if keys is None else {*keys, *self._columns}
        for number, row in enumerate(self._rows.light(more)):
            yield from (row,) if isinstance(row, Problem) else self._entries(row, number)

    def at(self, places: Iterable[int], keys: Collection[str] | None = None) -> Iterator[Record]:
        """Yield rows at some places, in rising order; whole, or light with the columns of `keys`."""
        more = None if keys is None else {*keys, *self._columns}
        wanted: dict[int, list[int]] = {}
        for place in places:
            number = bisect.bisect_right(self._starts, place) - 1
            wanted.setdefault(number, []).append(place - self._starts[number])
        for (place, some), row in zip(wanted.items(), self._rows.at(wanted, more), strict=True):
            entries = self._entries(row, place)
            for entry in some:
                if not isinstance(found := entries[entry], Problem):
                    yield found

    def place(self, index: int) -> tuple[Path, int]:
        """File and line, or number, of the row that contains an entry."""
        return self._rows.place(bisect.bisect_right(self._starts, index) - 1)

    def names(self) -> Mapping[str, bool] | None:
        """Column → whether it contains bytes."""
        return self._rows.names()

    @cached_property
    def _starts(self) -> list[int]:
        """First place of each row."""
        sizes = (
            1 if isinstance(row, Problem) else len(self._entries(row, number))
            for number, row in enumerate(self._rows.light(set(self._columns)))
        )
        return list(itertools.accumulate(sizes, initial=0))[:-1]

    def _entries(self, row: Record, number: int) -> list[Record | Problem]:
        """The rows that a row becomes; one problem if its columns have no such lists."""
        lists = [list_of(row.get(column)) for column in self._columns]
        sizes = {-1 if one is None else len(one) for one in lists}
        if len(sizes) != 1 or min(sizes) < 1:
            path, line = self._rows.place(number)
            names = ", ".join(map(repr, self._columns))
            return [Problem(f"{names}: no lists of equal length", str(path), line)]
        return [
            {**row, **dict(zip(self._columns, some, strict=True))}
            for some in zip(*(one or () for one in lists), strict=True)
        ]


def list_of(value: Any) -> list[Any] | None:
    """A list, or the list that a text says; None: it is none."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            try:
                value = ast.literal_eval(value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                return None
    return list(value) if isinstance(value, (list, tuple)) else None


def _text_rows(
    tree: Tree, files: Sequence[Path], how: ReadOptions
) -> Iterator[tuple[Path, int, Record | Problem]]:
    """Yield the rows of text files and spreadsheets, each read whole, once."""
    for path in files:
        data, suffix = tree.read(path), path.suffix.lower()
        found: Iterable[tuple[int, Record | Problem]]
        if suffix == ".xlsx":
            found = read_sheet(data, path, how.records)
        else:
            found = _READERS[suffix](_decoded(data, path, how.encoding), path, how)
        yield from ((path, number, record) for number, record in found)


class ParquetRows:
    """Parquet files, read a block at a time.

    Polars reads whole row groups from the disk and drops rows outside the block. It reads all parts of a
    struct even for one of them. It finds rows without bytes in the files' statistics.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._without: dict[str, dict[int, Any]] = {}

    def light(self, keys: Collection[str] | None) -> Iterable[Record]:
        """All rows, light: only the columns of these keys, without bytes."""
        return self._read(None, self.names() if keys is None else keys)

    def at(self, places: Iterable[int], keys: Collection[str] | None = None) -> Iterator[Record]:
        """Yield rows at some places, in rising order; whole, or light with the columns of `keys`."""
        size = self._block if keys is None else LIGHT_ROWS
        for some in _spans(places, size):
            yield from self._read(some, keys)

    def place(self, index: int) -> tuple[Path, int]:
        """File of a row, and its number in the file, from 1."""
        before = [0, *itertools.accumulate(self._counts)]
        file = bisect.bisect_right(before, index) - 1
        return self._files[file], index - before[file] + 1

    def names(self) -> dict[str, bool]:
        """Column → whether it contains bytes."""
        return {name: _holds_bytes(kind) for name, kind in self._kinds.items()}

    def _read(self, places: Sequence[int] | None, keys: Collection[str] | None) -> Iterator[Record]:
        """Yield the rows at places that are close together; None: all rows."""
        import polars

        table, absent = self._scan, dict[str, dict[int, Any]]()
        if places is not None:
            table = table.slice(places[0], places[-1] + 1 - places[0])
        if keys is not None:
            wanted = {column_of(key, self._kinds) for key in keys}
            within = {column_of(key, self._kinds) for key in keys if key not in self._kinds}
            names = [name for name in self._kinds if name in wanted]
            absent = {
                name: self._lacking(name)
                for name in names
                if name not in within and _is_image(self._kinds[name])
            }
            shown = [
                _light(polars.col(name), self._kinds[name]).alias(name)
                for name in names
                if name not in absent
            ]
            shown = shown or [polars.col(names[0]).is_null()]  # keeps the number of rows
            table = table.select(shown)
        found = self._collected(table)
        if places is not None and len(places) < found.height:
            found = found[[place - places[0] for place in places]]
        rows: Iterable[Record] = found.iter_rows(named=True)
        if not absent:
            yield from rows
            return
        for place, row in zip(itertools.count() if places is None else places, rows):  # noqa: B905
            yield {**row, **{name: known.get(place, BYTES) for name, known in absent.items()}}

    def _lacking(self, name: str) -> dict[int, Any]:
        """Row → light value of an image column, for rows that lack some of its bytes: few rows, or all."""
        import polars

        if name not in self._without:
            column, kind = polars.col(name), self._kinds[name]
            light, lacks = _light(column, kind).alias(name), _lacks(column, kind)
            # Numbered by the scan itself: otherwise Polars reads all columns before it filters.
            table = polars.scan_parquet(list(self._files), row_index_name=ROW)
            if isinstance(kind, polars.List):  # statistics do not cover list items
                found = self._collected(table.select(ROW, light))
                found = found.filter(found.select(lacks).to_series())
            else:
                found = self._collected(table.filter(lacks).select(ROW, light))
            self._without[name] = dict(found.iter_rows())
        return self._without[name]

    @cached_property
    def _kinds(self) -> Mapping[str, Any]:
        try:
            kinds: Mapping[str, Any] = self._scan.collect_schema()
        except _polars_errors() as error:
            raise self._fault(error) from error
        return kinds

    @cached_property
    def _block(self) -> int:
        """Number of rows to read at once."""
        row = sum(path.stat().st_size for path in self._files) // max(1, sum(self._counts))
        return max(1, min(BLOCK_ROWS, BLOCK_BYTES // max(1, row)))

    @cached_property
    def _counts(self) -> list[int]:
        import polars

        count = polars.len()
        return [
            self._collected(polars.scan_parquet(one).select(count)).item() for one in self._files
        ]

    @cached_property
    def _scan(self) -> Any:
        import polars

        return polars.scan_parquet(list(self._files))

    def _collected(self, table: Any) -> Any:
        try:
            return table.collect()
        except _polars_errors() as error:
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> UserError:
        """The error that names the unreadable file."""
        import polars

        first = None
        for path in self._files:
            try:
                kinds = polars.read_parquet_schema(path)
            except _polars_errors() as wrong:
                return UserError(Problem(f"not a Parquet file: {first_line(wrong)}", str(path)))
            first = first or kinds
            if kinds != first:
                others = sorted({name for name, _ in {*kinds.items()} ^ {*first.items()}})
                what = f"column {', '.join(map(repr, others))} differs from {self._files[0].name}"
                return UserError(Problem(what, str(path)))
        return UserError(Problem(f"cannot be read: {first_line(error)}", str(self._files[0])))


ROW = "number of the row"
"""Column of a row's number; no other column has this name."""


def _spans(places: Iterable[int], size: int) -> Iterator[list[int]]:
    """Yield lists of places, each within `size` rows."""
    some: list[int] = []
    for place in places:
        if some and place - some[0] >= size:
            yield some
            some = []
        some.append(place)
    if some:
        yield some


def _polars_errors() -> tuple[type[Exception], ...]:
    import polars

    return OSError, polars.exceptions.PolarsError


def _holds_bytes(kind: Any) -> bool:
    """Whether values of a Polars type contain bytes."""
    import polars

    if isinstance(kind, polars.Struct):
        return any(_holds_bytes(one.dtype) for one in kind.fields)
    if isinstance(kind, polars.List | polars.Array):
        return _holds_bytes(kind.inner)
    return bool(kind == polars.Binary)


def _is_image(kind: Any) -> bool:
    """Whether a Polars type is bytes, Hugging Face's {bytes, path}, or a list of them."""
    import polars

    if isinstance(kind, polars.List):
        return _is_image(kind.inner)
    if isinstance(kind, polars.Struct):
        parts = {one.name: one.dtype for one in kind.fields}
        path = parts.pop("path", polars.Null)  # Null: a column of unknown type
        return parts == {"bytes": polars.Binary} and path in (polars.String, polars.Null)
    return bool(kind == polars.Binary)


def _lacks(column: Any, kind: Any) -> Any:
    """Expression: whether a value of an image type lacks some of its bytes."""
    import polars

    if isinstance(kind, polars.List):
        lacking = column.list.eval(_lacks(polars.element(), kind.inner)).list.any()
        return lacking.fill_null(True) | (column.list.len() == 0)
    return (column.struct.field("bytes") if isinstance(kind, polars.Struct) else column).is_null()


def _light(column: Any, kind: Any) -> Any:
    """Expression: the value without its bytes."""
    import polars

    if not _holds_bytes(kind):
        return column
    if isinstance(kind, polars.Struct):
        parts = [
            _light(column.struct.field(one.name), one.dtype).alias(one.name) for one in kind.fields
        ]
        return polars.when(column.is_not_null()).then(polars.struct(parts))
    if isinstance(kind, polars.List):
        return column.list.eval(_light(polars.element(), kind.inner))
    return polars.when(column.is_not_null()).then(polars.lit(BYTES))


class ArrowRows:
    """Arrow streams, as `datasets.save_to_disk` writes them: mapped, not read."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files

    def light(self, keys: Collection[str] | None) -> Iterable[Record]:
        """All rows, light: only the columns of these keys, without bytes."""
        return self.at(range(self._starts[-1]), self.names() if keys is None else keys)

    def at(self, places: Iterable[int], keys: Collection[str] | None = None) -> Iterator[Record]:
        """Yield rows at some places, in rising order; whole, or light with the columns of `keys`."""
        names = self.names()
        wanted = None if keys is None else {column_of(key, names) for key in keys}
        opened, size, begin, end = -1, 0, 0, 0
        batch: Any = None
        for some in _runs(places):
            low = some.start
            while low < some.stop:
                number = bisect.bisect_right(self._starts, low) - 1
                if number != opened:
                    opened, begin, end = number, self._starts[number], self._starts[number + 1]
                    batch = self._batches[number][1]
                    size = _rows_at_once(batch, wanted)
                    batch = batch if wanted is None else _light_batch(batch, wanted)
                high = min(some.stop, end, low + size)
                yield from batch.slice(low - begin, high - low).to_pylist()
                low = high

    def place(self, index: int) -> tuple[Path, int]:
        """File of a row, and its number in the file, from 1."""
        number = bisect.bisect_right(self._starts, index) - 1
        path = self._batches[number][0]
        first = next(
            start for start, one in zip(self._starts, self._batches, strict=False) if one[0] == path
        )
        return path, index - first + 1

    def names(self) -> dict[str, bool]:
        """Column → whether it contains bytes."""
        schema = self._batches[0][1].schema if self._batches else ()
        return {one.name: _holds_binary(one.type) for one in schema}

    @cached_property
    def _starts(self) -> list[int]:
        """First row of each batch, and the number of all rows."""
        return [0, *itertools.accumulate(batch.num_rows for _, batch in self._batches)]

    @cached_property
    def _batches(self) -> list[tuple[Path, Any]]:
        try:
            import pyarrow
        except ImportError as error:
            from hpcbench.installed import install_hint

            raise EnvironmentFault(
                "Arrow files need pyarrow", remedy=install_hint("arrow")
            ) from error
        batches = []
        for path in self._files:
            try:
                source = pyarrow.memory_map(str(path))
                try:
                    found = pyarrow.ipc.open_stream(source)
                except pyarrow.ArrowInvalid:
                    source.seek(0)
                    opened = pyarrow.ipc.open_file(source)
                    found = map(opened.get_batch, range(opened.num_record_batches))
                batches += [(path, batch) for batch in found]
            except (OSError, pyarrow.ArrowInvalid) as error:
                raise UserError(Problem(f"not an Arrow file: {error}", str(path))) from error
        return batches


def _runs(places: Iterable[int]) -> Iterator[range]:
    """Yield ranges of consecutive places."""
    start = stop = -1
    for place in places:
        if place != stop:
            if start < stop:
                yield range(start, stop)
            start = place
        stop = place + 1
    if start < stop:
        yield range(start, stop)


def _rows_at_once(batch: Any, wanted: Collection[str] | None) -> int:
    if wanted is not None:
        return LIGHT_ROWS
    row: int = batch.nbytes // max(1, batch.num_rows)
    return max(1, min(BLOCK_ROWS, BLOCK_BYTES // max(1, row)))


def _light_batch(batch: Any, wanted: Collection[str]) -> Any:
    """Some columns of a batch, without their bytes."""
    import pyarrow

    names = [name for name in batch.schema.names if name in wanted]
    return pyarrow.RecordBatch.from_arrays(
        [_light_array(batch.column(name)) for name in names], names
    )


def _holds_binary(kind: Any) -> bool:
    """Whether values of an Arrow type contain bytes."""
    from pyarrow import types

    if types.is_binary(kind) or types.is_large_binary(kind):
        return True
    inner = (kind.field(place).type for place in range(kind.num_fields))
    return any(map(_holds_binary, inner))


def _light_array(array: Any) -> Any:
    """An array without its bytes; the bytes in the files are not read."""
    import pyarrow
    from pyarrow import types

    kind = array.type
    if not _holds_binary(kind):
        return array
    if types.is_fixed_size_list(kind):
        return _light_array(array.cast(pyarrow.list_(kind.value_type)))
    if types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return pyarrow.StructArray.from_arrays(
            [_light_array(one) for one in array.flatten()],
            [one.name for one in fields],
            mask=array.is_null(),
        )
    if types.is_list(kind) or types.is_large_list(kind):
        made = pyarrow.ListArray if types.is_list(kind) else pyarrow.LargeListArray
        return made.from_arrays(array.offsets, _light_array(array.values), mask=array.is_null())
    if not (types.is_binary(kind) or types.is_large_binary(kind)):
        return array  # a map or a dictionary type: images do not use these
    held = pyarrow.array([BYTES], kind)
    from pyarrow import compute

    return compute.if_else(array.is_valid(), held[0], pyarrow.scalar(None, kind))


# --- text -----------------------------------------------------------------------------------------------

_ENCODING = "save it as UTF-8, or set the option `encoding`"


def _decoded(data: bytes, path: Path, encoding: str) -> str:
    """The text; undecodable bytes become surrogates, which `_strange` finds row by row."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode(encoding, "surrogateescape").removeprefix("\ufeff")
    except UnicodeError as error:  # from encodings without surrogates, such as UTF-16
        what = f"not {encoding}: {getattr(error, 'reason', error)}"
        raise UserError(Problem(what, str(path), remedy=_ENCODING)) from error
    except (LookupError, ValueError) as error:  # ValueError: a null character
        raise UserError(
            Problem(f"unknown encoding '{encoding}'", str(path), remedy="use a name such as cp1251")
        ) from error


_SURROGATES = re.compile("[\udc80-\udcff]")


def _strange(text: str, path: Path, number: int, how: ReadOptions) -> Problem | None:
    found = _SURROGATES.search(text)
    if found is None:
        return None
    what = f"not {how.encoding}: byte 0x{ord(found[0]) - 0xDC00:02x}"
    return Problem(what, str(path), number, remedy=_ENCODING)


def _read_jsonl(text: str, path: Path, how: ReadOptions) -> Iterator[tuple[int, Record | Problem]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        if problem := _strange(line, path, number, how):
            yield number, problem
            continue
        try:
            record = _loaded(line)
        except (ValueError, RecursionError) as error:
            yield number, not_json(error, path, number)
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            yield number, Problem("not a JSON object", str(path), number)


def _loaded(line: str) -> Any:
    """The value of a line; rows share their keys and short texts, which takes half the time and memory."""
    try:
        return from_json(line)
    except ValueError:
        # It takes halves of surrogate pairs, and its errors name the place.
        return json.loads(line)


def _read_json(text: str, path: Path, how: ReadOptions) -> Iterator[tuple[int, Record | Problem]]:
    for number, line in enumerate(text.split("\n") if _SURROGATES.search(text) else (), start=1):
        if problem := _strange(line, path, number, how):
            raise UserError(problem)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(not_json(error, path)) from error
    if isinstance(data, dict) and how.records == "*":
        data = [_keyed(key, one) for key, one in data.items()]
    elif isinstance(data, dict) and how.records is not None:
        data = value_of(data, how.records)
    if not isinstance(data, list):
        what = f"no list under '{how.records}'" if how.records else "not a list of records"
        raise UserError(Problem(what, str(path), 1, 1, "set the option `records`"))
    for number, record in enumerate(data, start=1):
        if isinstance(record, dict):
            yield number, record
        else:
            yield number, Problem("not a JSON object", str(path), number)


def _keyed(key: str, value: Any) -> Record:
    """An entry of an object as a record."""
    return {"key": key, **value} if isinstance(value, dict) else {"key": key, "value": value}


def _read_csv(text: str, path: Path, how: ReadOptions) -> Iterator[tuple[int, Record | Problem]]:
    """Yield the rows under the header, each with the number of its first line.

    Raises:
        UserError: the header is wrong, or an unclosed quote hides an unknown number of rows.
    """
    delimiter = how.delimiter or ("\t" if path.suffix.lower() == ".tsv" else ",")
    csv.field_size_limit(sys.maxsize)
    lines = io.StringIO(text, newline="")
    if stated := _STATED.match(text):  # Excel states it in a line before the header
        delimiter = stated[1]
        lines.readline()
    before = 1 if stated else 0
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    names: list[str] | None = None
    while True:
        number = reader.line_num + before + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = Problem(f"not CSV: {error}", str(path), number)
            many = reader.line_num + before > number
            if names is None or many or "end of data" in str(error):
                raise UserError(problem) from error
            yield number, problem
            continue
        if not any(map(str.strip, cells)):  # spreadsheets leave empty rows at their end
            continue
        strange = _strange(" ".join(cells), path, number, how)
        if names is None:
            names = _header(cells, strange, path, number, how)
        elif len(cells) != len(names):
            what = f"the header has {len(names)} columns, this row has {len(cells)}"
            remedy = f"put a cell that contains {delimiter!r} into quotes"
            yield number, Problem(what, str(path), number, remedy=remedy)
        else:
            yield number, strange or dict(zip(names, cells, strict=True))


def _header(
    cells: list[str], strange: Problem | None, path: Path, number: int, how: ReadOptions
) -> list[str]:
    if strange is not None:
        raise UserError(strange)
    read = {*cells} if how.keys is None else {column_of(key, cells) for key in how.keys}
    if twice := [
        name for name, count in Counter(cells).items() if count > 1 and name in read - {""}
    ]:
        what = f"more than one column is named {', '.join(map(repr, twice))}"
        raise UserError(Problem(what, str(path), number, remedy="give each its own name"))
    return cells


_STATED = re.compile(r"sep=(.)\r?\n", re.IGNORECASE)

_READERS = {".jsonl": _read_jsonl, ".json": _read_json, ".csv": _read_csv, ".tsv": _read_csv}

TEXTS = tuple(_READERS)
"""Suffixes of text annotations."""


def column_of(key: str, names: Container[str]) -> str:
    """The column of a key: the column with its name, or else the part before its first dot."""
    return key if key in names else key.partition(".")[0]


def value_of(record: Any, key: str) -> Any:
    """The value of a key; dots lead into objects, also into JSON stored as text."""
    if type(record) is dict and key in record:  # called ten times for each sample
        return record[key]
    if isinstance(record, Mapping) and key in record:
        return record[key]
    first, dot, rest = key.partition(".")
    inner = record.get(first) if isinstance(record, Mapping) else None
    if isinstance(inner, str) and dot:
        try:
            inner = json.loads(inner)
        except (ValueError, RecursionError):
            return None
    return value_of(inner, rest) if dot else inner
