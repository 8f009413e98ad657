"""The samples of datasets as run tasks asked about them, for the portal: opened once, and kept within bounds.

Datasets lie where their documents say, and may be gone, changed or damaged; what reads them may be a
package's. So everything here can fail, and says why in a line that may be shown.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.data.datasets import open_dataset, samples
from hpcbench.errors import HpcbenchError
from hpcbench.experiment.layout import Experiment
from hpcbench.portal.lru import Kept, stamp_of
from hpcbench.schema.documents import Dataset
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Sample

MOST_BYTES = 32 << 20
"""Of annotation files whose rows are kept in memory, where they take about eight times as much."""

MOST_IDS = 24 << 20
"""Bytes of samples' ids that are kept."""


_TEXT_FORMS = (".jsonl", ".json", ".csv", ".tsv")
"""Annotations that are read whole."""


class Gone(Exception):  # noqa: N818 - the portal shows the reason and goes on
    """A dataset, or a sample or image of it, that cannot be had; the message says why, for people."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """A dataset that is open."""

    iterator: Any
    bytes: int
    """Of its annotations."""


@dataclass(frozen=True, slots=True)
class Names:
    """What the samples of a run task are called, in their order."""

    ids: Any
    """Series of ids."""
    documents: Any
    """Series of the documents they belong to."""


@dataclass
class Asked:
    """Opens datasets; every method may be called from any thread."""

    _open: Kept[_Opened] = field(default_factory=lambda: Kept(MOST_BYTES, lambda one: one.bytes))
    _names: Kept[Names] = field(
        default_factory=lambda: Kept(
            MOST_IDS,
            lambda one: one.ids.estimated_size() + one.documents.estimated_size(),
        )
    )

    def sample(self, experiment: Experiment, run_task: ResolvedRunTask, place: int) -> Sample:
        """The sample at a place among those that a run task asks about, with its images.

        Raises:
            Gone: it cannot be had.
        """
        some = self.between(experiment, run_task, place, place + 1)
        if not some:
            raise Gone("the dataset has fewer samples than were asked")
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
        """Samples at places `start` to `stop` (exclusive), as far as there are so many.

        Raises:
            Gone: they cannot be had.
        """
        try:
            iterator = self._iterator(experiment, run_task.dataset)
            chosen = experiment.chosen(run_task.name)
            return list(samples(iterator, chosen, start, stop, images=images))
        except Gone:
            raise
        except KeyError:
            raise Gone("the experiment does not say which samples it chose") from None
        except HpcbenchError as error:
            raise Gone(_first_line(error)) from error
        except Exception as error:  # foreign code over files that may be gone or hostile
            raise Gone(f"the dataset cannot be read: {_first_line(error)}") from error

    def names(self, experiment: Experiment, run_task: ResolvedRunTask, count: int) -> Names:
        """What all samples of a run task are called. Takes 10 s for a million.

        Raises:
            Gone: they cannot be had.
        """
        import polars

        dataset = run_task.dataset
        key = (experiment.path, run_task.name)

        def make() -> Names:
            found = self.between(experiment, run_task, 0, count, images=False)
            if len(found) < count:
                raise Gone("the dataset has fewer samples than were asked")
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
                what = f"its annotations take {size >> 20} MiB"
                raise Gone(
                    f"the portal does not open this dataset: {what}, more than {MOST_BYTES >> 20}"
                )
            experiment.use_packages()
            iterator = open_dataset(dataset, experiment.cache_dir)
            iterator.count()  # rows are read here, and not by several threads at once
            return _Opened(iterator, max(size, 1 << 16))

        return self._open.of(key, _stamp(dataset), make).iterator

    def stamp(self, run_task: ResolvedRunTask) -> Hashable:
        """What tells its dataset's annotations now from those of another time."""
        return _stamp(run_task.dataset)


def _stamp(dataset: Dataset) -> Hashable:
    source = Path(dataset.source)
    return stamp_of(source), stamp_of(source / (dataset.annotations or ""))


def _annotations(dataset: Dataset) -> int:
    """Bytes of the annotations that are read whole; 0 where it is tables that stay on the disk.

    Raises:
        Gone: the dataset is not there.
    """
    source = Path(dataset.source)
    if not source.is_dir():
        raise Gone(f"the dataset's folder is not there: {source}")
    pattern = dataset.annotations or "*"
    try:
        files: Sequence[Path] = [one for one in source.glob(pattern) if one.suffix in _TEXT_FORMS]
        return sum(one.stat().st_size for one in files)
    except (OSError, ValueError, NotImplementedError, IndexError):
        return 0


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:500]
