"""Every log of events of an experiment, whole: for exports. `experiment/events.py` follows them live."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.experiment.control import said
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.workers import EVENTS
from hpcbench.files.archive import Folder
from hpcbench.files.atomic import Tell, read_lines


@dataclass(frozen=True, slots=True)
class Log:
    """A file of events."""

    source: str
    """As `events.Event.source`."""
    records: Iterator[dict[str, Any]]
    """Its events, read as they are asked for."""
    group: str | None = None
    """Of a worker: its group."""
    worker: str | None = None
    """Of a worker: `JOB-RESTART`."""
    run_task: str | None = None
    """Of an attempt: its run task."""
    shard: int | None = None
    """Of an attempt: the shard's number."""
    attempt: int | None = None
    """Of an attempt: its number."""


def logs_of_jobs(experiment: Experiment, tell: Tell | None = None) -> Iterator[Log]:
    """The submission, control requests, and workers; `tell` is told of lines that cannot be read."""
    yield Log("submission", read_lines(experiment.submission_file, tell))
    yield Log("control", iter(said(experiment)))
    for stem, records in _logs(experiment.workers(), tell):
        group, _, worker = stem.partition(".")
        yield Log(f"workers/{stem}", records, group, worker)


def logs_of_attempts(
    experiment: Experiment, run_tasks: Sequence[str], tell: Tell | None = None
) -> Iterator[Log]:
    """All attempts at shards of some run tasks; `tell` is told of lines that cannot be read."""
    for name in run_tasks:
        for stem, records in _logs(experiment.shards(name), tell):
            shard, _, attempt = stem.partition(".")
            yield Log(
                f"shards/{name}/{stem}", records,
                run_task=name, shard=int(shard), attempt=int(attempt),
            )  # fmt: skip


def _logs(folder: Folder, tell: Tell | None) -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
    for name in sorted(folder.names):
        if name.endswith(EVENTS):
            yield name.removesuffix(EVENTS), folder.records(name, tell)
