"""Estimate of a plan before its submission: GPU-hours, time, disk, files, jobs, and partitions.

The arithmetic is pure. Only `queues` asks Slurm, by `sbatch --test-only`, which submits no job.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from hpcbench import slurm
from hpcbench.errors import HpcbenchError
from hpcbench.planning import plan_work, worst_gpu_hours
from hpcbench.resume import last_job
from hpcbench.schema.model import Model
from hpcbench.schema.plan import Fewer, Group, Measured, ResolvedPlan, WorkPlan
from hpcbench.schema.shared_types import seconds
from hpcbench.schema.site import Partition
from hpcbench.schema.work import Cut, JobResources
from hpcbench.submit.plan_facts import Facts
from hpcbench.submit.reuse import groups_with_work
from hpcbench.submit.sbatch import clean_environment, sbatch_text
from hpcbench.subprocesses import run
from hpcbench.usage.durations import Rate, Rates

ANSWER_BYTES = 4000.0
"""Default for an answer on disk: some hundred tokens, each with the time of its chunk."""

SHORTER = (30, 60, 120, 240)
"""Values of `max_job_minutes` to try."""

FILES_OF_A_JOB = 8
"""Events, log and readings of its worker; files of submitit and Slurm."""

FILES_OF_AN_EXPERIMENT = 15
"""Plan, manifest, scores, report and similar files."""

_ALL: Mapping[str, RemainingSamples] = MappingProxyType({})

ASK_SECONDS = 15
"""Longest wait for an answer of `sbatch --test-only`."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its interval."""

    value: float
    low: float
    """The same as `value` where nothing was measured."""
    high: float
    """The same as `value` where nothing was measured."""

    def plus(self, other: Interval) -> Interval:
        """The sum; the ends are added as if both figures were low, or both high, together."""
        return Interval(self.value + other.value, self.low + other.low, self.high + other.high)


@dataclass(frozen=True, slots=True)
class Queue:
    """Whether a group's jobs fit into a partition, and when the first could start."""

    partition: str
    misfits: tuple[str, ...] = ()
    """Why the jobs do not fit; empty: they fit, as far as the profile knows the partition."""
    start: float | None = None
    """Slurm's expected start of the first job, seconds since the epoch; None: not asked, or no answer."""
    refused: str = ""
    """Why Slurm would refuse the job."""


@dataclass(frozen=True, slots=True)
class GroupEstimate:
    """One array of equal workers."""

    id: str
    models: tuple[str, ...]
    jobs: int
    at_once: int
    gpus: int
    """GPUs of an engine on each of its nodes."""
    nodes: int
    """Nodes of a job."""
    replicas: int
    """Engines of a job."""
    time_limit: str
    work_seconds: Interval
    """Seconds of all its jobs together, without loads."""
    loads: int
    """Approximate number of loads of a model."""
    load_seconds: Interval
    """Seconds of all its loads together."""
    wall_seconds: Interval
    """From its first start to its end, without the wait in a queue."""
    more_rounds: int
    """Rounds of jobs that its work needs after the first, with the present time limit."""


@dataclass(frozen=True, slots=True)
class Shorter:
    """The effect of a value of `max_job_minutes`."""

    minutes: int
    jobs: int
    gpu_hours: float
    wall_seconds: float
    too_short: tuple[str, ...] = ()
    """Models whose load takes nearly all the time of such a job."""


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes on disk, as far as known."""

    responses: float
    """New answers."""
    cached: int | None
    """Datasets and models that are in hpcbench's cache already; None: too many files to add up."""
    images: int
    """Existing images."""
    unbuilt: tuple[str, ...]
    """Images that still have to be built; their size is unknown."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate of a plan's resources and time."""

    rates: Mapping[str, Rate]
    """Run task → seconds of a worker for a sample, with their source."""
    loads: Mapping[str, Rate]
    """Model → seconds until it is ready, with their source."""
    groups: tuple[GroupEstimate, ...]
    gpu_hours: Interval
    cpu_hours: Interval
    """CPU-hours of jobs without a GPU."""
    worst_gpu_hours: float
    """GPU-hours if every job runs to its time limit; `max_gpu_hours` is compared with this."""
    wall_seconds: Interval
    """From the first start to the last end, without the wait in a queue."""
    disk: Disk
    jobs: int
    """Jobs of the first round, the finalising job included."""
    files: int
    """Maximum number of files while it runs."""
    shorter: tuple[Shorter, ...]
    """Effects of shorter jobs."""
    fewer: tuple[Fewer, ...] = ()
    """Models with fewer workers than the plan allows."""
    last_job: JobResources | None = None
    """The job that scores and reports; under `executor: local` a process with the same work."""
    last_cpu_hours: float = 0.0
    """Its CPU-hours if it runs to its time limit."""
    scoring: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Image → metrics that the last job scores in it."""

    @property
    def measured(self) -> bool:
        """Whether all rates come from earlier experiments."""
        return all(rate.known for rate in (*self.rates.values(), *self.loads.values()))


@dataclass(frozen=True, slots=True)
class RemainingSamples:
    """Samples of a run task that are still to ask."""

    samples: int
    """Samples without an answer of an earlier experiment."""
    shards: int
    """Shards with such samples."""


def estimate(
    resolved: ResolvedPlan,
    measured: Measured,
    rates: Rates,
    disk: Disk | None = None,
    left: Mapping[str, RemainingSamples] = _ALL,
) -> Estimate:
    """Estimate a plan at its parallelism. Pure.

    Args:
        resolved: the plan.
        measured: the measured facts about its files.
        rates: rates of earlier experiments.
        disk: known sizes of files here; None: unknown.
        left: what is left to ask of run tasks that have answers of earlier experiments.
    """
    work = _open(plan_work(resolved, measured, *rates.for_planning), left)
    groups = tuple(_group(resolved, work, rates, group, left) for group in work.groups)
    zero = Interval(0, 0, 0)
    gpu_hours = cpu_hours = zero
    for planned, one in zip(work.groups, groups, strict=True):
        held = _times(one.work_seconds.plus(one.load_seconds), 1 / 3600)
        if planned.gpus:
            gpu_hours = gpu_hours.plus(_times(held, planned.worker_gpus))
        else:
            cpu_hours = cpu_hours.plus(_times(held, planned.resources.cpus * planned.nodes))
    jobs = sum(group.workers for group in work.groups) + 1
    shards = sum(_left(cut, left).shards for cut in work.cuts)
    last = last_job.resources(resolved)
    return Estimate(
        rates=rates.samples,
        loads=rates.loads,
        groups=groups,
        gpu_hours=gpu_hours,
        cpu_hours=cpu_hours,
        worst_gpu_hours=worst_gpu_hours(work.groups),
        wall_seconds=_wall(work, groups),
        disk=disk or Disk(answer_bytes(measured, rates), None, 0, ()),
        jobs=jobs,
        files=2 * shards + FILES_OF_A_JOB * jobs + FILES_OF_AN_EXPERIMENT + len(work.cuts),
        shorter=tuple(_shorter(resolved, measured, rates, work, left)),
        fewer=work.fewer if not left else (),
        last_job=last,
        last_cpu_hours=last.cpus * seconds(last.time_limit) / 3600,
        scoring=_scoring(resolved),
    )


def _open(work: WorkPlan, left: Mapping[str, RemainingSamples]) -> WorkPlan:
    """The work without groups that have nothing to ask."""
    shards = {cut.run_task: _left(cut, left).shards for cut in work.cuts}
    return replace(work, groups=groups_with_work(work.groups, shards))


def _left(cut: Cut, left: Mapping[str, RemainingSamples]) -> RemainingSamples:
    """Rest of a run task; a cut of another size has other shards, and at most all of them are left."""
    known = left.get(cut.run_task)
    if known is None:
        return RemainingSamples(cut.samples, cut.count)
    return RemainingSamples(known.samples, min(known.shards, cut.count))


def _scoring(resolved: ResolvedPlan) -> dict[str, tuple[str, ...]]:
    """Image → metrics that score in it, in the plan's last job."""
    found: dict[str, dict[str, None]] = {}
    if "evaluation" in resolved.plan.stages:
        for run_task in resolved.run_tasks:
            for image in run_task.scoring_images:
                found.setdefault(image.image, {}).update(dict.fromkeys(image.metrics))
    return {image: tuple(metrics) for image, metrics in found.items()}


def answer_bytes(measured: Measured, rates: Rates) -> float:
    """Estimated bytes of a plan's answers on disk, taken ones too."""
    return sum(
        samples * rates.answer_bytes.get(name, ANSWER_BYTES)
        for name, samples in measured.samples.items()
    )


def disk_of(facts: Facts, measured: Measured, rates: Rates, cache: Path) -> Disk:
    """A plan's bytes on disk, by the known sizes of its files."""
    sizes = {known.model.source: known.size for known in facts.models.values()}
    sizes |= {one.source: facts.datasets[one.name] for one in facts.here.values() if one}
    held = [size.bytes for source, size in sizes.items() if Path(source).is_relative_to(cache)]
    cached = None if None in held else round(sum(filter(None, held)))
    images = {
        known.image.reference: known.image.size
        for known in facts.models.values()
        if known.image.reference and not known.image.reference.startswith("venv:")
    } | {
        known.reference: known.size
        for known in facts.scoring
        if known.reference and not known.reference.startswith("venv:")
    }
    built = round(sum(size.bytes or 0 for size in images.values() if size.here))
    unbuilt = tuple(name for name, size in images.items() if not size.here)
    return Disk(answer_bytes(measured, rates), cached, built, unbuilt)


def shape_fits(
    partition: Partition,
    resources: JobResources,
    gpus: int,
    gpu_type: str | None = None,
    models: Sequence[Model] = (),
) -> list[str]:
    """Why a job of this shape and with these models does not fit into a partition; empty: no known reason."""
    found = []
    limit = partition.time_limit
    if limit is not None and seconds(resources.time_limit) > seconds(limit):
        found.append(f"its time limit is {limit}, a job needs {resources.time_limit}")
    if partition.cpus is not None and resources.cpus > partition.cpus:
        found.append(f"{partition.cpus} CPUs per node, a job needs {resources.cpus}")
    if partition.memory_gb is not None and resources.memory_gb > partition.memory_gb:
        found.append(
            f"{partition.memory_gb:g} GiB of memory per node, a job needs {resources.memory_gb:g} GiB"
        )
    if not gpus or partition.gpus is None:
        return found
    right = {
        kind: count
        for kind, count in partition.gpus.items()
        if gpu_type is None or kind == gpu_type
    }
    if not right:
        others = ", ".join(sorted(partition.gpus)) or "none"
        found.append(f"no GPU of type {gpu_type} (it has: {others})" if gpu_type else "no GPUs")
    elif max(right.values()) < gpus:
        found.append(f"{max(right.values())} GPUs per node, a job needs {gpus}")
    else:
        room = [
            partition.gpu_memory_gb.get(kind, math.inf)
            for kind, count in right.items()
            if count >= gpus
        ]
        if large := [one.gpu_memory_gb for one in models if not one.fits_gpu(max(room))]:
            found.append(f"its GPUs have less than {max(filter(None, large)):g} GB of memory")
    return found


def queues(resolved: ResolvedPlan, groups: Iterable[Group]) -> dict[str, list[Queue]]:
    """Group → every partition of the site profile: whether jobs fit, and when Slurm would start the first.

    Slurm is asked by `sbatch --test-only`, which submits no job; after a query without an answer it is not
    asked again.
    """
    site = resolved.site.slurm
    answers = slurm.available()
    found: dict[str, list[Queue]] = {}
    for group in groups:
        models = [resolved.run_task(name).model for name in group.run_tasks]
        kind = site.gpu_type(group.resources)
        own = group.resources.partition or site.partition
        names = list(dict.fromkeys([*([own] if own else []), *site.partitions])) or [""]
        for name in names:
            partition = site.partitions.get(name, Partition())
            one = Queue(
                name,
                tuple(shape_fits(partition, group.job_resources, group.node_gpus, kind, models)),
            )
            if answers and not one.misfits:
                start, refused, answers = _test_only(resolved, group, name)
                one = Queue(name, (), start, refused)
            found.setdefault(group.id, []).append(one)
    return found


def parse_test_only(text: str) -> float | None:
    """Slurm's expected start of a job, from the output of `sbatch --test-only`; None: not given."""
    found = re.search(r"to start at (\S+)", text)
    if found is None:
        return None
    if found[1].isdigit():
        return float(found[1])
    try:
        return time.mktime(time.strptime(found[1], "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None


def spared(fewer: Iterable[Fewer]) -> Iterator[str]:
    """One line for each model that gets fewer workers than the plan allows."""
    for one in fewer:
        few = f"{one.workers} worker{'s' if one.workers > 1 else ''} instead of {one.instead_of}"
        if one.known:
            why = (
                f"{one.samples} samples take {span(one.work_seconds)} of work, and each worker needs "
                f"{span(one.load_seconds)} to load the model"
            )
        else:
            why = (
                f"one engine processes {one.at_once} of its {one.samples} samples at once, and its load "
                "time is not known yet"
            )
        yield f"{one.model}: {few}: {why}; `--set workers=all` starts all {one.instead_of}"


def span(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(minutes / 60)
    return f"{hours // 24} d {hours % 24} h"


def _test_only(
    resolved: ResolvedPlan, group: Group, partition: str
) -> tuple[float | None, str, bool]:
    """Start of the first job, Slurm's reason to refuse it, and whether Slurm answered at all."""
    text = sbatch_text(Path("/nowhere"), resolved, group)
    command = ["sbatch", "--test-only", *([f"--partition={partition}"] if partition else [])]
    try:
        with clean_environment():
            ended = run(command, ASK_SECONDS, given=text)
    except OSError:
        return None, "", False
    if ended.late:
        return None, "", False
    said = (ended.messages or ended.text).strip()
    start = parse_test_only(said)
    if start is not None or not ended.failed:
        return start, "", True
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # The last line repeats the reason in fewer words.
    telling = [line for line in lines if not line.startswith("allocation failure")] or lines
    last = telling[-1] if telling else "no reason given"
    return None, re.sub(r"^(sbatch: |error: |fatal: |allocation failure: )+", "", last), True


def _group(
    resolved: ResolvedPlan,
    work: WorkPlan,
    rates: Rates,
    group: Group,
    left: Mapping[str, RemainingSamples],
) -> GroupEstimate:
    own = {name: cut for cut in work.cuts if (name := cut.run_task) in group.run_tasks}
    busy: dict[str, list[Interval]] = {}
    for name, cut in own.items():
        model = resolved.run_task(name).model.name
        count = _left(cut, left).samples
        busy.setdefault(model, []).append(_times(_interval(rates.samples[name]), count))
    by_model = {model: _sum(parts) for model, parts in busy.items()}
    whole = _sum(by_model.values())
    shards = sum(_left(cut, left).shards for cut in own.values())
    load = max((rates.loads[model].seconds for model in by_model), default=0.0)
    drain = resolved.site.slurm.drain_seconds if resolved.executor == "slurm" else 0
    useful = max(60.0, seconds(group.resources.time_limit) - drain - load)
    needed = max(1, math.ceil(whole.value / useful))
    most = min(group.workers, group.throttle) * group.replicas
    workers = max(min(most, shards), needed)
    loads = _loads(by_model, workers)
    loading = _sum(_times(_interval(rates.loads[model]), count) for model, count in loads.items())
    at_once = min(group.throttle * group.replicas, workers)
    return GroupEstimate(
        id=group.id,
        models=tuple(by_model),
        jobs=group.workers,
        at_once=group.jobs_for(at_once),
        gpus=group.gpus,
        nodes=group.nodes,
        replicas=group.replicas,
        time_limit=group.resources.time_limit,
        work_seconds=whole,
        loads=sum(loads.values()),
        load_seconds=loading,
        wall_seconds=_times(whole.plus(loading), 1 / at_once),
        more_rounds=max(0, math.ceil(group.jobs_for(needed) / group.workers) - 1),
    )


def _loads(by_model: Mapping[str, Interval], workers: int) -> dict[str, int]:
    """Model → number of workers that load it: in proportion to its share of the work, at least one."""
    whole = sum(one.value for one in by_model.values()) or 1.0
    return {
        model: max(1, min(workers, math.ceil(workers * one.value / whole - 1e-9)))
        for model, one in by_model.items()
    }


def _wall(work: WorkPlan, groups: tuple[GroupEstimate, ...]) -> Interval:
    """The longest chain of groups that wait for one another."""
    ends: dict[str, Interval] = {}
    for planned, one in zip(work.groups, groups, strict=True):
        before = [ends[name] for name in planned.after if name in ends]
        begin = Interval(
            max((end.value for end in before), default=0.0),
            max((end.low for end in before), default=0.0),
            max((end.high for end in before), default=0.0),
        )
        ends[planned.id] = begin.plus(one.wall_seconds)
    return Interval(
        max((end.value for end in ends.values()), default=0.0),
        max((end.low for end in ends.values()), default=0.0),
        max((end.high for end in ends.values()), default=0.0),
    )


def _shorter(
    resolved: ResolvedPlan,
    measured: Measured,
    rates: Rates,
    now: WorkPlan,
    left: Mapping[str, RemainingSamples],
) -> Iterator[Shorter]:
    """Effects of shorter jobs, for limits below the present limit."""
    longest = max((seconds(group.resources.time_limit) for group in now.groups), default=0)
    for minutes in SHORTER:
        if minutes * 60 >= longest or resolved.executor != "slurm":
            continue
        plan = resolved.plan.model_copy(update={"max_job_minutes": minutes})
        try:
            changed = resolved.model_copy(update={"plan": plan})
            work = _open(plan_work(changed, measured, *rates.for_planning), left)
        except HpcbenchError:
            continue  # the plan would not fit into max_gpu_hours
        groups = tuple(_group(changed, work, rates, group, left) for group in work.groups)
        held = zip(work.groups, groups, strict=True)
        lost = resolved.site.slurm.drain_seconds + 60
        yield Shorter(
            minutes,
            sum(group.workers for group in work.groups) + 1,
            sum(
                planned.worker_gpus * (one.work_seconds.value + one.load_seconds.value) / 3600
                for planned, one in held
            ),
            _wall(work, groups).value,
            tuple(
                model for model, rate in rates.loads.items() if rate.seconds + lost > minutes * 60
            ),
        )


def _interval(rate: Rate) -> Interval:
    return Interval(rate.seconds, rate.low, rate.high)


def _times(one: Interval, factor: float) -> Interval:
    return Interval(one.value * factor, one.low * factor, one.high * factor)


def _sum(parts: Iterable[Interval]) -> Interval:
    total = Interval(0, 0, 0)
    for one in parts:
        total = total.plus(one)
    return total
