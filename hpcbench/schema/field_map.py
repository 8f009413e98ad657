"""Where a table's records keep the parts of a sample: the `mapping` of a dataset's definition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationInfo, model_serializer, model_validator


class FieldMap(BaseModel, extra="forbid", frozen=True, defer_build=True):
    """Where a record of a dataset's own form keeps the parts of a sample; dots go down into objects."""

    id: str = "id"
    """Unique name of the sample; `#` is the record's number, from 1, counted over all files together."""
    images: str = "images"
    """Path of the image inside the folder, or a list of paths. `scans/{page}.png` puts a column's value into
    a path, a list of values into as many paths; in a record `scans/7-*.png` means every file that matches, 2
    before 10; `a.pdf`, `a.pdf#page=2`, `a.tiff` give pages."""
    references: str | Mapping[str, str] = "references"
    """Acceptable answer, or a list of them. `{total: Total, date: Date}` makes one object of several columns,
    for key-information extraction; an empty cell adds no key to it."""
    document: str | None = "document"
    """The document that the sample belongs to, the cluster of the intervals. Without it: the first image, or
    the sample itself if its image is in the table."""
    split: str | None = "split"
    """The split that the sample belongs to."""
    fields: str | Mapping[str, str] = "fields"
    """Sample's field → its place in the record; one word: an object that contains all of them."""
    metadata: str | Mapping[str, str] = "metadata"
    """The same for metadata, which tables group by."""

    # Presets of iterators apply to keys that a definition leaves out, so `resolved.json` must show which keys
    # the definition states. It has all keys; a key with another value than its default is stated; keys that
    # the definition states with their default are listed under `said`.

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any, info: ValidationInfo) -> Any:
        if info.mode != "json" or not isinstance(data, Mapping):
            return data
        if "said" in data:
            return data["said"]
        return {name: key for name, key in data.items() if key != cls.usual().get(name)}

    @model_serializer
    def _written(self) -> dict[str, Any]:
        usual = self.usual()
        said = {name: getattr(self, name) for name in usual if name in self.model_fields_set}
        if any(key == usual[name] for name, key in said.items()):
            return {**usual, **said, "said": said}
        return usual | said

    @classmethod
    def usual(cls) -> dict[str, Any]:
        """Every key with its default."""
        return {name: field.default for name, field in cls.model_fields.items()}
