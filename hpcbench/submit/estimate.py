"""What a plan would take, before anything is submitted: GPU-hours, time, disk, files, jobs, and a place.

The arithmetic is pure. Only `queues` asks: Slurm, by `sbatch --test-only`, which makes no job.
"""

from __future__ import annotations

import math
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcbench import slurm
from hpcbench.environments.images import built_images
from hpcbench.errors import HpcbenchError
from hpcbench.planning import plan_work, worst_gpu_hours
from hpcbench.schema.documents import Partition, Resources, seconds
from hpcbench.schema.plan import Fewer, Group, Measured, ResolvedPlan, WorkPlan
from hpcbench.submit.plan_facts import built_image, folder_bytes
from hpcbench.submit.sbatch import clean_environment, sbatch_text
from hpcbench.usage.history import Rate, Rates

ANSWER_BYTES = 4000.0
"""An answer on disk while nothing is known: some hundred tokens, each with the time of its chunk."""

SHORTER = (30, 60, 120, 240)
"""Values of `max_job_minutes` that are tried."""

FILES_OF_A_JOB = 8
"""Events, log and readings of its worker; submitit's and Slurm's own."""

FILES_OF_AN_EXPERIMENT = 15
"""Plan, manifest, scores, report and their kin."""

ASK_SECONDS = 15
"""Longest wait for an answer of `sbatch --test-only`."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and how sure it is."""

    value: float
    low: float
    """The same as `value` where nothing was measured."""
    high: float
    """The same as `value` where nothing was measured."""

    def plus(self, other: Interval) -> Interval:
        """The sum; ends are added as if all went well, or all badly, at once."""
        return Interval(self.value + other.value, self.low + other.low, self.high + other.high)


@dataclass(frozen=True, slots=True)
class Queue:
    """Whether a group's jobs fit into a partition, and when the first could start."""

    partition: str
    misfits: tuple[str, ...] = ()
    """Why not; empty: they fit, as far as the profile knows the partition."""
    start: float | None = None
    """When Slurm would start the first job, seconds since the epoch; None: not asked, or no answer."""
    refused: str = ""
    """Why Slurm would not take it."""


@dataclass(frozen=True, slots=True)
class GroupEstimate:
    """One array of equal workers."""

    id: str
    models: tuple[str, ...]
    jobs: int
    at_once: int
    gpus: int
    """GPUs of a job."""
    time_limit: str
    work_seconds: Interval
    """Of all its jobs together, without loads."""
    loads: int
    """How often a model is loaded, about."""
    load_seconds: Interval
    """Of all its loads together."""
    wall_seconds: Interval
    """From its first start to its end, without waiting in a queue."""
    more_rounds: int
    """Rounds of further jobs after the first that its work takes, as the time limit stands."""


@dataclass(frozen=True, slots=True)
class Shorter:
    """What a value of `max_job_minutes` would change."""

    minutes: int
    jobs: int
    gpu_hours: float
    wall_seconds: float
    too_short: tuple[str, ...] = ()
    """Models whose load leaves such a job no time worth naming."""


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes, as far as they are known."""

    responses: float
    """Answers, new."""
    cached: int | None
    """Datasets and models that lie in hpcbench's cache already; None: too many files to add up."""
    images: int
    """Images that are there already."""
    unbuilt: tuple[str, ...]
    """Images that are still to be built; their size is not known."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a plan would take."""

    rates: Mapping[str, Rate]
    """Run task → seconds of a worker for a sample, and where that comes from."""
    loads: Mapping[str, Rate]
    """Model → seconds until it is ready, and where that comes from."""
    groups: tuple[GroupEstimate, ...]
    gpu_hours: Interval
    cpu_hours: Interval
    """CPU-hours of jobs without a GPU."""
    worst_gpu_hours: float
    """If every job ran to its time limit; what `max_gpu_hours` is held against."""
    wall_seconds: Interval
    """From the first start to the last end, without waiting in a queue."""
    disk: Disk
    jobs: int
    """Of the first round, with the one that finalises."""
    files: int
    """Most files it makes while it runs."""
    shorter: tuple[Shorter, ...]
    """What shorter jobs would change."""
    fewer: tuple[Fewer, ...] = ()
    """Models with fewer workers than the plan allows."""

    @property
    def measured(self) -> bool:
        """Whether all of it rests on earlier experiments."""
        return all(rate.known for rate in (*self.rates.values(), *self.loads.values()))


def estimate(
    resolved: ResolvedPlan, measured: Measured, rates: Rates, disk: Disk | None = None
) -> Estimate:
    """What a plan would take at its parallelism. Pure.

    Args:
        resolved: the plan.
        measured: what was found of its files.
        rates: what earlier experiments say.
        disk: what is known of files here; None: nothing.
    """
    work = plan_work(resolved, measured, *rates.for_planning)
    groups = tuple(_group(resolved, work, rates, group) for group in work.groups)
    zero = Interval(0, 0, 0)
    gpu_hours = cpu_hours = zero
    for planned, one in zip(work.groups, groups, strict=True):
        held = _times(one.work_seconds.plus(one.load_seconds), 1 / 3600)
        if planned.gpus:
            gpu_hours = gpu_hours.plus(_times(held, planned.gpus))
        else:
            cpu_hours = cpu_hours.plus(_times(held, planned.resources.cpus))
    jobs = sum(group.workers for group in work.groups) + 1
    shards = len(work.shards)
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
        shorter=tuple(_shorter(resolved, measured, rates, work)),
        fewer=work.fewer,
    )


def answer_bytes(measured: Measured, rates: Rates) -> float:
    """What the answers of a plan will take on disk."""
    return sum(
        samples * rates.answer_bytes.get(name, ANSWER_BYTES)
        for name, samples in measured.samples.items()
    )


def disk_of(resolved: ResolvedPlan, measured: Measured, rates: Rates, cache: Path) -> Disk:
    """What a plan takes on disk, from a look at the cache."""
    sources = {run_task.dataset.source for run_task in resolved.run_tasks}
    sources |= {run_task.model.source for run_task in resolved.run_tasks}
    cached: int | None = 0
    for source in sources:
        if source and Path(source).is_relative_to(cache):
            size = folder_bytes(Path(source))
            cached = cached + size if cached is not None and size is not None else None
    images, unbuilt = 0, list[str]()
    for name in dict.fromkeys(run_task.model.image for run_task in resolved.run_tasks):
        if name is None or name.startswith("venv:"):
            continue
        size = _image_bytes(name, cache)
        if size is None:
            unbuilt.append(name)
        else:
            images += size
    return Disk(answer_bytes(measured, rates), cached, images, tuple(unbuilt))


def shape_fits(
    partition: Partition,
    resources: Resources,
    gpus: int,
    gpu_type: str | None = None,
    gpu_memory_gb: float | None = None,
) -> list[str]:
    """Why a job of this shape does not fit into a partition; nothing said: it does, as far as is known."""
    found = []
    limit = partition.time_limit
    if limit is not None and seconds(resources.time_limit) > seconds(limit):
        found.append(f"time limit {limit}, not {resources.time_limit}")
    if partition.cpus is not None and resources.cpus > partition.cpus:
        found.append(f"{partition.cpus} CPUs a node, not {resources.cpus}")
    if partition.memory_gb is not None and resources.memory_gb > partition.memory_gb:
        found.append(f"{partition.memory_gb:g} GiB a node, not {resources.memory_gb:g}")
    if not gpus or partition.gpus is None:
        return found
    right = {
        kind: count
        for kind, count in partition.gpus.items()
        if gpu_type is None or kind == gpu_type
    }
    if not right:
        others = ", ".join(sorted(partition.gpus)) or "none"
        found.append(f"no GPU of type {gpu_type} (there: {others})" if gpu_type else "no GPUs")
    elif max(right.values()) < gpus:
        found.append(f"{max(right.values())} GPUs a node, not {gpus}")
    elif gpu_memory_gb is not None:
        enough = [
            kind
            for kind, count in right.items()
            if count >= gpus and partition.gpu_memory_gb.get(kind, gpu_memory_gb) >= gpu_memory_gb
        ]
        if not enough:
            found.append(f"GPUs of less than {gpu_memory_gb:g} GiB")
    return found


def queues(resolved: ResolvedPlan, groups: Iterable[Group]) -> dict[str, list[Queue]]:
    """Group → every partition of the site profile: whether it fits, and when Slurm would start it.

    Slurm is asked by `sbatch --test-only`: no job is made. Once it does not answer it is not asked again.
    """
    site = resolved.site.slurm
    answers = slurm.available()
    found: dict[str, list[Queue]] = {}
    for group in groups:
        models = [resolved.run_task(name).model for name in group.run_tasks]
        memory = max((model.gpu_memory_gb or 0.0 for model in models), default=0.0) or None
        kind = group.resources.gpu_type or site.gpu_gres.partition(":")[2] or None
        own = group.resources.partition or site.partition
        names = list(dict.fromkeys([*([own] if own else []), *site.partitions])) or [""]
        for name in names:
            partition = site.partitions.get(name, Partition())
            one = Queue(
                name, tuple(shape_fits(partition, group.resources, group.gpus, kind, memory))
            )
            if answers and not one.misfits:
                start, refused, answers = _test_only(resolved, group, name)
                one = Queue(name, (), start, refused)
            found.setdefault(group.id, []).append(one)
    return found


def parse_test_only(text: str) -> float | None:
    """When Slurm would start a job, from what `sbatch --test-only` says; None: it does not say."""
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
                f"{one.samples} samples are {span(one.work_seconds)} of work, and each worker loads it for "
                f"{span(one.load_seconds)}"
            )
        else:
            why = (
                f"one engine is asked {one.at_once} of its {one.samples} samples at once, and how long it "
                "loads is not known yet"
            )
        yield f"{one.model}: {few}: {why}; `--set workers=all` takes all {one.instead_of}"


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
    """When the first job would start, why Slurm would not take it, and whether it answered at all."""
    text = sbatch_text(Path("/nowhere"), resolved, group)
    command = ["sbatch", "--test-only", *([f"--partition={partition}"] if partition else [])]
    try:
        with clean_environment():
            done = subprocess.run(
                command,
                input=text,
                capture_output=True,
                text=True,
                timeout=ASK_SECONDS,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired):
        return None, "", False
    said = (done.stderr or done.stdout).strip()
    start = parse_test_only(said)
    if start is not None or done.returncode == 0:
        return start, "", True
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # Its last line says it again, in fewer words.
    telling = [line for line in lines if not line.startswith("allocation failure")] or lines
    last = telling[-1] if telling else "it does not say why"
    return None, re.sub(r"^(sbatch: |error: |fatal: |allocation failure: )+", "", last), True


def _group(resolved: ResolvedPlan, work: WorkPlan, rates: Rates, group: Group) -> GroupEstimate:
    own = {name: cut for cut in work.cuts if (name := cut.run_task) in group.run_tasks}
    busy: dict[str, list[Interval]] = {}
    for name, cut in own.items():
        model = resolved.run_task(name).model.name
        busy.setdefault(model, []).append(_times(_interval(rates.samples[name]), cut.samples))
    by_model = {model: _sum(parts) for model, parts in busy.items()}
    whole = _sum(by_model.values())
    shards = sum(1 for cut in own.values() for _ in cut.shards())
    load = max((rates.loads[model].seconds for model in by_model), default=0.0)
    drain = resolved.site.slurm.drain_seconds if resolved.executor == "slurm" else 0
    useful = max(60.0, seconds(group.resources.time_limit) - drain - load)
    needed = max(1, math.ceil(whole.value / useful))
    jobs = max(min(group.workers, group.throttle, shards), needed)
    loads = _loads(by_model, jobs)
    loading = _sum(_times(_interval(rates.loads[model]), count) for model, count in loads.items())
    at_once = min(group.throttle, jobs)
    return GroupEstimate(
        id=group.id,
        models=tuple(by_model),
        jobs=group.workers,
        at_once=at_once,
        gpus=group.gpus,
        time_limit=group.resources.time_limit,
        work_seconds=whole,
        loads=sum(loads.values()),
        load_seconds=loading,
        wall_seconds=_times(whole.plus(loading), 1 / at_once),
        more_rounds=max(0, math.ceil(needed / group.workers) - 1),
    )


def _loads(by_model: Mapping[str, Interval], jobs: int) -> dict[str, int]:
    """Model → how many jobs load it: each has jobs by its share of the work, and one at least."""
    whole = sum(one.value for one in by_model.values()) or 1.0
    return {
        model: max(1, min(jobs, math.ceil(jobs * one.value / whole - 1e-9)))
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
    resolved: ResolvedPlan, measured: Measured, rates: Rates, now: WorkPlan
) -> Iterator[Shorter]:
    """What shorter jobs would change, for limits below the present one."""
    longest = max((seconds(group.resources.time_limit) for group in now.groups), default=0)
    for minutes in SHORTER:
        if minutes * 60 >= longest or resolved.executor != "slurm":
            continue
        plan = resolved.plan.model_copy(update={"max_job_minutes": minutes})
        try:
            changed = resolved.model_copy(update={"plan": plan})
            work = plan_work(changed, measured, *rates.for_planning)
        except HpcbenchError:
            continue  # it would not fit into max_gpu_hours
        groups = tuple(_group(changed, work, rates, group) for group in work.groups)
        held = zip(work.groups, groups, strict=True)
        lost = resolved.site.slurm.drain_seconds + 60
        yield Shorter(
            minutes,
            sum(group.workers for group in work.groups) + 1,
            sum(
                planned.gpus * (one.work_seconds.value + one.load_seconds.value) / 3600
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


def _image_bytes(name: str, cache: Path) -> int | None:
    """Size of an image that is here; None: it is still to be built."""
    file = Path(name)
    if file.suffix == ".sif" and file.is_file():
        return file.stat().st_size
    image = built_image(name, built_images(cache))
    return image.bytes if image is not None else None
