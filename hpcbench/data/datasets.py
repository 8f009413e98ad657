"""Opening a dataset that lies on this machine."""

from __future__ import annotations

from pathlib import Path

from hpcbench import plugins
from hpcbench.errors import Problem, UserError
from hpcbench.plugins import DatasetIterator, DatasetSpec
from hpcbench.schema.documents import Dataset


def open_dataset(dataset: Dataset) -> DatasetIterator:
    """The iterator that a dataset's document names, over its split; the dataset lies on this machine.

    Raises:
        UserError: there is no such iterator, or it does not know an option.
    """
    plugin = plugins.load("datasets", dataset.iterator)
    if wrong := plugins.check_options(plugin, dataset.options):
        raise UserError(*(Problem(f"dataset '{dataset.name}': {message}") for _, message in wrong))
    iterator: DatasetIterator = plugin(
        DatasetSpec(
            folder=Path(dataset.source),
            annotations=dataset.annotations,
            split=dataset.split,
            mapping=dataset.mapping,
            options=dataset.options,
        )
    )
    return iterator
