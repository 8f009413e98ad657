"""The worker's own events file, and its last event when the disk is full."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Protocol

import hpcbench
from hpcbench import secret
from hpcbench.experiment.claims import Owner
from hpcbench.experiment.event_log import EventLog, Kind
from hpcbench.experiment.job_runs import begin_run
from hpcbench.experiment.last_word import keep_room, say_no_room
from hpcbench.experiment.layout import Experiment
from hpcbench.schema.plan import Group


class EventSink(Protocol):
    """Receives events of a worker."""

    def write(self, kind: Kind, /, *, sync: bool = False, **details: Any) -> None:
        """Take an event; `sync`: it must survive a loss of power."""


class WorkerEvents:
    """The worker's own events file, and its last event when the disk is full."""

    def __init__(self, experiment: Experiment, group: Group, owner: Owner) -> None:
        self._experiment, self._group, self._owner = experiment, group, owner
        self._file: EventLog | None = None

    def open(self) -> Owner:
        """Open the file; returns the owner, which may be a later run of our job than Slurm reports."""
        self._owner, self._file = begin_run(
            self._experiment,
            self._group.id,
            self._owner,
            hpcbench=hpcbench.__version__,
            gpus=os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        )
        keep_room(self._ballast)
        return self._owner

    @property
    def _ballast(self) -> Path:
        path = self._experiment.worker_events(self._group.id, self._owner.id)
        return path.with_suffix(".ballast")

    def write(self, kind: Kind, /, *, sync: bool = False, **details: Any) -> None:
        if self._file is not None:
            self._file.write(kind, sync=sync, **secret.mask_all(details))

    def close(self, kind: Kind, /, exit_code: int = 0, **details: Any) -> int:
        self.write(kind, sync=True, **details)
        self._ballast.unlink(missing_ok=True)
        if self._file is not None:
            self._file.close()
        return exit_code

    def disk_full(self, error: OSError) -> int:
        """Write as the last event that the disk is full; returns the exit code."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        path = self._experiment.worker_events(self._group.id, self._owner.id)
        return say_no_room(self._experiment, self._ballast, error, lambda: EventLog(path))
