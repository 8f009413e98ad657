"""What a further round would hold: work left, in shapes that may do it, away from nodes that cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpcbench import slurm
from hpcbench.errors import UserError
from hpcbench.experiment.claims import ShardState
from hpcbench.experiment.control import control_request
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import job_name, rounds
from hpcbench.experiment.view.workers import worker_runs
from hpcbench.planning import within
from hpcbench.schema.documents import Model
from hpcbench.schema.plan import Group

OUT_OF_MEMORY = frozenset({"gpu_out_of_memory", "out_of_memory", "context_too_long"})
"""Causes that a larger shape may cure."""

MOST_ROUNDS = 200
"""More rounds than any experiment needs: the last net against one that goes on for ever."""


def may_go_on(experiment: Experiment, left: Sequence[ShardState], answered: int) -> bool:
    """Whether another round is worth it, within what the plan allows.

    Work that was never begun, or was handed back in order, always goes on: its jobs' time was up. Lost work
    is submitted again as long as rounds bring answers; after `max_resubmits` of them in a row that did not,
    the experiment ends.
    """
    passes = rounds(experiment)
    if len(passes) >= MOST_ROUNDS:
        return False
    allowed = experiment.resolved.plan.max_resubmits
    ends = [one.answered for one in passes[1:]] + [answered]
    fruitless = 0
    for one, end in zip(reversed(passes), reversed(ends), strict=True):
        if end > one.answered:
            break
        fruitless += 1
    if any(state.state in ("released", "failed", "claimed") for state in left):
        return fruitless < allowed or (allowed > 0 and not fruitless)
    return fruitless <= allowed


def next_groups(
    experiment: Experiment, left: Sequence[ShardState], *, again: bool = False
) -> tuple[Group, ...]:
    """Groups for what is left: smaller than planned, of models that ran out of memory in a larger shape.

    Models that never loaded are left out, and so is what would take more GPU-hours than the plan allows.

    Args:
        experiment: the experiment.
        left: shards that are left.
        again: whether models that never loaded are tried once more.
    """
    resolved = experiment.resolved
    troubles = _Troubles(experiment, again)
    count: dict[str, int] = {}
    for state in left:
        count[state.shard.run_task] = count.get(state.shard.run_task, 0) + 1
    given_up = {name for name in count if troubles.level(resolved.run_task(name).model) is None}
    # An arm without the other is compared with nothing.
    given_up |= {
        name for arms in resolved.pairs.values() if given_up.intersection(arms) for name in arms
    }
    found: list[Group] = []
    for planned in experiment.work.groups:
        by_level: dict[int, list[str]] = {}
        for name in planned.run_tasks:
            model = resolved.run_task(name).model
            level = troubles.level(model)
            if name in count and level is not None and name not in given_up:
                by_level.setdefault(level, []).append(name)
        for level, names in sorted(by_level.items()):
            model = resolved.run_task(names[0]).model
            group = _grown(planned, model, level)
            workers = min(sum(count[name] for name in names), planned.workers)
            found.append(
                group.model_copy(update={"run_tasks": tuple(names), "workers": max(1, workers)})
            )
    return _affordable(experiment, _renamed(found))


def bad_nodes(experiment: Experiment) -> list[str]:
    """Nodes on which nothing loaded; none if they are all the nodes that workers have seen."""
    bad, seen = set[str](), set[str]()
    for run in worker_runs(experiment):
        seen.add(run.node)
        bad |= {event["node"] for event in run.troubles if event["event"] == "bad_node"}
    return sorted(bad) if seen - bad else []


def gpu_hours(experiment: Experiment) -> float:
    """GPU-hours that workers have held so far, as their own files tell."""
    gpus = {group.id: group.gpus for one in rounds(experiment) for group in one.groups}
    return sum(
        (run.last - run.started) * gpus.get(run.group, 0) / 3600
        for run in worker_runs(experiment)
        if run.owner
    )


def _affordable(experiment: Experiment, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    most = experiment.resolved.plan.max_gpu_hours
    if most is None or not groups:
        return groups
    used = gpu_hours(experiment)
    try:
        kept = within(groups, max(0.0, most - used))
    except UserError:
        kept = ()
    given_up = [name for group in groups if group not in kept for name in group.run_tasks]
    given_up = [name for name in given_up if not any(name in one.run_tasks for one in kept)]
    if given_up:
        why = f"max_gpu_hours: {used:.2f} of {most:g} GPU-hours are used, no job fits into the rest"
        control_request(experiment, "stop", given_up, why)
    return kept


def _renamed(groups: Sequence[Group]) -> tuple[Group, ...]:
    """With `after` for those that are still there: a group of a larger shape stands for the planned one."""
    known = {group.id for group in groups}
    return tuple(
        group.model_copy(update={"after": tuple(name for name in group.after if name in known)})
        for group in groups
    )


def _grown(group: Group, model: Model, level: int) -> Group:
    """The group in the model's larger shape of that level; 0: as planned."""
    if not level:
        return group
    larger = model.larger[level - 1]
    changes = {"memory_gb": larger.memory_gb, "gpu_type": larger.gpu_type}
    resources = group.resources.model_copy(
        update={key: value for key, value in changes.items() if value is not None}
    )
    return group.model_copy(
        update={
            "id": f"{group.id}L{level}",
            "gpus": larger.gpus or group.gpus,
            "resources": resources,
            "level": level,
        }
    )


class _Troubles:
    """What of each model's troubles decides on its next try."""

    def __init__(self, experiment: Experiment, again: bool) -> None:
        self._again = again
        self.loaded: set[str] = set()
        self.failed: set[str] = set()
        self.starved: dict[str, int] = {}
        """Model → highest level at which memory ran out."""
        self.exhausted: dict[str, int] = {}
        """Model → highest level at which it was given up for that; else it went on after another load."""
        levels = {group.id: group.level for one in rounds(experiment) for group in one.groups}
        killed = _killed_for_memory(experiment)
        for run in worker_runs(experiment):
            level = levels.get(run.group, 0)
            for event in run.events:
                self._read(event, level)
            if run.owner and run.job in killed:
                last = [one["model"] for one in run.events if one["event"] == "model_loading"]
                self._starve(last[-1:], level, for_good=True)

    def level(self, model: Model) -> int | None:
        """The shape to try next; None: none."""
        if model.name in self.starved:
            level = self.starved[model.name] + 1
            if level <= len(model.larger):
                return level
            over = self.exhausted.get(model.name, -1) >= len(model.larger)
            return None if over and not self._again else len(model.larger)
        hopeless = model.name in self.failed - self.loaded
        return None if hopeless and not self._again else 0

    def _read(self, event: Mapping[str, Any], level: int) -> None:
        kind = event["event"]
        if kind == "model_ready":
            self.loaded.add(event["model"])
        elif kind in ("model_failed", "engine_died"):
            if event.get("cause") in OUT_OF_MEMORY:
                self._starve([event["model"]], level, for_good=kind == "model_failed")
            elif kind == "model_failed":
                self.failed.add(event["model"])

    def _starve(self, models: Sequence[str], level: int, *, for_good: bool) -> None:
        for model in models:
            self.starved[model] = max(level, self.starved.get(model, 0))
            if for_good:
                self.exhausted[model] = max(level, self.exhausted.get(model, 0))


def _killed_for_memory(experiment: Experiment) -> set[str]:
    """Jobs that Slurm ended because they took more memory than they had asked for."""
    if experiment.resolved.executor != "slurm":
        return set()
    names = [
        job_name(experiment, step, one.number) for one in rounds(experiment) for step in one.jobs
    ]
    return {job.id for job in slurm.accounting(names) if job.state == "OUT_OF_MEMORY"}
