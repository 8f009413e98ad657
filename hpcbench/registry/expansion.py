"""All run tasks of a plan: cells of matrices, repeats, points of sweeps, and their order."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from hpcbench.errors import Problem, unknown
from hpcbench.registry.source import Loc, Source
from hpcbench.schema.load import Load
from hpcbench.schema.names import id_of
from hpcbench.schema.run_task import Cell, Matrix, RunTask, RunTaskSettings

LONGEST_NAME = 80
"""Longest name of a run task; a longer name from a matrix, repeats or a sweep is cut, with a unique hash."""

OPEN_LOOP = 1024
"""Most requests in flight of a point with a rate: it bounds the client's memory, not the load."""

Where = Callable[[str], Loc]
"""Key of a run task → its place in the plan."""


@dataclass(frozen=True, slots=True)
class WrittenRunTask:
    """A run task in any of the forms that a plan has for it."""

    task: RunTask
    source: Source
    """The file that contains it."""
    where: Where
    asked: tuple[Source, Loc]
    """Where the plan names it."""
    sweep: str | None = None
    """The run task whose sweep contains it."""
    swapped: bool = False
    """Whether a judge of pairs shows the answer of `judge.against` first."""


def cells(
    matrix: Matrix, source: Source, loc: Loc, problems: list[Problem]
) -> Iterator[WrittenRunTask]:
    """All cells of a matrix that are not excluded, then the additional cells that it includes."""
    settings = {name: getattr(matrix, name) for name in RunTaskSettings.model_fields}
    unused = set(range(len(matrix.exclude)))
    prompts = matrix.prompts or (None,)
    choices = product(enumerate(matrix.models), enumerate(matrix.datasets), enumerate(prompts))
    for (m, model), (d, dataset), (p, prompt) in choices:
        out = [n for n, cell in enumerate(matrix.exclude) if _matches(cell, model, dataset, prompt)]
        unused.difference_update(out)
        if out:
            continue
        parts = [model, dataset, *([prompt] if prompt and len(prompts) > 1 else [])]
        chosen = {"model": model, "dataset": dataset, "prompt": prompt}
        task = RunTask.model_construct(**{**settings, "name": _cell_name(parts), **chosen})
        at: dict[str, Loc] = {
            "name": loc,
            "model": (*loc, "models", m),
            "dataset": (*loc, "datasets", d),
            "prompt": (*loc, "prompts", p) if prompt else loc,
        }
        yield WrittenRunTask(task, source, _cell_where(loc, at), (source, at["model"]))
    for number in sorted(unused):
        problems.append(
            source.problem(
                (*loc, "exclude", number), "excludes no cell of this matrix", "check its names"
            )
        )
    for number, task in enumerate(matrix.include):
        at_task: Loc = (*loc, "include", number)
        yield WrittenRunTask(task, source, below(at_task), (source, (*at_task, "name")))


def limited(one: WrittenRunTask, limit: int | None) -> WrittenRunTask:
    """The run task with at most so many samples."""
    own = one.task.limit
    if limit is None or (own is not None and own <= limit):
        return one
    return replace(one, task=one.task.model_copy(update={"limit": limit}))


def expanded(one: WrittenRunTask, load: Load | None = None) -> Iterator[WrittenRunTask]:
    """A run task with all its repeats, at every load of its sweep; `load` replaces its own."""
    for repeat in _repeats(one):
        yield from _points(repeat, load or repeat.task.load)


def after_all(
    one: WrittenRunTask, by_name: Mapping[str, Sequence[WrittenRunTask]]
) -> WrittenRunTask:
    """With the names of every repeat and point in its `after`; names that the plan leaves out are dropped."""
    names = [other.task.name for name in one.task.after for other in by_name.get(name, ())]
    if tuple(names) == one.task.after:
        return one
    return replace(one, task=one.task.model_copy(update={"after": tuple(names)}))


def circles(written: Sequence[WrittenRunTask]) -> Iterator[Problem]:
    """Check that `after` names run tasks of the plan, and that no run task comes after itself."""
    after = {one.task.name: one.task.after for one in written}
    for one in written:
        for index, name in enumerate(one.task.after):
            loc = (*one.where("after"), index)
            if name not in after:
                what = unknown("run task", name, list(after), of="this plan")
                yield one.source.problem(loc, what)
            elif one.task.name in _before(name, after):
                what = f"run task '{one.task.name}' comes after '{name}', which comes after it"
                yield one.source.problem(loc, what, "remove one of them from `after`")


def twice(written: Sequence[WrittenRunTask]) -> Iterator[Problem]:
    """Names that two run tasks have; as ids, because folders have these."""
    seen: set[str] = set()
    for one in written:
        if (own := id_of(one.task.name)) in seen:
            source, loc = one.asked
            yield source.problem(
                loc, f"run task '{one.task.name}' occurs twice", "rename one of them"
            )
        seen.add(own)


# --- small helpers ------------------------------------------------------------------------------------


def _repeats(one: WrittenRunTask) -> Iterator[WrittenRunTask]:
    """A run task asked n times is n run tasks that differ in seed."""
    task = one.task
    if task.repeats == 1:
        yield one
        return
    for number in range(task.repeats):
        generation = task.generation.model_copy(
            update={"seed": (task.generation.seed or 0) + number}
        )
        name = _cut(f"{task.name}-r{number + 1}")
        update = {"name": name, "repeats": 1, "generation": generation}
        yield replace(one, task=task.model_copy(update=update))


def _points(one: WrittenRunTask, load: Load | None) -> Iterator[WrittenRunTask]:
    """A run task at n loads is n run tasks that differ in how requests are sent."""
    task = one.task
    if load is None or not (load.concurrency or load.rate):
        # No points: the checks report it.
        yield replace(one, task=task.model_copy(update={"load": load}))
        return
    limits = [limit for limit in (task.limit, load.requests) if limit is not None]
    shared: dict[str, Any] = {
        "load": load,
        "limit": min(limits, default=None),
        "arrival": load.arrival,
        "warm_up": load.warm_up,
        "slo": load.slo,
    }
    # A rate always contains a point, `-r2.0`: `-r2` is the second repeat.
    points: list[tuple[str, int, float | None]] = [
        *((f"c{count}", count, None) for count in load.concurrency),
        *((f"r{float(rate)}", OPEN_LOOP, rate) for rate in load.rate),
    ]
    for mark, concurrency, rate in points:
        own = {"name": _cut(f"{task.name}-{mark}"), "concurrency": concurrency, "rate": rate}
        yield replace(one, task=task.model_copy(update={**shared, **own}), sweep=task.name)


def _matches(cell: Cell, model: str, dataset: str, prompt: str | None) -> bool:
    given = ((cell.model, model), (cell.dataset, dataset), (cell.prompt, prompt))
    return any(wanted for wanted, _ in given) and all(
        wanted in (None, name) for wanted, name in given
    )


def _cell_name(parts: Sequence[str]) -> str:
    return _cut(re.sub(r"[^A-Za-z0-9._-]", ".", "-".join(parts)))


def _cut(name: str) -> str:
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _before(name: str, after: Mapping[str, Sequence[str]]) -> set[str]:
    """A run task and all run tasks that it comes after, directly or indirectly."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += after.get(one, ())
    return found


def _cell_where(loc: Loc, at: Mapping[str, Loc]) -> Where:
    return lambda key: at.get(key, (*loc, key))


def below(loc: Loc) -> Where:
    """Keys of a run task at a place."""
    return lambda key: (*loc, key)
