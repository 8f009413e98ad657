"""Failures by cause: the same failure on forty nodes is one line with a count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.logs import last_line, text_logs
from hpcbench.experiment.view.workers import WorkerEvent, WorkerRun
from hpcbench.status.experiment_status import Failure

if TYPE_CHECKING:
    from hpcbench.experiment.view.metrics_json import Lost

LINE = 300
"""Maximum number of characters of a kept cause."""

_VARYING = re.compile(r"0x[0-9a-fA-F]+|/[\w.+-]+(?:/[\w.+-]+)+|\d+(?:\.\d+)?")
"""Addresses, paths and numbers: the parts that differ between two messages of one cause."""


WHY_ENDED: Mapping[str, str] = {
    "SIGTERM": "a worker got SIGTERM: Slurm preempted, requeued or cancelled its job",
    "SIGUSR2": "a worker's time limit was near: it returned the samples that it had not sent",
    "replaced by a later run of this job": "a worker continued after Slurm had restarted its job",
}
"""Explanations of Slurm's signals: a worker that they end loses no answers, but users may wonder why."""

WHY_ENDED_HERE = {
    **WHY_ENDED,
    "SIGTERM": "a worker got SIGTERM: from another process of this machine",
}
"""The same for workers that Slurm did not start."""

_OWN_SECONDS = 120
"""Longest time from `hpcbench cancel` to the SIGTERM that it causes: Slurm may answer late."""

_SKEW = 5
"""Seconds that the clocks of two nodes may differ."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """A failure or warning that a worker reported."""

    kind: str
    """Kind of event."""
    message: str
    """The cause."""
    time: float
    """Time, seconds since the epoch."""
    node: str
    """The worker's node."""
    log: str
    """A log file with details."""
    run_task: str | None = None
    """Affected run task, if any."""
    model: str | None = None
    """Affected model, if any."""
    alarm: bool = False
    """Whether it is only a warning."""

    @property
    def cause(self) -> str:
        """The part that all complaints of one cause share.

        A gateway's limits are one cause, whichever of them held up a worker last.
        """
        return self.model or "" if self.kind == "limited" else same_cause(self.message)


@dataclass
class _Group:
    last: Complaint
    first_time: float
    count: int
    run_tasks: dict[str, None]
    models: dict[str, None]
    nodes: dict[str, None]


def complaints(run: WorkerRun, executor: str, cancels: Iterable[float] = ()) -> Iterator[Complaint]:
    """Failures and warnings that a run of a worker reported.

    Args:
        run: the worker.
        executor: `slurm` or `local`.
        cancels: times at which users cancelled the whole experiment, seconds since the epoch. A SIGTERM that
            follows one is no warning: the user knows.
    """
    signals = WHY_ENDED if executor == "slurm" else WHY_ENDED_HERE
    for event in run.troubles:
        if event.kind != "draining":
            yield complaint(run, event)
        elif (why := signals.get(event.signal)) and not (
            event.signal == "SIGTERM"
            and any(-_SKEW <= event.time - one <= _OWN_SECONDS for one in cancels)
        ):
            yield Complaint("draining", why, event.time, run.node, run.log, alarm=True)


def complaint(run: WorkerRun, event: WorkerEvent) -> Complaint:
    """The failure or warning that one event of a run reports."""
    return Complaint(
        event.alarm or event.kind,
        event.message or event.kind,
        event.time,
        run.node,
        event.log or run.log,
        event.run_task or None,
        event.model,
        event.kind in ("alarm", "fenced", "limited", "token_failed"),
    )


def same_cause(message: str) -> str:
    """The common part of all messages of one cause."""
    return _VARYING.sub("#", message.strip().partition("\n")[0])[:LINE]


def grouped(complaints: Iterable[Complaint]) -> tuple[Failure, ...]:
    """One failure for each cause; the most frequent first."""
    groups: dict[tuple[str, str], _Group] = {}
    for one in complaints:
        key = (one.kind, one.cause)
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
    """Samples without an answer and samples that a metric failed on, as evaluation counted them.

    One failure where its file cannot be read.
    """
    if not experiment.metrics_file.exists():
        return ()
    # Imported late: its models take 14 ms to define, and a running experiment has no such file.
    from hpcbench.experiment.view.metrics_json import metrics_of

    try:
        metrics = metrics_of(experiment)
    except EnvironmentFault as fault:
        return (Failure(cause=str(fault), kind="answers"),)
    lost = [
        replace(failure, log=str(experiment.shards_dir(name)))
        for name, run_task in metrics.run_tasks.items()
        for failure in unanswered(run_task.errors, name)
    ]
    unscored = [
        Failure(
            cause=f"{fault.metric}: {fault.message}",
            kind="metric",
            count=fault.count,
            run_tasks=(name,),
        )
        for name, run_task in metrics.run_tasks.items()
        for fault in run_task.faults
    ]
    return (*lost, *unscored)


def unanswered(errors: Iterable[Lost], run_task: str) -> Iterator[Failure]:
    """Samples of a run task without an answer, by their causes."""
    for one in errors:
        yield Failure(
            cause=one.cause[:LINE], kind="answers", count=one.count, run_tasks=(run_task,)
        )


ENDED_WELL = "Exiting after successful completion"
"""End of the last line that submitit writes into the log of a job that ended well."""


def last_words(experiment: Experiment) -> Failure:
    """The newest log and its last line, for jobs that are all gone without a reported reason.

    Logs of jobs that ended well do not explain it; the newest of them counts only if there is no other.
    """
    logs = [path for path in text_logs(experiment) if path.parent == experiment.jobs_dir]
    logs.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    if not logs:
        return Failure(cause="all jobs disappeared, and none left a log", kind="lost")
    ends = ((path, last_line(path)) for path in logs[:20])
    newest, last = next(((path, end) for path, end in ends if ENDED_WELL not in end), (logs[0], ""))
    said = f"; last line of the newest log: {last:.200}" if last else ""
    at = newest.stat().st_mtime
    cause = f"all jobs disappeared before the end of the experiment{said}"
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
