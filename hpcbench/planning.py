"""Turns a resolved plan and its measured facts into groups (arrays) and shards. Pure: no files or cluster."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import hpcbench
from hpcbench.errors import Problem, UserError
from hpcbench.installed import NAME, OLD_NAME
from hpcbench.plugins import Environment
from hpcbench.schema.plan import (
    Cut,
    Fewer,
    Group,
    Measured,
    ResolvedPlan,
    ResolvedRunTask,
    WorkPlan,
)
from hpcbench.schema.prompt import Prompt
from hpcbench.schema.shared_types import seconds
from hpcbench.schema.work import JobResources

SECONDS_PER_SAMPLE = 2.0
"""Default seconds of a worker for a sample: a short answer of a model with some seven billion parameters
about one page, asked alone."""

LOAD_SECONDS = 120.0
"""Default seconds of a load."""

MIN_SHARD = 8
"""Smallest shard: below eight samples the file operations of a claim take noticeable time, unless samples are
long."""

LONGEST_SHARD = 1800.0
"""Seconds above which a shard of the smallest size is made still smaller."""

SHARDS_PER_WORKER = 4
"""Enough shards that the other workers do not wait long for the last one."""

FEWEST_PAIRS, MOST_PAIRS = 8, 100
"""Pairs of blocks of two arms: fewer would give no interval of their speeds, more add no information."""

ROUNDS = 4
"""Samples of a shard or a block for each request in flight: with fewer, most time would be ramp and drain."""

WORTH_SPARING = 120.0
"""Saved seconds of loading, over all workers, below which no worker is left out."""

SHORTEST_JOB = 600
"""Shortest job in seconds that `max_gpu_hours` may lead to: a shorter job would load and end."""

ANSWER_KEY_VERSION = 1
"""Version of answer keys. It is raised when the same definitions lead to other requests, or when an engine of
hpcbench's own answers otherwise; another version of hpcbench alone asks nothing again."""

PROMPT = {"strategy", "system", "user", "prompts", "examples", "options"}
"""Fields of a prompt's definition that determine a model's requests."""


def plan_work(
    resolved: ResolvedPlan,
    measured: Measured,
    seconds_per_sample: Mapping[str, float] | None = None,
    load_seconds: Mapping[str, float] | None = None,
    timed: Collection[str] = (),
) -> WorkPlan:
    """Cut run tasks into shards and collect run tasks of one resource shape into groups.

    Every sample of every run task is in exactly one shard, and every run task in exactly one group. A point
    of a sweep is one shard, so that one worker and one engine make the whole load. A run task with `after` is
    in a separate group, whose jobs wait for the earlier groups.

    Args:
        resolved: the plan.
        measured: the measured facts about its files.
        seconds_per_sample: run task → expected seconds of a worker for a sample.
        load_seconds: model → expected seconds until it is ready.
        timed: models with measured times of samples and loads in earlier experiments.

    Raises:
        UserError: a sweep needs more samples than there are; `max_gpu_hours` is too little for one job.
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
            run_task.model.name: float(loads.get(run_task.model.name, LOAD_SECONDS))
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
    """Number of workers of a model, so that loading takes at most half of each worker's time.

    While the times are unknown, this is the number of engines that the samples fill with requests, since an
    engine takes hardly longer for a full batch than for one request.

    Args:
        wanted: maximum number of workers.
        full_engines: engines that the samples fill once.
        work_seconds: seconds of one worker for all answers.
        load_seconds: seconds of one load.
        known: whether both times were measured in earlier experiments.
    """
    most = work_seconds / load_seconds if known and load_seconds > 0 else full_engines
    found = max(1, int(min(wanted, most)))
    return found if (wanted - found) * load_seconds >= WORTH_SPARING else wanted


def shard_size(
    samples: int,
    workers: int,
    seconds_per_sample: float,
    shard_seconds: float,
    in_flight: int = 1,
) -> int:
    """Samples in a shard: up to `shard_seconds` of work, about four shards a worker, but no tiny shards.

    A worker asks one shard at a time, so there are fewer than four if shards would be too short for its
    requests in flight.
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
    """Samples in a block of two arms that alternate.

    In short blocks the drift of a node cancels out. If each arm needs its own load, there is about one load a
    pair of blocks, so a block is long enough that loads take no more time than answers. But there are always
    enough pairs for an interval of ratios, and two pairs for each worker: one in either order.

    Args:
        samples: samples of an arm.
        workers: workers at once.
        seconds_per_sample: seconds of one worker for a sample.
        load_seconds: seconds of one load; 0 if both arms share a load.
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
    """An integer divided in proportion to weights, each share at least 1; all 1 if there are more weights."""
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
    """GPU-hours if every worker of these groups runs to its time limit."""
    return sum(
        group.workers * group.job_gpus * seconds(group.resources.time_limit) / 3600
        for group in groups
    )


def within(groups: Sequence[Group], gpu_hours: float | None) -> tuple[Group, ...]:
    """These groups reduced to a limit of GPU-hours: fewer workers, then shorter jobs.

    Raises:
        UserError: not even one short job of any group fits.
    """
    if gpu_hours is None or worst_gpu_hours(groups) <= gpu_hours:
        return tuple(groups)
    free = [group for group in groups if not group.gpus]
    left, found = gpu_hours, []
    paid = [group for group in groups if group.gpus]
    for place, group in enumerate(paid):
        share = left / (len(paid) - place) * 3600 / group.job_gpus
        limit = seconds(group.resources.time_limit)
        workers = max(1, min(group.workers, int(share / limit)))
        limit = min(limit, int(share / workers))
        if limit < min(SHORTEST_JOB, seconds(group.resources.time_limit)):
            continue
        resources = replace(group.resources, time_limit=clock(limit))
        fits = replace(group, workers=workers, resources=resources)
        found.append(fits)
        left -= worst_gpu_hours([fits])
    if not found and not free:
        raise UserError(
            Problem(
                f"{gpu_hours:.2g} GPU-hours are too few for one job of {SHORTEST_JOB // 60} minutes",
                remedy="raise max_gpu_hours, or use a model with fewer GPUs",
            )
        )
    kept = {group.id: group for group in [*free, *found]}
    return tuple(kept[group.id] for group in groups if group.id in kept)


def clock(duration: float) -> str:
    """A time limit in Slurm's notation, `HH:MM:SS`, or `D-HH:MM:SS` from a hundred hours on."""
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
    workers = workers or plan.parallelism * replicas_of(resolved, run_task)
    per_sample = max(1e-3, float(pace.get(run_task.name, SECONDS_PER_SAMPLE)))
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
    """Models of one shape that need fewer workers than allowed, with their run tasks.

    Arms are left out: they alternate, which needs loads. So are models that run elsewhere, without loads.
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
        most = resolved.plan.parallelism * replicas_of(resolved, own[0])
        wanted = min(most, sum(cut.count for cut in parts))
        found = enough_workers(wanted, full, work, load, known=known)
        if found < wanted:
            fewer = Fewer(
                model=model,
                workers=found,
                instead_of=wanted,
                samples=sum(cut.samples for cut in parts),
                at_once=max(flights),
                work_seconds=work,
                load_seconds=load,
                known=known,
            )
            yield own, fewer


def _blocks(
    resolved: ResolvedPlan, pair: str, cuts: Sequence[Cut], loads: Mapping[str, float]
) -> dict[str, Cut]:
    """The cuts of two arms: the same short shards in both.

    Raises:
        UserError: the arms ask different numbers of samples.
    """
    first, second = cuts
    if first.samples != second.samples:
        what = f"the arms of '{pair}' ask different numbers of samples: {first.samples}, {second.samples}"
        raise UserError(Problem(what, remedy="give both arms the same samples"))
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
    return {cut.run_task: replace(cut, size=size) for cut in cuts}


def _depths(run_tasks: Sequence[ResolvedRunTask]) -> dict[str, int]:
    """Run task → length of the longest chain of run tasks before it. The registry has refused cycles."""
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
    """Whether any of these run tasks is `after` a run task of the group."""
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
    """Groups that may run at once. Together they have no more workers than the plan allows."""
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
        if place >= parallelism:  # more shapes than workers: one waits for another
            after.append(groups[place - parallelism].id)
        group = _group(resolved, f"g{first + place}", own, cuts, throttles[place])
        count = sum(cuts[run_task.name].count for run_task in own)
        if resolved.pairs:
            count //= 4  # a worker with fewer than two pairs cannot alternate
        # A group can take over unused parallelism of another group, if it has array tasks for it.
        most = parallelism if len(shapes) > 1 else throttles[place]
        most *= group.replicas
        models = {run_task.model.name: enough.get(run_task.name, most) for run_task in own}
        most = group.jobs_for(min(most, sum(models.values())))
        needed = max(most, _jobs_needed(resolved, group, work[place] / group.replicas, loads))
        groups.append(
            replace(
                group,
                workers=max(1, min(group.jobs_for(count), needed)),
                after=tuple(after),
            )
        )
    return groups


def _jobs_needed(
    resolved: ResolvedPlan, group: Group, work: float, loads: Mapping[str, float]
) -> int:
    """Number of jobs for some seconds of work under `max_job_minutes`; 0 without this limit."""
    if resolved.plan.max_job_minutes is None:
        return 0
    models = {resolved.run_task(name).model.name for name in group.run_tasks}
    lost = resolved.site.slurm.drain_seconds + max(loads.get(one, LOAD_SECONDS) for one in models)
    useful = max(60.0, seconds(group.resources.time_limit) - lost)
    return min(10_000, math.ceil(work / useful))


def _too_few(run_task: ResolvedRunTask, measured: Measured) -> Iterator[Problem]:
    """Problems of a sweep's point with too few samples."""
    task, samples = run_task.task, measured.samples[run_task.name]
    if run_task.sweep is None or task.load is None:
        return
    asked = task.load.requests or 0
    if asked > samples:
        yield Problem(
            f"sweep of '{run_task.sweep}': {asked} requests per point are more than its {samples} "
            "samples",
            remedy=f"use `requests: {samples}` or fewer",
        )
    elif task.rate is None and (run_task.in_flight or 1) > samples:
        yield Problem(
            f"sweep of '{run_task.sweep}': {samples} samples are too few for {run_task.in_flight} requests "
            "in flight",
            remedy="use a smaller `concurrency`, or more samples",
        )


def stage_key(
    run_task: ResolvedRunTask,
    measured: Measured,
    image_digest: str | None,
    stage: str,
    packages: Mapping[str, str] | None = None,
    models_beside: Sequence[str] = (),
) -> str:
    """Hash of all inputs that determine a stage's output: same key, same answers, no need to run again.

    `packages` identifies the sources of each package of the plan; `models_beside` names the further models of
    an agent. Left out on purpose: names, descriptions, resources, concurrency, time-outs.
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
    if model.parallel is not None:  # sums in another order: other last digits
        determined["parallel"] = model.parallel.model_dump()
    if run_task.ml_task.module is not None:
        determined["module"] = run_task.ml_task.module
    if (agent := run_task.agent) is not None:
        determined["agent"] = agent.model_dump(mode="json")
        if models_beside:
            determined["beside"] = [measured.model_hashes[name] for name in models_beside]
    if task.judge is not None:
        determined["judge"] = [
            task.judge.model_dump(mode="json", exclude={"labels"}),
            run_task.swapped,
        ]
    if stage == "evaluation":
        ml_task = run_task.ml_task
        determined["task"] = [
            ml_task.plugin, ml_task.parser, ml_task.output_schema, ml_task.output_model,
            ml_task.label_field, ml_task.repair, ml_task.reasoning,
        ]  # fmt: skip
        determined["metrics"] = [
            [metric.plugin, dict(metric.options), *([metric.image] if metric.image else [])]
            for metric in run_task.metrics
        ]
        determined["on_failed"] = task.on_failed
        determined["on_invalid"] = task.on_invalid
    text = json.dumps(determined, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def answer_basis(
    run_task: ResolvedRunTask,
    model_hash: str,
    environment: Environment,
    packages: Mapping[str, str] | None = None,
) -> str | None:
    """Hash of all that makes a run task's answers beside the requests; None: not all of it is known.

    Together with a request it makes an `answer_key`. It has the model by the hash of its files, the engine
    with its options, and the image by its digest, or the versions of all packages of a Python environment.
    The request has the rest: generation, prompt, and the images as they are sent. Left out on purpose: the
    version of hpcbench, names, resources, concurrency, time-outs.

    Args:
        run_task: the run task.
        model_hash: hash of its model's files, from `Measured`.
        environment: where its engine runs.
        packages: the plan's packages, with the identity of their sources.
    """
    model = run_task.model
    # Nothing is known of a module's requests; those of an agent follow from what its tools give.
    if run_task.ml_task.module is not None or run_task.agent is not None:
        return None
    made_of: Any = environment.digest
    if environment.kind == "venv":
        # its digest has hpcbench's own version
        versions = {
            name: one for name, one in environment.versions.items() if name not in (NAME, OLD_NAME)
        }
        made_of = versions or None
    if made_of is None or not model_hash.startswith("sha256:"):
        return None
    determined = {
        "version": ANSWER_KEY_VERSION,
        "model": model_hash,
        "engine": [
            model.engine,
            model.dtype,
            model.context_length,
            model.chat_template,
            dict(model.engine_options),
            dict(model.env),
            model.gpus,
            *([model.parallel.model_dump()] if model.parallel else []),
        ],
        "environment": [environment.kind, made_of],
        "packages": {name: (packages or {}).get(name) for name in run_task.engine_packages},
    }
    text = json.dumps(determined, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def is_greedy(generation: Mapping[str, Any]) -> bool:
    """Whether requests with these settings decode greedily: the same request has the same answer."""
    return generation.get("temperature") == 0 and not generation.get("do_sample")


def measures_speed(run_task: ResolvedRunTask) -> bool:
    """Whether a run task is there for its times: a point of a sweep, an arm, a rate, a stated measure."""
    task = run_task.task
    stated = task.rate, task.load, task.measure, run_task.sweep, run_task.pair
    return any(one is not None for one in stated) or bool(task.slo.model_dump(exclude_none=True))


def _without_paths(prompt: Prompt) -> dict[str, Any]:
    """A prompt's content without paths of examples' images: its hash covers these images by their bytes."""
    content: dict[str, Any] = prompt.model_dump(mode="json", include=PROMPT)
    for one in (content, *content["prompts"]):
        for example in one["examples"]:
            example["images"] = []
    return content


def _shape(run_task: ResolvedRunTask, resolved: ResolvedPlan) -> str:
    """The common resource shape of an array: Slurm gives every array task the same resources.

    Two arms that run in images of this machine share an array, even with different images: a worker can
    switch between the images, and only then do both arms run on the same nodes.
    """
    model = run_task.model
    environments = {run_task.environment}
    if run_task.pair is not None:
        arms = [resolved.run_task(name) for name in resolved.pairs[run_task.pair]]
        if not any(_is_managed(arm.model.image) for arm in arms):
            environments |= {arm.environment for arm in arms}
    gpus = [model.gpus, *([more] if (more := resolved.gpus_beside(run_task)) else [])]
    return json.dumps(
        [
            sorted(environments),
            *gpus,
            model.nodes,
            replicas_of(resolved, run_task),
            model.engines_per_gpu,
            run_task.task.resources.model_dump(),
        ],
        sort_keys=True,
    )


def replicas_of(resolved: ResolvedPlan, run_task: ResolvedRunTask) -> int:
    """Workers of an array task of a run task; arms that are compared have a job's node to themselves, and so
    have agents with several models, whose engines share the GPUs of one worker."""
    alone = resolved.pairs or resolved.engines_beside(run_task)
    return 1 if alone else run_task.model.replicas_per_node or 1


def _is_managed(image: str | None) -> bool:
    """Whether a reference names a manager that runs it, `runpod:…`; `docker://…` names an image's place."""
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
    resources, longest = JobResources.of(first.task.resources), resolved.plan.max_job_minutes
    if longest is not None and longest * 60 < seconds(resources.time_limit):
        resources = replace(resources, time_limit=clock(longest * 60))
    return Group(
        id=group_id,
        image=first.model.image,
        environment=first.environment,
        gpus=first.model.gpus + resolved.gpus_beside(first),
        nodes=first.model.nodes,
        replicas=(replicas := replicas_of(resolved, first)),
        sharing=first.model.engines_per_gpu if replicas > 1 else 1,
        resources=resources,
        run_tasks=tuple(run_task.name for run_task in by_model),
        workers=throttle,
        throttle=throttle,
    )
