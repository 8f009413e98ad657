"""Speed's figures one response at a time: what the columns of `hpcbench.speed` must equal."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy

from hpcbench import statistics
from hpcbench.schema.load import Slo
from hpcbench.schema.records import Response

Pieces = Sequence[Sequence[Response]]
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
KINDS = ("prompt_tokens", "completion_tokens")
Stream = list[tuple[int, float]]
"""Moments, and what came at each."""


def measure(pieces: Pieces, slo: Slo | None = None) -> dict[str, Any]:
    """All figures that come from responses."""
    pieces = [sorted(piece, key=lambda one: one.times.send) for piece in pieces]
    every = [one for piece in pieces for one in piece]
    answered = [one for one in every if has_answer(one)]
    goals = slo if slo is not None and slo != Slo() else None
    kept = [one for one in answered if goals is not None and good(one, goals)]
    share = statistics.proportion_interval(len(kept), len(every)) if every and goals else None
    usages = [one.usage or {} for one in answered]
    return {
        "requests": len(every),
        "answered": len(answered),
        "tries": sum(one.tries for one in every),
        **{name: shown(answered, latency) for name, latency in LATENCIES.items()},
        "chunk_gap_ms": pooled([gaps(one.times.chunks) for one in answered]),
        "itl_ms": between_tokens(answered),
        "tokens_per_chunk": tokens_per_chunk(answered),
        **rates(pieces, goals),
        **{
            kind: sum(usage[kind] for usage in usages)
            if all(kind in usage for usage in usages)
            else None
            for kind in KINDS
        },
        "tokens_each": {
            kind: shape([usage[kind] for usage in usages if kind in usage]) for kind in KINDS
        },
        "recount": recount(answered),
        "attainment": {"slo": goals.model_dump(), "good": len(kept), **entry(share, 6)}
        if share and goals
        else None,
    }


# --- latencies ----------------------------------------------------------------------------------------


def has_answer(one: Response) -> bool:
    return one.outcome in ("ok", "truncated")


def due(one: Response) -> int:
    return one.times.start if one.times.scheduled is None else one.times.scheduled


def tpot(one: Response) -> float | None:
    times, total = one.times, (one.usage or {}).get("completion_tokens", 0)
    if len(times.chunks) < 2:
        return None
    if times.tokens:
        last, after = times.chunks[-1], times.tokens[-1] - times.tokens[0]
    else:
        last, after = max((times.chunks[-1], *times.empty)), total - 1
    return (last - times.chunks[0]) / 1e6 / after if after > 0 else None


def since(moment: Any, place: int) -> Any:
    """From a moment to the first or the last chunk."""

    def found(one: Response) -> float | None:
        chunks = one.times.chunks
        return (chunks[place] - moment(one)) / 1e6 if chunks else None

    return found


def queue(one: Response) -> float | None:
    times = one.times
    return None if times.scheduled is None else (times.start - times.scheduled) / 1e6


def prepare(one: Response) -> float | None:
    return (one.times.send - one.times.start) / 1e6 if one.tries == 1 else None


def send(one: Response) -> int:
    return one.times.send


LATENCIES = {
    "ttft_ms": since(send, 0),
    "tpot_ms": tpot,
    "e2e_ms": since(send, -1),
    "ttft_due_ms": since(due, 0),
    "e2e_due_ms": since(due, -1),
    "queue_ms": queue,
    "prepare_ms": prepare,
}


def good(one: Response, slo: Slo) -> bool:
    limits = {"ttft_due_ms": slo.ttft_ms, "tpot_ms": slo.tpot_ms, "e2e_due_ms": slo.e2e_ms}
    return bool(one.times.chunks) and all(
        (LATENCIES[name](one) or 0.0) <= limit
        for name, limit in limits.items()
        if limit is not None
    )


# --- distributions ------------------------------------------------------------------------------------


def shown(answered: Sequence[Response], latency: Any) -> dict[str, Any] | None:
    values = [found for one in answered if (found := latency(one)) is not None]
    if not values:
        return None
    batch = [place * 20 // len(values) for place in range(len(values))]
    mean = statistics.mean_interval(values, batch if len(values) > 20 else None)
    if mean.low is not None:
        mean = dataclasses.replace(mean, low=max(0.0, mean.low))
    reported: dict[str, Any] = {"n": len(values), "mean": entry(mean)}
    for name, share in PERCENTILES.items():
        if len(values) < (needs := statistics.fewest_for_quantile(share)):
            reported[name] = {"value": None, "low": None, "high": None, "needs": needs}
            continue
        bound = statistics.early_stopping_estimate(values, share)
        reported[name] = {
            **entry(statistics.quantile_interval(values, share)),
            "bound": None if bound is None else round(bound, 3),
        }
    ends = {"min": round(min(values), 3), "max": round(max(values), 3)}
    return {**reported, "quantiles": shape(values), **ends}


def shape(values: Sequence[float]) -> list[float] | None:
    if not values:
        return None
    levels = numpy.linspace(0, 1, min(len(values), 41))
    return [round(float(numpy.quantile(values, one, method="inverted_cdf")), 3) for one in levels]


def gaps(stamps: Sequence[int]) -> list[float]:
    return [(after - before) / 1e6 for before, after in zip(stamps, stamps[1:], strict=False)]


def between_tokens(answered: Sequence[Response]) -> dict[str, Any] | None:
    several = [one.times for one in answered if len(one.times.chunks) > 1]
    if any(len(times.tokens) != len(times.chunks) for times in several):
        return None
    each = []
    for times in several:
        own = []
        for index, gap in enumerate(gaps(times.chunks), 1):
            came = times.tokens[index] - times.tokens[index - 1]
            own += [gap / came] * max(0, came) if came else []
        each.append(own)
    return pooled(each)


def tokens_per_chunk(answered: Sequence[Response]) -> float | None:
    several = [one.times for one in answered if len(one.times.chunks) > 1]
    if not several or any(len(times.tokens) != len(times.chunks) for times in several):
        return None
    came = [max(0, b - a) for times in several for a, b in itertools.pairwise(times.tokens)]
    return round(sum(came) / len(came), 3)


def pooled(answers: Sequence[Sequence[float]]) -> dict[str, Any] | None:
    answers = [one for one in answers if one]
    if not answers:
        return None
    every = [gap for one in answers for gap in one]
    sums = [float(numpy.add.reduceat(numpy.array(one), [0])[0]) for one in answers]
    mean = statistics.ratio_interval(sums, [len(one) for one in answers])
    reported: dict[str, Any] = {"n": len(every), "answers": len(answers), "mean": entry(mean)}
    for name, share in PERCENTILES.items():
        needs = statistics.fewest_for_quantile(share)
        reported[name] = {"value": None, "low": None, "high": None, "needs": needs}
        if len(answers) >= needs:
            value = round(float(numpy.quantile(every, share)), 3)
            reported[name] = {"value": value, "low": None, "high": None}
    return {**reported, "max": round(max(every), 3)}


# --- rates --------------------------------------------------------------------------------------------


def window_of(piece: Sequence[Response]) -> dict[str, Any]:
    """The steady window: who ends at a moment makes room for who begins at it."""
    sent = [one.times for one in piece if one.tries]
    moments = sorted([(times.send, 1) for times in sent] + [(times.done, -1) for times in sent])
    spans, found, level = [], [], 0
    for (moment, change), (following, _) in zip(moments, moments[1:], strict=False):
        level += change
        if change > 0:
            found.append(level)
        if following > moment:
            spans.append((level, moment, following))
    usual = max(1, sorted(found)[len(found) // 2]) if found else 1
    full = [span for span in spans if span[0] >= 0.9 * usual]
    first, last = moments[0][0], moments[-1][0]
    begin, end = (full[0][1], full[-1][2]) if full else (first, last)
    area = sum(count * (to - since) for count, since, to in spans if begin <= since and to <= end)
    return {
        "begin": begin, "end": end, "usual": usual, "mean": area / max(1, end - begin),
        "first": first, "last": last,
    }  # fmt: skip


def rates(pieces: Pieces, goals: Slo | None) -> dict[str, Any]:
    pieces = [piece for piece in pieces if any(one.tries for one in piece)]
    windows = [window_of(piece) for piece in pieces]
    own = [[one for one in piece if has_answer(one)] for piece in pieces]
    tokens = [tokens_of(piece) for piece in own]
    fine = [[one for one in piece if goals is not None and good(one, goals)] for piece in own]
    streams: dict[str, list[Stream] | None] = {
        "answers_per_s": [[(one.times.done, 1.0) for one in piece] for piece in own],
        "tokens_per_s": [one for one in tokens if one is not None] if None not in tokens else None,
        "good_per_s": None
        if goals is None
        else [[(one.times.done, 1.0) for one in piece] for piece in fine],
    }
    seconds = sum(one["end"] - one["begin"] for one in windows) / 1e9
    whole = sum(one["last"] - one["first"] for one in windows) / 1e9
    laid = {name: laid_out(windows, one) if one else [] for name, one in streams.items()}
    steadily = {
        "answers_per_s": shares(windows, own),
        "tokens_per_s": sum(weight for _, weight in laid["tokens_per_s"]),
        "good_per_s": shares(windows, fine),
    }
    answers = len(laid["answers_per_s"])
    steady = seconds > 0 and answers >= 2 * sum(one["usual"] for one in windows)
    area = sum(one["mean"] * (one["end"] - one["begin"]) for one in windows) / 1e9
    return {
        "window": {
            "seconds": round(seconds, 3),
            "answers": answers,
            "in_flight": round(area / seconds, 2) if seconds else None,
            "pieces": len(windows),
        },
        **{
            name: rate(laid[name], steadily[name], seconds)
            if steady and stream is not None
            else None
            for name, stream in streams.items()
        },
        "whole": {
            "seconds": round(whole, 3),
            **{
                name: round(sum(float(numpy.sum([w for _, w in one])) for one in stream) / whole, 6)
                if stream is not None and whole
                else None
                for name, stream in streams.items()
            },
        },
    }


def shares(windows: Sequence[dict[str, Any]], pieces: Pieces) -> float:
    """Answers, each by the share of its time that lies in the window of its piece."""
    found = 0.0
    for window, piece in zip(windows, pieces, strict=True):
        for one in piece:
            send, done = one.times.send, one.times.done
            if done > send:
                inside = min(done, window["end"]) - max(send, window["begin"])
                found += max(0, inside) / (done - send)
            else:
                found += window["begin"] < done <= window["end"]
    return found


def rate(laid: Sequence[tuple[float, float]], came: float, seconds: float) -> dict[str, Any]:
    places, weights = [place for place, _ in laid], [weight for _, weight in laid]
    slices, _ = numpy.histogram(places, 20, (0.0, seconds), weights=weights)
    per_second = [float(one) for one in slices * 20 / seconds]
    found, value = statistics.mean_interval(per_second), came / seconds
    if len(places) < 40 or found.low is None or found.high is None:
        return {"value": round(value, 6), "low": None, "high": None}
    half = found.high - found.estimate
    return {
        "value": round(value, 6),
        "low": round(max(0.0, value - half), 6),
        "high": round(value + half, 6),
    }


def laid_out(
    windows: Sequence[dict[str, Any]], streams: Sequence[Stream]
) -> list[tuple[float, float]]:
    found, before = [], 0
    for window, stream in zip(windows, streams, strict=True):
        for moment, weight in stream:
            if window["begin"] < moment <= window["end"]:
                found.append(((moment - window["begin"] + before) / 1e9, weight))
        before += window["end"] - window["begin"]
    return found


def tokens_of(answered: Sequence[Response]) -> Stream | None:
    found: Stream = []
    for one in answered:
        chunks, counted = one.times.chunks, one.times.tokens
        total = (one.usage or {}).get("completion_tokens")
        if not chunks:
            continue
        if total is None:
            return None
        came: Sequence[float] = [total / len(chunks)] * len(chunks)
        if len(counted) == len(chunks):
            sums = (0, *counted[:-1], max(total, counted[-1]))
            came = [after - before for before, after in zip(sums, sums[1:], strict=False)]
        found += zip(chunks, came, strict=True)
    return found


def recount(answered: Sequence[Response]) -> dict[str, Any] | None:
    pairs = [
        (one.usage["completion_tokens"], one.recount)
        for one in answered
        if one.recount is not None and one.usage and "completion_tokens" in one.usage
    ]
    if not pairs:
        return None
    engine, tokenizer = sum(reported for reported, _ in pairs), sum(found for _, found in pairs)
    off = sum(max(0, abs(reported - found) - 1) for reported, found in pairs) / max(1, engine)
    return {
        "answers": len(pairs), "engine": engine, "tokenizer": tokenizer, "apart": round(off, 6)
    }  # fmt: skip


def entry(interval: statistics.Interval, digits: int = 3) -> dict[str, Any]:
    ends = {"value": interval.estimate, "low": interval.low, "high": interval.high}
    return {name: None if end is None else round(end, digits) for name, end in ends.items()}
