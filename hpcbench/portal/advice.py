"""Advice for the next run: requests for memory, GPUs, CPUs, time and shards that were too large or too small.

Pure functions from figures to sentences; an unknown figure gives no advice. Every rule compares the requested
amount with the used amount; its threshold is beside the rule and in docs/portal.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpcbench import slurm
from hpcbench.number_format import duration, many
from hpcbench.portal.models.run_tasks import Advice

MEMORY_IDLE, MEMORY_FULL = 0.5, 0.9
"""Peak share of the requested host memory: below the first the request was too large, above the second the
worker was near its limit."""

MEMORY_LEAST = 4.0
"""Least unused host memory that gives advice, GiB."""

CARD_IDLE = 0.6
"""Needed share of a GPU's memory below which more requests at once would fit."""

GPU_IDLE = 40.0
"""GPU use while requests were open, percent; below it the GPUs mostly waited."""

TIME_IDLE, TIME_FULL = 0.25, 0.9
"""Share of the time limit that the longest worker took."""

TIME_LEAST = 3600.0
"""Time limit below which a shorter limit hardly lets a job start sooner, seconds."""

CPU_IDLE, CPU_FULL = 0.5, 0.95
"""Share of the requested CPUs: busy at the peak, and busy in the mean."""

CPU_LEAST = 2.0
"""Least unused CPUs that give advice."""

SHARD_SHORT, SHARD_LONG = 10.0, 0.5
"""Time of a short shard, seconds; share of the time limit that a long shard takes."""

SHARDS_LEAST = 20
"""Number of shards below which their length does not matter."""

SHARD_GOOD = 300.0
"""Time of a shard that is neither short nor long, seconds."""

LOADING = 0.3
"""Share of the held time that went into loading models."""

LOADING_LEAST = 300.0
"""Loading time below which its share does not matter, seconds."""

RETRIES = 0.1
"""Share of repeated requests."""

MARGIN = 1.25
"""Ratio of a proposed amount to the used amount."""


@dataclass(frozen=True, slots=True)
class Took:
    """Resources that a run task's workers got, and resources that they used; None: not known."""

    memory_asked_gb: float | None = None
    """Host memory of a worker, GiB."""
    memory_peak_gb: float | None = None
    """Most host memory that a worker held at any time, loading included, GiB."""
    gpus: int = 0
    """GPUs of a worker."""
    card_gb: float | None = None
    """Memory of one such GPU, GB."""
    needed_gb: float | None = None
    """GPU memory that was needed, GiB; not the amount that an engine reserves in advance."""
    gpu_use: float | None = None
    """Mean use of GPUs while requests were open, percent."""
    client_bound: bool = False
    """Whether the client was late; if not, the engine was slow."""
    concurrency: int | None = None
    """Requests at once; None: workers search for the number."""
    time_limit: float | None = None
    """Time limit of a worker, seconds."""
    longest: float | None = None
    """Longest run time of a worker that has ended, seconds."""
    cpus_asked: int | None = None
    """CPUs of a worker."""
    cpus_peak: float | None = None
    """Most busy CPUs at a time."""
    cpus_mean: float | None = None
    """Busy CPUs in the mean."""
    shard_seconds: float | None = None
    """Median time of a shard, seconds."""
    shard_samples: int | None = None
    """Samples of a shard."""
    shards: int = 0
    """Finished shards."""
    held: float | None = None
    """Time for which workers held their resources for this run task, seconds."""
    loading: float | None = None
    """Part of `held` that went into loading models, seconds."""
    workers: int = 0
    """Workers that took part."""
    requests: int | None = None
    """Samples requested."""
    tries: int | None = None
    """Requests sent for these samples, repeated requests included."""


def advice(took: Took) -> tuple[Advice, ...]:
    """Advice for the next run, warnings first; empty where nothing is wrong or nothing is known."""
    found = [one for rule in _RULES for one in rule(took)]
    return tuple(sorted(found, key=lambda one: one.level != "warning"))


def _memory(took: Took) -> Iterator[Advice]:
    asked, peak = took.memory_asked_gb, took.memory_peak_gb
    if asked is None or peak is None or asked <= 0:
        return
    wanted = math.ceil(peak * MARGIN + 1)
    if peak >= MEMORY_FULL * asked:
        text = f"A worker used {_gb(peak)} of its {_gb(asked)} of host memory: request more."
        yield Advice(level="warning", text=text, change=f"resources: {{memory_gb: {wanted}}}")
    elif peak < MEMORY_IDLE * asked and asked - wanted >= MEMORY_LEAST:
        text = f"The job requested {_gb(asked)} of host memory; the peak was {_gb(peak)}."
        yield Advice(level="note", text=text, change=f"resources: {{memory_gb: {wanted}}}")


def _card(took: Took) -> Iterator[Advice]:
    card, needed = took.card_gb, took.needed_gb
    if not took.gpus or card is None or needed is None or card <= 0:
        return
    if needed < CARD_IDLE * card:
        text = f"The model needed {_gb(needed)} of {card:g} GB of GPU memory"
        more = "" if took.concurrency is None else f"concurrency: {2 * took.concurrency}"
        if needed * MARGIN < card / 2:
            text += "; a GPU with half the memory is enough, or use a higher concurrency"
        else:
            text += "; a higher concurrency fits"
        yield Advice(level="note", text=f"{text}.", change=more)


def _gpu(took: Took) -> Iterator[Advice]:
    if not took.gpus or took.gpu_use is None or took.gpu_use >= GPU_IDLE:
        return
    text = f"GPUs were busy {took.gpu_use:.0f} % of the time with requests in flight"
    if took.client_bound:
        change = ""
        if took.cpus_asked is not None:
            change = f"resources: {{cpus: {took.cpus_asked + 2}}}"
        yield Advice(
            level="warning",
            text=f"{text}: the client was too slow; request more CPUs.",
            change=change,
        )
    elif took.concurrency is not None:
        change = f"concurrency: {2 * took.concurrency}"
        yield Advice(
            level="warning",
            text=f"{text} at a concurrency of {took.concurrency}: use a higher concurrency.",
            change=change,
        )
    else:
        yield Advice(level="note", text=f"{text}.")


def _time(took: Took) -> Iterator[Advice]:
    limit, longest = took.time_limit, took.longest
    if limit is None or longest is None or limit <= 0:
        return
    if longest >= TIME_FULL * limit:
        text = f"A worker ran for {duration(longest)} of its time limit of {duration(limit)}."
        wanted = _quarter(longest * 1.5)
        yield Advice(level="warning", text=text, change=_limit(wanted))
    elif longest < TIME_IDLE * limit and limit >= TIME_LEAST:
        wanted = _quarter(longest * 1.5)
        if wanted < limit:
            text = (
                f"The time limit is {duration(limit)}, and the longest worker ran for "
                f"{duration(longest)}: jobs with a shorter time limit start sooner."
            )
            yield Advice(level="note", text=text, change=_limit(wanted))


def _cpus(took: Took) -> Iterator[Advice]:
    asked = took.cpus_asked
    if asked is None or asked <= 0:
        return
    if took.cpus_mean is not None and took.cpus_mean >= CPU_FULL * asked:
        text = f"{took.cpus_mean:.1f} of {asked} CPUs were busy on average: the CPUs may be the bottleneck."
        yield Advice(level="warning", text=text, change=f"resources: {{cpus: {asked * 2}}}")
    elif took.cpus_peak is not None and took.cpus_peak < CPU_IDLE * asked:
        wanted = max(1, math.ceil(took.cpus_peak * MARGIN))
        if asked - wanted >= CPU_LEAST:
            text = f"The job requested {asked} CPUs; at most {took.cpus_peak:.1f} were busy."
            yield Advice(level="note", text=text, change=f"resources: {{cpus: {wanted}}}")


def _shards(took: Took) -> Iterator[Advice]:
    seconds, size = took.shard_seconds, took.shard_samples
    if seconds is None or seconds <= 0:
        return
    change = ""
    if size:
        change = f"shard_size: {max(1, round(size * SHARD_GOOD / seconds))}"
    if took.time_limit is not None and seconds > SHARD_LONG * took.time_limit:
        text = (
            f"A shard takes {duration(seconds)}, more than half of the time limit: a worker starts none "
            "that it cannot finish, and idles."
        )
        yield Advice(level="warning", text=text, change=change)
    elif seconds < SHARD_SHORT and took.shards >= SHARDS_LEAST:
        text = f"{took.shards} shards took {seconds:.1f} s each: larger shards need fewer files and claims."
        yield Advice(level="note", text=text, change=change)


def _loading(took: Took) -> Iterator[Advice]:
    if took.held is None or took.loading is None or took.held <= 0:
        return
    share = took.loading / took.held
    if share >= LOADING and took.loading >= LOADING_LEAST and took.workers > 1:
        text = (
            f"{share * 100:.0f} % of the allocated time was for {many(took.workers, 'load')} of the model: "
            "use fewer workers."
        )
        change = f"parallelism: {max(1, took.workers // 2)}"
        yield Advice(level="note", text=text, change=change)


def _retries(took: Took) -> Iterator[Advice]:
    if not took.requests or took.tries is None:
        return
    again = took.tries - took.requests
    if again > RETRIES * took.requests:
        tried = f"{many(again, 'request')} were repeated, for {many(took.requests, 'sample')}"
        text = f"{tried}: see the failures and the logs."
        yield Advice(level="warning", text=text)


_RULES: tuple[Callable[[Took], Iterator[Advice]], ...] = (
    _memory, _card, _gpu, _time, _cpus, _shards, _loading, _retries,
)  # fmt: skip


def _gb(value: float) -> str:
    return f"{value:.1f} GiB" if value < 10 else f"{value:.0f} GiB"


def _quarter(seconds: float) -> float:
    """Seconds, rounded up to the next quarter of an hour."""
    return max(1, math.ceil(seconds / 900)) * 900.0


def _limit(seconds: float) -> str:
    return f'resources: {{time_limit: "{slurm.clock(round(seconds))}"}}'
