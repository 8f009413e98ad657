"""What went wrong, by cause: the same trouble on forty nodes is one line with a count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.log import time_of
from hpcbench.experiment.results import metrics_of
from hpcbench.experiment.view.workers import WorkerRun, run_task_of
from hpcbench.status.models import Failure

LINE = 300
"""Characters of a cause that are kept."""

_VARYING = re.compile(r"0x[0-9a-fA-F]+|/[\w.+-]+(?:/[\w.+-]+)+|\d+(?:\.\d+)?")
"""Addresses, paths and numbers: what differs between two tellings of one cause."""


TOLD_TO_END: Mapping[str, str] = {
    "SIGTERM": "a worker was told to end at once: preempted, requeued or cancelled in Slurm",
    "SIGUSR2": "a worker's time limit was near: it handed back what it had not asked",
    "replaced by a later run of this job": "a worker outlived its job, which Slurm had started again",
}
"""What Slurm's signals mean; a worker that ends for them loses nothing, but somebody may wonder why."""

TOLD_TO_END_HERE = {
    **TOLD_TO_END,
    "SIGTERM": "a worker was told to end at once: by `hpcbench cancel`, or by a signal on this machine",
}
"""The same of workers that no Slurm has started."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """Something a worker said went wrong."""

    kind: str
    """Kind of event."""
    message: str
    """The cause."""
    time: float
    """When, seconds since the epoch."""
    node: str
    """Where."""
    log: str
    """A file with more."""
    run_task: str | None = None
    """Run task it hit, if one."""
    model: str | None = None
    """Model it hit, if one."""
    alarm: bool = False
    """Whether it is but a warning of a monitor."""


@dataclass
class _Group:
    last: Complaint
    first_time: float
    count: int
    run_tasks: dict[str, None]
    models: dict[str, None]
    nodes: dict[str, None]


def complaints(run: WorkerRun, executor: str) -> Iterator[Complaint]:
    """What a run of a worker said went wrong."""
    signals = TOLD_TO_END if executor == "slurm" else TOLD_TO_END_HERE
    for event in run.troubles:
        if event["event"] != "draining":
            yield _complaint(run, event)
        elif why := signals.get(str(event.get("signal"))):
            yield Complaint("draining", why, time_of(event), run.node, run.log, alarm=True)


def _complaint(run: WorkerRun, event: Mapping[str, Any]) -> Complaint:
    kind = str(event["event"])
    alarm = kind in ("alarm", "fenced")
    return Complaint(
        str(event.get("kind", kind)) if alarm else kind,
        str(event.get("message", kind)),
        time_of(event),
        run.node,
        event.get("log") or run.log,
        run_task_of(event) or event.get("run_task"),
        event.get("model"),
        alarm,
    )


def same_cause(message: str) -> str:
    """What two tellings of one cause have in common."""
    return _VARYING.sub("#", message.strip().partition("\n")[0])[:LINE]


def grouped(complaints: Iterable[Complaint]) -> tuple[Failure, ...]:
    """One failure a cause; the most frequent first."""
    groups: dict[tuple[str, str], _Group] = {}
    for one in complaints:
        key = (one.kind, same_cause(one.message))
        group = groups.setdefault(key, _Group(one, one.time, 0, {}, {}, {}))
        group.count += 1
        group.first_time = min(group.first_time, one.time)
        if one.time >= group.last.time:
            group.last = one
        for names, name in (
            (group.run_tasks, one.run_task),
            (group.models, one.model),
            (group.nodes, one.node),
        ):
            if name:
                names[name] = None
    ordered = sorted(groups.values(), key=lambda group: (-group.count, group.first_time))
    return tuple(map(_failure, ordered))


def bad_answers(experiment: Experiment) -> tuple[Failure, ...]:
    """Samples without an answer, as evaluation counted them; or that what it wrote cannot be read."""
    if not experiment.metrics_file.exists():
        return ()
    try:
        metrics = metrics_of(experiment)
    except EnvironmentFault as fault:
        return (Failure(cause=str(fault), kind="answers"),)
    return tuple(
        Failure(
            cause=f"{error['outcome']}: {error['message']}",
            kind="answers",
            count=error["count"],
            run_tasks=(name,),
            log=str(experiment.shards_dir(name)),
        )
        for name, run_task in metrics["run_tasks"].items()
        for error in run_task["errors"]
    )


def last_words(experiment: Experiment) -> Failure:
    """Where to look when all jobs are gone and none of them said why."""
    logs = [
        path for path in experiment.jobs_dir.glob("*") if path.suffix in (".log", ".out", ".err")
    ]
    newest = max(logs, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        return Failure(cause="all jobs are gone and none left a log", kind="lost")
    with newest.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - 4096))
        lines = file.read().decode(errors="replace").strip().splitlines()
    said = f"; the last one said: {lines[-1].strip():.200}" if lines else ""
    at = newest.stat().st_mtime
    cause = f"all jobs are gone before the end{said}"
    return Failure(cause=cause, kind="lost", first=at, last=at, log=str(newest))


def _failure(group: _Group) -> Failure:
    return Failure(
        cause=group.last.message.strip()[:LINE],
        kind=group.last.kind,
        count=group.count,
        run_tasks=tuple(group.run_tasks),
        models=tuple(group.models),
        nodes=tuple(group.nodes),
        first=group.first_time or None,
        last=group.last.time or None,
        log=group.last.log,
    )
