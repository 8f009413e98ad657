"""How long the requests of a run task took, one by one, read from its answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic_core import from_json

from hpcbench.experiment.layout import Experiment, attempts_in
from hpcbench.files.archive import Folder
from hpcbench.files.atomic import parse_line
from hpcbench.portal.thinned import extremes, finite
from hpcbench.reporting.figures import Axis, Figure, Series

BYTES, SECONDS = 16 << 20, 0.5
"""How much is read of a run task's answers, and for how long."""

BINS = 40
"""Bars of a histogram."""

POINTS = 1_500
"""Requests that are drawn one by one: of more the slowest and quickest of each stretch of time."""

Request = tuple[float, "float | None", float]
"""When it was sent (seconds since the epoch, by its node's clock), TTFT and E2E in milliseconds."""


def requests_of(experiment: Experiment, run_task: str) -> tuple[list[Request], bool]:
    """Requests that were answered, in order of shards, and whether these are all."""
    folder = experiment.shards(run_task)
    found: list[Request] = []
    left, until = BYTES, time.monotonic() + SECONDS
    for index, attempts in sorted(attempts_in(folder.names).items()):
        for attempt in attempts:
            name = experiment.shard_responses(run_task, index, attempt).name
            begun = _begun(folder, experiment.shard_events(run_task, index, attempt).name)
            data = folder.read(name)
            found += _timed(data, begun)
            left -= len(data)
            if left < 0 or time.monotonic() > until:
                return found, False
    return found, True


def _begun(folder: Folder, name: str) -> float:
    first = next(iter(folder.records(name)), {})
    return finite(first.get("time")) or 0.0


def _timed(data: bytes, begun: float) -> Iterator[Request]:
    """Requests of one attempt; its first one was sent about when the shard was claimed."""
    first: float | None = None
    for record in _records(data):
        times = record.get("times")
        if not isinstance(times, dict):
            continue
        send, chunks = finite(times.get("send")), times.get("chunks")
        if send is None or not isinstance(chunks, list) or not chunks:
            continue
        begin, end = finite(chunks[0]), finite(chunks[-1])
        if begin is None or end is None:
            continue
        first = send if first is None else first
        yield begun + (send - first) / 1e9, (begin - send) / 1e6, (end - send) / 1e6


def _records(data: bytes) -> Iterator[Mapping[str, Any]]:
    whole = data[: data.rfind(b"\n") + 1]
    for line in whole.splitlines():
        try:
            record = from_json(line)
        except ValueError:
            record = parse_line(line)
        if isinstance(record, dict):
            yield record


def over_time(experiment: Experiment, run_task: str) -> Figure | None:
    """TTFT and E2E of each request, when it was sent."""
    found, whole = requests_of(experiment, run_task)
    if not found:
        return None
    found.sort(key=lambda one: one[0])
    count = len(found)
    found = [found[place] for place in extremes([one[2] for one in found], POINTS)]
    at = tuple(one[0] for one in found)
    ttft, e2e = tuple(one[1] for one in found), tuple(one[2] for one in found)
    series = [Series("E2E", at, e2e, mark="point")]
    if ttft != e2e:  # an answer in one piece has but one time
        series.append(Series("TTFT", at, ttft, mark="point"))
    notes = ["Placed by the clocks of their nodes."]
    if count > len(found):
        notes.append(f"{len(found)} of {count} requests are drawn, the slowest among them.")
    return Figure(
        "over-time", "Time of each request over the run", "scatter",
        Axis("sent, UTC", scale="time"), Axis("time", "ms", low=0.0), tuple(series),
        notes=tuple([*notes, *_first(count, whole)]),
    )  # fmt: skip


def histogram(experiment: Experiment, run_task: str) -> Figure | None:
    """How many requests took how long."""
    import numpy

    found, whole = requests_of(experiment, run_task)
    values = [one[2] for one in found]
    if not values:
        return None
    counts, edges = numpy.histogram(values, BINS)
    series = Series("E2E", tuple(map(float, edges)), tuple(map(float, counts)))
    return Figure(
        "latency-histogram", "E2E of requests", "histogram", Axis("E2E", "ms"),
        Axis("requests", low=0.0), (series,), notes=tuple(_first(len(found), whole)),
    )  # fmt: skip


def _first(count: int, whole: bool) -> Sequence[str]:
    return () if whole else (f"The first {count} requests are drawn; there are more.",)
