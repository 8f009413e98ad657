"""All data of a run task's page."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hpcbench.experiment.event_log import LAST_WORDS
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.outcome import outcome
from hpcbench.experiment.reused import reused_of
from hpcbench.experiment.view.metrics_json import Scores
from hpcbench.experiment.view.performance_json import Memory, Speed
from hpcbench.experiment.view.usage import Usage
from hpcbench.portal import figures
from hpcbench.portal.advice import Took, advice
from hpcbench.portal.commands_to_copy import commands, without_secrets
from hpcbench.portal.context import is_here
from hpcbench.portal.json_safe import sound
from hpcbench.portal.lru import LruCache, stamp_of
from hpcbench.portal.models.experiments import RunTaskRow
from hpcbench.portal.models.run_tasks import RunTaskDetail, TakenAnswers
from hpcbench.portal.resource_series import card_gb
from hpcbench.portal.results_cache import PageExperiment, Results
from hpcbench.portal.timeline import timeline, troubles
from hpcbench.portal.worker_series import Worker, Workers, groups_of
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.shared_types import seconds

GIB = 2**30

RESERVES = frozenset({"vllm", "sglang"})
"""Engines that reserve most of a card when they start: their memory does not show what they need."""


_kept_definitions: LruCache[dict[str, Any]] = LruCache(128)
"""Definitions of run tasks, without secrets."""


def describe(
    experiment: PageExperiment, row: RunTaskRow, results: Results, workers: Workers
) -> RunTaskDetail:
    """The page of a run task.

    Raises:
        UserError: the plan has no run task of that name.
    """
    run_task = experiment.run_task(row.name)
    scores, speed = results.of_run_task(experiment, row.name)
    scores_json = scores.to_json() if scores is not None else {}
    usage = results.usage(experiment)
    own, _ = workers.look(groups_of(experiment, row.name), monitors=True)
    runs = [one.run for one in own]
    ended = outcome(experiment) is not None
    model = run_task.model.name
    took = _took(experiment, run_task, own, speed or Speed(), usage, ended=ended)
    return RunTaskDetail(
        row=row,
        engine=run_task.model.engine,
        definitions=_kept_definitions.of(
            (experiment.path, row.name),
            stamp_of(experiment.resolved_file),
            lambda: _definitions(run_task),
        ),
        timeline=timeline(experiment, row.name, model, own, ended=ended),
        metrics=tuple(
            {"metric": name, "unit": _unit(scores, name), **(entry or {"value": None})}
            for name, entry in scores_json.get("metrics", {}).items()
        ),
        groups=tuple(scores_json.get("groups", ())),
        performance=speed.to_json() if speed is not None else None,
        outcomes=scores.outcomes if scores is not None else {},
        invalid_reasons=tuple(scores_json.get("invalid_reasons", ())),
        wrong=scores.wrong if scores is not None else None,
        mistakes=(scores.mistakes if scores is not None else None) or {},
        unnamed=scores.unnamed if scores is not None else 0,
        failures=troubles(own, row.name, model, scores.errors if scores is not None else ()),
        taken=tuple(_taken(experiment, row.name)),
        advice=advice(took),
        commands=commands(experiment, run_task, runs),
        figures=figures.names(experiment, results, row.name),
    )


def _taken(experiment: Experiment, run_task: str) -> Iterator[TakenAnswers]:
    """Answers of earlier experiments, the most first."""
    reused = reused_of(experiment)
    counts = reused.run_tasks.get(run_task, {}) if reused is not None else {}
    for name, count in sorted(counts.items(), key=lambda one: (-one[1], one[0])):
        here = is_here(experiment.path.parent, name)
        yield TakenAnswers(experiment=sound(name), answers=count, here=here)


def _definitions(run_task: ResolvedRunTask) -> dict[str, Any]:
    data = run_task.model_dump(mode="json")
    parts = {
        "model": data["model"], "dataset": data["dataset"], "prompt": data["prompt"],
        "ml_task": data["ml_task"], "resources": data["task"]["resources"], "task": data["task"],
    }  # fmt: skip
    found = without_secrets(parts)
    assert isinstance(found, dict)
    return found


def _unit(scores: Scores | None, metric: str) -> str:
    """Unit of a resource metric; empty: a metric of answers."""
    measured = scores.measured.get(metric) if scores is not None else None
    return measured.unit if measured is not None else ""


def _took(
    experiment: Experiment,
    run_task: ResolvedRunTask,
    workers: Sequence[Worker],
    speed: Speed,
    usage: Usage | None,
    *,
    ended: bool,
) -> Took:
    """Resources that its workers were given and used, where known."""
    groups = {one.id: one for one in experiment.work.groups}
    group = next((one for one in groups.values() if run_task.name in one.run_tasks), None)
    same = [one for one in workers if group is not None and one.run.group == group.id]
    resources = group.resources if group is not None else run_task.task.resources
    cpus = [one.series["cpu", ""].points for one in same if ("cpu", "") in one.series]
    lives = [one.run.last - one.run.started for one in same if one.run.over]
    hours = (
        next((one for one in usage.hours if one.run_task == run_task.name), None) if usage else None
    )
    shard_seconds, shard_samples, shards = _shards(experiment, run_task.name, same)
    return Took(
        memory_asked_gb=resources.memory_gb,
        memory_peak_gb=_most(
            one.series["host_memory", ""].points.peak
            for one in same
            if ("host_memory", "") in one.series
        ),
        gpus=run_task.model.gpus,
        card_gb=_most(card_gb(one.gpu_name) for one in same),
        needed_gb=_needed(speed.memory or Memory(), run_task.model.engine),
        gpu_use=usage.gpu_utilisation.get(run_task.name) if usage else None,
        client_bound=speed.client is not None and speed.client.client_bound,
        concurrency=run_task.in_flight,
        time_limit=float(seconds(resources.time_limit)),
        longest=max(lives, default=None) if ended else None,
        cpus_asked=resources.cpus,
        cpus_peak=_most(one.peak for one in cpus),
        cpus_mean=_most(one.mean for one in cpus),
        shard_seconds=shard_seconds,
        shard_samples=shard_samples,
        shards=shards,
        held=hours.allocated * 3600 if hours else None,
        loading=hours.loading * 3600 if hours else None,
        workers=sum(one.worked_on(run_task.name) for one in same),
        requests=speed.requests,
        tries=speed.tries,
    )


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _needed(memory: Memory, engine: str) -> float | None:
    """GPU memory that was needed, GiB; None: unknown."""
    known = memory.effective
    if known is None and engine not in RESERVES:
        known = memory.gpu_peak
    return None if known is None else known / GIB


def _shards(
    experiment: Experiment, run_task: str, workers: Sequence[Worker]
) -> tuple[float | None, int | None, int]:
    """Median time of its shards in seconds, samples of one shard, and number of timed shards."""
    took = [seconds for worker in workers for seconds in _times(worker, run_task)]
    cut = experiment.work.cut(run_task)
    return (statistics.median(took) if took else None), cut.size if cut else None, len(took)


_LETS_GO = ("shard_claimed", "shard_done", "shard_failed", "model_loading")
"""Kinds of events that end a worker's work on its shard."""


def _times(worker: Worker, run_task: str) -> Iterator[float]:
    """Seconds of a worker for each shard of a run task until its next shard, or its end."""
    claimed_at: float | None = None
    for event in worker.events:
        if event.kind in (*LAST_WORDS, *_LETS_GO):
            if claimed_at is not None and event.kind != "failed":
                yield event.time - claimed_at
            own = event.kind == "shard_claimed" and event.run_task == run_task
            claimed_at = event.time if own else None
