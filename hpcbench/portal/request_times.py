"""Duration of each request of a run task, read from its answers."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hpcbench.experiment.claims import REUSED
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.answers import answer_frames
from hpcbench.experiment.view.attempts import Attempts
from hpcbench.portal.downsample import extremes
from hpcbench.reporting.figures import Axis, Figure, Series

SECONDS, FRAMES = 0.5, 4
"""Seconds of reading a run task's answers, and the most frames of them."""

BINS = 40
"""Bars of a histogram."""

POINTS = 1_500
"""Most requests that are drawn: of more, the slowest and fastest of each stretch of time."""

Request = tuple[float, "float | None", float]
"""Send time (seconds since the epoch, by its node's clock), TTFT and E2E in milliseconds."""


def requests_of(experiment: Experiment, run_task: str) -> tuple[list[Request], bool]:
    """Requests that this experiment sent and that were answered, by shard, and whether these are all."""
    attempts, until = Attempts(experiment, run_task), time.monotonic() + SECONDS
    starts: dict[tuple[int, int], tuple[float, int]] = {}
    found: list[Request] = []
    columns = ("shard", "attempt", "send_ns", "ttft_ms", "e2e_ms")
    for number, frame in enumerate(answer_frames(experiment, run_task, columns=columns), 1):
        for shard, attempt, send, ttft, e2e in frame.select(columns).iter_rows():
            if send is None or e2e is None or attempt == REUSED:
                continue
            # The first request of an attempt was sent about when its shard was claimed.
            if (shard, attempt) not in starts:
                starts[shard, attempt] = attempts.began(shard, attempt), send
            begin, first = starts[shard, attempt]
            found.append((begin + (send - first) / 1e9, ttft, e2e))
        if number >= FRAMES or time.monotonic() > until:
            return found, False
    return found, True


def over_time(experiment: Experiment, run_task: str) -> Figure | None:
    """TTFT and E2E of each request over its send time."""
    found, whole = requests_of(experiment, run_task)
    if not found:
        return None
    found.sort(key=lambda one: one[0])
    count = len(found)
    found = [found[place] for place in extremes([one[2] for one in found], POINTS)]
    at = tuple(one[0] for one in found)
    ttft, e2e = tuple(one[1] for one in found), tuple(one[2] for one in found)
    series = [Series("E2E", at, e2e, mark="point")]
    if ttft != e2e:  # an answer in one piece has only one time
        series.append(Series("TTFT", at, ttft, mark="point"))
    notes = ["Times are from the clocks of the nodes."]
    if count > len(found):
        notes.append(f"The figure shows {len(found)} of {count} requests, the slowest included.")
    return Figure(
        "over-time", "Latency of each request over the run", "scatter",
        Axis("sent, UTC", scale="time"), Axis("latency", "ms", low=0.0), tuple(series),
        notes=tuple([*notes, *_first(count, whole)]),
    )  # fmt: skip


def histogram(experiment: Experiment, run_task: str) -> Figure | None:
    """Distribution of the requests' E2E."""
    import numpy

    found, whole = requests_of(experiment, run_task)
    values = [one[2] for one in found]
    if not values:
        return None
    counts, edges = numpy.histogram(values, BINS)
    series = Series("E2E", tuple(map(float, edges)), tuple(map(float, counts)))
    return Figure(
        "latency-histogram", "E2E latency of requests", "histogram", Axis("E2E latency", "ms"),
        Axis("requests", low=0.0), (series,), notes=tuple(_first(len(found), whole)),
    )  # fmt: skip


def _first(count: int, whole: bool) -> Sequence[str]:
    return () if whole else (f"The figure shows only the first {count} requests.",)
