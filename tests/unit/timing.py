"""Responses of known schedules: what a server of known speed and a client of known habit leave behind."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hpcbench import speed
from hpcbench.schema.load import Slo
from hpcbench.schema.records import Response, Times

MS = 1_000_000
"""Nanoseconds in a millisecond."""


def measured(
    pieces: Iterable[Sequence[Response]],
    slo: Slo | None = None,
    events: Iterable[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Speed's figures of pieces of responses."""
    return speed.measure([in_columns(*piece) for piece in pieces], slo, events)


def in_columns(*responses: Response) -> speed.Timed:
    """Responses as speed's columns."""
    return speed.columns(map(speed.Timed.of, responses))


def answered(
    number: int,
    send: float,
    first: float,
    last: float,
    *,
    start: float | None = None,
    scheduled: float | None = None,
    chunks: int = 5,
    tokens: int | None = None,
    counted: bool = False,
    ended: float | None = None,
    **more: Any,
) -> Response:
    """An answer sent, started and ended at these times in ms, in `chunks` equal steps.

    `ended` is when a token without text ended it.
    """
    tokens = chunks if tokens is None else tokens
    step = (last - first) / max(1, chunks - 1)
    arrivals = tuple(round((first + step * index) * MS) for index in range(chunks))
    values: dict[str, Any] = {
        "sample_id": f"s{number}",
        "outcome": "ok",
        "text": "text",
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 100, "completion_tokens": tokens + (ended is not None)},
        "times": Times(
            start=round((send if start is None else start) * MS),
            send=round(send * MS),
            headers=round(first * MS),
            chunks=arrivals,
            done=round((last if ended is None else ended) * MS),
            empty=() if ended is None else (round(ended * MS),),
            scheduled=None if scheduled is None else round(scheduled * MS),
            tokens=tuple(tokens * (index + 1) // chunks for index in range(chunks))
            if counted
            else (),
        ),
        "tries": 1,
        "image_sha256": ("0" * 64,),
        **more,
    }
    return Response(**values)


def failed(number: int, send: float, done: float) -> Response:
    """A request that came to nothing."""
    times = Times(round(send * MS), round(send * MS), None, (), round(done * MS))
    return Response(f"s{number}", "failed", None, None, None, times, 1, (), "no answer")


def closed_loop(
    count: int, concurrency: int, service: Callable[[random.Random, int], float], seed: int = 0
) -> list[Response]:
    """`count` requests of which always `concurrency` are in flight; `service` says how long one takes, ms."""
    chance = random.Random(seed)
    slots = [0.0] * concurrency
    found = []
    for number in range(count):
        started = heapq.heappop(slots)
        took = service(chance, number)
        found.append(answered(number, started, started + took / 2, started + took))
        heapq.heappush(slots, started + took)
    return found


def open_loop(arrivals: Sequence[float], service: Sequence[float], room: int) -> list[Response]:
    """Requests due at `arrivals`, sent as soon as one of `room` is free, each taking `service`; ms."""
    slots = [0.0] * room
    found = []
    for number, (due, took) in enumerate(zip(arrivals, service, strict=True)):
        started = max(due, heapq.heappop(slots))
        found.append(
            answered(
                number, started, started + took / 2, started + took, start=started, scheduled=due
            )
        )
        heapq.heappush(slots, started + took)
    return found
