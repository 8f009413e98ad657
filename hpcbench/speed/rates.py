"""Rates of one engine: the steady window of a piece, and the answers and tokens within it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hpcbench import statistics
from hpcbench.speed.distributions import BATCHES, entry
from hpcbench.speed.request_times import NOT_COUNTED, Timed, take

STEADY = 0.9
"""Share of the usual number in flight from which a load counts as full."""

ROUNDS = 2
"""Fewest answers of a steady window for each request in flight; with fewer, a piece is only ramp and drain.
"""


@dataclass(frozen=True, slots=True)
class Window:
    """The steady part of a piece: from the first to the last moment at full load."""

    begin: int
    """First moment with `STEADY` of the usual number in flight, ns."""
    end: int
    """Last such moment, ns."""
    usual: int
    """The usual number in flight: the median of the numbers that requests found, themselves included."""
    mean: float
    """Mean number in flight within the window."""
    first: int
    """First `send` of the piece, ns."""
    last: int
    """Last `done` of the piece, ns."""


def steady_window(piece: Timed) -> Window:
    """The steady window of a piece, in columns, with at least one sent request.

    A request is in flight between `send` and `done`. The usual number is the median of the numbers that
    requests found when they were sent, so neither a burst, nor a stall, nor one straggler at the end decides
    it. The window spans from the first to the last moment with `STEADY` of it, including stalls: a window
    chosen for its best part would flatter.
    """
    import numpy

    sent = piece.tries != 0
    send, done = piece.send[sent], piece.done[sent]
    moments = numpy.concatenate([send, done])
    changes = numpy.repeat([1, -1], [len(send), len(done)])
    order = numpy.lexsort([changes, moments])  # at one moment, ends count first
    moments, changes = moments[order], changes[order]
    since, to = moments[:-1], moments[1:]
    level = numpy.cumsum(changes)[:-1]  # number in flight between these moments
    found = numpy.sort(level[changes[:-1] > 0])
    # Requests that take no time at all are never in flight.
    usual = max(1, int(found[len(found) // 2])) if len(found) else 1
    first, last = int(moments[0]), int(moments[-1])
    (full,) = numpy.nonzero((level >= STEADY * usual) & (to > since))
    begin, end = (int(since[full[0]]), int(to[full[-1]])) if len(full) else (first, last)
    within = (begin <= since) & (to <= end)
    area = int((level * (to - since))[within].sum())
    return Window(begin, end, usual, area / max(1, end - begin), first, last)


class Stream(NamedTuple):
    """Answers or tokens of one piece over time."""

    moments: Any
    """Moments, ns, an array."""
    weights: Any
    """Amount at each moment, an array."""
    steady: float
    """The part of the total that belongs to the steady window."""


def rates(
    windows: Sequence[Window], streams: Mapping[str, list[Stream] | None], notes: list[str]
) -> dict[str, Any]:
    """Answers, tokens and good answers per second of one engine: in the steady windows, and overall.

    Several pieces are laid end to end, so a rate is that of one engine for any number of engines.
    """
    seconds = sum(window.end - window.begin for window in windows) / 1e9
    whole = sum(window.last - window.first for window in windows) / 1e9
    answers = len(_laid_out(windows, streams["answers_per_s"] or [])[0])
    needed = ROUNDS * sum(max(1, window.usual) for window in windows)
    steady = seconds > 0 and answers >= needed
    if windows and not steady:
        notes.append(
            f"no steady rates: {answers} answers under full load, {needed} are needed ({ROUNDS} per request "
            "in flight)"
        )
    area = sum(window.mean * (window.end - window.begin) for window in windows) / 1e9
    return {
        "window": {
            "seconds": round(seconds, 3),
            "answers": answers,
            "in_flight": round(area / seconds, 2) if seconds else None,
            "pieces": len(windows),
        },
        **{
            name: _rate(windows, stream, seconds) if steady and stream is not None else None
            for name, stream in streams.items()
        },
        "whole": {
            "seconds": round(whole, 3),
            **{
                name: round(sum(float(one.weights.sum()) for one in stream) / whole, 6)
                if stream is not None and whole
                else None
                for name, stream in streams.items()
            },
        },
    }


def _rate(windows: Sequence[Window], streams: Sequence[Stream], seconds: float) -> dict[str, Any]:
    """Amount per second of the windows; the width of its interval comes from Student's t over the amounts in
    equal slices of their time.
    """
    import numpy

    value = sum(stream.steady for stream in streams) / seconds
    places, weights = _laid_out(windows, streams)
    slices, _ = numpy.histogram(places, BATCHES, (0.0, seconds), weights=weights)
    per_second = [float(one) for one in slices * BATCHES / seconds]
    found = statistics.mean_interval(per_second)
    if len(places) < 2 * BATCHES or found.low is None or found.high is None:
        return {"value": round(value, 6), "low": None, "high": None}
    low, high = value + found.low - found.estimate, value + found.high - found.estimate
    return entry(replace(found, estimate=value, low=max(0.0, low), high=high), digits=6)


def _within(window: Window, moments: Any) -> Any:
    return (moments > window.begin) & (moments <= window.end)


def _laid_out(windows: Sequence[Window], streams: Sequence[Stream]) -> tuple[Any, Any]:
    """Moments and amounts within the windows, laid end to end, in seconds from the start."""
    import numpy

    places, weights, before = [numpy.empty(0)], [numpy.empty(0)], 0
    for window, stream in zip(windows, streams, strict=True):
        within = _within(window, stream.moments)
        places.append((stream.moments[within] - window.begin + before) / 1e9)
        weights.append(stream.weights[within])
        before += window.end - window.begin
    return numpy.concatenate(places), numpy.concatenate(weights)


def ends(answers: Timed, window: Window) -> Stream:
    """End times of answers, each with amount one.

    An answer counts for the window with the share of its time, `send` to `done`, within the window. An engine
    that answers whole batches ends the window with the first answer of the last batch: by end times, the
    other answers of that batch would be lost, a round of every piece.
    """
    import numpy

    send, done = answers.send, answers.done
    inside = numpy.minimum(done, window.end) - numpy.maximum(send, window.begin)
    shares = numpy.where(
        done > send, numpy.maximum(0, inside) / numpy.maximum(1, done - send), _within(window, done)
    )
    return Stream(done, numpy.ones(len(done)), float(shares.sum()))


def token_stream(answers: Timed, window: Window) -> Stream | None:
    """Arrival times of tokens; None if the engine did not count the tokens of every answer.

    Where it did not count by chunk, the answer's tokens are spread evenly over its chunks.
    """
    import numpy

    size, total = answers.size, answers.completion_tokens
    if (total[size > 0] == NOT_COUNTED).any():
        return None
    weights = numpy.repeat(total / numpy.maximum(size, 1), size)
    by_chunk = (answers.counted == size) & (size > 0)
    known = take(answers, by_chunk)
    last = numpy.cumsum(known.size) - 1
    first = last + 1 - known.size
    tokens = known.tokens
    # The last chunk brings all tokens that the engine has not reported before.
    tokens[last] = numpy.maximum(tokens[last], known.completion_tokens)
    came = numpy.diff(tokens, prepend=0)
    came[first] = tokens[first]
    weights[numpy.repeat(by_chunk, size)] = came
    steady = float(weights[_within(window, answers.chunks)].sum())
    return Stream(answers.chunks, weights, steady)
