"""Pure: a resolved plan and what was measured become groups (arrays) and shards. No files, no cluster."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import hpcbench
from hpcbench.errors import Problem, UserError
from hpcbench.schema.plan import Group, Measured, ResolvedPlan, ResolvedRunTask, Shard, WorkPlan

MIN_SHARD, MAX_SHARD = 8, 512
"""A claim costs a few file operations; below eight samples they would show."""

SHARDS_PER_WORKER = 4
"""Enough that the last worker does not keep the others waiting, few enough to stay few files."""


PROMPT = {"strategy", "system", "user", "prompts", "examples", "options"}
"""What of a prompt's document decides what a model is asked."""


def plan_work(resolved: ResolvedPlan, measured: Measured) -> WorkPlan:
    """Cut run tasks into shards and collect those of one resource shape into groups.

    Every sample of every run task is in exactly one shard, and every run task in exactly one group. A point
    of a sweep is one shard, so that one worker and one engine make the whole load.

    Raises:
        UserError: a sweep asks for more than there are samples.
    """
    problems = [one for run_task in resolved.run_tasks for one in _too_few(run_task, measured)]
    if problems:
        raise UserError(*dict.fromkeys(problems))
    plan = resolved.plan
    shards: list[Shard] = []
    shapes: dict[str, list[ResolvedRunTask]] = {}
    for run_task in resolved.run_tasks:
        samples = measured.samples[run_task.name]
        size = plan.shard_size or default_shard_size(samples, plan.parallelism)
        if run_task.sweep is not None:
            size = samples
        shards += [
            Shard(run_task=run_task.name, index=index, start=start, stop=min(start + size, samples))
            for index, start in enumerate(range(0, samples, size))
        ]
        shapes.setdefault(_shape(run_task), []).append(run_task)
    groups = [
        _group(f"g{number}", run_tasks, shards, plan.parallelism)
        for number, run_tasks in enumerate(shapes.values())
    ]
    return WorkPlan(groups=tuple(groups), shards=tuple(shards))


def _too_few(run_task: ResolvedRunTask, measured: Measured) -> Iterator[Problem]:
    """What a point of a sweep lacks."""
    task, samples = run_task.task, measured.samples[run_task.name]
    if run_task.sweep is None or task.load is None:
        return
    asked = task.load.requests or 0
    if asked > samples:
        yield Problem(
            f"sweep of '{run_task.sweep}': {asked} requests a point are more than its {samples} samples",
            remedy=f"`requests: {samples}` at most",
        )
    elif task.rate is None and isinstance(task.concurrency, int) and task.concurrency > samples:
        yield Problem(
            f"sweep of '{run_task.sweep}': {samples} samples cannot be {task.concurrency} requests in flight",
            remedy="smaller `concurrency`, or more samples",
        )


def default_shard_size(samples: int, parallelism: int) -> int:
    """Samples a shard: about four shards a worker, within bounds."""
    wanted = math.ceil(samples / (SHARDS_PER_WORKER * parallelism))
    return max(MIN_SHARD, min(MAX_SHARD, wanted))


def stage_key(
    run_task: ResolvedRunTask,
    measured: Measured,
    image_digest: str | None,
    stage: str,
    packages: Mapping[str, str] | None = None,
) -> str:
    """Hash of all that determines a stage's output: same key, same answers, no need to run again.

    `packages` says what each package of the plan was made of. Left out on purpose: names, descriptions,
    resources, concurrency, time-outs.
    """
    task, model = run_task.task, run_task.model
    determined: dict[str, Any] = {
        "version": hpcbench.__version__,
        "model": measured.model_hashes[model.name],
        "engine": [
            model.engine,
            model.dtype,
            model.context_length,
            model.chat_template,
            dict(model.engine_options),
        ],
        "image": image_digest or model.image,
        "dataset": measured.dataset_hashes[run_task.name],
        "samples": [
            run_task.dataset.iterator,
            run_task.dataset.split,
            run_task.dataset.mapping,
            dict(run_task.dataset.options),
            measured.chosen.get(run_task.name, ()),
        ],
        "prompt": [
            measured.prompt_hashes.get(run_task.name),
            run_task.prompt.model_dump(mode="json", include=PROMPT),
            task.output_schema,
        ],
        "generation": task.generation.model_dump(),
        "packages": dict(packages or {}),
    }
    if stage == "evaluation":
        ml_task = run_task.ml_task
        determined["task"] = [ml_task.plugin, ml_task.parser, ml_task.output_schema]
        determined["metrics"] = [
            [metric.plugin, dict(metric.options)] for metric in run_task.metrics
        ]
        determined["on_failed"] = task.on_failed
    text = json.dumps(determined, sort_keys=True, ensure_ascii=False, default=asdict)
    return hashlib.sha256(text.encode()).hexdigest()


def _shape(run_task: ResolvedRunTask) -> str:
    """What one array has in common: Slurm gives every array task the same."""
    model = run_task.model
    return json.dumps(
        [run_task.environment, model.gpus, run_task.task.resources.model_dump()], sort_keys=True
    )


def _group(
    group_id: str, run_tasks: list[ResolvedRunTask], shards: list[Shard], parallelism: int
) -> Group:
    first = run_tasks[0]
    order = list(dict.fromkeys(run_task.model.name for run_task in run_tasks))
    by_model = sorted(run_tasks, key=lambda run_task: order.index(run_task.model.name))
    names = tuple(run_task.name for run_task in by_model)
    count = sum(shard.run_task in names for shard in shards)
    return Group(
        id=group_id,
        image=first.model.image,
        environment=first.environment,
        gpus=first.model.gpus,
        resources=first.task.resources,
        run_tasks=names,
        workers=max(1, min(count, parallelism)),
        throttle=parallelism,
    )
