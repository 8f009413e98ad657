"""One process at a time submits an experiment, or concludes it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from hpcbench.errors import RunFailed
from hpcbench.experiment.access import use_umask
from hpcbench.experiment.layout import Experiment
from hpcbench.files import lease

LOCK_SECONDS = 600
"""A lock that showed no beat for so long was left behind by a kill on another host; clocks differ by less."""


def submitting(experiment: Experiment) -> bool:
    """Whether a process holds the submission lock and lives."""
    return not lease.abandoned(_lock(experiment), LOCK_SECONDS, spare_suspended=True)


@contextlib.contextmanager
def alone(experiment: Experiment, patience: float = 0.0) -> Iterator[None]:
    """Only one process submits an experiment at a time.

    Raises:
        RunFailed: another one does, for longer than `patience` seconds.
    """
    use_umask(experiment.resolved.site)
    lock = _lock(experiment)
    with lease.alone(lock, patience, LOCK_SECONDS, spare_suspended=True) as mine:
        if not mine:
            raise RunFailed(f"{experiment.id}: another hpcbench is submitting it right now")
        yield


def wait_for_others(experiment: Experiment, patience: float) -> None:
    """Wait until whoever submits or concludes it has let go, at most `patience` seconds.

    Who concludes says first how it ended and then tells trackers and notifiers.
    """
    deadline = time.monotonic() + patience
    while submitting(experiment) and time.monotonic() < deadline:
        time.sleep(0.1)


def _lock(experiment: Experiment) -> Path:
    return experiment.path / "submission.lock"
