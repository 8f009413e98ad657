"""The table dataset: one record for each sample, images beside the table or inside it.

| annotations | a record is |
|---|---|
| `a.jsonl` | a line of JSON |
| `a.json` | an object of the list; an object's list: `records: KEY`; an object's entries: `records: "*"` |
| `a.csv`, `a.tsv` | a row under a header; `delimiter: ";"`, UTF-8 with or without BOM, else `encoding` |
| `a.xlsx` | a row of its first sheet, or of `records: SHEET`; numbers as the sheet shows them |
| `a.parquet`, `data/test-*.parquet` | a row; an image is a path, bytes, or Hugging Face's {bytes, path} |
| `data-*.arrow` | the same, as `datasets.save_to_disk` writes it |

In hpcbench's own form a record is

    {"id": "0001-total", "images": ["images/0001.png"], "document": "0001", "split": "easy",
     "fields": {"question": "What is the total?"}, "references": ["12.50"],
     "metadata": {"doc_type": "receipt"}}

and no other key; the definition's `mapping` describes any other form, and its other columns are ignored.
`where: {column: value}` keeps only records with that value. Samples have the order of the file.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from hpcbench.data.annotations import (
    ChangedRows,
    EachRows,
    ReadOptions,
    Record,
    Rows,
    column_of,
    first_rows,
    open_rows,
    value_of,
    with_lists,
)
from hpcbench.data.pages import Pages, has_pages, split_name
from hpcbench.data.references import is_empty
from hpcbench.data.sibling_files import Finder
from hpcbench.data.tree import Tree
from hpcbench.errors import Problem, UserError, most_mistakes
from hpcbench.files.user import open_file
from hpcbench.number_format import in_order
from hpcbench.plugins import DatasetSpec
from hpcbench.schema.field_map import FieldMap
from hpcbench.schema.records import Image, Sample, StoredImage

KEYS = frozenset({"id", "images", "document", "split", "fields", "references", "metadata"})

MOST_PROBLEMS = 20
"""Most problems reported of a dataset with many bad lines: the first ones."""

LOOKED_INTO = 100
"""Number of rows of a big file that are searched for keys of the mapping inside a column."""

_COLUMN = re.compile(r"\{([^{}]+)\}")


class TableDataset:
    """Iterator over a table of annotations."""

    api: ClassVar[int] = 1
    packs: ClassVar[bool] = True
    annotations: ClassVar[str] = ""  # the default if the dataset's definition names none
    preset: ClassVar[FieldMap] = FieldMap()
    defaults: ClassVar[Mapping[str, Any]] = {}

    class Options(BaseModel):
        """Options of the table iterator."""

        model_config = ConfigDict(extra="forbid", frozen=True)

        records: str | None = None
        """Key under which a JSON file keeps its list; `*`: it is an object whose entries are records, with
        their keys in the column `key`, and what is no object in `value`. Sheet of a spreadsheet."""
        delimiter: str | None = None
        """Separator of the columns of a CSV file; none: `,`, and a tab in .tsv."""
        encoding: str = "utf-8"
        """Encoding of text files."""
        where: Mapping[str, str | int | float | bool] = {}
        """Column → value of the records to keep."""
        dpi: int = Field(default=150, gt=0, le=1200)
        """Resolution at which PDF pages are rendered."""
        find_images: str | None = None
        """Folder (`.`: the dataset's) in which an image is looked for by the end of its path if it is not at
        the path itself: without suffix, under other folders, with Windows' backslashes."""
        as_text: bool = False
        """Whether references that are numbers or flags are taken as texts, `3` and `true`: as labels are."""
        as_letters: bool = False
        """Whether references are numbers of options, counted from 0, and become letters: 0 is A."""
        each: tuple[str, ...] = ()
        """Columns with lists, of which each entry is a sample of its own: several questions about one page.
        In the mapping such a column is the entry."""
        lists: tuple[str, ...] = ()
        """Columns whose text is a list: JSON, or as Python prints it."""
        kinds: Mapping[str, Mapping[str, str]] = {}
        """Column → its value (`*` means any text) → kind by which a metric with several rules scores the
        references: `{dataset: {HME100k: formula}}` for OCRBench."""
        more_images: tuple[str, ...] = ()
        """Further columns of images, after the one of the mapping; empty ones are left out."""
        base64: bool = False
        """Whether images are text: bytes in base64."""
        constants: Mapping[str, JsonValue] = {}
        """Fields that are the same for every sample, e.g. `classes`."""

        @field_validator("delimiter")
        @classmethod
        def _one_character(cls, delimiter: str | None) -> str | None:
            delimiter = "\t" if delimiter == "\\t" else delimiter  # YAML's '\t' is two characters
            if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
                raise ValueError("the delimiter must be one character")
            return delimiter

    def __init__(self, spec: DatasetSpec) -> None:
        self.folder, self.origin, self.split = spec.folder, spec.origin, spec.split
        self.mapping = _over(self.preset, spec.mapping)
        self.options = self.Options.model_validate({**self.defaults, **spec.options})
        self.named = _named(spec.mapping, self.mapping) | self.options.where.keys()
        self.named |= {*self.options.more_images}
        self.tree = Tree(spec.folder)
        self.skip = spec.on_bad == "skip"
        self.pages = Pages(self.tree, self.options.dpi, spec.cache)
        below = self.options.find_images
        self.finder = Finder(self.tree, below) if below is not None else None
        annotations = spec.annotations or self.annotations
        if not annotations:
            raise UserError(
                Problem(
                    "the table iterator needs 'annotations'",
                    str(spec.folder),
                    remedy="name the file",
                )
            )
        annotations = self._in_folder(annotations)
        if is_outside(annotations):
            what = f"annotations '{annotations}' lie outside the dataset's folder"
            raise UserError(Problem(what, str(spec.folder)))
        self.path = spec.folder / annotations
        self.strict = self.mapping == FieldMap() and self.path.suffix == ".jsonl"

    def count(self) -> int:
        """Number of samples of the split."""
        return len(self._places)

    def iter(self, start: int, stop: int, images: bool = True) -> Iterator[Sample]:
        """Samples `start` to `stop` (exclusive) of the split, in the file's order.

        Args:
            start, stop: places within the split.
            images: whether all images are needed; False: only images known by name, without reading a file.
        """
        return self.at(range(start, min(stop, self.count())), images)

    def at(self, places: Iterable[int], images: bool = True) -> Iterator[Sample]:
        """Yield samples at some places of the split, in rising order; `images` as in `iter`."""
        rows = [self._places[place] for place in places if place < len(self._places)]
        for index, record in self._records(rows, images=images):
            yield self._sample(index, record, images=images)

    def files(self) -> Iterable[Path]:
        """The annotations and every image file of the split, each once."""
        found = set(self._files)
        for _, record in self._records(self._places, images=False):
            for name in self._names(record):
                if isinstance(name, str):
                    found |= set(self._paths(name))
        return sorted(found)

    def first(self, most: int) -> list[Record | Problem]:
        """The first rows, unmapped, of all splits and without bytes, for finding a mapping."""
        return list(first_rows(self._rows, most))

    def bad(self) -> list[Problem]:
        """Rows left out because they cannot be samples."""
        return self._looked[1]

    def place(self, index: int) -> tuple[Path, int]:
        """File and line, or row, of a sample of the split."""
        return self._rows.place(self._places[index])

    # --- choosing rows ------------------------------------------------------------------------------

    @cached_property
    def _files(self) -> list[Path]:
        if self.tree.has(self.path):
            return [self.path]
        found = self.tree.glob(self.path.relative_to(self.folder).as_posix())
        if not found:
            open_file(self.path).close()  # raises the reason
            raise UserError(Problem("no such file", str(self.path)))
        return found

    @cached_property
    def _rows(self) -> Rows:
        options = self.options
        keys = {
            *_keys(self.mapping),
            *options.where,
            *options.each,
            *options.more_images,
            *options.lists,
        }
        keys |= set(options.kinds)
        how = ReadOptions(options.records, options.delimiter, options.encoding, keys)
        rows = open_rows(self.tree, self._files, how)
        if options.lists:
            rows = ChangedRows(rows, partial(with_lists, columns=options.lists))
        return EachRows(rows, options.each) if options.each else rows

    @cached_property
    def _inside(self) -> bool:
        """Whether images may be in the table itself."""
        return self._rows.names() is not None

    @property
    def _places(self) -> list[int]:
        return self._looked[0]

    @cached_property
    def _looked(self) -> tuple[list[int], list[Problem]]:
        """Indices of the good rows of the split, and the problems of the bad rows.

        Raises:
            UserError: there are bad rows and they are not skipped, or there is no good row.
        """
        kept, bad, seen = [], list[Problem](), set[str]()
        missing = set(self.named) if self._rows.names() is None else set[str]()
        for index, record in enumerate(self._rows.light(self._light_columns())):
            if isinstance(record, Problem):
                bad.append(record)
                continue
            missing -= {key for key in missing if _has(record, key)}
            if self._of_split(record) and self._wanted(record):
                problem = self._wrong(index, record, seen)
                if problem is not None:
                    bad.append(problem)
                else:
                    kept.append(index)
        if bad and not self.skip:
            reported = most_mistakes(bad, MOST_PROBLEMS)
            more = len(bad) - len(reported)
            rest = [Problem(f"and {more} more bad rows", str(self.path))] if more else []
            raise UserError(*self._empty_splits(kept), *reported, *rest)
        if not kept:
            what = f"no sample of split '{self.split}'" if self.split else "no sample"
            raise UserError(Problem(what, str(self.path)), *most_mistakes(bad, MOST_PROBLEMS))
        if missing := missing or self._not_in_first(kept):
            self._tell_missing(missing)
        return kept, bad

    def _empty_splits(self, kept: Iterable[int]) -> list[Problem]:
        """A problem if some splits have no sample and others do: answers of a test split may be secret."""
        samples, splits = set(kept), dict[str, bool]()
        for index, record in enumerate(self._rows.light(self._light_columns())):
            if not isinstance(record, Problem) and self._of_split(record) and self._wanted(record):
                split = self._split_of(record)
                splits[split] = splits.get(split, False) or index in samples
        empty = sorted(repr(split) for split, some in splits.items() if not some)
        if not empty or len(empty) == len(splits):
            return []
        known = ", ".join(sorted(splits))
        what = f"no row of split {', '.join(empty)} is usable (splits: {known})"
        return [
            Problem(what, str(self.path), remedy="set `split: NAME` in the dataset's definition")
        ]

    def _not_in_first(self, kept: list[int]) -> set[str]:
        """Keys into objects of a big file that its first rows lack; JSON stored as text may lack any key."""
        known = self._rows.names() or {}
        inner = {key for key in self.named if key not in known} if self._inside else set[str]()
        lacking = set[str]()
        for record in self._rows.at(kept[:LOOKED_INTO], inner) if inner else ():
            inner -= {key for key in inner if _has(record, key)}
            lacking |= {key for key in inner if _lacks(record, key)}
        return inner & lacking

    def _tell_missing(self, keys: Iterable[str]) -> None:
        """Raise a UserError: the definition names columns that no row has."""
        known = self._rows.names()
        if known is None:
            first = next(one for one in self._rows.light(None) if not isinstance(one, Problem))
            known = dict.fromkeys(map(str, first), False)
        lacking = ", ".join(map(repr, sorted(keys)))
        what = f"no column {lacking} (there are: {', '.join(known)})"
        remedy = "correct the dataset's `mapping`"
        raise UserError(Problem(what, str(self._files[0]), remedy=remedy))

    def _light_columns(self) -> set[str] | None:
        """Keys that are needed to choose rows; images of big files are not read.

        Raises:
            UserError: there is no such column.
        """
        known = self._rows.names()
        if known is None:
            return None
        mapping = self.mapping
        needed = {key for key in self._needed if column_of(key, known) not in known}
        named = {key for key in self.named if column_of(key, known) not in known}
        if lacking := needed or named:
            self._tell_missing(lacking)
        split = [mapping.split] if mapping.split is not None else []
        more = [one for one in self.options.more_images if one in known]
        own = {*self.options.where, *self.options.kinds, *more}
        return {*self._needed, *_sources(mapping.references), *split, *own}

    def _records(self, places: Sequence[int], *, images: bool) -> Iterator[tuple[int, Record]]:
        """Yield the rows at some places, in order; light rows if images are not needed."""
        known, keys = self._rows.names(), None
        if not images and known is not None:
            light = {name for name, holds_bytes in known.items() if not holds_bytes}
            keys = light | set(_keys(self.mapping)) | (self._light_columns() or set())
            keys |= {one for one in self.options.more_images if one in known}
        yield from zip(places, self._rows.at(places, keys), strict=True)

    def _of_split(self, record: Record) -> bool:
        key = self.mapping.split
        if self.split is None or key is None:
            return True
        # A Parquet file named after its split needs no split column.
        if self._inside and column_of(key, record) not in record:
            return True
        return bool(value_of(record, key) == self.split)

    def _split_of(self, record: Record) -> str:
        key = self.mapping.split
        found = value_of(record, key) if key is not None else None
        return str(found) if found is not None else ""

    def _wanted(self, record: Record) -> bool:
        where = self.options.where
        return not where or all(_is(value_of(record, key), value) for key, value in where.items())

    def _wrong(self, index: int, record: Record, seen: set[str]) -> Problem | None:
        """The problem of a record; None: it is good."""
        message = self._complaint(index, record) or self._without_image(record)
        name = self._id(index, record) if message is None else ""
        if message is None and name in seen:
            message = f"id '{name}' occurs twice"
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
            answer = ", ".join(map(repr, _sources(self.mapping.references)))
            return f"{answer} is empty" if is_empty(self._answer(record)) else None
        unknown = sorted(record.keys() - KEYS)
        if unknown:
            return f"unknown key {', '.join(map(repr, unknown))}"
        for key in ("images", "references"):
            if not isinstance(record[key], list) or not record[key]:
                return f"'{key}' must be a list with at least one entry"
        return "'references' is empty" if is_empty(record["references"]) else None

    @cached_property
    def _needed(self) -> list[str]:
        """Keys that every record needs."""
        mapping = self.mapping
        # If several columns form one answer, any of them may be missing.
        answer = [mapping.references] if isinstance(mapping.references, str) else []
        keys = (mapping.id, *_columns(mapping.images), *answer, *self.options.kinds)
        return [key for key in keys if key != "#"]

    def _without_image(self, record: Record) -> str | None:
        """Why a record has no permitted image; None: it has one."""
        key = self.mapping.images
        values = [_listed(value_of(record, column)) for column in _columns(key)]
        if len({len(one) for one in values if len(one) != 1}) > 1:
            return f"the lists in '{key}' are of different lengths"
        names = self._names(record)
        if not names or any(_is_nothing(one) for listed in values for one in listed):
            return f"'{key}' is empty" if not names else f"'{key}' has an empty entry"
        outside = next((one for one in names if isinstance(one, str) and is_outside(one)), None)
        if outside is None:
            return None
        absolute = "is absolute, and " if outside.startswith("/") else ""
        return f"image '{outside}' {absolute}lies outside the dataset's folder"

    # --- one sample ---------------------------------------------------------------------------------

    def _id(self, index: int, record: Record) -> str:
        key = self.mapping.id
        return str(index + 1) if key == "#" else str(value_of(record, key))

    def _sample(self, index: int, record: Record, *, images: bool) -> Sample:
        mapping = self.mapping
        names = self._names(record)
        document = value_of(record, mapping.document) if mapping.document else None
        if document is None or document == "":
            first = names[0] if names else None
            document = split_name(first)[0] if isinstance(first, str) else index + 1
        shown = names if images or all(map(_one_file, names)) else []
        return Sample(
            id=self._id(index, record),
            images=tuple(one for name in shown for one in self._images(name)),
            fields={**self.options.constants, **_fields(record, mapping.fields)},
            references=tuple(self._references(record)),
            document=str(document),
            metadata=_fields(record, mapping.metadata),
        )

    def _references(self, record: Record) -> list[Any]:
        found = _listed(self._answer(record))
        if self.options.as_letters:
            return [_letter(one) for one in found]
        for column, known in self.options.kinds.items():
            value = str(value_of(record, column))
            kind = next((one for key, one in known.items() if fnmatchcase(value, key)), None)
            if kind is not None:
                found = [{"answer": one, "kind": kind} for one in found]
        if not self.options.as_text:
            return found
        return [json.dumps(one) if isinstance(one, (bool, int, float)) else one for one in found]

    def _answer(self, record: Record) -> Any:
        """The reference of answers: a column, or an object of several columns."""
        where = self.mapping.references
        if isinstance(where, str):
            return value_of(record, where)
        found = {name: value_of(record, key) for name, key in where.items()}
        return {name: value for name, value in found.items() if not is_empty(value)}

    def _names(self, record: Record) -> list[str | bytes]:
        """Images as the record names or holds them; a list inside a path gives a path for each item."""
        key = self.mapping.images
        if "{" in key:
            values = {column: _listed(value_of(record, column)) for column in _columns(key)}
            count = max(map(len, values.values())) if all(values.values()) else 0
            filled = (
                {column: listed[place % len(listed)] for column, listed in values.items()}
                for place in range(count)
            )
            paths = (_COLUMN.sub(lambda match: str(known[match[1]]), key) for known in filled)  # noqa: B023
            return list(map(self._image, paths))
        found: list[str | bytes] = []
        more = (one for name in self.options.more_images for one in _listed(record.get(name)))
        for value in (*_listed(value_of(record, key)), *more):
            if self.options.base64 and isinstance(value, str):
                value = _decoded(value)
            if isinstance(value, Mapping):  # Hugging Face's image column
                held = value.get("bytes")
                value = value.get("path") if held is None else held
            if not _is_nothing(value):
                found.append(value if isinstance(value, bytes) else self._image(str(value)))
        return found

    def _image(self, name: str) -> str:
        """The path, inside the folder, of an image that a record names."""
        if self.finder is not None and "*" not in name:
            file, page, number = name.partition("#page=")
            if (found := self.finder.find(file)) is not None:
                return f"{found}{page}{number}"
        return self._in_folder(name)

    def _in_folder(self, name: str) -> str:
        """A name; if it is an absolute path into the folder or its origin, as a path relative to it."""
        if not name.startswith("/"):
            return name
        path, folders = PurePosixPath(name), (self.folder, self.origin or self.folder)
        inside = (path.relative_to(one) for one in folders if path.is_relative_to(one))
        return str(next(inside, path))

    def _images(self, name: str | bytes) -> Iterable[Image]:
        if isinstance(name, bytes):
            return (name,)
        if has_pages(name):
            try:
                return self.pages.images(self.folder, name)
            except UserError as error:
                return (StoredImage(name, partial(_fail, error)),)  # only this sample fails
        return (self.tree.image(path) for path in self._paths(name))

    def _paths(self, name: str) -> list[Path]:
        """The files that a name denotes; a missing file is found when it is read."""
        if "*" in name:
            found = sorted(self.tree.glob(name), key=lambda path: in_order(str(path)))
            return found or [self.folder / name]
        return [self.folder / split_name(name)[0]]


def _decoded(text: str) -> bytes:
    """Bytes of an image in base64, with or without the head of a data URI; no image if it is none."""
    try:
        return base64.b64decode(text.rpartition(",")[2], validate=True)
    except ValueError:
        return b"not base64"


def _letter(option: Any) -> Any:
    """The letter of an option by its number from 0, as a number or a text; anything else as it is."""
    if isinstance(option, bool) or not re.fullmatch(r"\d|1\d|2[0-5]", str(option), re.ASCII):
        return option
    return chr(ord("A") + int(option))


def _one_file(name: str | bytes) -> bool:
    """Whether a name identifies its image without reading a file."""
    return isinstance(name, str) and "*" not in name and not has_pages(name)


def _columns(key: str) -> list[str]:
    """The columns that the mapping of images names."""
    return _COLUMN.findall(key) if "{" in key else [key]


def _sources(where: str | Mapping[str, str]) -> list[str]:
    """The columns that form an answer."""
    return [where] if isinstance(where, str) else list(where.values())


def _keys(mapping: FieldMap) -> Iterator[str]:
    """Every key that a mapping reads."""
    for name, key in mapping:
        if name == "images":
            yield from _columns(key)
        elif isinstance(key, Mapping):
            yield from key.values()
        elif key is not None and key != "#":
            yield key


def _over(preset: FieldMap, mapping: FieldMap) -> FieldMap:
    """The preset, overridden by the fields that the definition's mapping sets."""
    said = {name: getattr(mapping, name) for name in mapping.model_fields_set}
    return preset.model_copy(update=said)


def _named(own: FieldMap, mapping: FieldMap) -> set[str]:
    """Keys that at least one row must have: keys that the definition itself names, and fields of prompts."""
    asked = set(mapping.fields.values()) if isinstance(mapping.fields, Mapping) else set[str]()
    return (set(_keys(own)) - set(_keys(FieldMap()))) | asked


def _has(record: Record, key: str) -> bool:
    """Whether a row has a key; its value may be null."""
    above, dot, last = key.rpartition(".")
    inner = value_of(record, above) if dot else None
    return (
        key in record
        or (isinstance(inner, Mapping) and last in inner)
        or (isinstance(inner, str) and value_of(record, key) is not None)
    )


def _lacks(record: Record, key: str) -> bool:
    """Whether a row lacks a key but has a value above it; a null value above it proves nothing."""
    above, dot, _ = key.rpartition(".")
    if not dot or _has(record, key):
        return not _has(record, key)
    inner = value_of(record, above)
    return _lacks(record, above) if inner is None else not isinstance(inner, str)


def _is(value: Any, wanted: str | float | bool) -> bool:
    """Whether a value equals the wanted one; a text, as in CSV, may also equal its written form."""
    if isinstance(value, str) and isinstance(wanted, bool):
        return value.lower() == str(wanted).lower()
    return bool(value == wanted) or (isinstance(value, str) and value == str(wanted))


def is_outside(name: str) -> bool:
    """Whether a path leads out of its folder."""
    return name.startswith("/") or (".." in name and ".." in PurePosixPath(name).parts)


def _is_nothing(image: Any) -> bool:
    if isinstance(image, Mapping):
        return image.get("bytes") is None and not image.get("path")
    return image is None or image == ""


def _fail(error: UserError) -> bytes:
    raise error


def _listed(value: Any) -> list[Any]:
    """A list as it is, a single value as a list of one, None and empty text as an empty list."""
    if value is None or value == "":
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _fields(record: Record, where: str | Mapping[str, str]) -> Mapping[str, Any]:
    if isinstance(where, Mapping):
        return {name: value_of(record, key) for name, key in where.items()}
    found = value_of(record, where)
    return found if isinstance(found, Mapping) else {}
