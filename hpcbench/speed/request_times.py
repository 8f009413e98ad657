"""Times of responses for speed, one by one or as columns, and the formulas of latencies, for both."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hpcbench.schema.load import Slo
from hpcbench.schema.records import ANSWERED, Response

NOT_COUNTED = -1
"""Marks an unreported count of tokens."""


class Timed(NamedTuple):
    """Times and counts of one response, or of several: then each field is an array, see `columns`."""

    answered: Any
    """Whether there is an answer."""
    tries: Any
    """Number of requests sent for it."""
    rated: Any
    """Whether it was sent under a given rate."""
    due: Any
    """`scheduled` under a rate, else `start`, ns, as for all times."""
    start: Any
    """The request was taken up."""
    send: Any
    """The request was about to be written."""
    first: Any
    """First chunk with new text; 0 without one."""
    last: Any
    """Last chunk with new text; 0 without one."""
    done: Any
    """The stream was closed."""
    size: Any
    """Chunks with new text."""
    counted: Any
    """Chunks with which the engine counted tokens."""
    until: Any
    """Arrival of the last token of `after`; 0 without a chunk. Where the engine counts by chunk, this is
    `last`; else its total includes the end token, which has no text: then it is the last chunk of any kind.
    """
    after: Any
    """Tokens after the first chunk, up to `until`. The first chunk has the tokens that the engine counted
    with it, else one.
    """
    prompt_tokens: Any
    """The engine's count, or `NOT_COUNTED`."""
    completion_tokens: Any
    """The engine's count, or `NOT_COUNTED`."""
    recount: Any
    """The tokenizer's count, or `NOT_COUNTED`."""
    chunks: Any
    """Arrival of each chunk; for several responses, one response after the other."""
    tokens: Any
    """Tokens of the answer up to each chunk, where the engine counts them; in the same layout."""

    @classmethod
    def of(cls, response: Response) -> Timed:
        """The times and counts of a response."""
        times, usage, recount = response.times, response.usage or {}, response.recount
        chunks, tokens = times.chunks, times.tokens
        unseen = () if tokens else times.empty
        prompt, total = usage.get("prompt_tokens"), usage.get("completion_tokens")
        return cls(
            response.outcome in ANSWERED,
            response.tries,
            times.scheduled is not None,
            times.start if times.scheduled is None else times.scheduled,
            times.start,
            times.send,
            chunks[0] if chunks else 0,
            chunks[-1] if chunks else 0,
            times.done,
            len(chunks),
            len(tokens),
            max((*chunks[-1:], *unseen[-1:])) if chunks else 0,
            tokens[-1] - tokens[0] if tokens else (total or 0) - 1,
            NOT_COUNTED if prompt is None else prompt,
            NOT_COUNTED if total is None else total,
            NOT_COUNTED if recount is None else recount,
            chunks,
            tokens,
        )


_BATCH = 10_000
"""Responses in memory as objects at a time: as columns a stamp takes a quarter of the memory."""


def columns(piece: Iterable[Timed]) -> Timed:
    """Responses as one `Timed`, whose fields are arrays of whole numbers."""
    rows = iter(piece)
    parts = []
    while some := list(itertools.islice(rows, _BATCH)):
        parts.append(_packed(some))
    return joined(parts)


def joined(parts: Iterable[Timed]) -> Timed:
    """Joins the columns of several groups of responses."""
    import numpy

    every = [_packed(()), *parts]
    return Timed(*(numpy.concatenate(fields) for fields in zip(*every, strict=True)))


def by_sending(piece: Timed) -> Timed:
    """Columns in the order in which the requests were sent."""
    import numpy

    return take(piece, numpy.argsort(piece.send, kind="stable"))


def take(several: Timed, places: Any) -> Timed:
    """The responses at these places, in this order."""
    taken = {name: field[places] for name, field in zip(_NUMBERS, several, strict=False)}
    return Timed(
        **taken,
        chunks=several.chunks[_spans(several.size, places)],
        tokens=several.tokens[_spans(several.counted, places)],
    )


_NUMBERS = Timed._fields[:-2]
"""Fields with one number per response."""


def _spans(sizes: Any, places: Any) -> Any:
    """Places in a flat array of the elements of these sequences; `sizes` has the size of each sequence."""
    import numpy

    starts, own = (numpy.cumsum(sizes) - sizes)[places], sizes[places]
    return numpy.repeat(starts - (numpy.cumsum(own) - own), own) + numpy.arange(own.sum())


def _packed(rows: Sequence[Timed]) -> Timed:
    """Responses as columns."""
    import numpy

    fields: list[Iterable[Any]] = list(zip(*rows, strict=True)) or [()] * len(Timed._fields)
    fields[-2:] = map(itertools.chain.from_iterable, fields[-2:])
    return Timed(*(numpy.frombuffer(array("q", field), dtype=numpy.int64) for field in fields))


# --- latencies, milliseconds --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Latency:
    """A latency: one formula for a response and for columns of them."""

    has: Callable[[Timed], Any]
    """Whether a response has it."""
    value: Callable[[Timed], Any]
    """The latency of a response that has it, ms."""

    def __call__(self, response: Response) -> float | None:
        """The latency of one response; None where it has none."""
        one = Timed.of(response)
        return float(self.value(one)) if self.has(one) else None

    def among(self, several: Timed) -> Any:
        """The latencies of those responses that have one, an array in their order."""
        return self._values(several)[self.has(several)]

    def within(self, limit: float, several: Timed) -> Any:
        """Which of several keep a limit, an array; responses without the latency keep it."""
        return ~self.has(several) | (self._values(several) <= limit)

    def _values(self, several: Timed) -> Any:
        import numpy

        with numpy.errstate(divide="ignore", invalid="ignore"):  # for responses without the latency
            return self.value(several)


def _has_text(one: Timed) -> Any:
    return one.size > 0


ttft = Latency(_has_text, lambda one: (one.first - one.send) / 1e6)
"""Time to first token: first chunk with new text minus `send`."""

e2e = Latency(_has_text, lambda one: (one.last - one.send) / 1e6)
"""End to end: last chunk with new text minus `send`."""

ttft_due = Latency(_has_text, lambda one: (one.first - one.due) / 1e6)
"""Time to first token from due."""

e2e_due = Latency(_has_text, lambda one: (one.last - one.due) / 1e6)
"""End to end from due: the wait of a user."""

tpot = Latency(
    lambda one: (one.after > 0) & (one.size > 1),
    lambda one: (one.until - one.first) / 1e6 / one.after,
)
"""Time per output token: from first chunk to `until`, over the tokens after the first chunk.

An answer of one chunk has no time between tokens.
"""

queue = Latency(lambda one: one.rated > 0, lambda one: (one.start - one.due) / 1e6)
"""Wait in the client for a free place: `start` minus `scheduled`; only under a rate."""

prepare = Latency(lambda one: one.tries == 1, lambda one: (one.send - one.start) / 1e6)
"""Reading and encoding of images that was not done ahead: `send` minus `start`, for a first try."""

LATENCIES: Mapping[str, Latency] = {
    "ttft_ms": ttft,
    "tpot_ms": tpot,
    "e2e_ms": e2e,
    "ttft_due_ms": ttft_due,
    "e2e_due_ms": e2e_due,
    "queue_ms": queue,
    "prepare_ms": prepare,
}


def good(several: Timed, slo: Slo) -> Any:
    """Which of several are answers that keep every limit, an array; TTFT and E2E count from due.

    An answer of one token has no TPOT and keeps any.
    """
    kept = (several.answered > 0) & _has_text(several)
    for latency, limit in ((ttft_due, slo.ttft_ms), (tpot, slo.tpot_ms), (e2e_due, slo.e2e_ms)):
        if limit is not None:
            kept &= latency.within(limit, several)
    return kept
