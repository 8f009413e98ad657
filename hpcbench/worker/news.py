"""The worker's own events file, and its last word when the disk is full."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from dataclasses import asdict
from typing import Any

import hpcbench
from hpcbench import secret
from hpcbench.experiment.claims import Owner
from hpcbench.experiment.files import Appender
from hpcbench.experiment.layout import Experiment
from hpcbench.schema.plan import Group
from hpcbench.schema.records import RECORD_VERSION

BALLAST_BYTES = 64 * 1024
"""Kept on the shared file system so that a full disk can still be reported."""

EXIT_DISK_FULL = 28
"""Exit code when nothing can be written any more; Slurm keeps it even then."""


class News:
    """The worker's own events file, and the last word when the disk is full."""

    def __init__(self, experiment: Experiment, group: Group, owner: Owner) -> None:
        self._path = experiment.worker_events(group.id, owner.id)
        self._ballast = self._path.with_suffix(".ballast")
        self._owner = owner
        self._file: Appender | None = None

    def open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Random bytes: a file of zeros may take no room on a compressing file system.
        self._ballast.write_bytes(os.urandom(BALLAST_BYTES))
        self._file = Appender(self._path)
        self.write(
            "started",
            sync=True,
            version=RECORD_VERSION,
            owner=asdict(self._owner),
            hpcbench=hpcbench.__version__,
            gpus=os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        )

    def write(self, event: str, *, sync: bool = False, **details: Any) -> None:
        if self._file is not None:
            known = {
                key: secret.mask(value) if isinstance(value, str) else value
                for key, value in details.items()
            }
            self._file.write({"event": event, "time": round(time.time(), 3), **known})
            if sync:
                self._file.sync()

    def close(self, event: str, exit_code: int = 0, **details: Any) -> int:
        self.write(event, sync=True, **details)
        self._ballast.unlink(missing_ok=True)
        if self._file is not None:
            self._file.close()
        return exit_code

    def disk_full(self, error: OSError) -> int:
        """Give the ballast's room to one last event."""
        self._ballast.unlink(missing_ok=True)
        what = "quota exceeded" if error.errno == errno.EDQUOT else "no space left"
        with contextlib.suppress(OSError):
            self.close("disk_full", message=f"disk full: {what} below {self._path.parent.parent}")
        return EXIT_DISK_FULL
