"""What a plan would take, looked up and told in words; nothing is submitted or written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpcbench.experiment.layout import home
from hpcbench.launch import history
from hpcbench.launch.estimate import (
    Estimate,
    GroupEstimate,
    Interval,
    Queue,
    disk_of,
    estimate,
    queues,
    span,
    spared,
)
from hpcbench.launch.history import Rate
from hpcbench.launch.measure import measure
from hpcbench.launch.prepare import localise, open_cache
from hpcbench.planning import plan_work
from hpcbench.schema.plan import ResolvedPlan

DEFAULT = "default, not measured"


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a plan would take here and now."""

    samples: Mapping[str, int]
    """Run task → samples."""
    estimate: Estimate
    """What it would take."""
    queues: Mapping[str, Sequence[Queue]]
    """Group → partitions, and when the first job could start; empty where no Slurm is asked."""


def outlook(resolved: ResolvedPlan) -> Outlook:
    """Look through a plan's datasets and at what earlier experiments took, and ask Slurm when there is room.

    Raises:
        UserError: a dataset or model is not here yet, or not as its document says.
    """
    resolved = localise(resolved, open_cache(resolved.site), fetch=False)
    measured = measure(resolved, hashes=False)
    root = home(resolved.site)
    rates = history.rates(root, resolved, measured)
    found = estimate(resolved, measured, rates, disk_of(resolved, measured, rates, root / "cache"))
    work = plan_work(resolved, measured, *rates.for_planning)
    asked = queues(resolved, work.groups) if resolved.executor == "slurm" else {}
    return Outlook(measured.samples, found, asked)


def words(resolved: ResolvedPlan, outlook: Outlook) -> Iterator[str]:
    """Lines for people."""
    plan, samples, found, asked = resolved.plan, outlook.samples, outlook.estimate, outlook.queues
    yield f"{plan.name}: {sum(samples.values())} samples, parallelism {plan.parallelism}"
    for line in spared(found.fewer):
        yield f"  {line}"
    if any(one.gpus for one in found.groups):
        worst = f"; at worst {found.worst_gpu_hours:.1f}, every job to its time limit"
        yield f"  GPU-hours  {_figure(found.gpu_hours, _hours)}{worst}"
    if any(not one.gpus for one in found.groups):
        yield f"  CPU-hours  {_figure(found.cpu_hours, _hours)}"
    yield f"  time       {_figure(found.wall_seconds, span)}, loads included, without waiting in a queue"
    disk = found.disk
    there = [f"{size(disk.responses)} of answers"]
    if disk.cached:
        there.append(f"data and models {size(disk.cached)} (here already)")
    if disk.images:
        there.append(f"images {size(disk.images)} (here already)")
    if disk.unbuilt:
        there.append(f"to be built, size not known: {', '.join(disk.unbuilt)}")
    yield f"  disk       {'; '.join(there)}"
    yield f"  files      {found.files} at most, fewer when it has ended"
    yield f"  jobs       {found.jobs}"
    for group in found.groups:
        yield ""
        yield from _group(group)
        for queue in asked.get(group.id, ()):
            yield f"  {_queue(queue)}"
    yield ""
    yield "a sample takes"
    for name, rate in found.rates.items():
        yield f"  {name}: {_rate(rate)}"
    yield "a load takes"
    for name, rate in found.loads.items():
        yield f"  {name}: {_rate(rate)}"
    if found.shorter:
        yield ""
        yield "shorter jobs fit into holes of the queue (`max_job_minutes`):"
    for one in found.shorter:
        line = f"  {one.minutes} min: {one.jobs} jobs, {_hours(one.gpu_hours)} GPU-hours"
        short = f"; too short to load {', '.join(one.too_short)}" if one.too_short else ""
        yield f"{line}, {span(one.wall_seconds)} at work{short}"


def _group(group: GroupEstimate) -> Iterator[str]:
    shape = f"{group.gpus} GPU{'s' if group.gpus > 1 else ''} each" if group.gpus else "no GPU"
    yield (
        f"group {group.id}: {', '.join(group.models)}; {group.jobs} jobs, {shape}, {group.time_limit}, "
        f"{group.at_once} at once"
    )
    loads = f"{group.loads} load{'s' if group.loads != 1 else ''}"
    work = _figure(group.work_seconds, span)
    yield f"  all jobs together: work {work}; {loads}, {_figure(group.load_seconds, span)}"
    if group.more_rounds:
        yield (
            f"  more than its jobs can do within {group.time_limit}: {group.more_rounds} further rounds; "
            "a longer time limit or more parallelism spares them"
        )


def _queue(queue: Queue) -> str:
    name = f"partition {queue.partition}" if queue.partition else "default partition"
    if queue.misfits:
        return f"{name}: does not fit: {'; '.join(queue.misfits)}"
    if queue.refused:
        return f"{name}: Slurm refuses: {queue.refused}"
    if queue.start is None:
        return f"{name}: fits"
    if queue.start <= time.time() + 60:
        return f"{name}: fits; the first job would start at once"
    return f"{name}: fits; earliest start {time.strftime('%a %d %b %H:%M', time.localtime(queue.start))}"


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


def size(count: float) -> str:
    """`12 kB`, `3.4 GB`."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"
