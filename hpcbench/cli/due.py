"""Any command that looks from a login node does the work that jobs could not do, and reports it.

Mostly no work is due; so the modules for it are imported only when needed.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

from hpcbench.errors import HpcbenchError
from hpcbench.experiment.layout import Experiment, all_experiments
from hpcbench.status import ENDED, ExperimentStatus, due

SHORTEST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
"""Seconds until due work of an experiment is tried again: the pause doubles while the work remains, so that a
command that follows a limited queue does not ask Slurm without end."""

NEWEST = 20
"""Number of experiments whose missing notifications a call of cron sends."""


ROWS_SECONDS = 30.0
"""Longest time that a look takes to send rows to a database, seconds; the next look goes on."""


def do_what_is_due(experiment: Experiment, now: ExperimentStatus) -> bool:
    """Submit or conclude work that waits for this login node, and send notifications that no node could send;
    returns whether work was tried."""
    if now.state in ENDED:
        tell_what_is_owed(experiment)
    if not due(experiment, now):
        _tried.pop(experiment.path, None)
        return False
    last, pause = _tried.get(experiment.path, (float("-inf"), SHORTEST_PAUSE / 2))
    if time.monotonic() - last < pause:
        return False
    import subprocess

    from hpcbench.submit.fingerprint import interpreter, stops_jobs

    if not experiment.manifest.snapshot and stops_jobs(experiment):
        what = f"the environment has changed; `hpcbench resume {experiment.id}` continues with the new one"
        print(f"{experiment.id}: {what}", file=sys.stderr, flush=True)
        return False
    what = "its jobs could not submit or finish the next step; this command does it"
    print(f"{experiment.id}: {what}", file=sys.stderr, flush=True)
    # A separate process: it imports evaluation and plots.
    command = [*interpreter(experiment), "-m", "hpcbench.finalise", str(experiment.path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    _tried[experiment.path] = time.monotonic(), min(2 * pause, LONGEST_PAUSE)
    return done.returncode == 0


_tried: dict[Path, tuple[float, float]] = {}
"""Experiment → when this process last tried its due work, and the pause until the next try."""


def tell_what_is_owed(experiment: Experiment) -> None:
    """Send what could not be sent where the experiment ended: rows for its database, and notifications; a
    failure stops no reader."""
    _send_rows(experiment)
    from hpcbench.notify.outbox import waiting

    try:
        if not waiting(experiment):
            return
    except (OSError, ValueError, KeyError, TypeError, HpcbenchError):
        return  # not readable, or of another version: its owner sends them
    from hpcbench.notify.dispatch import catch_up
    from hpcbench.submit import secrets_file

    with contextlib.suppress(HpcbenchError, OSError):
        secrets_file.load(experiment)
    for failure in catch_up(experiment):
        print(
            f"{experiment.id}: could not send a notification: {failure}",
            file=sys.stderr,
            flush=True,
        )


def _send_rows(experiment: Experiment) -> None:
    try:
        if not any(experiment.tracked_dir.glob("database-*.jsonl")):
            return
    except OSError:
        return
    from hpcbench.database.later import debts, pay
    from hpcbench.submit import secrets_file

    if not any(debt.due(time.time()) for debt in debts(experiment)):
        return
    with contextlib.suppress(HpcbenchError, OSError):
        secrets_file.load(experiment)
    if (left := pay(experiment, ROWS_SECONDS)) is not None:
        print(f"{experiment.id}: not all is in the database: {left}", file=sys.stderr, flush=True)


def tell_of_newest(root: Path) -> None:
    """Send missing notifications of the newest experiments of a home: cron looks at only one of them."""
    for experiment in list(all_experiments(root))[-NEWEST:]:
        tell_what_is_owed(experiment)
