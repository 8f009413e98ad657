"""Contents of the next round: the work left, in shapes that may fit it, without nodes that failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpcbench import slurm
from hpcbench.errors import UserError
from hpcbench.experiment.budget import caps_of, ends, settle, why_over
from hpcbench.experiment.claims import ShardState
from hpcbench.experiment.control import control_request
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import job_name, rounds
from hpcbench.experiment.view.workers import WorkerEvent, worker_runs
from hpcbench.planning import within
from hpcbench.schema.model import Model
from hpcbench.schema.plan import Group
from hpcbench.schema.spending import BudgetCaps

OUT_OF_MEMORY = frozenset({"gpu_out_of_memory", "out_of_memory", "context_too_long"})
"""Causes that a larger shape may remove."""

MOST_ROUNDS = 200
"""More rounds than any experiment needs: the last guard against an endless experiment."""


def may_go_on(experiment: Experiment, left: Sequence[ShardState], answered: int) -> bool:
    """Whether another round makes sense, within the plan's limits.

    Work that no job started, or that a job released in order, always continues: the jobs' time was up. Lost
    work is submitted again as long as rounds bring answers; after `max_resubmits` rounds in a row without
    answers the experiment ends.
    """
    known = rounds(experiment)
    if len(known) >= MOST_ROUNDS:
        return False
    allowed = experiment.resolved.plan.max_resubmits
    ends = [one.answered for one in known[1:]] + [answered]
    fruitless = 0
    for one, end in zip(reversed(known), reversed(ends), strict=True):
        if end > one.answered:
            break
        fruitless += 1
    if any(state.state in ("released", "failed", "claimed") for state in left):
        return fruitless < allowed
    return fruitless <= allowed


def stop_over_budget(experiment: Experiment, left: Sequence[ShardState]) -> bool:
    """End the run tasks that the budget does not suffice for, if it is used up; no worker is alive.

    Returns:
        Whether it ended any.
    """
    caps = caps_of(experiment)
    if caps == BudgetCaps():
        return False
    ledger = settle(experiment)
    if not ledger.over(caps):
        return False
    tasks = {name: experiment.resolved.run_task(name) for name in _names(left)}
    ended = {name for name, one in tasks.items() if ends(caps, experiment, one)}
    ended |= _without_comparison(experiment, ended) & set(tasks)
    if ended:
        why = why_over(caps, ledger.taken(), experiment.planned.currency)
        control_request(experiment, "stop", sorted(ended), f"{why}; {_raise(experiment.id)}")
    return bool(ended)


def _without_comparison(experiment: Experiment, ended: set[str]) -> set[str]:
    """Arms that lose their other arm where these run tasks end."""
    pairs = experiment.resolved.pairs.values()
    return {name for arms in pairs if ended.intersection(arms) for name in arms}


def _raise(experiment: str) -> str:
    return f"`hpcbench resume {experiment}` with a larger --max-requests, --max-tokens or --max-cost goes on"


def _names(states: Sequence[ShardState]) -> list[str]:
    return list(dict.fromkeys(one.shard.run_task for one in states))


def next_groups(
    experiment: Experiment, left: Sequence[ShardState], *, again: bool = False
) -> tuple[Group, ...]:
    """Groups for the work left; models that ran out of memory get a larger shape than planned.

    Models that never loaded are left out, and so are groups that would exceed the plan's GPU-hours.

    Args:
        experiment: the experiment.
        left: shards that are left.
        again: whether to try models that never loaded once more.
    """
    resolved = experiment.resolved
    troubles = _Troubles(experiment, again)
    count: dict[str, int] = {}
    for state in left:
        count[state.shard.run_task] = count.get(state.shard.run_task, 0) + 1
    given_up = {name for name in count if troubles.level(resolved.run_task(name).model) is None}
    given_up |= _without_comparison(experiment, given_up)
    found: list[Group] = []
    shapes: dict[str, tuple[str, ...]] = {}
    """Id of a planned group → ids of its groups in this round, one a shape; `after` names planned ones."""
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
            workers = min(group.jobs_for(sum(count[name] for name in names)), planned.workers)
            shapes[planned.id] = (*shapes.get(planned.id, ()), group.id)
            found.append(replace(group, run_tasks=tuple(names), workers=max(1, workers)))
    groups = (
        replace(group, after=tuple(one for name in group.after for one in shapes.get(name, ())))
        for group in found
    )
    return _affordable(experiment, tuple(groups))


def bad_nodes(experiment: Experiment) -> list[str]:
    """Nodes on which no model loaded; empty if all nodes with workers are such nodes."""
    bad, seen = set[str](), set[str]()
    for run in worker_runs(experiment):
        seen.add(run.node)
        bad |= {one.node for one in run.troubles if one.kind == "bad_node"}
    return sorted(bad) if seen - bad else []


def gpu_hours(experiment: Experiment) -> float:
    """GPU-hours that workers have held so far, by their own files."""
    gpus = {group.id: group.worker_gpus for one in rounds(experiment) for group in one.groups}
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
        why = (
            f"max_gpu_hours: {used:.2f} of {most:g} GPU-hours are used, no job fits into the rest; "
            "submit the plan again with a larger max_gpu_hours"
        )
        control_request(experiment, "stop", given_up, why)
    return kept


def _grown(group: Group, model: Model, level: int) -> Group:
    """The group in the model's larger shape of that level; level 0: as planned."""
    if not level:
        return group
    larger = model.larger[level - 1]
    before = group.resources
    resources = replace(
        before,
        memory_gb=before.memory_gb if larger.memory_gb is None else larger.memory_gb,
        gpu_type=larger.gpu_type or before.gpu_type,
    )
    # An agent's further models keep their GPUs.
    gpus = group.gpus + (larger.gpus - model.gpus if larger.gpus else 0)
    # The job as a whole does not grow where it has several workers: it had room for no more.
    fitting = [group.replicas * group.gpus // gpus] if gpus else []
    fitting += [int(group.job_resources.memory_gb / resources.memory_gb)]
    return replace(
        group,
        id=f"{group.id}L{level}",
        gpus=gpus,
        replicas=max(1, min(group.replicas, *fitting)),
        resources=resources,
        level=level,
    )


class _Troubles:
    """Failures of each model that decide its next shape."""

    def __init__(self, experiment: Experiment, again: bool) -> None:
        self._again = again
        self.loaded: set[str] = set()
        self.failed: set[str] = set()
        self.starved: dict[str, int] = {}
        """Model → highest level at which memory ran out."""
        self.exhausted: dict[str, int] = {}
        """Model → highest level at which it was given up for lack of memory; else it was loaded again."""
        levels = {group.id: group.level for one in rounds(experiment) for group in one.groups}
        killed = _killed_for_memory(experiment)
        for run in worker_runs(experiment):
            level = levels.get(run.group, 0)
            events = [WorkerEvent.of(event) for event in run.events]
            for event in events:
                self._read(event, level)
            if run.owner and run.job in killed:
                last = [one.model or "" for one in events if one.kind == "model_loading"]
                self._starve(last[-1:], level, for_good=True)

    def level(self, model: Model) -> int | None:
        """The level of the shape to try next; None: none is left."""
        if model.name in self.starved:
            largest = len(model.larger)
            over = self.exhausted.get(model.name, -1) >= largest
            return None if over and not self._again else min(self.starved[model.name] + 1, largest)
        hopeless = model.name in self.failed - self.loaded
        return None if hopeless and not self._again else 0

    def _read(self, event: WorkerEvent, level: int) -> None:
        kind, model = event.kind, event.model or ""
        if kind == "model_ready":
            self.loaded.add(model)
        elif kind in ("model_failed", "engine_died"):
            if event.cause in OUT_OF_MEMORY:
                self._starve([model], level, for_good=kind == "model_failed")
            elif kind == "model_failed":
                self.failed.add(model)

    def _starve(self, models: Sequence[str], level: int, *, for_good: bool) -> None:
        for model in models:
            self.starved[model] = max(level, self.starved.get(model, 0))
            if for_good:
                self.exhausted[model] = max(level, self.exhausted.get(model, 0))


def _killed_for_memory(experiment: Experiment) -> set[str]:
    """Jobs that Slurm ended because they exceeded their requested memory."""
    if experiment.resolved.executor != "slurm":
        return set()
    names = [
        job_name(experiment, step, one.number) for one in rounds(experiment) for step in one.jobs
    ]
    return {job.id for job in slurm.accounting(names) if job.state == "OUT_OF_MEMORY"}
