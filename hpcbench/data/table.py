"""The table dataset: one record a sample, images beside it or inside it.

| annotations | a record is |
|---|---|
| `a.jsonl` | a line of JSON |
| `a.json` | an object of the list; of the list under `records: KEY` if the file is an object |
| `a.csv`, `a.tsv` | a row under a header; `delimiter: ";"`, UTF-8 with or without BOM |
| `a.parquet`, `data/test-*.parquet` | a row; an image is a path, bytes, or Hugging Face's {bytes, path} |

In hpcbench's own form a record is

    {"id": "0001-total", "images": ["images/0001.png"], "document": "0001", "split": "easy",
     "fields": {"question": "What is the total?"}, "references": ["12.50"],
     "metadata": {"doc_type": "receipt"}}

and nothing else; any other form is read through the dataset document's `mapping`, and its further columns are
left alone. `where: {column: value}` keeps only records of that value. Order is the file's.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from hpcbench.data.tree import Tree
from hpcbench.errors import Problem, UserError
from hpcbench.plugins import DatasetSpec
from hpcbench.schema.records import FieldMap, Sample

KEYS = frozenset({"id", "images", "document", "split", "fields", "references", "metadata"})

MOST_PROBLEMS = 20
"""A dataset that is wrong in every line is told by its first ones."""

Record = Mapping[str, Any]


class TableDataset:
    """Iterator over a table of annotations."""

    api: ClassVar[int] = 1
    packs: ClassVar[bool] = True

    class Options(BaseModel):
        """Options of the table iterator."""

        model_config = ConfigDict(extra="forbid", frozen=True)

        records: str | None = None
        """Key under which a JSON file keeps its list."""
        delimiter: str | None = None
        """What parts the columns of a CSV file; none: `,`, and a tab in .tsv."""
        where: Mapping[str, str | int | float | bool] = {}
        """Column → value of the records to keep."""

    def __init__(self, spec: DatasetSpec) -> None:
        self.folder, self.split, self.mapping = spec.folder, spec.split, spec.mapping
        self.tree = Tree(spec.folder)
        self.options = self.Options.model_validate(dict(spec.options))
        if not spec.annotations:
            raise UserError(
                Problem(
                    "the table iterator needs 'annotations'",
                    str(spec.folder),
                    remedy="name the file",
                )
            )
        self.path = spec.folder / spec.annotations
        self.strict = self.mapping == FieldMap() and self.path.suffix == ".jsonl"

    def count(self) -> int:
        """Samples of the split."""
        return len(self._places)

    def iter(self, start: int, stop: int) -> Iterator[Sample]:
        """Samples `start` to `stop` (exclusive) of the split, in the file's order."""
        for number, record in self._records(self._places[start:stop]):
            yield self._sample(number, record)

    def files(self) -> Iterable[Path]:
        """The annotations and every image file of the split, once each."""
        found = set(self._files)
        if not self._parquet:
            for _, record in self._records(self._places):
                found |= {self.folder / image for image in _listed(record, self.mapping.images)}
        return sorted(found)

    # --- records ------------------------------------------------------------------------------------

    @property
    def _parquet(self) -> bool:
        return self.path.suffix == ".parquet"

    @cached_property
    def _files(self) -> list[Path]:
        """The annotation files.

        Raises:
            UserError: there is none.
        """
        found = self.tree.glob(self.path.relative_to(self.folder).as_posix())
        if not found:
            raise UserError(Problem("no such file", str(self.path)))
        return found

    @cached_property
    def _rows(self) -> list[tuple[int, Record]]:
        """Number in the file and record, of all records; not for Parquet, which stays on disk.

        Raises:
            UserError: every line that is no record, at its place.
        """
        problems: list[Problem] = []
        rows = list(self._read(problems))
        if problems:
            raise UserError(*problems[:MOST_PROBLEMS])
        return rows

    def _read(self, problems: list[Problem]) -> Iterator[tuple[int, Record]]:
        readers = {".jsonl": _read_jsonl, ".json": _read_json, ".csv": _read_csv, ".tsv": _read_csv}
        reader = readers.get(self.path.suffix.lower())
        if reader is None:
            known = ", ".join([*readers, ".parquet"])
            raise UserError(Problem(f"annotations end in one of {known}", str(self.path)))
        for path in self._files:
            yield from reader(self.tree.text(path), path, self.options, problems)

    @cached_property
    def _places(self) -> list[int]:
        """Index of each record of the split; for Parquet, the row over all files.

        Raises:
            UserError: every record that is wrong, or there is none.
        """
        kept, problems, seen = [], list[Problem](), set[str]()
        for index, (number, record) in enumerate(self._light()):
            wrong = self._wrong(number, record, seen)
            problems += [Problem(message, str(self._files[0]), number) for message in wrong]
            if not wrong and self._of_split(record) and self._wanted(record):
                kept.append(index)
        if problems:
            raise UserError(*problems[:MOST_PROBLEMS])
        if not kept:
            what = f"no sample of split '{self.split}'" if self.split else "no sample"
            raise UserError(Problem(what, str(self.path)))
        return kept

    def _light(self) -> Iterable[tuple[int, Record]]:
        """All records with what it takes to check and choose them; images of Parquet stay where they are."""
        if not self._parquet:
            return self._rows
        table = self._scan()
        known = table.collect_schema().names()
        wanted = {self.mapping.id, self.mapping.references, self.mapping.split, *self.options.where}
        columns = [name for name in known if name in {str(one).partition(".")[0] for one in wanted}]
        lacking = [
            one for one in (self.mapping.images, self.mapping.references)
            if one.partition(".")[0] not in known
        ]  # fmt: skip
        if lacking:
            what = f"no column {', '.join(map(repr, lacking))} (there are: {', '.join(known)})"
            raise UserError(
                Problem(what, str(self._files[0]), remedy="see the dataset's `mapping`")
            )
        rows = table.select(columns).collect().iter_rows(named=True)
        return [
            (number, {**row, self.mapping.images: ["in the file"]})
            for number, row in enumerate(rows, 1)
        ]

    def _scan(self) -> Any:
        import polars

        return polars.scan_parquet(self._files)

    def _records(self, places: list[int]) -> Iterator[tuple[int, Record]]:
        if not self._parquet:
            for place in places:
                yield self._rows[place]
            return
        if places:
            # One read from the first to the last of them: a shard's rows stand together.
            first, last = places[0], places[-1]
            rows = self._scan().slice(first, last - first + 1).collect()
            for place in places:
                yield place + 1, rows.row(place - first, named=True)

    def _of_split(self, record: Record) -> bool:
        if self.split is None:
            return True
        key = self.mapping.split
        # A Parquet file named for its split needs no column of it.
        if key is None or (self._parquet and key not in record):
            return True
        return bool(_value(record, key) == self.split)

    def _wanted(self, record: Record) -> bool:
        return all(_value(record, key) == value for key, value in self.options.where.items())

    def _wrong(self, number: int, record: Record, seen: set[str]) -> list[str]:
        """What is wrong with a record."""
        mapping = self.mapping
        needed = [key for key in (mapping.id, mapping.images, mapping.references) if key != "#"]
        missing = [key for key in needed if _value(record, key) is None]
        if missing:
            return [f"key {', '.join(map(repr, missing))} is missing"]
        if self.strict:
            unknown = sorted(record.keys() - KEYS)
            if unknown:
                return [f"unknown key {', '.join(map(repr, unknown))}"]
            for key in ("images", "references"):
                if not isinstance(record[key], list) or not record[key]:
                    return [f"'{key}' must be a list with at least one entry"]
        elif not _listed(record, mapping.references):
            return [f"'{mapping.references}' is empty"]
        name = self._id(number, record)
        twice = [f"id '{name}' stands twice"] if name in seen else []
        seen.add(name)
        return twice

    def _id(self, number: int, record: Record) -> str:
        return str(number) if self.mapping.id == "#" else str(_value(record, self.mapping.id))

    def _sample(self, number: int, record: Record) -> Sample:
        mapping = self.mapping
        images = tuple(self._image(one) for one in _listed(record, mapping.images))
        document = _value(record, mapping.document) if mapping.document else None
        if document is None:
            first = images[0]
            document = first.relative_to(self.folder) if isinstance(first, Path) else number
        return Sample(
            id=self._id(number, record),
            images=images,
            fields=_fields(record, mapping.fields),
            references=tuple(_listed(record, mapping.references)),
            document=str(document),
            metadata=_fields(record, mapping.metadata),
        )

    def _image(self, value: Any) -> Path | bytes:
        if isinstance(value, Mapping):  # Hugging Face's image column
            value = value.get("bytes") or value.get("path")
        return value if isinstance(value, bytes) else self.tree.image(self.folder / str(value))


# --- one record ----------------------------------------------------------------------------------------


def _value(record: Any, key: str) -> Any:
    """What stands under a key; dots go down into objects, also into JSON that is kept as text."""
    if isinstance(record, Mapping) and key in record:
        return record[key]
    first, dot, rest = key.partition(".")
    inner = record.get(first) if isinstance(record, Mapping) else None
    if isinstance(inner, str) and dot:
        try:
            inner = json.loads(inner)
        except ValueError:
            return None
    return _value(inner, rest) if dot else inner


def _listed(record: Record, key: str) -> list[Any]:
    """A list as it is, one value as a list of one; nothing as none."""
    value = _value(record, key)
    if value is None or value == "":
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _fields(record: Record, where: str | Mapping[str, str]) -> Mapping[str, Any]:
    if isinstance(where, Mapping):
        return {name: _value(record, key) for name, key in where.items()}
    found = _value(record, where)
    return found if isinstance(found, Mapping) else {}


# --- one file ------------------------------------------------------------------------------------------


def _read_jsonl(
    text: str, path: Path, options: TableDataset.Options, problems: list[Problem]
) -> Iterator[tuple[int, Record]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            problems.append(Problem(f"not JSON: {error}", str(path), number))
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            problems.append(Problem("not a JSON object", str(path), number))


def _read_json(
    text: str, path: Path, options: TableDataset.Options, problems: list[Problem]
) -> Iterator[tuple[int, Record]]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        problems.append(Problem(f"not JSON: {error.msg}", str(path), error.lineno, error.colno))
        return
    if isinstance(data, dict) and options.records is not None:
        data = _value(data, options.records)
    if not isinstance(data, list):
        what = f"no list under '{options.records}'" if options.records else "not a list of records"
        problems.append(Problem(what, str(path), 1, 1, "see the option `records`"))
        return
    for number, record in enumerate(data, start=1):
        if isinstance(record, dict):
            yield number, record
        else:
            problems.append(Problem(f"record {number} is not a JSON object", str(path)))


def _read_csv(
    text: str, path: Path, options: TableDataset.Options, problems: list[Problem]
) -> Iterator[tuple[int, Record]]:
    delimiter = options.delimiter or ("\t" if path.suffix.lower() == ".tsv" else ",")
    reader = csv.DictReader(text.splitlines(keepends=True), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                what = f"{len(reader.fieldnames or ())} columns are named, this row has others"
                problems.append(Problem(what, str(path), reader.line_num))
                continue
            yield reader.line_num, row
    except csv.Error as error:
        problems.append(Problem(f"not CSV: {error}", str(path), reader.line_num))
