"""All logs of an experiment: whole logs of events, for exports; text logs of jobs and engines.

`experiment/events.py` follows events live.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.experiment.control import said
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.workers import EVENTS
from hpcbench.files.archive import Folder
from hpcbench.files.atomic import Tell, read_lines
from hpcbench.files.tail import Tail, last_bytes, last_lines


@dataclass(frozen=True, slots=True)
class Log:
    """A file of events."""

    source: str
    """The source, as in `events.Event.source`."""
    records: Iterator[dict[str, Any]]
    """Its events, read on demand."""
    group: str | None = None
    """The group of a worker."""
    worker: str | None = None
    """`JOB-RESTART` of a worker."""
    run_task: str | None = None
    """The run task of an attempt."""
    shard: int | None = None
    """The shard's number of an attempt."""
    attempt: int | None = None
    """The number of an attempt."""


def logs_of_jobs(experiment: Experiment, tell: Tell | None = None) -> Iterator[Log]:
    """Logs of the submission, control requests and workers; `tell` is called for unreadable lines."""
    yield Log("submission", read_lines(experiment.submission_file, tell))
    yield Log("control", iter(said(experiment)))
    for stem, records in _logs(experiment.workers(), tell):
        group, _, worker = stem.partition(".")
        yield Log(f"workers/{stem}", records, group, worker)


def logs_of_attempts(
    experiment: Experiment, run_tasks: Sequence[str], tell: Tell | None = None
) -> Iterator[Log]:
    """Logs of all attempts at shards of some run tasks; `tell` is called for unreadable lines."""
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


# --- text logs of jobs and engines ----------------------------------------------------------------------


def text_logs(experiment: Experiment, *, engine: bool = False) -> list[Path]:
    """The present text logs, by name.

    Args:
        experiment: the experiment.
        engine: only the logs of the workers' wrappers and engines.
    """
    places = [experiment.workers_dir, *([] if engine else [experiment.jobs_dir])]
    return sorted(
        path
        for folder in places
        for path in (folder.iterdir() if folder.is_dir() else ())
        if path.suffix in (".log", ".out", ".err")
    )


def lines_of(log: Path, count: int | None = None) -> Iterator[str]:
    """The last `count` lines of a text log, and lines written during the read; None: all lines."""
    with log.open("rb") as file:
        file.seek(0 if count is None else last_lines(log, count))
        for line in file:
            yield line.rstrip(b"\n").decode(errors="replace")


def last_line(log: Path) -> str:
    """The last non-blank line of a text log, stripped; empty: no such line."""
    lines = last_bytes(log, 4096).decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def text_tail(log: Path, now: float, count: int | None = None) -> Tail:
    """A text log to follow from its last `count` lines on; None: from its first line."""
    return Tail(log, now, 0 if count is None else last_lines(log, count))
