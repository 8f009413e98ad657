"""Pure: allocations and their workers' activity become hours allocated, used, and wasted by cause.

A job's allocation is cut into spans of its worker's activity: no second is counted twice and none is
left over, so `allocated = used + wasted` for every run task, model and experiment.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hpcbench.experiment.view.usage import Cause, Hours, Unit, Waited


@dataclass(frozen=True, slots=True)
class Span:
    """One activity of a worker."""

    begin: float
    """Seconds since the epoch."""
    end: float
    """Seconds since the epoch."""
    what: Literal["used"] | Cause
    """Used, or the cause of the waste."""
    run_task: str = ""
    """Run task of the activity; empty: none."""
    model: str = ""
    """Model that was loaded or used; empty: none."""


@dataclass(frozen=True, slots=True)
class Run:
    """One worker's part of the allocation of a job, with its activity."""

    run_tasks: Mapping[str, str]
    """Run task → model, of all run tasks that the worker could have worked on."""
    begin: float
    """Start of the allocation, seconds since the epoch."""
    end: float
    """End of the allocation; of a running job: now."""
    gpus: float
    """GPUs of the part: no whole number where a job's GPUs are no multiple of its workers."""
    cpus: float
    started: float | None = None
    """Time of the worker's first entry; None: it wrote none."""
    submitted: float | None = None
    """When the job was submitted, where known."""
    spans: Sequence[Span] = ()
    """The worker's activity, in any order."""
    joules: float | None = None
    """Energy, where Slurm knows it."""


def cut(run: Run) -> Iterator[Span]:
    """An allocation cut into spans that follow each other without a gap, from its start to its end.

    A worker's times outside its allocation do not count: clocks of nodes differ.
    """
    at = run.begin
    working = [one.end for one in run.spans if one.run_task]
    last = min(max(working), run.end) if working else None
    for span in sorted(run.spans, key=lambda one: (one.begin, one.end)):
        begin, end = max(span.begin, at), min(span.end, run.end)
        if end <= begin:
            continue
        yield from _gap(run, at, begin, last)
        yield Span(begin, end, span.what, span.run_task, span.model)
        at = end
    yield from _gap(run, at, run.end, last)


def hours(runs: Iterable[Run]) -> tuple[Hours, ...]:
    """Hours of each run task.

    Time that belongs to no run task is divided: a load among the model's run tasks, all other waste among
    all run tasks of the job, in proportion to the time each used in that job; equally if none used any.
    """
    found: dict[tuple[str, str, Unit], dict[str, float]] = {}
    for run in runs:
        unit: Unit = "GPU" if run.gpus else "CPU"
        factor = (run.gpus or run.cpus) / 3600
        spans = list(cut(run))
        used = dict.fromkeys(run.run_tasks, 0.0)
        for span in spans:
            if span.what == "used" and span.run_task in used:
                used[span.run_task] += span.end - span.begin
        for span in spans:
            for name, share in _shares(span, run.run_tasks, used).items():
                row = found.setdefault((name, run.run_tasks[name], unit), {})
                for part in ("allocated", span.what):
                    row[part] = row.get(part, 0.0) + (span.end - span.begin) * factor * share
    return tuple(
        Hours.model_validate({"run_task": name, "model": model, "unit": unit, **row})
        for (name, model, unit), row in found.items()
    )


def waited(runs: Iterable[Run]) -> Waited | None:
    """How long jobs waited to start."""
    seconds = [max(0.0, run.begin - run.submitted) for run in runs if run.submitted is not None]
    if not seconds:
        return None
    return Waited(
        first=round(min(seconds), 1),
        median=round(statistics.median(seconds), 1),
        longest=round(max(seconds), 1),
    )


def _gap(run: Run, begin: float, end: float, last: float | None) -> Iterator[Span]:
    """Spans of a time without activity of the worker, with their causes."""
    started = run.end if run.started is None else min(max(run.started, run.begin), run.end)
    edges: list[tuple[float, Cause]] = [(started, "starting")]
    if last is not None:
        edges += [(last, "idle"), (run.end, "after_last_answer")]
    else:
        edges += [(run.end, "idle")]
    at = begin
    for edge, cause in edges:
        stop = min(edge, end)
        if stop > at:
            yield Span(at, stop, cause)
            at = stop


def _shares(
    span: Span, run_tasks: Mapping[str, str], used: Mapping[str, float]
) -> dict[str, float]:
    """Run task → its share of a span."""
    if span.run_task in run_tasks:
        return {span.run_task: 1.0}
    own = [name for name, model in run_tasks.items() if model == span.model] or list(run_tasks)
    whole = sum(used[name] for name in own)
    if not whole:
        return {name: 1 / len(own) for name in own}
    return {name: used[name] / whole for name in own if used[name]}
