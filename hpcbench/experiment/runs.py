"""Runs of a job: each process has an events file of its own, and by that a name that no other has."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from hpcbench.experiment.claims import Owner
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.log import EventLog, event
from hpcbench.files.archive import is_folded
from hpcbench.files.atomic import create_exclusive
from hpcbench.schema.records import RECORD_VERSION


def begin_run(
    experiment: Experiment, name: str, owner: Owner, **details: Any
) -> tuple[Owner, EventLog]:
    """Create the events file of a run, with the first event; returns who we are, and the file.

    A slurmctld that was killed comes back with the state it saved last. It may start a job a second time and
    count no restart, or give a job's number to another. So a number of restarts that has a file already is
    taken, and we are the next: a later run, which takes up what the earlier left and fences it, should it
    live.

    Args:
        experiment: the experiment.
        name: group of a worker, or what else it is.
        owner: who we are by Slurm's word.
        details: of the event.

    Raises:
        OSError: the file cannot be created.
    """
    while True:
        path = experiment.worker_events(name, owner.id)
        first = event("started", version=RECORD_VERSION, owner=asdict(owner), **details)
        # Of a run that was folded the file is gone, but not its name.
        if not path.exists() and create_exclusive(path, first):
            if not is_folded(path):
                return owner, EventLog(path)
            path.unlink(missing_ok=True)
        owner = replace(owner, restart=owner.restart + 1)
