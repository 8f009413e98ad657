"""What takes many files to find out of an experiment: its status, and which figures there are."""

from __future__ import annotations

import threading

from hpcbench.experiment.layout import Experiment
from hpcbench.portal import figures, index_entries
from hpcbench.portal.context import Portal
from hpcbench.portal.index import Known
from hpcbench.portal.lru import Kept
from hpcbench.portal.models.experiments import FigureName
from hpcbench.portal.results_cache import Results
from hpcbench.status import ENDED, Observer

_ONE = threading.Lock()
"""Held by who looks: several at once would take no less time, and the memory of all of them."""

KEPT = 32
"""Experiments of which it is remembered, beside what the index keeps."""


def known_of(portal: Portal, experiment: Experiment) -> Known:
    """Look at an experiment; of several who want it at once, one looks.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or of another version of hpcbench; likewise KeyError and TypeError.
    """
    stamp = index_entries.stamp_of(experiment)

    def look() -> Known:
        with _ONE:
            # A reader of its own: what is looked at once takes no room from what people look at.
            found = Known(Observer(experiment).look(), figures_of(experiment, Results()))
        if found.status.state in ENDED:
            portal.index.keep(experiment.id, stamp, found)
        return found

    kept: Kept[Known] = portal.extra.setdefault("known", Kept(KEPT))  # type: ignore[assignment]
    return kept.of(experiment.id, stamp, look)


def figures_of(experiment: Experiment, results: Results) -> tuple[FigureName, ...]:
    """Figures there are of an experiment; none of one that cannot be read."""
    try:
        return figures.names(experiment, results)
    except (OSError, ValueError, KeyError, TypeError):
        return ()
