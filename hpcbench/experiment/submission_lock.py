"""A lock: only one process at a time submits or concludes an experiment."""

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
"""A lock without a beat for so long is left over from a kill on another host; clocks differ by less."""


def submitting(experiment: Experiment) -> bool:
    """Whether a live process holds the submission lock."""
    return not lease.abandoned(_lock(experiment), LOCK_SECONDS, spare_suspended=True)


@contextlib.contextmanager
def alone(experiment: Experiment, patience: float = 0.0) -> Iterator[None]:
    """Only one process submits an experiment at a time.

    Raises:
        RunFailed: another process holds the lock for longer than `patience` seconds.
    """
    use_umask(experiment.resolved.site)
    lock = _lock(experiment)
    with lease.alone(lock, patience, LOCK_SECONDS, spare_suspended=True) as mine:
        if not mine:
            raise RunFailed(
                f"{experiment.id}: another hpcbench is submitting it right now (wait until it has finished)"
            )
        yield


def wait_for_others(experiment: Experiment, patience: float) -> None:
    """Wait until no other process submits or concludes the experiment, at most `patience` seconds.

    The concluding process first writes the outcome and then informs trackers and notifiers.
    """
    deadline = time.monotonic() + patience
    while submitting(experiment) and time.monotonic() < deadline:
        time.sleep(0.1)


def _lock(experiment: Experiment) -> Path:
    return experiment.path / "submission.lock"
