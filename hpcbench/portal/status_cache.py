"""Values of an experiment that need many files: its status, and the names of its figures."""

from __future__ import annotations

import threading

from hpcbench.experiment.layout import Experiment
from hpcbench.portal import figures, index_entries
from hpcbench.portal.context import Portal, once
from hpcbench.portal.index import DerivedFacts
from hpcbench.portal.lru import LruCache
from hpcbench.portal.models.experiments import FigureName
from hpcbench.portal.results_cache import Results
from hpcbench.status import ENDED, Observer

_ONE = threading.Lock()
"""Held by a reader: several at once would take as long, and the memory of all."""

KEPT = 4
"""Experiments that are kept: the index has ended ones, and the follower has running ones."""


def known_of(portal: Portal, experiment: Experiment) -> DerivedFacts:
    """Read an experiment; of several concurrent calls, one reads.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or of another version of hpcbench; likewise KeyError and TypeError.
    """
    stamp = index_entries.stamp_of(experiment)

    def look() -> DerivedFacts:
        with _ONE:
            # A reader of its own: a single look must not displace the values of open pages.
            found = DerivedFacts(Observer(experiment).look(), figures_of(experiment, Results()))
        if found.status.state in ENDED:
            portal.index.keep(experiment.id, stamp, found)
        return found

    return _kept(portal).of(experiment.id, stamp, look)


_kept = once(lambda _: LruCache[DerivedFacts](KEPT))


def figures_of(experiment: Experiment, results: Results) -> tuple[FigureName, ...]:
    """Names of an experiment's figures; empty for one that cannot be read."""
    try:
        return figures.names(experiment, results)
    except (OSError, ValueError, KeyError, TypeError):
        return ()
