"""The estimate of a plan in words; submits and writes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpcbench.experiment.layout import home
from hpcbench.resume.last_job import in_words
from hpcbench.submit import provider_cost
from hpcbench.submit.estimate import (
    Estimate,
    GroupEstimate,
    Interval,
    Queue,
    RemainingSamples,
    disk_of,
    estimate,
    queues,
    span,
    spared,
)
from hpcbench.submit.preview import Preview, size, size_words
from hpcbench.submit.reuse import Policy, groups_with_work
from hpcbench.submit.reuse_forecast import Forecast, forecast
from hpcbench.usage.durations import Rate

DEFAULT = "default, not measured"


@dataclass(frozen=True, slots=True)
class Outlook:
    """The estimate of a plan on this machine now."""

    forecast: Forecast
    """Samples of each run task, and which of them earlier experiments answered."""
    estimate: Estimate
    """The estimate."""
    queues: Mapping[str, Sequence[Queue]]
    """Group → partitions with the first job's possible start; empty if Slurm is not asked."""


def outlook(preview: Preview, reuse: Policy = "none") -> Outlook:
    """Estimate a plan by the rates of earlier experiments; Slurm is asked for possible start times.

    Args:
        preview: the plan.
        reuse: which answers of earlier experiments `submit` would take over.

    Raises:
        UserError: a prompt cannot be built.
    """
    resolved, measured, rates = preview.resolved, preview.measured, preview.rates
    disk = disk_of(preview.facts, measured, rates, home(resolved.site) / "cache")
    answered = forecast(preview, reuse)
    left = {
        name: RemainingSamples(count, answered.shards.get(name, 0))
        for name in answered.reused
        if (count := answered.asked(name)) is not None
    }
    found = estimate(resolved, measured, rates, disk, left)
    groups = groups_with_work(preview.work.groups, answered.shards)
    asked = queues(resolved, groups) if resolved.executor == "slurm" else {}
    return Outlook(answered, found, asked)


def words(preview: Preview, outlook: Outlook) -> Iterator[str]:
    """The estimate as lines for people."""
    plan, found, asked = preview.resolved.plan, outlook.estimate, outlook.queues
    known = sum(count for count in outlook.forecast.samples.values() if count is not None)
    yield f"{plan.name}: {known} samples, parallelism {plan.parallelism}"
    for line in outlook.forecast.lines():
        yield f"  {line}"
    for name, why in preview.unknown.items():
        count = preview.measured.samples[name]
        said = (
            f"the estimate assumes {count}"
            if name in preview.assumed
            else f"its definition states {count}"
        )
        yield f"  {name}: {why}; {said}"
    for line in spared(found.fewer):
        yield f"  {line}"
    if any(one.gpus for one in found.groups):
        worst = f"; at most {found.worst_gpu_hours:.1f}, if every job runs to its time limit"
        yield f"  GPU-hours  {_figure(found.gpu_hours, _hours)}{worst}"
    if any(not one.gpus for one in found.groups):
        yield f"  CPU-hours  {_figure(found.cpu_hours, _hours)}"
    yield f"  time       {_figure(found.wall_seconds, span)}, with model loads, without the wait in the queue"
    for line in provider_cost.words(preview.resolved, outlook.forecast):
        yield f"  cost       {line}"
    disk = found.disk
    there = [f"{size(disk.responses)} of answers"]
    if disk.cached:
        there.append(f"data and models {size(disk.cached)} (here already)")
    if disk.images:
        there.append(f"images {size(disk.images)} (here already)")
    if disk.unbuilt:
        there.append(
            f"images to build, size not known: {', '.join(_short(one) for one in disk.unbuilt)}"
        )
    yield f"  disk       {'; '.join(there)}"
    for line in to_fetch(preview):
        yield f"  to fetch   {line}"
    yield f"  files      {found.files} at most, fewer after the end"
    yield f"  jobs       {found.jobs}"
    yield f"  last job   {_last_job(preview, found)}"
    for group in found.groups:
        yield ""
        yield from _group(group)
        for queue in asked.get(group.id, ()):
            yield f"  {_queue(queue)}"
    yield ""
    yield "time per sample"
    for name, rate in found.rates.items():
        yield f"  {name}: {_rate(rate)}"
    yield "time per model load"
    for name, rate in found.loads.items():
        yield f"  {name}: {_rate(rate)}"
    if found.shorter:
        yield ""
        yield "shorter jobs can start in gaps of the queue (`max_job_minutes`):"
    for one in found.shorter:
        line = f"  {one.minutes} min: {one.jobs} jobs, {_hours(one.gpu_hours)} GPU-hours"
        short = f"; too short to load {', '.join(one.too_short)}" if one.too_short else ""
        yield f"{line}, {span(one.wall_seconds)} of run time{short}"


def _last_job(preview: Preview, found: Estimate) -> str:
    """Work and resources of the last job."""
    stages = preview.resolved.plan.stages
    does = [
        word
        for stage, word in (("evaluation", "scores"), ("reporting", "reports"))
        if stage in stages
    ]
    inside = "; ".join(
        f"{', '.join(names)} in {_short(image)}" for image, names in found.scoring.items()
    )
    if preview.resolved.executor == "slurm" and found.last_job is not None:
        most = (
            f"{in_words(found.last_job)}, no GPU: at most {_hours(found.last_cpu_hours)} CPU-hours"
        )
    else:
        most = "a process of this machine"
    return (
        f"{' and '.join(does) or 'ends the experiment'}{f' ({inside})' if inside else ''}; {most}"
    )


def _short(reference: str) -> str:
    """An image's name for people: without its digest."""
    return reference.partition("@")[0]


def to_fetch(preview: Preview) -> Iterator[str]:
    """Models and datasets that are not here yet, each once, with their size if known."""
    models = {one.model.name: one.size for one in preview.facts.models.values()}
    for name, found in (*models.items(), *preview.facts.datasets.items()):
        if not found.here:
            yield f"{name}: {size_words(found)}"


def _group(group: GroupEstimate) -> Iterator[str]:
    shape = f"{group.gpus} GPU{'s' if group.gpus > 1 else ''} each" if group.gpus else "no GPU"
    if group.nodes > 1:
        shape = f"{group.nodes} nodes with {shape}"
    if group.replicas > 1:
        shape = f"{group.replicas} engines in each, {shape}"
    yield (
        f"group {group.id}: {', '.join(group.models)}; {group.jobs} jobs, {shape}, "
        f"time limit {group.time_limit}, {group.at_once} at once"
    )
    loads = f"{group.loads} load{'s' if group.loads != 1 else ''}"
    work = _figure(group.work_seconds, span)
    yield f"  all jobs together: work {work}; {loads}, {_figure(group.load_seconds, span)}"
    if group.more_rounds:
        yield (
            f"  more work than its jobs can do within {group.time_limit}: {group.more_rounds} further "
            "rounds; a longer time limit or more parallelism avoids them"
        )


def _queue(queue: Queue) -> str:
    name = f"partition {queue.partition}" if queue.partition else "default partition"
    if queue.misfits:
        return f"{name}: jobs do not fit: {'; '.join(queue.misfits)}"
    if queue.refused:
        return f"{name}: Slurm refuses: {queue.refused}"
    if queue.start is None:
        return f"{name}: jobs fit"
    if queue.start <= time.time() + 60:
        return f"{name}: jobs fit; the first job would start at once"
    return f"{name}: jobs fit; earliest start {time.strftime('%a %d %b %H:%M', time.localtime(queue.start))}"


def _figure(one: Interval, write: Callable[[float], str]) -> str:
    """`12 [9, 15]`, or the figure alone where nothing was measured."""
    if one.low == one.high:
        return f"about {write(one.value)}"
    return f"about {write(one.value)} [{write(one.low)}, {write(one.high)}]"


def _rate(rate: Rate) -> str:
    if not rate.known:
        return f"{rate.seconds:.3g} s ({DEFAULT})"
    return f"{rate.seconds:.3g} s [{rate.low:.3g}, {rate.high:.3g}] ({rate.source})"


def _hours(value: float) -> str:
    return f"{value:.1f}" if value >= 0.95 else f"{value:.2g}"
