"""The last event of a process on a full disk: a ballast file reserves space for it from the start.

A network file system may report a full disk late, and notice freed space late.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

from hpcbench.experiment.claims import Owner
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.job_runs import begin_run
from hpcbench.experiment.layout import Experiment

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

BALLAST_BYTES = 64 * 1024
"""Reserved on the shared file system so that a full disk can still be reported."""

ROOM_SECONDS = 20.0
"""How long to try to write the last event on a full disk."""

EXIT_DISK_FULL = 28
"""Exit code when no file can be written any more; Slurm keeps it even then."""


def keep_room(ballast: Path) -> None:
    """Reserve the space that a last event needs."""
    ballast.parent.mkdir(exist_ok=True)
    # Random bytes: a file of zeros may take no space on a compressing file system.
    ballast.write_bytes(os.urandom(BALLAST_BYTES))


def finalisers_ballast(experiment: Experiment) -> Path:
    """The ballast of the finalising process, which starts when the disk may already be full."""
    return experiment.workers_dir / "finalise.ballast"


def finaliser_found_no_room(experiment: Experiment, error: OSError) -> int:
    """Record in the finalising process's events that it could not write; returns its exit code."""
    return say_no_room(
        experiment,
        finalisers_ballast(experiment),
        error,
        lambda: begin_run(experiment, "finalise", Owner.here())[1],
    )


def say_no_room(
    experiment: Experiment, ballast: Path, error: OSError, events: Callable[[], EventLog]
) -> int:
    """Free the ballast's space for one last event `disk_full`; returns the exit code.

    Args:
        experiment: the experiment.
        ballast: the file to delete.
        error: the error of the failed write.
        events: opens the events of this process again for each try: a write that failed at its sync leaves
            a cut file, or none.
    """
    what = "quota exceeded" if error.errno == errno.EDQUOT else "no space left"
    message = f"disk full: {what} below {experiment.path}"
    deadline = time.monotonic() + ROOM_SECONDS
    while True:
        try:
            ballast.unlink(missing_ok=True)
            with events() as file:
                file.write("disk_full", sync=True, message=message)
            break
        except OSError:
            if time.monotonic() >= deadline:
                break
            time.sleep(0.5)
    return EXIT_DISK_FULL
