"""The figures of other benchmark clients, recomputed from stored responses under their own names.

The kits agree on names and disagree on meanings: vLLM's TTFT ends at the first chunk of any kind, SGLang's
at the first with text; `ITL` is a gap between chunks in those two and a mean per request in guidellm and
aiperf; guidellm's TPOT includes the TTFT, the others' do not. Definitions as of vLLM 0.32 (`bench serve`),
SGLang 0.5.23 (`bench_serving`), guidellm 0.8.1 and aiperf 0.13, given for each key beside its value.

Where every kit starts its clock "at the request", this is `times.send`; it excludes building the body, which
some kits count. Figures that our records cannot give are left out: percentiles that guidellm takes from a
weighted distribution, tokens of reasoning, tokens of the prompt by the client's tokenizer, requested lengths.
So are peaks of one-second buckets, which count chunks and call them tokens. Limits (`slos`) are vLLM's and
SGLang's only. Responses must share one clock: `end_to_end` puts those of several workers on one.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcbench.schema.records import Response, Times

_DURATION = "seconds from the first send to the end of the last stream, with ramp-up and drain"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number as another kit would have printed it."""

    value: float
    """In the unit of its name; milliseconds for latencies unless the definition says otherwise."""
    definition: str
    """Its definition in that kit."""


Figures = dict[str, Figure]
Slos = Mapping[str, float]


def vllm(responses: Sequence[Response], slos: Slos | None = None) -> Figures:
    """`vllm bench serve`; `slos` are its `--goodput` pairs: ttft, tpot, e2e(l) → milliseconds."""
    served = _served(responses)
    if not served:
        return {}
    seconds = _seconds(served)
    counts = [(_usage(r) or r.recount or 1) for r in served]
    chunks = [_all_chunks(r.times) for r in served]
    ttfts = [_ms(seen[0] - r.times.send) for r, seen in zip(served, chunks, strict=True)]
    e2els = [_ms(seen[-1] - r.times.send) for r, seen in zip(served, chunks, strict=True)]
    tpots = _tpots(ttfts, e2els, counts)
    counted = "usage.completion_tokens; if it is missing, the recount; without both, 1"
    figures = _serve_totals(served, responses, seconds, counts, counted)
    figures |= _four("ttft_ms", ttfts, "first chunk with choices, even without text, − send")
    figures |= _four(
        "tpot_ms",
        _known(tpots),
        "(E2E − TTFT) ÷ (tokens − 1), for answers with more than one token",
    )
    gaps = [gap for seen in chunks for gap in _gaps(seen)]
    figures |= _four("itl_ms", gaps, "gap between chunks with choices, pooled over all requests")
    figures |= _four("e2el_ms", e2els, "last chunk with choices − send")
    if slos:
        good = _good(slos, ttfts, tpots, e2els)
        text = "requests that meet all SLOs ÷ duration; TPOT of a one-token answer is 0"
        figures["request_goodput"] = Figure(good / seconds, text)
    return figures


def sglang(responses: Sequence[Response], slos: Slos | None = None) -> Figures:
    """`sglang.bench_serving`; it replaces a missing count of the server by the requested length, whereas here
    such a request has no tokens.
    """
    served = [r for r in _served(responses) if r.times.chunks]
    if not served:
        return {}
    seconds = _seconds(served)
    counts = [_usage(r) or 0 for r in served]
    ttfts = [_ms(r.times.chunks[0] - r.times.send) for r in served]
    e2es = [_ms(r.times.done - r.times.send) for r in served]
    tpots = _tpots(ttfts, e2es, counts)
    figures = _serve_totals(served, None, seconds, counts, "usage.completion_tokens")
    text = "prompt tokens of answered requests ÷ duration"
    figures["input_throughput"] = Figure(_prompt(served) / seconds, text)
    if all(r.recount is not None for r in served):
        again = sum(r.recount or 0 for r in served)
        figures["total_output_tokens_retokenized"] = Figure(
            again, "tokens of all answers, recounted with the model's tokenizer"
        )
        text = "recounted tokens ÷ duration"
        figures["output_throughput_retokenized"] = Figure(again / seconds, text)
    text = "sum of E2E ÷ duration: mean number of requests in flight"
    figures["concurrency"] = Figure(sum(e2es) / 1e3 / seconds, text)
    figures |= _four("e2e_latency_ms", e2es, "end of the stream (its last line) − send", (90, 99))
    figures |= _four("ttft_ms", ttfts, "first chunk with text or reasoning − send")
    figures |= _four(
        "tpot_ms",
        _known(tpots),
        "(E2E − TTFT) ÷ (tokens − 1), for answers with more than one token",
    )
    gaps = [gap for r in served for gap in _gaps(r.times.chunks)]
    text = "gap between chunks with text or reasoning, pooled over all requests"
    figures |= _four("itl_ms", gaps, text, (95, 99))
    if gaps:
        figures["max_itl_ms"] = Figure(
            max(gaps), "longest gap between chunks with text or reasoning"
        )
    if slos:
        good = _good(slos, ttfts, tpots, e2es)
        figures["goodput"] = Figure(good / seconds, "requests that meet all SLOs ÷ duration")
        figures["slo_attainment"] = Figure(
            good / len(responses), "requests that meet all SLOs ÷ requests sent"
        )
    return figures


def guidellm(responses: Sequence[Response], slos: Slos | None = None) -> Figures:
    """guidellm's means. Its percentiles and rates come from time-weighted distributions: left out."""
    served = [r for r in _served(responses) if r.times.chunks]
    if not served:
        return {}
    counts = [_usage(r) or r.recount or 0 for r in served]
    firsts = [r.times.chunks[0] for r in served]
    lasts = [r.times.chunks[-1] for r in served]
    sends = [r.times.send for r in served]
    rows = list(zip(sends, firsts, lasts, counts, strict=True))
    latencies = [(r.times.done - r.times.send) / 1e9 for r in served]
    columns = {
        "time_to_first_token_ms": (
            [_ms(first - send) for send, first, _, _ in rows],
            "first chunk with text or reasoning − send",
        ),
        "inter_token_latency_ms": (
            [_ms(last - first) / (n - 1) for _, first, last, n in rows if n > 1],
            "(last − first chunk with text) ÷ (tokens − 1), per request",
        ),
        "time_per_output_token_ms": (
            [_ms(last - send) / n for send, _, last, n in rows if n],
            "(last chunk with text − send) ÷ tokens, per request; includes TTFT",
        ),
        "request_latency": (latencies, "seconds from send to the stream's end"),
        "output_tokens_per_second": (
            [n / latency for n, latency in zip(counts, latencies, strict=True) if n],
            "tokens ÷ latency, per request",
        ),
        "output_token_count": (
            [float(n) for n in counts if n],
            "usage.completion_tokens; if it is missing, the recount",
        ),
    }
    figures = {
        f"{name}.mean": Figure(statistics.fmean(values), f"mean: {text}")
        for name, (values, text) in columns.items()
        if values
    }
    late = [
        (r.times.send - r.times.scheduled) / 1e9 for r in served if r.times.scheduled is not None
    ]
    if late:
        text = "mean: seconds from the scheduled time to the send"
        figures["request_dispatch_delay.mean"] = Figure(statistics.fmean(late), text)
    return figures


def aiperf(responses: Sequence[Response], slos: Slos | None = None) -> Figures:
    """aiperf; its tokens are by the client's tokenizer, our recount; without a recount they are left out."""
    served = [r for r in _served(responses) if r.times.chunks]
    if not served:
        return {}
    seconds = (max(r.times.chunks[-1] for r in served) - min(r.times.send for r in served)) / 1e9
    figures = {
        "request_count": Figure(len(served), "answered requests"),
        "error_request_count": Figure(len(responses) - len(served), "requests without an answer"),
        "benchmark_duration": Figure(
            seconds, "seconds from the first send to the last chunk with text"
        ),
        "request_throughput": Figure(len(served) / seconds, "request_count ÷ benchmark_duration"),
    }
    ttfts = [_ms(r.times.chunks[0] - r.times.send) for r in served]
    latencies = [_ms(r.times.chunks[-1] - r.times.send) for r in served]
    seconds_ = [
        _ms(r.times.chunks[1] - r.times.chunks[0]) for r in served if len(r.times.chunks) > 1
    ]
    gaps = [gap for r in served for gap in _gaps(r.times.chunks)]
    figures |= _percentiles("time_to_first_token", ttfts, "first chunk with text − send")
    figures |= _percentiles("time_to_second_token", seconds_, "second − first chunk with text")
    figures |= _percentiles("request_latency", latencies, "last chunk with text − send")
    figures |= _percentiles("inter_chunk_latency", gaps, "gap between chunks with text")
    counts = [r.recount for r in served]
    if all(count is not None for count in counts):
        total = sum(count or 0 for count in counts)
        # the number of tokens in the first chunk is only known if the server counted with every chunk
        firsts = [r.times.tokens[0] if r.times.tokens else 1 for r in served]
        itls = [
            (latency - ttft) / (count - first)
            for latency, ttft, count, first in zip(latencies, ttfts, counts, firsts, strict=True)
            if count is not None and count > first
        ]
        text = "(request_latency − TTFT) ÷ (recount − tokens of the first chunk, 1 where unknown)"
        figures |= _percentiles("inter_token_latency", itls, text)
        text = "recounted tokens of all answers"
        figures["total_output_sequence_length"] = Figure(total, text)
        text = "recounted tokens ÷ benchmark_duration"
        figures["output_token_throughput"] = Figure(total / seconds, text)
    return figures


KITS: Mapping[str, Callable[[Sequence[Response], Slos | None], Figures]] = {
    "vllm": vllm,
    "sglang": sglang,
    "guidellm": guidellm,
    "aiperf": aiperf,
}
"""Name of a kit → function that computes its figures."""


def end_to_end(pieces: Iterable[Sequence[Response]]) -> list[Response]:
    """All responses on one clock: each piece starts at the end of the previous one.

    Clocks of different nodes cannot be compared, and between two pieces an engine may have loaded, or
    answered other requests. So all figures are those of one engine, however many there were; the duration is
    the sum of the pieces', and latencies are unchanged. A piece without an answer takes no time.
    """
    found: list[Response] = []
    end = 0
    for piece in pieces:
        served = _served(piece)
        if not served:
            found += piece
            continue
        begin = min(r.times.send for r in served)
        found += [replace(r, times=_later(r.times, end - begin)) for r in piece]
        end += max(r.times.done for r in served) - begin
    return found


def _later(times: Times, by: int) -> Times:
    """The same times on a clock that is `by` nanoseconds ahead."""

    def at(moment: int | None) -> int | None:
        return None if moment is None else moment + by

    return replace(
        times,
        start=times.start + by,
        send=times.send + by,
        headers=at(times.headers),
        chunks=tuple(one + by for one in times.chunks),
        done=times.done + by,
        scheduled=at(times.scheduled),
        empty=tuple(one + by for one in times.empty),
    )


def _served(responses: Sequence[Response]) -> list[Response]:
    """Successful responses by the kits' definition: a complete stream, whatever its finish_reason."""
    return [r for r in responses if r.text is not None and (r.times.chunks or r.times.empty)]


def _serve_totals(
    served: Sequence[Response],
    sent: Sequence[Response] | None,
    seconds: float,
    counts: Sequence[int],
    counted: str,
) -> Figures:
    """Figures that vLLM and SGLang share."""
    prompt, out = _prompt(served), sum(counts)
    totals = "total_token_throughput" if sent is not None else "total_throughput"
    figures = {
        "duration": Figure(seconds, _DURATION),
        "completed": Figure(len(served), "answered requests"),
        "total_input_tokens": Figure(prompt, "usage.prompt_tokens, sum over answered requests"),
        "total_output_tokens": Figure(out, f"{counted}; sum over answered requests"),
        "request_throughput": Figure(len(served) / seconds, "answered requests ÷ duration"),
        "output_throughput": Figure(out / seconds, "output tokens of answered requests ÷ duration"),
        totals: Figure(
            (prompt + out) / seconds, "prompt and output tokens of answered requests ÷ duration"
        ),
    }
    if sent is not None:
        figures["failed"] = Figure(len(sent) - len(served), "requests without an answer")
    return figures


def _four(
    name: str, values: Sequence[float], definition: str, percentiles: Sequence[int] = (99,)
) -> Figures:
    """Mean, median, population deviation and percentiles by linear interpolation; empty for no values."""
    if not values:
        return {}
    found = {
        f"mean_{name}": Figure(statistics.fmean(values), f"mean: {definition}"),
        f"median_{name}": Figure(statistics.median(values), f"median: {definition}"),
        f"std_{name}": Figure(
            statistics.pstdev(values), f"population standard deviation: {definition}"
        ),
    }
    for share in percentiles:
        text = f"p{share}, linear interpolation: {definition}"
        found[f"p{share}_{name}"] = Figure(percentile(values, share), text)
    return found


def _percentiles(name: str, values: Sequence[float], definition: str) -> Figures:
    if not values:
        return {}
    found = {
        f"{name}.avg": Figure(statistics.fmean(values), f"mean, ms: {definition}"),
        f"{name}.min": Figure(min(values), f"minimum, ms: {definition}"),
        f"{name}.max": Figure(max(values), f"maximum, ms: {definition}"),
    }
    for share in (50, 90, 99):
        text = f"p{share}, linear interpolation, ms: {definition}"
        found[f"{name}.p{share}"] = Figure(percentile(values, share), text)
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """The percentile by linear interpolation, numpy's default."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _tpots(
    ttfts: Sequence[float], e2es: Sequence[float], counts: Sequence[int]
) -> list[float | None]:
    rows = zip(ttfts, e2es, counts, strict=True)
    return [(e2e - ttft) / (n - 1) if n > 1 else None for ttft, e2e, n in rows]


def _good(
    slos: Slos, ttfts: Sequence[float], tpots: Sequence[float | None], e2es: Sequence[float]
) -> int:
    """Requests that meet all objectives; `e2e` and `e2el` are the two kits' names for the same latency."""
    known = {"ttft": ttfts, "tpot": [tpot or 0.0 for tpot in tpots], "e2e": e2es, "e2el": e2es}
    return sum(all(known[n][i] <= most for n, most in slos.items()) for i in range(len(ttfts)))


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _all_chunks(times: Times) -> list[int]:
    return sorted((*times.chunks, *times.empty))


def _gaps(times: Sequence[int]) -> list[float]:
    return [_ms(after - before) for before, after in itertools.pairwise(times)]


def _seconds(served: Sequence[Response]) -> float:
    return (max(r.times.done for r in served) - min(r.times.send for r in served)) / 1e9


def _usage(response: Response) -> int | None:
    return (response.usage or {}).get("completion_tokens")


def _prompt(served: Sequence[Response]) -> int:
    return sum((r.usage or {}).get("prompt_tokens", 0) for r in served)


def _ms(nanoseconds: int) -> float:
    return nanoseconds / 1e6
