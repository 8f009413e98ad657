"""The worker's own events file, and its last word when the disk is full."""

from __future__ import annotations

import contextlib
import errno
import os
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
        """Give the ballast's room to one last event."""
        self._ballast.unlink(missing_ok=True)
        what = "quota exceeded" if error.errno == errno.EDQUOT else "no space left"
        with contextlib.suppress(OSError):
            self.close("disk_full", message=f"disk full: {what} below {self._experiment.path}")
        return EXIT_DISK_FULL
