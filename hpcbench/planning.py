"""Pure: a resolved plan and what was measured become groups (arrays) and shards. No files, no cluster."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import hpcbench
from hpcbench.errors import Problem, UserError
from hpcbench.schema.documents import Prompt, seconds
from hpcbench.schema.plan import (
    Cut,
    Fewer,
    Group,
    Measured,
    ResolvedPlan,
    ResolvedRunTask,
    WorkPlan,
)

SECONDS_PER_SAMPLE = 2.0
"""What a worker is thought to take for a sample while nothing is known: a short answer of a model of some
seven billion parameters about one page, asked alone."""

LOAD_SECONDS = 120.0
"""What a load is thought to take while nothing is known."""

MIN_SHARD = 8
"""A claim costs a few file operations; below eight samples they would show, unless samples are long."""

LONGEST_SHARD = 1800.0
"""Seconds a shard of the smallest size may take before it is made smaller still."""

SHARDS_PER_WORKER = 4
"""Enough that the last worker does not keep the others waiting."""

FEWEST_PAIRS, MOST_PAIRS = 8, 100
"""Pairs of blocks that arms are to have: fewer would leave no interval of their speeds, more tell no more."""

ROUNDS = 4
"""Samples of a shard or a block for each request in flight: less would be ramp and drain."""

WORTH_SPARING = 120.0
"""Seconds of loading, of all workers together, below which no worker is left out."""

SHORTEST_JOB = 600
"""Seconds below which a job is not cut for the sake of `max_gpu_hours`: it would load and end."""

PROMPT = {"strategy", "system", "user", "prompts", "examples", "options"}
"""What of a prompt's document decides what a model is asked."""


def plan_work(
    resolved: ResolvedPlan,
    measured: Measured,
    seconds_per_sample: Mapping[str, float] | None = None,
    load_seconds: Mapping[str, float] | None = None,
    timed: Collection[str] = (),
) -> WorkPlan:
    """Cut run tasks into shards and collect those of one resource shape into groups.

    Every sample of every run task is in exactly one shard, and every run task in exactly one group. A point
    of a sweep is one shard, so that one worker and one engine make the whole load. What is `after` something
    else stands in a group of its own, whose jobs wait for that.

    Args:
        resolved: the plan.
        measured: what was found of its files.
        seconds_per_sample: run task → what a worker is thought to take for a sample.
        load_seconds: model → what is thought to pass until it is ready.
        timed: models whose times of samples and loads were seen in earlier experiments.

    Raises:
        UserError: a sweep asks for more than there are samples; `max_gpu_hours` is too little for one job.
    """
    problems = [one for run_task in resolved.run_tasks for one in _too_few(run_task, measured)]
    if problems:
        raise UserError(*dict.fromkeys(problems))
    pace, loads = seconds_per_sample or {}, load_seconds or {}
    plan = resolved.plan
    cuts = {
        run_task.name: _cut(resolved, run_task, measured.samples[run_task.name], pace)
        for run_task in resolved.run_tasks
    }
    depths = _depths(resolved.run_tasks)
    shapes: dict[tuple[int, str], list[ResolvedRunTask]] = {}
    for run_task in resolved.run_tasks:
        shape = depths[run_task.name], _shape(run_task, resolved)
        shapes.setdefault(shape, []).append(run_task)
    fewer = [one for own in shapes.values() for one in _fewer(resolved, own, cuts, loads, timed)]
    for tasks, found in fewer:
        for run_task in tasks:
            samples = measured.samples[run_task.name]
            cuts[run_task.name] = _cut(resolved, run_task, samples, pace, found.workers)
    enough = {run_task.name: found.workers for tasks, found in fewer for run_task in tasks}
    for pair, arms in resolved.pairs.items():
        cuts |= _blocks(resolved, pair, [cuts[name] for name in arms], loads)
    groups: list[Group] = []
    for depth in sorted({depth for depth, _ in shapes}):
        same = [own for (level, _), own in shapes.items() if level == depth]
        before = [group for group in groups if _needs(same, group)]
        groups += _level(resolved, same, cuts, loads, enough, len(groups), before)
    return WorkPlan(
        groups=within(groups, plan.max_gpu_hours),
        cuts=tuple(cuts.values()),
        load_seconds={
            run_task.model.name: loads.get(run_task.model.name, LOAD_SECONDS)
            for run_task in resolved.run_tasks
        },
        fewer=tuple(found for _, found in fewer),
    )


def enough_workers(
    wanted: int,
    full_engines: int,
    work_seconds: float,
    load_seconds: float,
    *,
    known: bool,
) -> int:
    """Workers of a model, so that loading takes at most half of the time of each.

    While the times are not known: as many as have an engine full of requests, since an engine takes hardly
    longer for as many as it batches than for one.

    Args:
        wanted: workers that there may be.
        full_engines: engines that the samples fill once.
        work_seconds: what all answers take of one worker.
        load_seconds: what one load takes.
        known: whether both times were seen in earlier experiments.
    """
    most = int(work_seconds / load_seconds) if known and load_seconds > 0 else full_engines
    found = max(1, min(wanted, most))
    return found if (wanted - found) * load_seconds >= WORTH_SPARING else wanted


def shard_size(
    samples: int,
    workers: int,
    seconds_per_sample: float,
    shard_seconds: float,
    in_flight: int = 1,
) -> int:
    """Samples a shard: as long as wanted, but about four shards a worker, and neither tiny nor endless.

    A worker asks one shard at a time, so fewer than four where they would be too short for its requests in
    flight.
    """
    least = min(MIN_SHARD, max(1, int(LONGEST_SHARD / seconds_per_sample)))
    wanted = int(shard_seconds / seconds_per_sample)
    fair = max(
        math.ceil(samples / (SHARDS_PER_WORKER * workers)),
        min(math.ceil(samples / workers), ROUNDS * in_flight),
    )
    return max(least, min(wanted, fair))


def block_size(
    samples: int, workers: int, seconds_per_sample: float, load_seconds: float, in_flight: int = 1
) -> int:
    """Samples in a block of two arms that take turns.

    Short blocks let the drift of a node cancel. Where each arm is a load of its own there is about one load a
    pair of blocks, so a block is long enough that no more time goes into loads than into answers; but there
    are always so many pairs that ratios have an interval, and two for each worker: one in either order.

    Args:
        samples: of an arm.
        workers: at work at once.
        seconds_per_sample: of one worker.
        load_seconds: of one load; 0 where both arms are of one.
        in_flight: requests at once.
    """
    wanted = max(
        MIN_SHARD,
        ROUNDS * in_flight,
        math.ceil(load_seconds / (2 * seconds_per_sample)),
        math.ceil(samples / MOST_PAIRS),
    )
    return max(1, min(wanted, samples // max(FEWEST_PAIRS, 2 * workers)))


def shares(weights: Sequence[float], total: int) -> list[int]:
    """A whole number divided by weights, each at least 1; where there are more weights than that, all 1."""
    if total <= len(weights):
        return [1] * len(weights)
    if not any(weights):
        weights = [1.0] * len(weights)
    spare, whole = total - len(weights), sum(weights)
    exact = [spare * weight / whole for weight in weights]
    found = [1 + int(one) for one in exact]
    by_rest = sorted(range(len(weights)), key=lambda place: int(exact[place]) - exact[place])
    for place in by_rest[: total - sum(found)]:
        found[place] += 1
    return found


def worst_gpu_hours(groups: Iterable[Group]) -> float:
    """GPU-hours if every worker of these groups ran to its time limit."""
    return sum(
        group.workers * group.gpus * seconds(group.resources.time_limit) / 3600 for group in groups
    )


def within(groups: Sequence[Group], gpu_hours: float | None) -> tuple[Group, ...]:
    """As much of these groups as cannot exceed so many GPU-hours: fewer workers, then shorter jobs.

    Raises:
        UserError: not even one short job of any of them fits.
    """
    if gpu_hours is None or worst_gpu_hours(groups) <= gpu_hours:
        return tuple(groups)
    free = [group for group in groups if not group.gpus]
    left, found = gpu_hours, []
    paid = [group for group in groups if group.gpus]
    for place, group in enumerate(paid):
        share = left / (len(paid) - place) * 3600 / group.gpus
        limit = seconds(group.resources.time_limit)
        workers = max(1, min(group.workers, int(share / limit)))
        limit = min(limit, int(share / workers))
        if limit < min(SHORTEST_JOB, seconds(group.resources.time_limit)):
            continue
        resources = group.resources.model_copy(update={"time_limit": clock(limit)})
        fits = group.model_copy(update={"workers": workers, "resources": resources})
        found.append(fits)
        left -= worst_gpu_hours([fits])
    if not found and not free:
        raise UserError(
            Problem(
                f"{gpu_hours:.2g} GPU-hours are too few for one job of {SHORTEST_JOB // 60} minutes",
                remedy="a larger max_gpu_hours, or a model of fewer GPUs",
            )
        )
    kept = {group.id: group for group in [*free, *found]}
    return tuple(kept[group.id] for group in groups if group.id in kept)


def clock(duration: float) -> str:
    """Seconds as Slurm writes a time limit, `HH:MM:SS`, or `D-HH:MM:SS` from a hundred hours on."""
    minutes, secs = divmod(int(duration), 60)
    hours, minutes = divmod(minutes, 60)
    if hours < 100:
        return f"{hours:02d}:{minutes:02d}:{secs:02d}"
    return f"{hours // 24}-{hours % 24:02d}:{minutes:02d}:{secs:02d}"


def _cut(
    resolved: ResolvedPlan,
    run_task: ResolvedRunTask,
    samples: int,
    pace: Mapping[str, float],
    workers: int | None = None,
) -> Cut:
    plan = resolved.plan
    workers = workers or plan.parallelism
    per_sample = max(1e-3, pace.get(run_task.name, SECONDS_PER_SAMPLE))
    size = plan.shard_size or shard_size(
        samples, workers, per_sample, plan.shard_minutes * 60, run_task.in_flight or 1
    )
    if run_task.sweep is not None:
        size = samples
    return Cut(
        run_task=run_task.name,
        samples=samples,
        size=size,
        seconds_per_sample=per_sample,
    )


def _fewer(
    resolved: ResolvedPlan,
    run_tasks: Sequence[ResolvedRunTask],
    cuts: Mapping[str, Cut],
    loads: Mapping[str, float],
    timed: Collection[str],
) -> Iterator[tuple[list[ResolvedRunTask], Fewer]]:
    """Models of one shape that need fewer workers than there may be, with their run tasks.

    Arms are left out: they take turns, which takes loads. So are models elsewhere, which are not loaded.
    """
    if resolved.plan.workers == "all" or resolved.pairs:
        return
    by_model: dict[str, list[ResolvedRunTask]] = {}
    for run_task in run_tasks:
        if run_task.model.source:
            by_model.setdefault(run_task.model.name, []).append(run_task)
    for model, own in by_model.items():
        parts = [cuts[run_task.name] for run_task in own]
        flights = [run_task.in_flight or 1 for run_task in own]
        if resolved.plan.shard_size is not None:  # a worker asks one shard at a time
            flights = [min(count, resolved.plan.shard_size) for count in flights]
        known = model in timed
        work = sum(cut.samples * cut.seconds_per_sample for cut in parts)
        load = loads.get(model, LOAD_SECONDS)
        full = sum(
            math.ceil(cut.samples / count) for cut, count in zip(parts, flights, strict=True)
        )
        wanted = min(resolved.plan.parallelism, sum(cut.count for cut in parts))
        found = enough_workers(wanted, full, work, load, known=known)
        if found < wanted:
            told = Fewer(
                model=model,
                workers=found,
                instead_of=wanted,
                samples=sum(cut.samples for cut in parts),
                at_once=max(flights),
                work_seconds=work,
                load_seconds=load,
                known=known,
            )
            yield own, told


def _blocks(
    resolved: ResolvedPlan, pair: str, cuts: Sequence[Cut], loads: Mapping[str, float]
) -> dict[str, Cut]:
    """The cuts of two arms: the same shards in both, short ones.

    Raises:
        UserError: the arms ask different numbers of samples.
    """
    first, second = cuts
    if first.samples != second.samples:
        what = f"the arms of '{pair}' ask {first.samples} and {second.samples} samples"
        raise UserError(Problem(what, remedy="arms are compared over the same samples"))
    one, other = (resolved.run_task(cut.run_task) for cut in cuts)
    models = {run_task.model.name for run_task in (one, other)}
    load = max(loads.get(name, LOAD_SECONDS) for name in models) if len(models) > 1 else 0.0
    size = resolved.plan.shard_size or block_size(
        first.samples,
        resolved.plan.parallelism,
        (first.seconds_per_sample + second.seconds_per_sample) / 2,
        load,
        max(run_task.in_flight or 1 for run_task in (one, other)),
    )
    return {cut.run_task: cut.model_copy(update={"size": size}) for cut in cuts}


def _depths(run_tasks: Sequence[ResolvedRunTask]) -> dict[str, int]:
    """Run task → how many stand before it, one after the other. The registry has refused circles."""
    own = {run_task.name: run_task for run_task in run_tasks}
    found: dict[str, int] = {}

    def depth(name: str) -> int:
        if name not in found:
            found[name] = 1 + max(map(depth, own[name].task.after), default=-1)
        return found[name]

    for name in own:
        depth(name)
    return found


def _needs(shapes: Sequence[Sequence[ResolvedRunTask]], group: Group) -> bool:
    """Whether any of these run tasks comes after one of the group's."""
    wanted = {name for own in shapes for run_task in own for name in run_task.task.after}
    return bool(wanted.intersection(group.run_tasks))


def _level(
    resolved: ResolvedPlan,
    shapes: Sequence[list[ResolvedRunTask]],
    cuts: Mapping[str, Cut],
    loads: Mapping[str, float],
    enough: Mapping[str, int],
    first: int,
    before: Sequence[Group],
) -> list[Group]:
    """Groups that may be at work at once. Together they have no more workers than the plan allows."""
    parallelism = resolved.plan.parallelism
    work = [
        sum(
            cuts[run_task.name].samples * cuts[run_task.name].seconds_per_sample for run_task in own
        )
        for own in shapes
    ]
    throttles = shares(work, parallelism)
    groups: list[Group] = []
    for place, own in enumerate(shapes):
        after = [group.id for group in before if _needs([own], group)]
        if place >= parallelism:  # more shapes than workers: one stands behind another
            after.append(groups[place - parallelism].id)
        group = _group(resolved, f"g{first + place}", own, cuts, throttles[place])
        count = sum(cuts[run_task.name].count for run_task in own)
        if resolved.pairs:
            count //= 4  # a worker with less than two pairs has nothing to take turns with
        # What one group leaves of the parallelism another takes over, if it has array tasks for that.
        most = parallelism if len(shapes) > 1 else throttles[place]
        models = {run_task.model.name: enough.get(run_task.name, most) for run_task in own}
        most = min(most, sum(models.values()))
        needed = max(most, _jobs_needed(resolved, group, work[place], loads))
        groups.append(
            group.model_copy(
                update={
                    "workers": max(1, min(count, needed)),
                    "after": tuple(after),
                }
            )
        )
    return groups


def _jobs_needed(
    resolved: ResolvedPlan, group: Group, work: float, loads: Mapping[str, float]
) -> int:
    """Jobs that so many seconds of work take, where jobs are to be short."""
    if resolved.plan.max_job_minutes is None:
        return 0
    models = {resolved.run_task(name).model.name for name in group.run_tasks}
    lost = resolved.site.slurm.drain_seconds + max(loads.get(one, LOAD_SECONDS) for one in models)
    useful = max(60.0, seconds(group.resources.time_limit) - lost)
    return min(10_000, math.ceil(work / useful))


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
    elif task.rate is None and (run_task.in_flight or 1) > samples:
        yield Problem(
            f"sweep of '{run_task.sweep}': {samples} samples cannot be {run_task.in_flight} requests in "
            "flight",
            remedy="smaller `concurrency`, or more samples",
        )


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
            run_task.dataset.mapping.model_dump(),
            dict(run_task.dataset.options),
            measured.chosen.get(run_task.name, ()),
        ],
        "prompt": [
            measured.prompt_hashes.get(run_task.name),
            _without_paths(run_task.prompt),
            task.output_schema,
        ],
        "generation": task.generation.model_dump(),
        "packages": dict(packages or {}),
    }
    if stage == "evaluation":
        ml_task = run_task.ml_task
        determined["task"] = [
            ml_task.plugin, ml_task.parser, ml_task.output_schema, ml_task.output_model,
            ml_task.label_field, ml_task.repair, ml_task.reasoning,
        ]  # fmt: skip
        determined["metrics"] = [
            [metric.plugin, dict(metric.options)] for metric in run_task.metrics
        ]
        determined["on_failed"] = task.on_failed
        determined["on_invalid"] = task.on_invalid
    text = json.dumps(determined, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_paths(prompt: Prompt) -> dict[str, Any]:
    """What a prompt says; its hash knows the images of examples by their bytes, wherever they lie."""
    told: dict[str, Any] = prompt.model_dump(mode="json", include=PROMPT)
    for one in (told, *told["prompts"]):
        for example in one["examples"]:
            example["images"] = []
    return told


def _shape(run_task: ResolvedRunTask, resolved: ResolvedPlan) -> str:
    """What one array has in common: Slurm gives every array task the same.

    Two arms that run in images of this machine are of one array, whatever images: a worker can change from
    one to the other, and only so do both run on the same nodes.
    """
    model = run_task.model
    environments = {run_task.environment}
    if run_task.pair is not None:
        arms = [resolved.run_task(name) for name in resolved.pairs[run_task.pair]]
        if not any(_is_managed(arm.model.image) for arm in arms):
            environments |= {arm.environment for arm in arms}
    return json.dumps(
        [sorted(environments), model.gpus, run_task.task.resources.model_dump()], sort_keys=True
    )


def _is_managed(image: str | None) -> bool:
    """Whether a reference names what is to run it, `runpod:…`; `docker://…` says where an image lies."""
    _, colon, rest = (image or "").partition(":")
    return bool(colon) and not rest.startswith("//")


def _group(
    resolved: ResolvedPlan,
    group_id: str,
    run_tasks: Sequence[ResolvedRunTask],
    cuts: Mapping[str, Cut],
    throttle: int,
) -> Group:
    first = run_tasks[0]
    order = list(dict.fromkeys(run_task.model.name for run_task in run_tasks))
    by_model = sorted(
        run_tasks,
        key=lambda run_task: (-run_task.task.priority, order.index(run_task.model.name)),
    )
    resources, longest = first.task.resources, resolved.plan.max_job_minutes
    if longest is not None and longest * 60 < seconds(resources.time_limit):
        resources = resources.model_copy(update={"time_limit": clock(longest * 60)})
    return Group(
        id=group_id,
        image=first.model.image,
        environment=first.environment,
        gpus=first.model.gpus,
        resources=resources,
        run_tasks=tuple(run_task.name for run_task in by_model),
        workers=throttle,
        throttle=throttle,
    )
