"""What to ask for next time: over- and under-asked memory, GPUs, CPUs, time and shards, in plain words.

Pure: figures in, sentences out, and nothing is said where a figure is not known. Every rule compares what was
asked with what was used; its threshold stands beside it, and in docs/portal.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpcbench.evaluation.number_format import many
from hpcbench.portal.models.run_tasks import Advice

MEMORY_IDLE, MEMORY_FULL = 0.5, 0.9
"""Share of the host memory asked for at its peak: less is too much asked, more is near its end."""

MEMORY_LEAST = 4.0
"""GiB of host memory that must be left over for a word."""

CARD_IDLE = 0.6
"""Share of a GPU's memory that was needed, below which more requests at once would fit."""

GPU_IDLE = 40.0
"""Percent of the time that GPUs were busy while asked, below which they mostly waited."""

TIME_IDLE, TIME_FULL = 0.25, 0.9
"""Share of the time limit that the longest worker took."""

TIME_LEAST = 3600.0
"""Seconds of a time limit below which a shorter one hardly starts sooner."""

CPU_IDLE, CPU_FULL = 0.5, 0.95
"""Share of the CPUs asked for: busy at the peak, and busy in the mean."""

CPU_LEAST = 2.0
"""CPUs that must be left over for a word."""

SHARD_SHORT, SHARD_LONG = 10.0, 0.5
"""Seconds of a shard, and its share of the time limit."""

SHARDS_LEAST = 20
"""Shards below which their length does not matter."""

SHARD_GOOD = 300.0
"""Seconds of a shard that is neither short nor long."""

LOADING = 0.3
"""Share of the time held that went into loading models."""

LOADING_LEAST = 300.0
"""Seconds of loading below which it does not matter."""

RETRIES = 0.1
"""Share of requests that had to be sent again."""

MARGIN = 1.25
"""What is proposed lies so far above what was used."""


@dataclass(frozen=True, slots=True)
class Took:
    """What a run task's workers were given and what they used; None: not known."""

    memory_asked_gb: float | None = None
    """Host memory of a worker, GiB."""
    memory_peak_gb: float | None = None
    """Most that one held at any time, loading included, GiB."""
    gpus: int = 0
    """GPUs of a worker."""
    card_gb: float | None = None
    """Memory of such a GPU, GB."""
    needed_gb: float | None = None
    """What of it was really needed; of an engine that reserves all at once not what it reserved, GiB."""
    gpu_use: float | None = None
    """Mean use of GPUs while they were asked, percent."""
    client_bound: bool = False
    """Whether the client was late, and not the engine slow."""
    concurrency: int | None = None
    """Requests at once; None: workers look for the number."""
    time_limit: float | None = None
    """Time limit of a worker, seconds."""
    longest: float | None = None
    """Longest life of a worker that has ended, seconds."""
    cpus_asked: int | None = None
    """CPUs of a worker."""
    cpus_peak: float | None = None
    """Most that were busy at a time."""
    cpus_mean: float | None = None
    """How many were busy in the mean."""
    shard_seconds: float | None = None
    """Median time of a shard."""
    shard_samples: int | None = None
    """Samples of a shard."""
    shards: int = 0
    """Shards that were done."""
    held: float | None = None
    """Time that workers held what they held for this run task, seconds."""
    loading: float | None = None
    """What of it went into loading models, seconds."""
    workers: int = 0
    """Workers that took part."""
    requests: int | None = None
    """Samples asked."""
    tries: int | None = None
    """Requests sent for them, those sent again included."""


def advice(took: Took) -> tuple[Advice, ...]:
    """What to ask for next time, warnings first; nothing where all is well or nothing is known."""
    found = [one for rule in _RULES for one in rule(took)]
    return tuple(sorted(found, key=lambda one: one.level != "warning"))


def _memory(took: Took) -> Iterator[Advice]:
    asked, peak = took.memory_asked_gb, took.memory_peak_gb
    if asked is None or peak is None or asked <= 0:
        return
    wanted = math.ceil(peak * MARGIN + 1)
    if peak >= MEMORY_FULL * asked:
        text = f"A worker held {_gb(peak)} of the {_gb(asked)} of host memory it may have: near its end."
        yield Advice(level="warning", text=text, change=f"resources: {{memory_gb: {wanted}}}")
    elif peak < MEMORY_IDLE * asked and asked - wanted >= MEMORY_LEAST:
        text = f"Asked for {_gb(asked)} of host memory, used {_gb(peak)} at the peak."
        yield Advice(level="note", text=text, change=f"resources: {{memory_gb: {wanted}}}")


def _card(took: Took) -> Iterator[Advice]:
    card, needed = took.card_gb, took.needed_gb
    if not took.gpus or card is None or needed is None or card <= 0:
        return
    if needed < CARD_IDLE * card:
        text = f"GPU memory: {_gb(needed)} of {card:g} GB were needed"
        more = "" if took.concurrency is None else f"concurrency: {2 * took.concurrency}"
        if needed * MARGIN < card / 2:
            text += "; a card half as large would do, or more requests at once would fit"
        else:
            text += "; more requests at once would fit"
        yield Advice(level="note", text=f"{text}.", change=more)


def _gpu(took: Took) -> Iterator[Advice]:
    if not took.gpus or took.gpu_use is None or took.gpu_use >= GPU_IDLE:
        return
    text = f"GPUs were busy {took.gpu_use:.0f} % of the time while they were asked"
    if took.client_bound:
        change = ""
        if took.cpus_asked is not None:
            change = f"resources: {{cpus: {took.cpus_asked + 2}}}"
        yield Advice(
            level="warning", text=f"{text}: the client was late; give it CPUs.", change=change
        )
    elif took.concurrency is not None:
        change = f"concurrency: {2 * took.concurrency}"
        yield Advice(
            level="warning",
            text=f"{text}, with {took.concurrency} requests at once: ask more at once.",
            change=change,
        )
    else:
        yield Advice(level="note", text=f"{text}.")


def _time(took: Took) -> Iterator[Advice]:
    limit, longest = took.time_limit, took.longest
    if limit is None or longest is None or limit <= 0:
        return
    if longest >= TIME_FULL * limit:
        text = f"A worker took {_time_text(longest)} of its time limit of {_time_text(limit)}."
        wanted = _quarter(longest * 1.5)
        yield Advice(level="warning", text=text, change=_limit(wanted))
    elif longest < TIME_IDLE * limit and limit >= TIME_LEAST:
        wanted = _quarter(longest * 1.5)
        if wanted < limit:
            text = (
                f"The time limit is {_time_text(limit)}, the longest worker took "
                f"{_time_text(longest)}: jobs that ask for less start sooner."
            )
            yield Advice(level="note", text=text, change=_limit(wanted))


def _cpus(took: Took) -> Iterator[Advice]:
    asked = took.cpus_asked
    if asked is None or asked <= 0:
        return
    if took.cpus_mean is not None and took.cpus_mean >= CPU_FULL * asked:
        text = (
            f"All {asked} CPUs were busy, {took.cpus_mean:.1f} in the mean: they may be the brake."
        )
        yield Advice(level="warning", text=text, change=f"resources: {{cpus: {asked * 2}}}")
    elif took.cpus_peak is not None and took.cpus_peak < CPU_IDLE * asked:
        wanted = max(1, math.ceil(took.cpus_peak * MARGIN))
        if asked - wanted >= CPU_LEAST:
            text = f"Asked for {asked} CPUs, at most {took.cpus_peak:.1f} were busy."
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
            f"A shard takes {_time_text(seconds)}, more than half of the time limit: a worker begins none "
            "that it cannot end, and idles."
        )
        yield Advice(level="warning", text=text, change=change)
    elif seconds < SHARD_SHORT and took.shards >= SHARDS_LEAST:
        text = f"{took.shards} shards took {seconds:.1f} s each: files and claims for little work."
        yield Advice(level="note", text=text, change=change)


def _loading(took: Took) -> Iterator[Advice]:
    if took.held is None or took.loading is None or took.held <= 0:
        return
    share = took.loading / took.held
    if share >= LOADING and took.loading >= LOADING_LEAST and took.workers > 1:
        text = (
            f"{share * 100:.0f} % of the time held went into loading the model {many(took.workers, 'time')}: "
            "fewer workers load less."
        )
        change = f"parallelism: {max(1, took.workers // 2)}"
        yield Advice(level="note", text=text, change=change)


def _retries(took: Took) -> Iterator[Advice]:
    if not took.requests or took.tries is None:
        return
    again = took.tries - took.requests
    if again > RETRIES * took.requests:
        tried = (
            f"{many(again, 'request')} had to be sent again, for {many(took.requests, 'sample')}"
        )
        text = f"{tried}: see failures and logs."
        yield Advice(level="warning", text=text)


_RULES: tuple[Callable[[Took], Iterator[Advice]], ...] = (
    _memory, _card, _gpu, _time, _cpus, _shards, _loading, _retries,
)  # fmt: skip


def _gb(value: float) -> str:
    return f"{value:.1f} GiB" if value < 10 else f"{value:.0f} GiB"


def _quarter(seconds: float) -> float:
    """Up to the next quarter of an hour."""
    return max(1, math.ceil(seconds / 900)) * 900.0


def _limit(seconds: float) -> str:
    return f'resources: {{time_limit: "{_clock(seconds)}"}}'


def _clock(seconds: float) -> str:
    """As Slurm reads it, `[D-]HH:MM:SS`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{hours:02d}:{minutes:02d}:{rest:02d}"
    return f"{days}-{text}" if days else text


def _time_text(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
