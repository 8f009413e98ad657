"""Judges in a plan: each comes after the run tasks that it rates, and asks about the same samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hpcbench.errors import Problem, unknown
from hpcbench.registry.expansion import WrittenRunTask
from hpcbench.schema.run_task import RunTask

SAME_SAMPLES = ("split", "where", "sample", "limit")
"""Settings that a judge takes from the run task that it rates."""


def in_order(written: Sequence[WrittenRunTask]) -> list[WrittenRunTask]:
    """The run tasks, judges after those that they rate, with the path of their labels absolute."""
    names = {one.task.name for one in written}
    return [_in_order(one, names) for one in written]


def _in_order(one: WrittenRunTask, names: set[str]) -> WrittenRunTask:
    judge = one.task.judge
    if judge is None:
        return one
    before = [name for name in judge.judged if name in names]
    update: dict[str, object] = {"after": tuple(dict.fromkeys((*one.task.after, *before)))}
    if judge.labels is not None:
        file = one.source.place((*one.where("judge"), "labels"))[0]
        path = str((file.resolve().parent / judge.labels).resolve())
        update["judge"] = judge.model_copy(update={"labels": path})
    return replace(one, task=one.task.model_copy(update=update))


def problems(
    written: Sequence[WrittenRunTask], chosen: Mapping[str, Sequence[WrittenRunTask]]
) -> Iterator[Problem]:
    """Mistakes of judges.

    Args:
        written: the run tasks of the plan.
        chosen: those that the plan runs, by name, with their repeats and points.
    """
    by_name = {one.task.name: one for one in written}
    for one in written:
        judge = one.task.judge
        if judge is None or one.task.name not in chosen:
            continue
        for key in ("of", "against"):
            name = getattr(judge, key)
            if name is not None:
                yield from _of(one, key, name, by_name, chosen)
        if judge.of == judge.against:
            what = f"judge '{one.task.name}' compares '{judge.of}' with itself"
            yield one.source.problem(
                (*one.where("judge"), "against"), what, "name another run task"
            )
        if judge.against is not None and one.task.repeats % 2:
            yield one.source.problem(
                one.where("repeats" if "repeats" in one.task.model_fields_set else "judge"),
                f"judge '{one.task.name}' of pairs has {one.task.repeats} repeats: it must show each pair "
                "equally often in both orders",
                f"write `repeats: {one.task.repeats + 1}`",
            )
        yield from _settings(one)


def _of(
    one: WrittenRunTask,
    key: str,
    name: str,
    by_name: Mapping[str, WrittenRunTask],
    chosen: Mapping[str, Sequence[WrittenRunTask]],
) -> Iterator[Problem]:
    """Mistakes about one of the run tasks that a judge reads."""
    loc, judge = (*one.where("judge"), key), one.task.name
    if name == judge or name not in by_name:
        others = [other for other in by_name if other != judge]
        yield one.source.problem(loc, unknown("run task", name, others, of="this plan"))
        return
    other = by_name[name]
    if name not in chosen:
        what = f"judge '{judge}' rates '{name}', which `only` leaves out"
        yield one.source.problem(loc, what, f"add '{name}' to `only`")
        return
    if len(chosen[name]) > 1:
        what = f"'{name}' is {len(chosen[name])} run tasks, with its repeats and points"
        yield one.source.problem(loc, what, "name a run task without `repeats` and `load`")
    if other.task.judge is not None:
        what = f"'{name}' is a judge itself"
        yield one.source.problem(loc, what, "name a run task that answers samples")
    if other.task.dataset != one.task.dataset:
        own, wanted = one.task.dataset, other.task.dataset
        what = f"judge '{judge}' has dataset '{own}', but '{name}' answers '{wanted}'"
        yield one.source.problem(one.where("dataset"), what, f"write `dataset: {wanted}`")
    base = by_name.get(one.task.judge.of, other) if one.task.judge is not None else other
    for setting in SAME_SAMPLES:
        wanted = getattr(base.task, setting)
        if key == "of" and setting in one.task.model_fields_set:
            what = (
                f"a judge asks about the samples of '{name}', so it has no `{setting}` of its own"
            )
            yield one.source.problem(one.where(setting), what, "remove it")
        elif key == "against" and getattr(other.task, setting) != wanted:
            what = f"'{name}' and '{base.task.name}' have different `{setting}`, so not the same samples"
            yield one.source.problem(loc, what, "write the same value in both")


def _settings(one: WrittenRunTask) -> Iterator[Problem]:
    """Settings that a judge cannot have."""
    task = one.task
    for key in ("on_failed", "on_invalid"):
        if key in task.model_fields_set and getattr(task, key) == "zero":
            what = "a missing or unreadable verdict says nothing about the answer, so it cannot count as 0"
            yield one.source.problem(one.where(key), what, "remove it: coverage shows such samples")
    for key in ("load", "agent"):
        if getattr(task, key):
            yield one.source.problem(one.where(key), f"a judge cannot have `{key}`", "remove it")


def placed(
    own: Sequence[WrittenRunTask], chosen: Mapping[str, Sequence[WrittenRunTask]]
) -> Iterator[WrittenRunTask]:
    """A run task's repeats; of a judge, with the samples of the run task that it rates, and their order."""
    for number, one in enumerate(own):
        judge = one.task.judge
        if judge is None:
            yield one
            continue
        of: RunTask | None = next((other.task for other in chosen.get(judge.of, ())), None)
        same = {} if of is None else {name: getattr(of, name) for name in SAME_SAMPLES}
        task = one.task.model_copy(update={**same, "on_failed": "exclude"})
        yield replace(one, task=task, swapped=judge.against is not None and number % 2 == 1)
