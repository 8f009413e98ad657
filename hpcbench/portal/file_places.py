"""Where parts are in an experiment's large files: as the index says, else as the files themselves say.

A page of one run task reads its parts of the plan, metrics and performance, which have a megabyte each with a
hundred run tasks, and one member of the manifest. To find the parts takes 14 ms; the follower does so when
it reads an experiment that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.as_written import manifest_places, plan_places
from hpcbench.experiment.view.json_tables import table_places
from hpcbench.files.json_places import Places
from hpcbench.portal.lru import LruCache, stamp_of

if TYPE_CHECKING:
    from hpcbench.portal.index.sql_index import Index

KEPT = 20_000
"""Parts of files whose places are in memory, 16 bytes each: a page asks for the same ones several times."""


def located(experiment: Experiment) -> Mapping[str, Places]:
    """Name of a file → its places; without files that cannot be read."""
    files = (
        experiment.manifest_file,
        experiment.resolved_file,
        experiment.metrics_file,
        experiment.performance_file,
    )
    found = {path.name: _located(experiment, path) for path in files}
    return {name: places for name, places in found.items() if places is not None}


@dataclass(frozen=True)
class FilePlaces:
    """Places in files of all experiments; may be called from any thread."""

    index: Index | None = None
    """The portal's index; None: a process without a portal."""
    _kept: LruCache[Places | None] = field(
        default_factory=lambda: LruCache(KEPT, lambda found: 10 + len(found or ()))
    )

    def of(self, experiment: Experiment, path: Path) -> Places | None:
        """Places in the file as it is now; None: it cannot be read."""
        stamp = stamp_of(path)

        def find() -> Places | None:
            found = self.index.places(experiment.id, path.name) if self.index else None
            if found is not None and found.identity == stamp:
                return found
            return _located(experiment, path)

        return self._kept.of(path, stamp, find)


def _located(experiment: Experiment, path: Path) -> Places | None:
    """Places in one of these files; None: it cannot be read."""
    try:
        if path == experiment.manifest_file:
            return manifest_places(experiment)
        if path == experiment.resolved_file:
            return plan_places(experiment)
        return table_places(path)
    except (OSError, ValueError, LookupError, TypeError):
        return None
