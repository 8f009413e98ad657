"""The rows of annotation files: JSONL, JSON, CSV and TSV in memory, Parquet and Arrow where they lie.

    rows = open_rows(tree, [path, …], how)
    rows.light({"id", "question"})     all rows, of big files only these columns
    rows.between(100, 200)             whole rows, a block at a time

A row that cannot be read at all is a `Problem` in the place of its record, so that numbers stay right.
"""

from __future__ import annotations

import bisect
import csv
import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from hpcbench.data.tree import Tree
from hpcbench.errors import EnvironmentFault, Problem, UserError

Record = Mapping[str, Any]

BLOCK_ROWS = 256
"""Rows of a Parquet file in memory at once: with their images, a few tens of MiB."""


@dataclass(frozen=True, slots=True)
class How:
    """How annotation files are to be read."""

    records: str | None = None
    """Key under which a JSON file keeps its list; dots go down."""
    delimiter: str | None = None
    """What parts the columns of a CSV file; none: `,`, and a tab in .tsv."""
    encoding: str = "utf-8"
    """Encoding of text files."""


class Rows(Protocol):
    """Rows of all files together, counted from 0."""

    def light(self, columns: Collection[str] | None) -> Iterable[Record | Problem]: ...
    def between(
        self, start: int, stop: int, columns: Collection[str] | None = None
    ) -> Iterator[Record]: ...
    def place(self, index: int) -> tuple[Path, int]: ...
    def names(self) -> Collection[str] | None: ...


def open_rows(tree: Tree, files: Sequence[Path], how: How) -> Rows:
    """The rows of files of one form.

    Raises:
        UserError: they are of a form nobody here can read.
    """
    suffix = files[0].suffix.lower()
    if suffix == ".parquet":
        return ParquetRows(files)
    if suffix == ".arrow":
        return ArrowRows(files)
    if suffix not in _READERS:
        known = ", ".join([*_READERS, ".parquet", ".arrow"])
        raise UserError(Problem(f"annotations end in one of {known}", str(files[0])))
    return TextRows(tree, files, how)


class TextRows:
    """Files that people write: read whole, once."""

    def __init__(self, tree: Tree, files: Sequence[Path], how: How) -> None:
        self._tree, self._files, self._how = tree, files, how

    def light(self, columns: Collection[str] | None) -> Iterable[Record | Problem]:
        """All rows; they are in memory anyway."""
        return [record for _, _, record in self._rows]

    def between(
        self, start: int, stop: int, columns: Collection[str] | None = None
    ) -> Iterator[Record]:
        """Rows `start` to `stop` (exclusive), none of which is a problem."""
        for _, _, record in self._rows[start:stop]:
            if not isinstance(record, Problem):
                yield record

    def place(self, index: int) -> tuple[Path, int]:
        """File and line, or number in the list, of a row."""
        path, number, _ = self._rows[index]
        return path, number

    def names(self) -> None:
        """Each row has its own."""
        return

    @cached_property
    def _rows(self) -> list[tuple[Path, int, Record | Problem]]:
        rows: list[tuple[Path, int, Record | Problem]] = []
        for path in self._files:
            text = _decoded(self._tree.read(path), path, self._how.encoding)
            reader = _READERS[path.suffix.lower()]
            rows += [(path, number, one) for number, one in reader(text, path, self._how)]
        return rows


class ParquetRows:
    """Parquet files, read a block at a time."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files

    def light(self, columns: Collection[str] | None) -> Iterable[Record]:
        """All rows with these columns."""
        table = self._scan
        if columns is not None:
            table = table.select([name for name in self.names() if name in columns])
        rows: Iterable[Record] = table.collect().iter_rows(named=True)
        return rows

    def between(
        self, start: int, stop: int, columns: Collection[str] | None = None
    ) -> Iterator[Record]:
        """Rows `start` to `stop` (exclusive)."""
        table = self._scan
        if columns is not None:
            table = table.select([name for name in self.names() if name in columns])
        rows = BLOCK_ROWS if columns is None else 16 * BLOCK_ROWS  # without images they are small
        for first in range(start, stop, rows):
            block = table.slice(first, min(rows, stop - first)).collect()
            yield from block.iter_rows(named=True)

    def place(self, index: int) -> tuple[Path, int]:
        """File and row in it, from 1."""
        before = [0, *itertools.accumulate(self._counts)]
        file = bisect.bisect_right(before, index) - 1
        return self._files[file], index - before[file] + 1

    def names(self) -> list[str]:
        """Columns there are."""
        return self._names

    @cached_property
    def _names(self) -> list[str]:
        found: list[str] = self._scan.collect_schema().names()
        return found

    @cached_property
    def _counts(self) -> list[int]:
        import polars

        return [
            polars.scan_parquet(one).select(polars.len()).collect().item() for one in self._files
        ]

    @cached_property
    def _scan(self) -> Any:
        import polars

        try:
            table = polars.scan_parquet(list(self._files))
            table.collect_schema()
        except (OSError, polars.exceptions.PolarsError) as error:
            what = f"no Parquet file: {str(error).splitlines()[0]}"
            raise UserError(Problem(what, str(self._files[0]))) from error
        return table


class ArrowRows:
    """Arrow streams, as `datasets.save_to_disk` writes them: mapped, not read."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files

    def light(self, columns: Collection[str] | None) -> Iterable[Record]:
        """All rows with these columns."""
        return self.between(0, self._starts[-1], columns)

    def between(
        self, start: int, stop: int, columns: Collection[str] | None = None
    ) -> Iterator[Record]:
        """Rows `start` to `stop` (exclusive)."""
        first = bisect.bisect_right(self._starts, start) - 1
        for number in range(first, len(self._batches)):
            begin = self._starts[number]
            if begin >= stop:
                return
            _, batch = self._batches[number]
            if columns is not None:
                batch = batch.select([name for name in batch.schema.names if name in columns])
            low, high = max(start - begin, 0), min(stop - begin, batch.num_rows)
            for block in range(low, high, BLOCK_ROWS):
                yield from batch.slice(block, min(BLOCK_ROWS, high - block)).to_pylist()

    def place(self, index: int) -> tuple[Path, int]:
        """File and row in it, from 1."""
        number = bisect.bisect_right(self._starts, index) - 1
        path = self._batches[number][0]
        first = next(
            start for start, one in zip(self._starts, self._batches, strict=False) if one[0] == path
        )
        return path, index - first + 1

    def names(self) -> list[str]:
        """Columns there are."""
        found: list[str] = self._batches[0][1].schema.names if self._batches else []
        return found

    @cached_property
    def _starts(self) -> list[int]:
        """Row with which each batch begins, and the number of all."""
        return [0, *itertools.accumulate(batch.num_rows for _, batch in self._batches)]

    @cached_property
    def _batches(self) -> list[tuple[Path, Any]]:
        try:
            import pyarrow
        except ImportError as error:
            raise EnvironmentFault(
                "Arrow files need pyarrow", remedy="pip install 'hpcbench[arrow]'"
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
                raise UserError(Problem(f"no Arrow file: {error}", str(path))) from error
        return batches


# --- text -----------------------------------------------------------------------------------------------


def _decoded(data: bytes, path: Path, encoding: str) -> str:
    """The text; what is not in the encoding becomes surrogates, which `_strange` finds row by row."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode(encoding, "surrogateescape")
    except LookupError as error:
        raise UserError(Problem(f"unknown encoding '{encoding}'", str(path))) from error


_SURROGATES = re.compile("[\udc80-\udcff]")


def _strange(text: str, path: Path, number: int, how: How) -> Problem | None:
    found = _SURROGATES.search(text)
    if found is None:
        return None
    what = f"not {how.encoding}: byte 0x{ord(found[0]) - 0xDC00:02x}"
    return Problem(what, str(path), number, remedy="see the option `encoding`")


def _read_jsonl(text: str, path: Path, how: How) -> Iterator[tuple[int, Record | Problem]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        if problem := _strange(line, path, number, how):
            yield number, problem
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, Problem(f"not JSON: {error}", str(path), number)
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            yield number, Problem("not a JSON object", str(path), number)


def _read_json(text: str, path: Path, how: How) -> Iterator[tuple[int, Record | Problem]]:
    for number, line in enumerate(text.split("\n") if _SURROGATES.search(text) else (), start=1):
        if problem := _strange(line, path, number, how):
            raise UserError(problem)
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        what = f"not JSON: {error.msg}"
        raise UserError(Problem(what, str(path), error.lineno, error.colno)) from error
    except RecursionError as error:
        raise UserError(Problem("JSON nested too deeply", str(path))) from error
    if isinstance(data, dict) and how.records is not None:
        data = value_of(data, how.records)
    if not isinstance(data, list):
        what = f"no list under '{how.records}'" if how.records else "not a list of records"
        raise UserError(Problem(what, str(path), 1, 1, "see the option `records`"))
    for number, record in enumerate(data, start=1):
        if isinstance(record, dict):
            yield number, record
        else:
            yield number, Problem(f"record {number} is not a JSON object", str(path))


def _read_csv(text: str, path: Path, how: How) -> Iterator[tuple[int, Record | Problem]]:
    delimiter = how.delimiter or ("\t" if path.suffix.lower() == ".tsv" else ",")
    reader = csv.DictReader(text.splitlines(keepends=True), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            number = reader.line_num
            if None in row or None in row.values():
                what = f"{len(reader.fieldnames or ())} columns are named, this row has others"
                yield number, Problem(what, str(path), number)
            else:
                yield number, _strange(" ".join(row.values()), path, number, how) or row
    except csv.Error as error:
        yield reader.line_num, Problem(f"not CSV: {error}", str(path), reader.line_num)


_READERS = {".jsonl": _read_jsonl, ".json": _read_json, ".csv": _read_csv, ".tsv": _read_csv}


def value_of(record: Any, key: str) -> Any:
    """What stands under a key; dots go down into objects, also into JSON that is kept as text."""
    if type(record) is dict and key in record:  # asked ten times for each sample
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
