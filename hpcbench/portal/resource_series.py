"""Resource usage of workers over time: GPUs, memory, CPU and the rate of answers, for strips on one clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from hpcbench.experiment.event_log import WARNINGS
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.workers import settled
from hpcbench.portal.lru import LruCache
from hpcbench.portal.models.run_tasks import Resources, Strip
from hpcbench.portal.packed import packed
from hpcbench.portal.worker_series import (
    Series,
    Worker,
    Workers,
    groups_of,
)
from hpcbench.sanitize import sanitize
from hpcbench.schema.plan import Group

STRIPS = 120
"""Most strips of an answer; workers of the newest jobs come first."""

MARKS = 200
"""Most marked events, the newest."""

PACKED_BYTES = 2 << 20
"""Bytes of kept answers: ten workers' readings take 2 kB to 20 kB."""

UNITS = {
    "gpu_use": "%", "gpu_memory": "GiB", "gpu_power": "W", "gpu_temperature": "°C",
    "host_memory": "GiB", "cpu": "CPUs", "rate": "1/s",
}  # fmt: skip
"""Figure → its unit, in the order of display."""

_NAMED_SIZE = re.compile(r"\b(\d{1,4})\s?G(?:i)?B\b", re.IGNORECASE)


def resources(
    experiment: Experiment,
    workers: Workers,
    run_task: str | None = None,
    since: float | None = None,
) -> Resources:
    """Strips of an experiment's workers.

    Args:
        experiment: the experiment.
        workers: its workers.
        run_task: only workers that may process its shards; None: all workers.
        since: only points after this time.
    """
    groups = None if run_task is None else groups_of(experiment, run_task)
    found, whole = workers.look(groups, monitors=True)
    shapes = {group.id: group for group in experiment.work.groups}
    newest = found[::-1]
    strips = [
        strip
        for one in newest
        for strip in _strips(one, shapes.get(one.run.group), since)
        if strip.times
    ]
    marks = sorted(
        mark for one in found for mark in _marks(one) if since is None or mark[0] > since
    )
    ends = [end for one in found for end in _ends(one)]
    return Resources(
        strips=tuple(strips[:STRIPS]),
        marks=tuple(marks[-MARKS:]),
        until=max(ends, default=since or 0.0),
        partial=not whole,
    )


_packed: LruCache[bytes] = LruCache(PACKED_BYTES, len)
"""Answers about workers whose files cannot grow any more."""


def packed_resources(
    experiment: Experiment, workers: Callable[[], Workers], run_task: str | None
) -> bytes:
    """All of `resources` as compressed JSON, kept once no worker can write any more.

    Args:
        experiment: the experiment.
        workers: gives its workers.
        run_task: as `resources`.
    """
    stamp = settled(experiment)
    key = (experiment.path, run_task)
    if stamp is None or (kept := _packed.held(key, stamp)) is None:
        found = resources(experiment, workers(), run_task)
        made = packed(found.model_dump_json())
        whole = stamp is not None and not found.partial
        return _packed.of(key, stamp, lambda: made) if whole else made
    return kept[0]


def card_gb(name: str) -> float | None:
    """Memory of a GPU, GB, from a name that states it: `NVIDIA A100-SXM4-80GB`."""
    return float(match[1]) if (match := _NAMED_SIZE.search(name)) else None


def _strips(worker: Worker, group: Group | None, since: float | None) -> Iterator[Strip]:
    limits: dict[str, float | None] = {"gpu_use": 100.0, "gpu_memory": card_gb(worker.gpu_name)}
    if group is not None:
        limits |= {"host_memory": group.resources.memory_gb, "cpu": float(group.resources.cpus)}
    order = list(UNITS)
    series = [*worker.series.values(), Series("rate", "", worker.rate)]
    for one in sorted(series, key=lambda one: (order.index(one.what), one.device)):
        key, stamp = (worker.run.log, one.what, one.device), (one.points.count, since)
        limit = limits.get(one.what)
        yield _strips_kept.of(key, stamp, partial(_strip, worker.run.stem, one, limit, since))


_strips_kept: LruCache[Strip] = LruCache(8_000, lambda strip: len(strip.times))
"""The last version of each strip: most strips do not change."""


def _strip(stem: str, series: Series, limit: float | None, since: float | None) -> Strip:
    import numpy

    times, values = series.points.points(since)
    what: Any = series.what
    return Strip(
        what=what, worker=stem, device=series.device, unit=UNITS[what], limit=limit, times=times,
        values=tuple(numpy.round(values, 4).tolist()),
    )  # fmt: skip


def _ends(worker: Worker) -> Iterable[float]:
    return [one.points.until for one in worker.series.values()] + [worker.rate.until]


def _marks(worker: Worker) -> Iterator[tuple[float, str]]:
    """Events to mark: loads of models, and failures."""
    for event in worker.events:
        kind, text = event.kind, ""
        if kind in ("model_loading", "model_ready"):
            text = f"{event.model or ''} {'loads' if kind == 'model_loading' else 'is ready'}"
        elif kind in WARNINGS:
            text = f"{kind.replace('_', ' ')}: {event.message}".rstrip(": ")
        if text:
            yield event.time, sanitize(f"{worker.run.stem}: {text}")[:300]
