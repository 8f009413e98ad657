"""Rates of one engine: the steady window of a piece, and what came within it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hpcbench import statistics
from hpcbench.speed.distributions import BATCHES, entry
from hpcbench.speed.request_times import NOT_TOLD, Timed, take

STEADY = 0.9
"""Share of the usual number in flight from which on a load counts as full."""

ROUNDS = 2
"""A steady window holds so many answers for each request in flight; else there was but ramp and drain."""


@dataclass(frozen=True, slots=True)
class Window:
    """The steady part of a piece: from the first to the last moment at full load."""

    begin: int
    """First moment at which `STEADY` of the usual number were in flight, ns."""
    end: int
    """Last such moment, ns."""
    usual: int
    """The usual number in flight: the median of what each request found, itself included."""
    mean: float
    """Mean number in flight within the window."""
    first: int
    """First `send` of the piece, ns."""
    last: int
    """Last `done` of the piece, ns."""


def steady_window(piece: Timed) -> Window:
    """The steady window of a piece, in columns, of which something was sent.

    In flight is between `send` and `done`. The usual number is the median of what each request found when it
    was sent, so neither a burst, nor a stall, nor one straggler at the end decides it. From the first to the
    last moment at which `STEADY` of it is reached everything counts, stalls in between too: a window chosen
    for its best stretch would flatter.
    """
    import numpy

    sent = piece.tries != 0
    send, done = piece.send[sent], piece.done[sent]
    moments = numpy.concatenate([send, done])
    changes = numpy.repeat([1, -1], [len(send), len(done)])
    order = numpy.lexsort([changes, moments])  # who ends makes room for who begins at that moment
    moments, changes = moments[order], changes[order]
    since, to = moments[:-1], moments[1:]
    level = numpy.cumsum(changes)[:-1]  # in flight between these
    found = numpy.sort(level[changes[:-1] > 0])
    # Of requests that took no time at all, nobody is ever in flight.
    usual = max(1, int(found[len(found) // 2])) if len(found) else 1
    first, last = int(moments[0]), int(moments[-1])
    (full,) = numpy.nonzero((level >= STEADY * usual) & (to > since))
    begin, end = (int(since[full[0]]), int(to[full[-1]])) if len(full) else (first, last)
    within = (begin <= since) & (to <= end)
    area = int((level * (to - since))[within].sum())
    return Window(begin, end, usual, area / max(1, end - begin), first, last)


class Stream(NamedTuple):
    """What came of one piece."""

    moments: Any
    """When, ns, an array."""
    weights: Any
    """How much at each of them, an array."""
    steady: float
    """How much of all belongs to the steady window."""


def rates(
    windows: Sequence[Window], streams: Mapping[str, list[Stream] | None], notes: list[str]
) -> dict[str, Any]:
    """Answers, tokens and good answers a second of one engine: in the steady windows, and over all.

    Several pieces are laid end to end, so a rate is that of one engine however many there were.
    """
    seconds = sum(window.end - window.begin for window in windows) / 1e9
    whole = sum(window.last - window.first for window in windows) / 1e9
    answers = len(_laid_out(windows, streams["answers_per_s"] or [])[0])
    needed = ROUNDS * sum(max(1, window.usual) for window in windows)
    steady = seconds > 0 and answers >= needed
    if windows and not steady:
        notes.append(
            f"no steady rates: {answers} answers under full load, fewer than {ROUNDS} for each request in "
            f"flight ({needed})"
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
    """What belongs to the windows per second; its interval is as wide as Student's t over equal slices of
    their time, of what came in each, has it.
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
    """What came within the windows, at its place in seconds when these are laid end to end."""
    import numpy

    places, weights, before = [numpy.empty(0)], [numpy.empty(0)], 0
    for window, stream in zip(windows, streams, strict=True):
        within = _within(window, stream.moments)
        places.append((stream.moments[within] - window.begin + before) / 1e9)
        weights.append(stream.weights[within])
        before += window.end - window.begin
    return numpy.concatenate(places), numpy.concatenate(weights)


def ends(answers: Timed, window: Window) -> Stream:
    """When answers ended, each counting one.

    To the window belongs the share of an answer's time, `send` to `done`, that lies within. An engine that
    answers whole batches ends the window with the first answer of the last one: counted where they end, all
    its others would be lost, a round of every piece.
    """
    import numpy

    send, done = answers.send, answers.done
    inside = numpy.minimum(done, window.end) - numpy.maximum(send, window.begin)
    shares = numpy.where(
        done > send, numpy.maximum(0, inside) / numpy.maximum(1, done - send), _within(window, done)
    )
    return Stream(done, numpy.ones(len(done)), float(shares.sum()))


def token_stream(answers: Timed, window: Window) -> Stream | None:
    """When tokens came; None if the engine did not count those of every answer.

    Where it did not count them chunk by chunk, the answer's tokens are spread evenly over its chunks.
    """
    import numpy

    size, total = answers.size, answers.completion_tokens
    if (total[size > 0] == NOT_TOLD).any():
        return None
    weights = numpy.repeat(total / numpy.maximum(size, 1), size)
    by_chunk = (answers.counted == size) & (size > 0)
    known = take(answers, by_chunk)
    last = numpy.cumsum(known.size) - 1
    first = last + 1 - known.size
    tokens = known.tokens
    # With its last chunk came all that the engine has not told of before.
    tokens[last] = numpy.maximum(tokens[last], known.completion_tokens)
    came = numpy.diff(tokens, prepend=0)
    came[first] = tokens[first]
    weights[numpy.repeat(by_chunk, size)] = came
    steady = float(weights[_within(window, answers.chunks)].sum())
    return Stream(answers.chunks, weights, steady)
