"""Speed from times: latencies, rates and goodput of a run task, the knee of a sweep. Pure; no files.

The input is records, the output is plain data for `performance.json`. A *piece* is the requests of one worker
to one engine in one attempt at one shard: its times are of one clock, and times of different pieces are never
subtracted. docs/measuring.md defines each figure with its stamps and reasons; each figure has its formula in
one place: latencies in `request_times`, percentiles and gaps in `distributions`, the steady window and rates
in `rates`, the knee in `sweeps`. Stamps of a request (`schema.records.Times`), in order:

    scheduled   planned send time under a given rate
    start       taken up by the client: the number in flight allowed it
    send        images read, body ready, about to be written (of the last try)
    chunks[0]   first chunk with new text
    chunks[-1]  last chunk with new text
    done        stream closed

*Due* is `scheduled` under a rate and `start` else: the moment from which a user would have waited. A time
from due includes the wait in the client, the encoding of images that was not done ahead, and failed tries; a
time from send is the engine's own time, plus that of the path between (benchmarks/).

Responses are processed as columns (`Timed`), a piece at a time; `lines` reads a million responses without an
object for each. tests/unit/plain_speed.py computes the same, one response after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpcbench import statistics
from hpcbench.number_format import percent
from hpcbench.schema.load import Slo
from hpcbench.speed import distributions
from hpcbench.speed.distributions import SHARES
from hpcbench.speed.lines import read, token_span
from hpcbench.speed.rates import (
    Stream,
    Window,
    ends,
    rates,
    steady_window,
    token_stream,
)
from hpcbench.speed.request_times import (
    LATENCIES,
    NOT_COUNTED,
    Latency,
    Timed,
    by_sending,
    columns,
    e2e,
    e2e_due,
    good,
    prepare,
    queue,
    take,
    tpot,
    ttft,
    ttft_due,
)
from hpcbench.speed.sweeps import knee, sweeps

__all__ = [
    "EVENTS", "LATENCIES", "NOT_COUNTED", "SHARES", "Latency", "Timed", "columns", "e2e",
    "e2e_due", "good", "knee", "measure", "prepare", "queue", "read", "steady_window", "sweeps", "take",
    "token_span", "tpot", "ttft", "ttft_due",
]  # fmt: skip

RECOUNT_TOLERANCE = 0.01
"""Share by which the token counts of the engine and the tokenizer may differ."""

EVENTS = ("client_health", "monitor")
"""Events of workers about a run task that its figures are computed from.

`client_health`: `lag_p50_ms`, `lag_p99_ms`, `lag_max_ms`, `client_bound`; `monitor`: `memory`.
"""


def measure(
    pieces: Iterable[Timed],
    slo: Slo | None = None,
    events: Iterable[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Every figure of one run task.

    Args:
        pieces: its responses, one for each request, each piece of one worker, in columns and any order.
        slo: the limits of a good answer; None or empty: no goodput.
        events: the workers' `EVENTS` about it.

    Returns:
        The run task's entry of `performance.json`, documented in docs/measuring.md. A figure for which the
        data do not suffice is None, and `notes` says why.
    """
    seen = _Seen(slo)
    for piece in pieces:
        seen.add(by_sending(piece))
    logged = list(events)
    notes: list[str] = []
    figures: dict[str, Any] = {
        "requests": seen.requests,
        "answered": seen.answered,
        "tries": seen.tries,
        **{name: distributions.latency(_joined(values)) for name, values in seen.latencies.items()},
        "chunk_gap_ms": distributions.pooled(seen.chunk_gaps),
        "itl_ms": distributions.pooled(seen.token_gaps) if seen.counted else None,
        "tokens_per_chunk": _tokens_per_chunk(seen),
        **rates(seen.windows, seen.streams, notes),
        "prompt_tokens": seen.tokens["prompt_tokens"],
        "completion_tokens": seen.tokens["completion_tokens"],
        "tokens_each": {
            name: distributions.quantiles(counts) if len(counts := _joined(values)) else None
            for name, values in seen.tokens_each.items()
        },
        "recount": _recount(_joined(seen.engine_counts), _joined(seen.recounts), notes),
        "attainment": _attainment(seen.good, seen.requests, slo),
        "client": _client(logged, notes),
        "memory": _memory(logged),
    }
    again = seen.tries - seen.sent
    if again:
        notes.append(f"the client sent {again} requests again after a transient failure")
    return {**figures, "valid": not (figures["client"] or {}).get("client_bound"), "notes": notes}


class _Seen:
    """Data kept of all pieces: arrays of numbers. A million requests take some hundred MiB."""

    def __init__(self, slo: Slo | None) -> None:
        self.requests = self.answered = self.tries = self.sent = self.good = 0
        self.latencies: dict[str, list[Any]] = {name: [] for name in LATENCIES}
        self.tokens: dict[str, int | None] = {"prompt_tokens": 0, "completion_tokens": 0}
        """Sum of each count; None if any server did not report it."""
        self.tokens_each: dict[str, list[Any]] = {name: [] for name in self.tokens}
        """The counts of answers whose server reported them."""
        self.chunk_gaps: list[distributions.Gaps] = []
        self.token_gaps: list[distributions.Gaps] = []
        self.counted = True
        """Whether the engine counted the tokens of every chunk."""
        self.engine_counts: list[Any] = []
        """The engine's token counts of the answers that were counted again."""
        self.recounts: list[Any] = []
        """The tokenizer's counts of the same answers."""
        self.windows: list[Window] = []
        self.streams: dict[str, list[Stream] | None] = {
            "answers_per_s": [], "tokens_per_s": [], "good_per_s": None
        }  # fmt: skip
        self._goals = slo if slo is not None and slo != Slo() else None
        if self._goals is not None:
            self.streams["good_per_s"] = []

    def add(self, piece: Timed) -> None:
        """Add the figures of one piece, in the order of sending."""
        answers = take(piece, piece.answered > 0)
        self.requests += len(piece.send)
        self.answered += len(answers.send)
        self.tries += int(piece.tries.sum())
        self.sent += int((piece.tries > 0).sum())
        for name, latency in LATENCIES.items():
            self.latencies[name].append(latency.among(answers))
        self._add_tokens(answers)
        self._add_gaps(answers)
        kept = good(answers, self._goals) if self._goals is not None else None
        self.good += 0 if kept is None else int(kept.sum())
        if piece.tries.any():
            self._add_rates(piece, answers, kept)

    def _add_tokens(self, answers: Timed) -> None:
        """Token counts: the engine's, and the tokenizer's."""
        for name, total in self.tokens.items():
            counts = getattr(answers, name)
            known = counts[counts != NOT_COUNTED]
            self.tokens_each[name].append(known)
            whole = total is not None and len(known) == len(counts)
            self.tokens[name] = (total or 0) + int(known.sum()) if whole else None
        both = (answers.recount != NOT_COUNTED) & (answers.completion_tokens != NOT_COUNTED)
        self.engine_counts.append(answers.completion_tokens[both])
        self.recounts.append(answers.recount[both])

    def _add_gaps(self, answers: Timed) -> None:
        """Gaps between chunks, and between tokens where the engine counted the tokens of every chunk."""
        several = take(answers, answers.size > 1)
        gaps, sizes = distributions.differences(several.chunks, several.size)
        self.chunk_gaps.append(distributions.chunk_gaps(gaps, sizes))
        self.counted = self.counted and bool((several.counted == several.size).all())
        if self.counted:
            counts, _ = distributions.differences(several.tokens, several.size)
            self.token_gaps.append(distributions.token_gaps(gaps, sizes, counts))

    def _add_rates(self, piece: Timed, answers: Timed, kept: Any) -> None:
        window = steady_window(piece)
        self.windows.append(window)
        streams = self.streams
        assert streams["answers_per_s"] is not None
        streams["answers_per_s"].append(ends(answers, window))
        if streams["good_per_s"] is not None:
            streams["good_per_s"].append(ends(take(answers, kept), window))
        tokens = token_stream(answers, window)
        if streams["tokens_per_s"] is not None and tokens is not None:
            streams["tokens_per_s"].append(tokens)
        else:
            streams["tokens_per_s"] = None


def _joined(parts: Sequence[Any]) -> Any:
    import numpy

    return numpy.concatenate([numpy.empty(0), *parts])


def _tokens_per_chunk(seen: _Seen) -> float | None:
    """Mean tokens of a chunk after the first; None where the engine does not count them by chunk."""
    chunks = sum(int(sizes.sum()) for _, _, sizes in seen.chunk_gaps)
    if not seen.counted or not chunks:
        return None
    return round(sum(int(sizes.sum()) for _, _, sizes in seen.token_gaps) / chunks, 3)


# --- further figures ----------------------------------------------------------------------------------


def _attainment(count: int, requests: int, slo: Slo | None) -> dict[str, Any] | None:
    """Good answers ÷ requests: a failed request counts, and is not good."""
    if slo is None or slo == Slo() or not requests:
        return None
    share = statistics.proportion_interval(count, requests)
    return {"slo": slo.model_dump(), "good": count, **distributions.entry(share, digits=6)}


def _recount(counts: Any, recounts: Any, notes: list[str]) -> dict[str, Any] | None:
    """The engine's token count compared with that of the model's own tokenizer, for the same answers.

    An engine counts the end token of an answer, which its text does not show: a difference of one per answer
    is allowed.
    """
    if not len(counts):
        return None
    engine, tokenizer = int(counts.sum()), int(recounts.sum())
    off = float((abs(counts - recounts) - 1).clip(0).sum()) / max(1, engine)
    if off > RECOUNT_TOLERANCE:
        notes.append(
            f"the engine counted {engine} tokens, the model's tokenizer {tokenizer}: they differ by "
            f"{percent(off, 1)}, so tokens/s and TPOT are unreliable"
        )
    return {
        "answers": len(counts),
        "engine": engine,
        "tokenizer": tokenizer,
        "apart": round(off, 6),
    }


def _client(events: Sequence[Mapping[str, Any]], notes: list[str]) -> dict[str, Any] | None:
    """Delays of the client's own event loop; the worst of its workers."""
    health = [event for event in events if event["event"] == "client_health"]
    if not health:
        return None
    names = ("lag_p50_ms", "lag_p99_ms", "lag_max_ms")
    worst = {name: _most(event.get(name) for event in health) for name in names}
    bound = any(event.get("client_bound") for event in health)
    if bound:
        notes.append(
            f"client-bound: the client ran up to {worst['lag_p99_ms']} ms late (p99), so these times include "
            "delays of the client; answers and scores are valid"
        )
    return {**worst, "client_bound": bound}


def _memory(events: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The monitor's figures of memory (`monitor.MemoryFigures`), bytes; the largest of its workers."""
    readings = [event["memory"] for event in events if event["event"] == "monitor"]
    names = dict.fromkeys(name for memory in readings for name in memory)
    return {name: _most(memory.get(name) for memory in readings) for name in names} or None


def _most(values: Iterable[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)
