"""Models and datasets on the node's own disk if the site requests that, else in their place."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from hpcbench.data.datasets import open_dataset
from hpcbench.data.staging import stage, staging_folder
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.plugins import DatasetIterator
from hpcbench.schema.dataset import Dataset
from hpcbench.worker.event_log import WorkerEvents


class NodeCopies:
    """Copies of sources on this node, and the open datasets; each once per worker."""

    def __init__(self, experiment: Experiment, events: WorkerEvents) -> None:
        self._experiment, self._events = experiment, events
        self._staged: dict[str, str] = {}
        self._datasets: dict[str, DatasetIterator] = {}

    async def source(self, source: str) -> str:
        """A copy of a dataset or model on this node, if the site requests one and the disk has space."""
        wanted = self._experiment.resolved.site.staging
        if wanted is None or not source:
            return source
        if source not in self._staged:
            started = time.monotonic()
            self._staged[source] = source
            try:
                folder = staging_folder(wanted)
                copied = await asyncio.to_thread(stage, Path(source), folder)
            except EnvironmentFault as fault:
                self._events.write("staging_skipped", source=source, message=str(fault))
            else:
                self._staged[source] = str(copied)
                taken = round(time.monotonic() - started, 1)
                self._events.write("staged", source=source, path=str(copied), seconds=taken)
        return self._staged[source]

    async def dataset(self, dataset: Dataset) -> DatasetIterator:
        """A dataset, opened once for all its users."""
        definition = dataset.model_dump_json()
        if definition not in self._datasets:
            near = dataset.model_copy(update={"source": await self.source(dataset.source)})
            cache, origin = self._experiment.cache_dir, Path(dataset.source)
            self._datasets[definition] = open_dataset(near, cache, origin)
        return self._datasets[definition]
