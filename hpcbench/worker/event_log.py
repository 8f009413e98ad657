"""The worker's own events file, and its last word when the disk is full."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path
from typing import Any

import hpcbench
from hpcbench import secret
from hpcbench.experiment.claims import Owner
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.log import EventLog, Kind
from hpcbench.experiment.runs import begin_run
from hpcbench.schema.plan import Group

BALLAST_BYTES = 64 * 1024
"""Kept on the shared file system so that a full disk can still be reported."""

ROOM_SECONDS = 20.0
"""So long the last word is tried on a disk that was full."""

EXIT_DISK_FULL = 28
"""Exit code when nothing can be written any more; Slurm keeps it even then."""


class WorkerEvents:
    """The worker's own events file, and the last word when the disk is full."""

    def __init__(self, experiment: Experiment, group: Group, owner: Owner) -> None:
        self._experiment, self._group, self._owner = experiment, group, owner
        self._file: EventLog | None = None

    def open(self) -> Owner:
        """Begin; returns who we are, which may be a later run of our job than Slurm says."""
        self._owner, self._file = begin_run(
            self._experiment,
            self._group.id,
            self._owner,
            hpcbench=hpcbench.__version__,
            gpus=os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        )
        # Random bytes: a file of zeros may take no room on a compressing file system.
        self._ballast.write_bytes(os.urandom(BALLAST_BYTES))
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
        """Give the ballast's room to one last event; a network file system may be late to see that room."""
        self._ballast.unlink(missing_ok=True)
        what = "quota exceeded" if error.errno == errno.EDQUOT else "no space left"
        message = f"disk full: {what} below {self._experiment.path}"
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        path = self._experiment.worker_events(self._group.id, self._owner.id)
        deadline = time.monotonic() + ROOM_SECONDS
        while True:
            try:
                # Opened anew: what a write left that failed at its sync is cut, and may not be there at all.
                with EventLog(path) as file:
                    file.write("disk_full", sync=True, message=message)
                break
            except OSError:
                if time.monotonic() >= deadline:
                    break
                time.sleep(0.5)
        return EXIT_DISK_FULL
