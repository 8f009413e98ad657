"""Pure: allocations and what workers did with them become hours allocated, used, and wasted by what.

A job's allocation is cut, second by second, into what its worker says it did: nothing is counted twice and
nothing left over, so `allocated = used + wasted` for every run task, model and experiment.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hpcbench.experiment.view.usage import Cause, Hours, Unit, Waited


@dataclass(frozen=True, slots=True)
class Span:
    """What a worker did for a while."""

    begin: float
    """Seconds since the epoch."""
    end: float
    """Seconds since the epoch."""
    what: Literal["used"] | Cause
    """Used, or why not."""
    run_task: str = ""
    """Run task it worked on; empty: none."""
    model: str = ""
    """Model it loaded or used; empty: none."""


@dataclass(frozen=True, slots=True)
class Run:
    """One allocation of one job, and what its worker did with it."""

    run_tasks: Mapping[str, str]
    """Run task → model, of all it could have worked on."""
    begin: float
    """When it was allocated, seconds since the epoch."""
    end: float
    """When it was given back; of one that runs, now."""
    gpus: int
    cpus: int
    started: float | None = None
    """The worker's first word; None: it never said any."""
    submitted: float | None = None
    """When the job was submitted, where that is known."""
    spans: Sequence[Span] = ()
    """What its worker did, in any order."""
    joules: float | None = None
    """Energy, where Slurm knows it."""


def cut(run: Run) -> Iterator[Span]:
    """An allocation cut into spans that follow each other without a gap, from its begin to its end.

    What a worker says of times outside its allocation does not count: clocks of nodes differ.
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

    What belongs to no run task is shared out: loads among the run tasks of the model, all other waste among
    all of the job's, by what each has used of that job; equally where nothing was used.
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
    """Time of which the worker says nothing."""
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
