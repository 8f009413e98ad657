"""The table dataset: one record a sample, images beside it or inside it.

| annotations | a record is |
|---|---|
| `a.jsonl` | a line of JSON |
| `a.json` | an object of the list; of the list under `records: KEY` if the file is an object |
| `a.csv`, `a.tsv` | a row under a header; `delimiter: ";"`, UTF-8 with or without BOM, else `encoding` |
| `a.parquet`, `data/test-*.parquet` | a row; an image is a path, bytes, or Hugging Face's {bytes, path} |
| `data-*.arrow` | the same, as `datasets.save_to_disk` writes it |

In hpcbench's own form a record is

    {"id": "0001-total", "images": ["images/0001.png"], "document": "0001", "split": "easy",
     "fields": {"question": "What is the total?"}, "references": ["12.50"],
     "metadata": {"doc_type": "receipt"}}

and nothing else; any other form is read through the dataset document's `mapping`, and its further columns are
left alone. `where: {column: value}` keeps only records of that value. Order is the file's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from hpcbench.data.pages import Pages, has_pages, split_name
from hpcbench.data.rows import How, Record, Rows, open_rows, value_of
from hpcbench.data.tree import Tree
from hpcbench.errors import Problem, UserError
from hpcbench.plugins import DatasetSpec
from hpcbench.schema.records import FieldMap, Image, Sample, StoredImage

KEYS = frozenset({"id", "images", "document", "split", "fields", "references", "metadata"})

MOST_PROBLEMS = 20
"""A dataset that is wrong in every line is told by its first ones."""

_COLUMN = re.compile(r"\{([^{}]+)\}")


class TableDataset:
    """Iterator over a table of annotations."""

    api: ClassVar[int] = 1
    packs: ClassVar[bool] = True
    annotations: ClassVar[str] = ""  # what holds where the dataset's document says nothing
    preset: ClassVar[FieldMap] = FieldMap()
    defaults: ClassVar[Mapping[str, Any]] = {}

    class Options(BaseModel):
        """Options of the table iterator."""

        model_config = ConfigDict(extra="forbid", frozen=True)

        records: str | None = None
        """Key under which a JSON file keeps its list."""
        delimiter: str | None = None
        """What parts the columns of a CSV file; none: `,`, and a tab in .tsv."""
        encoding: str = "utf-8"
        """Encoding of text files."""
        where: Mapping[str, str | int | float | bool] = {}
        """Column → value of the records to keep."""
        dpi: int = Field(default=150, gt=0, le=1200)
        """Resolution at which PDF pages are rendered."""

    def __init__(self, spec: DatasetSpec) -> None:
        self.folder, self.split = spec.folder, spec.split
        self.mapping = spec.mapping if spec.mapping != FieldMap() else self.preset
        self.options = self.Options.model_validate({**self.defaults, **spec.options})
        self.tree = Tree(spec.folder)
        self.skip = spec.on_bad == "skip"
        self.pages = Pages(self.tree, self.options.dpi, spec.cache)
        annotations = spec.annotations or self.annotations
        if not annotations:
            raise UserError(
                Problem(
                    "the table iterator needs 'annotations'",
                    str(spec.folder),
                    remedy="name the file",
                )
            )
        self.path = spec.folder / annotations
        self.strict = self.mapping == FieldMap() and self.path.suffix == ".jsonl"

    def count(self) -> int:
        """Samples of the split."""
        return len(self._places)

    def iter(self, start: int, stop: int, images: bool = True) -> Iterator[Sample]:
        """Samples `start` to `stop` (exclusive) of the split, in the file's order.

        Args:
            start, stop: places within the split.
            images: whether all images are needed; else only those that their names tell are given.
        """
        for index, record in self._records(self._places[start:stop], images=images):
            yield self._sample(index, record, images=images)

    def files(self) -> Iterable[Path]:
        """The annotations and every image file of the split, once each."""
        found = set(self._files)
        if not self._inside:
            for _, record in self._records(self._places, images=True):
                for name in self._names(record):
                    if isinstance(name, str):
                        found |= set(self._paths(name))
        return sorted(found)

    def bad(self) -> list[Problem]:
        """Rows left out because they cannot be samples."""
        return self._looked[1]

    def place(self, index: int) -> tuple[Path, int]:
        """File and line, or row, of a sample of the split."""
        return self._rows.place(self._places[index])

    # --- choosing rows ------------------------------------------------------------------------------

    @cached_property
    def _files(self) -> list[Path]:
        found = self.tree.glob(self.path.relative_to(self.folder).as_posix())
        if not found:
            raise UserError(Problem("no such file", str(self.path)))
        return found

    @cached_property
    def _rows(self) -> Rows:
        how = How(self.options.records, self.options.delimiter, self.options.encoding)
        return open_rows(self.tree, self._files, how)

    @cached_property
    def _inside(self) -> bool:
        """Whether images may lie in the table itself."""
        return self._rows.names() is not None

    @property
    def _places(self) -> list[int]:
        return self._looked[0]

    @cached_property
    def _looked(self) -> tuple[list[int], list[Problem]]:
        """Index of each row of the split, and what is wrong with the others.

        Raises:
            UserError: every row that is wrong, unless they are skipped; or there is no other.
        """
        kept, bad, seen = [], list[Problem](), set[str]()
        for index, record in enumerate(self._rows.light(self._light_columns())):
            if isinstance(record, Problem):
                bad.append(record)
            elif self._of_split(record) and self._wanted(record):
                problem = self._wrong(index, record, seen)
                if problem is not None:
                    bad.append(problem)
                else:
                    kept.append(index)
        if bad and not self.skip:
            more = len(bad) - MOST_PROBLEMS
            rest = [Problem(f"and {more} more rows", str(self.path))] if more > 0 else []
            raise UserError(*bad[:MOST_PROBLEMS], *rest)
        if not kept:
            what = f"no sample of split '{self.split}'" if self.split else "no sample"
            raise UserError(Problem(what, str(self.path)), *bad[:MOST_PROBLEMS])
        return kept, bad

    def _light_columns(self) -> set[str] | None:
        """Columns it takes to choose rows; images of big files stay where they are.

        Raises:
            UserError: there is no such column.
        """
        known = self._rows.names()
        if known is None:
            return None
        needed = {self.mapping.references, *_columns(self.mapping.images)}
        lacking = [key for key in sorted(needed) if key.partition(".")[0] not in known]
        if lacking:
            what = f"no column {', '.join(map(repr, lacking))} (there are: {', '.join(known)})"
            remedy = "see the dataset's `mapping`"
            raise UserError(Problem(what, str(self._files[0]), remedy=remedy))
        wanted = {self.mapping.id, self.mapping.references, self.mapping.split, *self.options.where}
        return {str(key).partition(".")[0] for key in wanted}

    def _records(self, places: list[int], *, images: bool) -> Iterator[tuple[int, Record]]:
        """Rows at some places, in order: those that follow on each other in one go."""
        known = self._rows.names()
        columns = None
        if not images and known is not None:
            heavy = {key.partition(".")[0] for key in _columns(self.mapping.images)}
            columns = set(known) - heavy
        start = 0
        while start < len(places):
            stop = start + 1
            while stop < len(places) and places[stop] == places[stop - 1] + 1:
                stop += 1
            rows = self._rows.between(places[start], places[stop - 1] + 1, columns)
            yield from zip(places[start:stop], rows, strict=True)
            start = stop

    def _of_split(self, record: Record) -> bool:
        if self.split is None:
            return True
        key = self.mapping.split
        # A Parquet file named for its split needs no column of it.
        if key is None or (self._inside and key not in record):
            return True
        return bool(value_of(record, key) == self.split)

    def _wanted(self, record: Record) -> bool:
        where = self.options.where
        return not where or all(value_of(record, key) == value for key, value in where.items())

    def _wrong(self, index: int, record: Record, seen: set[str]) -> Problem | None:
        """What is wrong with a record."""
        message = self._complaint(index, record)
        name = self._id(index, record) if message is None else ""
        if message is None and name in seen:
            message = f"id '{name}' stands twice"
        if message is not None:
            path, number = self._rows.place(index)
            return Problem(message, str(path), number)
        seen.add(name)
        return None

    def _complaint(self, index: int, record: Record) -> str | None:
        missing = [key for key in self._needed if value_of(record, key) is None]
        if missing:
            return f"key {', '.join(map(repr, missing))} is missing"
        if not self.strict:
            references = self.mapping.references
            empty = not _listed(value_of(record, references))
            return f"'{references}' is empty" if empty else None
        unknown = sorted(record.keys() - KEYS)
        if unknown:
            return f"unknown key {', '.join(map(repr, unknown))}"
        for key in ("images", "references"):
            if not isinstance(record[key], list) or not record[key]:
                return f"'{key}' must be a list with at least one entry"
        return None

    @cached_property
    def _needed(self) -> list[str]:
        """Keys that every record has."""
        mapping = self.mapping
        # Images inside a table stayed there.
        images = [] if self._inside else [*_columns(mapping.images)]
        return [key for key in (mapping.id, *images, mapping.references) if key != "#"]

    # --- one sample ---------------------------------------------------------------------------------

    def _id(self, index: int, record: Record) -> str:
        key = self.mapping.id
        return str(index + 1) if key == "#" else str(value_of(record, key))

    def _sample(self, index: int, record: Record, *, images: bool) -> Sample:
        mapping = self.mapping
        names = self._names(record) if images or not self._inside else []
        document = value_of(record, mapping.document) if mapping.document else None
        if document is None:
            first = names[0] if names else None
            document = split_name(first)[0] if isinstance(first, str) else index + 1
        shown = names if images or all(map(_one_file, names)) else []
        return Sample(
            id=self._id(index, record),
            images=tuple(one for name in shown for one in self._images(name)),
            fields=_fields(record, mapping.fields),
            references=tuple(_listed(value_of(record, mapping.references))),
            document=str(document),
            metadata=_fields(record, mapping.metadata),
        )

    def _names(self, record: Record) -> list[str | bytes]:
        """Images as the record names or holds them."""
        key = self.mapping.images
        if "{" in key:
            return [_COLUMN.sub(lambda match: str(value_of(record, match[1])), key)]
        found: list[str | bytes] = []
        for value in _listed(value_of(record, key)):
            if isinstance(value, Mapping):  # Hugging Face's image column
                value = value.get("bytes") or value.get("path")
            found.append(value if isinstance(value, bytes) else str(value))
        return found

    def _images(self, name: str | bytes) -> Iterable[Image]:
        if isinstance(name, bytes):
            return (name,)
        if has_pages(name):
            try:
                return self.pages.images(self.folder, name)
            except UserError as error:
                return (StoredImage(name, partial(_fail, error)),)  # this sample's fault alone
        return (self.tree.image(path) for path in self._paths(name))

    def _paths(self, name: str) -> list[Path]:
        """The files that a name stands for; one that is not there is found when it is read."""
        if "*" in name:
            return self.tree.glob(name) or [self.folder / name]
        return [self.folder / split_name(name)[0]]


def _one_file(name: str | bytes) -> bool:
    """Whether a name tells its image without a look at any file."""
    return isinstance(name, str) and "*" not in name and not has_pages(name)


def _columns(key: str) -> list[str]:
    """The columns that the mapping of images names."""
    return _COLUMN.findall(key) if "{" in key else [key]


def _fail(error: UserError) -> bytes:
    raise error


def _listed(value: Any) -> list[Any]:
    """A list as it is, one value as a list of one; nothing as none."""
    if value is None or value == "":
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _fields(record: Record, where: str | Mapping[str, str]) -> Mapping[str, Any]:
    if isinstance(where, Mapping):
        return {name: value_of(record, key) for name, key in where.items()}
    found = value_of(record, where)
    return found if isinstance(found, Mapping) else {}
