"""Opening a dataset, and the JSONL dataset: one sample a line, images beside it.

    {"id": "0001-total", "images": ["images/0001.png"], "document": "0001", "split": "easy",
     "fields": {"question": "What is the total?"}, "references": ["12.50"],
     "metadata": {"doc_type": "receipt"}}

`id`, `images` and `references` are needed; `document` falls back to the first image (several questions on
one page belong together). Order is the file's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from hpcbench import plugins
from hpcbench.errors import Problem, UserError
from hpcbench.plugins import DatasetIterator
from hpcbench.schema.documents import Dataset
from hpcbench.schema.records import Sample


def open_dataset(dataset: Dataset) -> DatasetIterator:
    """The iterator that a dataset's document names, over its split.

    Raises:
        UserError: there is no such iterator, or it does not know an option.
    """
    plugin = plugins.load("datasets", dataset.iterator)
    iterator: DatasetIterator = plugin(
        Path(dataset.source), dataset.annotations, dataset.split, dataset.options
    )
    return iterator


KEYS = frozenset({"id", "images", "document", "split", "fields", "references", "metadata"})


class JsonlDataset:
    """Iterator over a JSONL file of annotations."""

    api: ClassVar[int] = 1

    def __init__(
        self, folder: Path, annotations: str, split: str | None, options: Mapping[str, Any]
    ) -> None:
        if options:
            raise UserError(Problem(f"the jsonl iterator knows no options, not {sorted(options)}"))
        self.folder, self.split = folder, split
        self.path = folder / annotations

    def count(self) -> int:
        """Samples of the split."""
        return len(self._lines)

    def iter(self, start: int, stop: int) -> Iterator[Sample]:
        """Samples `start` to `stop` (exclusive) of the split, in the file's order."""
        for _, record in self._lines[start:stop]:
            yield self._sample(record)

    def files(self) -> Iterable[Path]:
        """The annotations and every image of the split, once each."""
        images = {self.folder / image for _, record in self._lines for image in record["images"]}
        return [self.path, *sorted(images)]

    @cached_property
    def _lines(self) -> list[tuple[int, dict[str, Any]]]:
        """Line number and record of each sample of the split, checked.

        Raises:
            UserError: every line that is wrong, at its place.
        """
        problems: list[Problem] = []
        lines: list[tuple[int, dict[str, Any]]] = []
        seen: set[str] = set()
        try:
            text = self.path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(Problem(f"cannot be read: {error}", str(self.path))) from error
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip():
                continue
            record = self._record(number, line, seen, problems)
            if record is not None and self.split in (None, record.get("split")):
                lines.append((number, record))
        if problems:
            raise UserError(*problems[:20])
        if not lines:
            what = f"no sample of split '{self.split}'" if self.split else "no sample"
            raise UserError(Problem(what, str(self.path)))
        return lines

    def _record(
        self, number: int, line: str, seen: set[str], problems: list[Problem]
    ) -> dict[str, Any] | None:
        def wrong(message: str) -> None:
            problems.append(Problem(message, str(self.path), number))

        try:
            record = json.loads(line)
        except ValueError as error:
            wrong(f"not JSON: {error}")
            return None
        if not isinstance(record, dict):
            wrong("not a JSON object")
            return None
        missing = [key for key in ("id", "images", "references") if key not in record]
        if missing:
            wrong(f"key {', '.join(map(repr, missing))} is missing")
            return None
        unknown = sorted(record.keys() - KEYS)
        if unknown:
            wrong(f"unknown key {', '.join(map(repr, unknown))}")
            return None
        for key in ("images", "references"):
            if not isinstance(record[key], list) or not record[key]:
                wrong(f"'{key}' must be a list with at least one entry")
                return None
        if record["id"] in seen:
            wrong(f"id '{record['id']}' stands twice")
        seen.add(record["id"])
        return record

    def _sample(self, record: Mapping[str, Any]) -> Sample:
        return Sample(
            id=str(record["id"]),
            images=tuple(self.folder / image for image in record["images"]),
            fields=record.get("fields", {}),
            references=tuple(record["references"]),
            document=str(record.get("document", record["images"][0])),
            metadata=record.get("metadata", {}),
        )
