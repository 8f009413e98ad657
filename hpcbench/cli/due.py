"""What jobs could not do by themselves is done by whoever looks from the login node, and said.

Mostly nothing is due: what does it is imported where something is.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from hpcbench.errors import HpcbenchError
from hpcbench.experiment.layout import Experiment, all_experiments
from hpcbench.status import ENDED, ExperimentStatus, due

NEWEST = 20
"""Experiments of which a call of cron's tells what is owed."""


def do_what_is_due(experiment: Experiment, now: ExperimentStatus) -> bool:
    """Submit or conclude what waits for this login node, and tell what no node could; returns whether work
    was tried."""
    if now.state in ENDED:
        tell_what_is_owed(experiment)
    if not due(experiment, now):
        return False
    import subprocess

    from hpcbench.submit.fingerprint import changes_since_submit, interpreter

    if not experiment.manifest.get("snapshot") and changes_since_submit(experiment):
        what = (
            f"hpcbench has changed since; `hpcbench resume {experiment.id}` goes on with this one"
        )
        print(f"{experiment.id}: {what}", file=sys.stderr, flush=True)
        return False
    what = "its jobs could not go on by themselves; doing what is due from here"
    print(f"{experiment.id}: {what}", file=sys.stderr, flush=True)
    # A process of its own: it loads what evaluates and draws.
    command = [*interpreter(experiment), "-m", "hpcbench.finalise", str(experiment.path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode == 0


def tell_what_is_owed(experiment: Experiment) -> None:
    """Tell what nobody could be told from where the experiment ended; no reader of it fails for that."""
    from hpcbench.notify.outbox import waiting

    try:
        if not waiting(experiment):
            return
    except (OSError, ValueError, KeyError, TypeError, HpcbenchError):
        return  # not ours to read, or of another version: whoever owns it tells
    from hpcbench.notify.dispatch import catch_up
    from hpcbench.submit import secrets_file

    with contextlib.suppress(HpcbenchError, OSError):
        secrets_file.load(experiment)
    for failure in catch_up(experiment):
        print(f"{experiment.id}: could not tell: {failure}", file=sys.stderr, flush=True)


def tell_of_newest(root: Path) -> None:
    """The same for the newest experiments of a home: cron looks at one of them only."""
    for experiment in list(all_experiments(root))[-NEWEST:]:
        tell_what_is_owed(experiment)
