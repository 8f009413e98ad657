"""Readers of an imported experiment: the kit's samples, and the kit's numbers for them.

Neither is for plans: definitions of imported experiments name them by their dotted paths.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from hpcbench.metrics.base import Aggregation, Bounds, Parts, ratio_of_sums
from hpcbench.plugins import DatasetSpec
from hpcbench.schema.records import Sample

RECORDED = "recorded"
"""Field of a sample that holds the kit's numbers: metric → number."""


class ImportedDataset:
    """Samples of an imported task: JSONL inside the experiment, without images.

    Unlike the table dataset, it accepts samples without a reference, which kits write now and then.
    """

    api: ClassVar[int] = 1

    def __init__(self, spec: DatasetSpec) -> None:
        self._path = spec.folder / spec.annotations

    def count(self) -> int:
        """Samples."""
        return len(self._offsets)

    def iter(self, start: int, stop: int, images: bool = True) -> Iterator[Sample]:
        """Samples `start` to `stop` (exclusive)."""
        with self._path.open("rb") as file:
            for offset in self._offsets[start:stop]:
                file.seek(offset)
                record = json.loads(file.readline())
                yield Sample(
                    id=record["id"],
                    images=(),
                    fields=record["fields"],
                    references=tuple(record["references"]),
                    document=record["document"],
                    metadata=record["metadata"],
                )

    def files(self) -> Iterable[Path]:
        """Its one file."""
        return (self._path,)

    @cached_property
    def _offsets(self) -> list[int]:
        with self._path.open("rb") as file:
            offsets, at = [], 0
            for line in file:
                offsets.append(at)
                at += len(line)
        return offsets


@dataclass(frozen=True)
class RecordedMetric:
    """A kit's own number of each sample, taken as it is; the aggregate is their mean.

    Its signature says whose number it is, so that it is never compared with one of ours.
    """

    api: ClassVar[int] = 1
    name: ClassVar[str] = "recorded"
    aggregation: ClassVar[Aggregation] = "mean"
    accepts: ClassVar[tuple[str, ...]] = ("reading", "sample")

    metric: str
    """The metric, as the kit calls it."""
    kit: str
    """The kit."""
    task: str = ""
    """The kit's task: it decides what the metric does."""
    task_version: str = ""
    """Its version, if the kit gives it."""
    higher_is_better: bool = True
    low: float = 0.0
    high: float | None = 1.0

    @property
    def bounds(self) -> Bounds:
        """The bounds of its numbers."""
        return self.low, self.high

    @property
    def signature(self) -> str:
        """`anls|kit:lmms-eval|task:docvqa_val@1.0|v1`."""
        version = f"@{self.task_version}" if self.task_version else ""
        return f"{self.metric}|kit:{self.kit}|task:{self.task}{version}|v1"

    def score(self, prediction: object, references: Sequence[Any]) -> Parts:
        """The number that came with the sample, the only entry of `references`.

        Raises:
            ValueError: the sample has no number.
        """
        (sample,) = references
        found = sample.fields.get(RECORDED, {}).get(self.metric)
        if found is None:
            raise ValueError(f"{self.kit} gave no {self.metric} for this sample")
        return Parts(float(found), 1)

    def aggregate(self, parts: Sequence[Parts]) -> float:
        """Their mean."""
        return ratio_of_sums(parts)
