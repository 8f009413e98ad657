"""Times become speed: latencies, rates and goodput of a run task, the knee of a sweep. Pure; no files.

Records in, plain data for `performance.json` out. A *piece* is what one worker asked one engine in one go
(one attempt at one shard): its times are of one clock, and no time of one piece is ever subtracted from
one of another. What is measured, from which stamp to which, and why, is in docs/measuring.md; each figure
here has its formula in one place. Stamps of a request (`schema.records.Times`), in order:

    scheduled   when it was to be sent under a given rate
    start       taken up: there was room for it
    send        images read, body ready, about to be written (of the last try)
    chunks[0]   first chunk with new text
    chunks[-1]  last chunk with new text
    done        stream closed

*Due* is `scheduled` under a rate and `start` else: the moment from which a user would have waited. What is
counted from due holds the wait in the client, the encoding of images that was not done ahead, and tries that
failed; what is counted from send is the engine's own time, and that of what lies between (benchmarks/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench import statistics
from hpcbench.schema.documents import Slo
from hpcbench.schema.records import Response

ANSWERED = ("ok", "truncated")
"""Outcomes with an answer. Others have no latency: a quick refusal would make the engine look quick."""

SHARES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
"""Percentiles of every latency."""

STEADY = 0.9
"""Share of the usual number in flight from which on a load counts as full."""

BATCHES = 20
"""Consecutive batches that means and rates are taken over: neighbours share a queue and a fate."""

ROUNDS = 2
"""A steady window holds so many answers for each request in flight; else there was but ramp and drain."""

RECOUNT_TOLERANCE = 0.01
"""Share by which the engine's count of tokens and the tokenizer's may differ."""

EVENTS = ("client_health", "monitor")
"""Events of workers about a run task that its figures are made of.

`client_health`: `lag_p50_ms`, `lag_p99_ms`, `lag_max_ms`, `client_bound`; `monitor`: `memory`.
"""

Piece = Sequence[Response]


def measure(
    pieces: Iterable[Piece], slo: Slo | None = None, events: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Every figure of one run task.

    Args:
        pieces: its responses, all that were asked, each piece of one worker and in any order.
        slo: what a good answer keeps; None or empty: no goodput.
        events: the workers' `EVENTS` about it.

    Returns:
        What `performance.json` holds of it, documented in docs/measuring.md. A figure that the data cannot
        bear is None, and `notes` says why.
    """
    ordered = [sorted(piece, key=lambda one: one.times.send) for piece in pieces]
    responses = [one for piece in ordered for one in piece]
    answered = [one for one in responses if one.outcome in ANSWERED]
    told = list(events)
    windows = [steady_window(piece) for piece in ordered if any(one.tries for one in piece)]
    notes: list[str] = []
    figures: dict[str, Any] = {
        "requests": len(responses),
        "answered": len(answered),
        "tries": sum(one.tries for one in responses),
        **{name: _latency(answered, value) for name, value in LATENCIES.items()},
        **_gaps(answered),
        **_rates(windows, slo, notes),
        "prompt_tokens": _tokens(answered, "prompt_tokens"),
        "completion_tokens": _tokens(answered, "completion_tokens"),
        "recount": _recount(answered, notes),
        "attainment": _attainment(responses, slo),
        "client": _client(told, notes),
        "memory": _memory(told),
    }
    again = figures["tries"] - sum(one.tries > 0 for one in responses)
    if again:
        notes.append(f"{again} requests were sent again after a transient failure")
    return {**figures, "valid": not (figures["client"] or {}).get("client_bound"), "notes": notes}


# --- latencies of one request, milliseconds; None where it has none -----------------------------------


def ttft(response: Response) -> float | None:
    """Time to first token: first chunk with new text minus `send`."""
    times = response.times
    return _ms(times.chunks[0] - times.send) if times.chunks else None


def e2e(response: Response) -> float | None:
    """End to end: last chunk with new text minus `send`."""
    times = response.times
    return _ms(times.chunks[-1] - times.send) if times.chunks else None


def ttft_due(response: Response) -> float | None:
    """Time to first token from when it was due."""
    times = response.times
    return _ms(times.chunks[0] - _due(response)) if times.chunks else None


def e2e_due(response: Response) -> float | None:
    """End to end from when it was due: what a user waits."""
    times = response.times
    return _ms(times.chunks[-1] - _due(response)) if times.chunks else None


def tpot(response: Response) -> float | None:
    """Time per output token: from first chunk to last, over the tokens that came after the first chunk.

    The first chunk's tokens are those the engine counted with it, else one. An answer of one chunk has no
    time between tokens.
    """
    times, total = response.times, (response.usage or {}).get("completion_tokens", 0)
    after = total - (times.tokens[0] if times.tokens else 1)
    if after <= 0 or len(times.chunks) < 2:
        return None
    return _ms(times.chunks[-1] - times.chunks[0]) / after


def queue(response: Response) -> float | None:
    """Wait for room in the client: `start` minus `scheduled`; only under a rate."""
    times = response.times
    return None if times.scheduled is None else _ms(times.start - times.scheduled)


def prepare(response: Response) -> float | None:
    """What of reading and encoding images was not done ahead: `send` minus `start`, of a first try."""
    times = response.times
    return _ms(times.send - times.start) if response.tries == 1 else None


LATENCIES: Mapping[str, Callable[[Response], float | None]] = {
    "ttft_ms": ttft,
    "tpot_ms": tpot,
    "e2e_ms": e2e,
    "ttft_due_ms": ttft_due,
    "e2e_due_ms": e2e_due,
    "queue_ms": queue,
    "prepare_ms": prepare,
}


def good(response: Response, slo: Slo) -> bool:
    """Whether there is an answer and it keeps every limit; TTFT and E2E from when it was due.

    An answer of one token has no TPOT and keeps any.
    """
    if response.outcome not in ANSWERED or not response.times.chunks:
        return False
    limits = ((ttft_due, slo.ttft_ms), (tpot, slo.tpot_ms), (e2e_due, slo.e2e_ms))
    return all((value(response) or 0.0) <= limit for value, limit in limits if limit is not None)


def _due(response: Response) -> int:
    times = response.times
    return times.start if times.scheduled is None else times.scheduled


# --- distributions ------------------------------------------------------------------------------------


def _latency(
    answered: Sequence[Response], value: Callable[[Response], float | None]
) -> dict[str, Any] | None:
    """Mean and percentiles of a latency over answered requests, in the order they were sent."""
    values = [found for found in map(value, answered) if found is not None]
    if not values:
        return None
    mean = statistics.mean_interval(values, _batches(len(values)), bounds=(0, None))
    return {
        "n": len(values),
        "mean": _entry(mean),
        **{name: _percentile(values, share) for name, share in SHARES.items()},
        "min": round(min(values), 3),
        "max": round(max(values), 3),
    }


def _percentile(values: Sequence[float], share: float) -> dict[str, Any]:
    """A percentile with its interval and MLPerf's bound, or how many requests it would need."""
    needs = statistics.fewest_for_quantile(share)
    if len(values) < needs:
        return {"value": None, "low": None, "high": None, "needs": needs}
    bound = statistics.early_stopping_estimate(values, share)
    return {
        **_entry(statistics.quantile_interval(values, share)),
        "bound": None if bound is None else round(bound, 3),
    }


def _batches(n: int) -> list[int] | None:
    """Batch of each of n values in order; up to `BATCHES` values each stand for themselves."""
    return [index * BATCHES // n for index in range(n)] if n > BATCHES else None


def _gaps(answered: Sequence[Response]) -> dict[str, Any]:
    """Gaps between chunks, and between tokens where the engine counted those of every chunk.

    Inter-token latency: the gap before a chunk over the tokens in it, once for each of them. Gaps of one
    answer hang together, so the mean's interval is by answers, the percentiles have none, and a percentile
    is told for as many *answers* as any other.
    """
    import numpy

    chunk_gaps, token_gaps, counted = [], [], True
    for one in answered:
        gaps = numpy.diff(one.times.chunks) / 1e6
        if not len(gaps):
            continue
        chunk_gaps.append(gaps)
        counted = counted and len(one.times.tokens) == len(one.times.chunks)
        if counted:
            counts = numpy.maximum(numpy.diff(one.times.tokens), 0)
            token_gaps.append(numpy.repeat(gaps / numpy.maximum(counts, 1), counts))
    return {
        "chunk_gap_ms": _pooled(chunk_gaps),
        "itl_ms": _pooled(token_gaps) if counted else None,
    }


def _pooled(answers: Sequence[Any]) -> dict[str, Any] | None:
    import numpy

    answers = [gaps for gaps in answers if len(gaps)]
    if not answers:
        return None
    pooled = numpy.concatenate(answers)
    mean = statistics.ratio_interval(
        [float(gaps.sum()) for gaps in answers], [len(gaps) for gaps in answers]
    )
    shown: dict[str, Any] = {"n": len(pooled), "answers": len(answers), "mean": _entry(mean)}
    for name, share in SHARES.items():
        needs = statistics.fewest_for_quantile(share)
        enough = len(answers) >= needs
        value = round(float(numpy.quantile(pooled, share)), 3) if enough else None
        shown[name] = {"value": value, "low": None, "high": None} | (
            {} if enough else {"needs": needs}
        )
    return {**shown, "max": round(float(pooled.max()), 3)}


# --- rates --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Window:
    """The steady part of a piece: from the first to the last moment at full load."""

    piece: Piece
    """The requests."""
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


def steady_window(piece: Piece) -> Window:
    """The steady window of a piece of which something was sent.

    In flight is between `send` and `done`. The usual number is the median of what each request found when it
    was sent, so neither a burst, nor a stall, nor one straggler at the end decides it. From the first to the
    last moment at which `STEADY` of it is reached everything counts, stalls in between too: a window chosen
    for its best stretch would flatter.
    """
    sent = [one.times for one in piece if one.tries]
    moments = sorted([(times.send, 1) for times in sent] + [(times.done, -1) for times in sent])
    spans: list[tuple[int, int, int]] = []  # number in flight, from, to
    found, level = [], 0
    for (moment, change), (following, _) in zip(moments, moments[1:], strict=False):
        level += change
        if change > 0:
            found.append(level)
        if following > moment:
            spans.append((level, moment, following))
    usual = sorted(found)[len(found) // 2]
    full = [span for span in spans if span[0] >= STEADY * usual]
    first, last = moments[0][0], moments[-1][0]
    begin, end = (full[0][1], full[-1][2]) if full else (first, last)
    area = sum(count * (to - since) for count, since, to in spans if begin <= since and to <= end)
    return Window(piece, begin, end, usual, area / max(1, end - begin), first, last)


Stream = tuple[Any, Any]
"""Moments in ns and what came at each, two numpy arrays."""


def _rates(windows: Sequence[Window], slo: Slo | None, notes: list[str]) -> dict[str, Any]:
    """Answers, tokens and good answers a second of one engine: in the steady windows, and over all.

    Several pieces are laid end to end, so a rate is that of one engine however many there were.
    """
    goals = slo if slo is not None and slo != Slo() else None
    streams: dict[str, list[Stream] | None] = {
        "answers_per_s": [_ends(window, lambda one: one.outcome in ANSWERED) for window in windows],
        "tokens_per_s": _token_streams(windows),
        "good_per_s": [_ends(window, lambda one: good(one, goals)) for window in windows]
        if goals
        else None,
    }
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
                name: round(sum(float(weights.sum()) for _, weights in stream) / whole, 6)
                if stream is not None and whole
                else None
                for name, stream in streams.items()
            },
        },
    }


def _rate(windows: Sequence[Window], streams: Sequence[Stream], seconds: float) -> dict[str, Any]:
    """What came in the windows per second; its interval is Student's t over equal slices of their time."""
    import numpy

    places, weights = _laid_out(windows, streams)
    slices, _ = numpy.histogram(places, BATCHES, (0.0, seconds), weights=weights)
    per_second = [float(one) for one in slices * BATCHES / seconds]
    interval = statistics.mean_interval(per_second, bounds=(0, None))
    if len(places) < 2 * BATCHES:
        return {"value": round(interval.estimate, 6), "low": None, "high": None}
    return _entry(interval, digits=6)


def _laid_out(windows: Sequence[Window], streams: Sequence[Stream]) -> Stream:
    """What came within the windows, at its place in seconds when these are laid end to end."""
    import numpy

    places, weights, before = [numpy.empty(0)], [numpy.empty(0)], 0
    for window, (moments, counts) in zip(windows, streams, strict=True):
        within = (moments > window.begin) & (moments <= window.end)
        places.append((moments[within] - window.begin + before) / 1e9)
        weights.append(counts[within])
        before += window.end - window.begin
    return numpy.concatenate(places), numpy.concatenate(weights)


def _ends(window: Window, counts: Callable[[Response], bool]) -> Stream:
    """When the requests ended that count."""
    import numpy

    moments = [one.times.done for one in window.piece if counts(one)]
    return numpy.array(moments, dtype=numpy.int64), numpy.ones(len(moments))


def _token_streams(windows: Sequence[Window]) -> list[Stream] | None:
    """When tokens came; None if the engine did not count those of every answer.

    Where it did not count them chunk by chunk, the answer's tokens are spread evenly over its chunks.
    """
    import numpy

    streams = []
    for window in windows:
        moments, weights = [numpy.empty(0, dtype=numpy.int64)], [numpy.empty(0)]
        for one in window.piece:
            chunks, counted = one.times.chunks, one.times.tokens
            total = (one.usage or {}).get("completion_tokens")
            if one.outcome not in ANSWERED or not chunks:
                continue
            if total is None:
                return None
            if len(counted) == len(chunks):
                share = numpy.diff(numpy.array([0, *counted[:-1], max(total, counted[-1])]))
            else:
                share = numpy.full(len(chunks), total / len(chunks))
            moments.append(numpy.array(chunks, dtype=numpy.int64))
            weights.append(share)
        streams.append((numpy.concatenate(moments), numpy.concatenate(weights)))
    return streams


# --- what goes with them ------------------------------------------------------------------------------


def _attainment(responses: Sequence[Response], slo: Slo | None) -> dict[str, Any] | None:
    """Good answers ÷ requests: what failed was asked for, and is not good."""
    if slo is None or slo == Slo() or not responses:
        return None
    count = sum(good(one, slo) for one in responses)
    share = statistics.proportion_interval(count, len(responses))
    return {"slo": slo.model_dump(), "good": count, **_entry(share, digits=6)}


def _recount(answered: Sequence[Response], notes: list[str]) -> dict[str, Any] | None:
    """The engine's count of tokens against that of the model's own tokenizer.

    An engine counts the token that ends an answer and its text does not show it: one an answer is allowed.
    """
    pairs = [
        (one.usage["completion_tokens"], one.recount)
        for one in answered
        if one.recount is not None and one.usage and "completion_tokens" in one.usage
    ]
    if not pairs:
        return None
    engine, tokenizer = (sum(side) for side in zip(*pairs, strict=True))
    off = sum(max(0, abs(told - found) - 1) for told, found in pairs) / max(1, engine)
    if off > RECOUNT_TOLERANCE:
        notes.append(
            f"the engine counted {engine} tokens where its tokenizer counts {tokenizer}: "
            f"{off:.1%} apart, so tokens/s and TPOT are in doubt"
        )
    return {"answers": len(pairs), "engine": engine, "tokenizer": tokenizer, "apart": round(off, 6)}


def _client(events: Sequence[Mapping[str, Any]], notes: list[str]) -> dict[str, Any] | None:
    """How late the client's own event loop ran; the worst of its workers."""
    told = [event for event in events if event["event"] == "client_health"]
    if not told:
        return None
    names = ("lag_p50_ms", "lag_p99_ms", "lag_max_ms")
    worst = {name: _most(event.get(name) for event in told) for name in names}
    bound = any(event.get("client_bound") for event in told)
    if bound:
        notes.append(
            f"client-bound: the client ran up to {worst['lag_p99_ms']} ms late (p99), so these times are "
            "its own as much as the engine's; answers and scores stand"
        )
    return {**worst, "client_bound": bound}


def _memory(events: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The monitor's figures of memory (`monitor.MemoryFigures`), bytes; the largest of its workers."""
    told = [event["memory"] for event in events if event["event"] == "monitor"]
    names = dict.fromkeys(name for memory in told for name in memory)
    return {name: _most(memory.get(name) for memory in told) for name in names} or None


def _most(values: Iterable[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)


def _tokens(responses: Sequence[Response], key: str) -> int | None:
    """Sum of a token count; None if any server did not tell."""
    counts = [(response.usage or {}).get(key) for response in responses]
    return None if None in counts else sum(count or 0 for count in counts)


# --- sweeps -------------------------------------------------------------------------------------------


def sweeps(run_tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Every sweep with its points, its knee and, under limits, its best point.

    Args:
        run_tasks: run task → its figures, with `load.sweep` saying whose point it is.

    Returns:
        Sweep → `points` as they stand, `knee`, and `best`: the valid point with the most good answers a
        second. None where no point has the figures.
    """
    found: dict[str, Any] = {}
    for name, figures in run_tasks.items():
        if figures["load"]["sweep"] is not None:
            found.setdefault(figures["load"]["sweep"], {"points": []})["points"].append(name)
    for sweep in found.values():
        valid = [name for name in sweep["points"] if run_tasks[name]["valid"]]
        curve = {
            name: (rate["value"], latency["mean"]["value"])
            for name in valid
            if (rate := run_tasks[name]["answers_per_s"])
            and (latency := run_tasks[name]["e2e_due_ms"])
        }
        goodput = {name: rate["value"] for name in valid if (rate := run_tasks[name]["good_per_s"])}
        sweep["knee"] = knee(curve)
        sweep["best"] = max(goodput, key=lambda name: goodput[name], default=None)
    return found


def knee(curve: Mapping[str, tuple[float, float]]) -> str | None:
    """The point with the greatest power, throughput ÷ latency (Kleinrock 1979, "Power and deterministic rules
    of thumb for probabilistic problems in computer communications").

    Below it, more load buys more throughput than it costs latency (in per cent of each); above, less. For an
    engine that serves up to N requests as fast as one, that is concurrency N; for a single server with
    Poisson arrivals and exponential service, half its capacity.

    Args:
        curve: point → (throughput, mean latency), any units, above 0.
    """
    power = {
        name: rate / latency for name, (rate, latency) in curve.items() if rate > 0 and latency > 0
    }
    return max(power, key=lambda name: power[name], default=None)


def _entry(interval: statistics.Interval, digits: int = 3) -> dict[str, Any]:
    ends = (("value", interval.estimate), ("low", interval.low), ("high", interval.high))
    return {name: None if end is None else round(end, digits) for name, end in ends}


def _ms(nanoseconds: int) -> float:
    return nanoseconds / 1e6
