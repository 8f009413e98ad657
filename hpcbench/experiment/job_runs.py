"""Runs of a job: each process has its own events file, and so a unique name."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hpcbench.experiment.claims import Owner
from hpcbench.experiment.event_log import LAST_WORDS, RECORD_VERSION, EventLog, event
from hpcbench.experiment.layout import Experiment
from hpcbench.files.archive import is_folded
from hpcbench.files.atomic import create_exclusive, read_lines


def begin_run(
    experiment: Experiment, name: str, owner: Owner, **details: Any
) -> tuple[Owner, EventLog]:
    """Create the events file of a run, with the first event; returns this run's owner and the file.

    A killed slurmctld restarts from its last saved state. It may start a job a second time without counting a
    restart, or give a job's number to another job. So if a restart number already has a file, this run takes
    the next number: it is a later run, which continues the earlier run's work and fences that run, should it
    live.

    Args:
        experiment: the experiment.
        name: group of a worker, or name of another process.
        owner: this run's owner, as Slurm gives it.
        details: further fields of the event.

    Raises:
        OSError: the file cannot be created.
    """
    while True:
        path = experiment.worker_events(name, owner.id)
        first = event("started", version=RECORD_VERSION, owner=asdict(owner), **details)
        # The file of a folded run is gone, but its name stays taken.
        if not path.exists() and create_exclusive(path, first):
            if not is_folded(path):
                return owner, EventLog(path)
            path.unlink(missing_ok=True)
        owner = replace(owner, restart=owner.restart + 1)


def living_run(experiment: Experiment, name: str, owner: Owner) -> Path | None:
    """The events file of a process that runs; None: it wrote no event yet, or its last.

    Args:
        experiment: the experiment.
        name: group of the worker, or name of the process.
        owner: its owner, as Slurm gives it; `begin_run` may have given it a later restart number.
    """
    while True:
        path = experiment.worker_events(name, owner.id)
        events = list(read_lines(path))
        if not events and not is_folded(path):
            return None
        if events and (events[0].get("owner") or {}).get("pid") == owner.pid:
            return None if events[-1].get("event") in LAST_WORDS else path
        owner = replace(owner, restart=owner.restart + 1)
