"""Samples of datasets, as run tasks used them; the portal opens each dataset once and limits the memory.

A dataset is in the folder that its definition names, and may be gone, changed or damaged; its reader may be a
package's. So every call can fail; the fault is one line that the portal may show.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.data.datasets import open_dataset, samples
from hpcbench.errors import HpcbenchError, first_line
from hpcbench.experiment.layout import Experiment
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.lru import LruCache, stamp_of
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Sample

MOST_BYTES = 32 << 20
"""Bytes of the largest annotation file that is read; its rows take about eight times as much memory."""

KEPT_BYTES = 2 << 20
"""Bytes of annotation files whose rows are kept, beside the one that was read last."""

MOST_IDS = 12 << 20
"""Bytes of samples' ids in memory."""


_TEXT_FORMS = (".jsonl", ".json", ".csv", ".tsv")
"""Annotations that a reader reads whole."""


class Gone(PortalFault):
    """A dataset, sample or image that cannot be read; the message says why, for people."""

    def __init__(self, why: str) -> None:
        super().__init__(404, "not_found", why)


@dataclass(frozen=True, slots=True)
class _Opened:
    """An open dataset."""

    iterator: Any
    bytes: int
    """Size of its annotations, bytes."""


@dataclass(frozen=True, slots=True)
class Names:
    """Ids and documents of a run task's samples, in their order."""

    ids: Any
    """Series of ids."""
    documents: Any
    """Series of the samples' documents."""


@dataclass
class DatasetReader:
    """Opens datasets; every method may be called from any thread."""

    _open: LruCache[_Opened] = field(
        default_factory=lambda: LruCache(KEPT_BYTES, lambda one: one.bytes)
    )
    _names: LruCache[Names] = field(
        default_factory=lambda: LruCache(
            MOST_IDS,
            lambda one: one.ids.estimated_size() + one.documents.estimated_size(),
        )
    )

    def sample(self, experiment: Experiment, run_task: ResolvedRunTask, place: int) -> Sample:
        """The sample at a place among the samples of a run task, with its images.

        Raises:
            Gone: the sample cannot be read.
        """
        some = self.between(experiment, run_task, place, place + 1)
        if not some:
            raise Gone("the dataset has fewer samples than the experiment used: it has changed")
        return some[0]

    def between(
        self,
        experiment: Experiment,
        run_task: ResolvedRunTask,
        start: int,
        stop: int,
        *,
        images: bool = True,
    ) -> list[Sample]:
        """Samples at places `start` to `stop` (exclusive); fewer if the dataset ends before.

        Raises:
            Gone: the samples cannot be read.
        """
        try:
            iterator = self._iterator(experiment, run_task.dataset)
            chosen = experiment.chosen(run_task.name)
            return list(samples(iterator, chosen, start, stop, images=images))
        except Gone:
            raise
        except HpcbenchError as error:
            raise Gone(first_line(error)[:500]) from error
        except Exception as error:  # foreign code over files that may be gone or hostile
            raise Gone(f"the dataset cannot be read: {first_line(error)[:500]}") from error

    def names(self, experiment: Experiment, run_task: ResolvedRunTask, count: int) -> Names:
        """The ids and documents of all samples of a run task; 10 s for a million samples.

        Raises:
            Gone: the samples cannot be read.
        """
        import polars

        dataset = run_task.dataset
        key = (experiment.path, run_task.name)

        def make() -> Names:
            found = self.between(experiment, run_task, 0, count, images=False)
            if len(found) < count:
                raise Gone("the dataset has fewer samples than the experiment used: it has changed")
            return Names(
                polars.Series("sample", [one.id for one in found], dtype=polars.String),
                polars.Series("document", [one.document for one in found], dtype=polars.String),
            )

        return self._names.of(key, _stamp(dataset), make)

    def _iterator(self, experiment: Experiment, dataset: Dataset) -> Any:
        key = (dataset.model_dump_json(), experiment.cache_dir)

        def make() -> _Opened:
            size = _annotations(dataset)
            if size > MOST_BYTES:
                what = f"its annotations have {size >> 20} MiB"
                raise Gone(
                    f"the portal does not open this dataset: {what}, the limit is {MOST_BYTES >> 20} MiB"
                )
            experiment.use_packages()
            iterator = open_dataset(dataset, experiment.cache_dir)
            iterator.count()  # reads the rows here, so that several threads do not
            return _Opened(iterator, max(size, 1 << 16))

        return self._open.of(key, _stamp(dataset), make).iterator

    def stamp(self, run_task: ResolvedRunTask) -> Hashable:
        """A stamp of the annotations of the run task's dataset; it changes with the files."""
        return _stamp(run_task.dataset)


def _stamp(dataset: Dataset) -> Hashable:
    source = Path(dataset.source)
    return stamp_of(source), stamp_of(source / (dataset.annotations or ""))


def _annotations(dataset: Dataset) -> int:
    """Bytes of the annotations that a reader reads whole; 0 for tables, which stay on disk.

    Raises:
        Gone: the dataset's folder does not exist.
    """
    source = Path(dataset.source)
    if not source.is_dir():
        raise Gone(f"the dataset's folder does not exist: {source}")
    pattern = dataset.annotations or "*"
    try:
        files: Sequence[Path] = [one for one in source.glob(pattern) if one.suffix in _TEXT_FORMS]
        return sum(one.stat().st_size for one in files)
    except (OSError, ValueError, NotImplementedError, IndexError):
        return 0
