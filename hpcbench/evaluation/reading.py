"""Reading: answers as they were written, and what their ML task makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hpcbench.evaluation.isolate import Guard
from hpcbench.parsers import Read
from hpcbench.schema.records import Reading, Sample
from hpcbench.speed import ANSWERED

MISSING = "missing"
"""Stands where an outcome would for a sample nobody has asked about yet."""


class Answer(NamedTuple):
    """What evaluation needs of a response; of its times only what is told beside each sample."""

    sample_id: str
    """The sample it belongs to."""
    outcome: str
    """How it ended."""
    text: str | None
    """The answer as it came; None without one."""
    error: str | None = None
    """One line on why there is no answer."""
    prompt: str = ""
    """The request's prompt."""
    images: int = 0
    """Images that were sent."""
    e2e_ms: float | None = None
    """End to end, ms: send → last chunk; None without an answer to a request that was sent."""
    completion_tokens: int | None = None
    """The engine's count; None: it did not tell."""

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Answer:
        """Read what `Response.to_json` wrote.

        Raises:
            KeyError, TypeError: it is no response.
        """
        record["times"]
        usage, text = record["usage"], record["text"]
        if text is not None and not isinstance(text, str):
            raise TypeError("an answer is a text")
        return cls(
            str(record["sample_id"]),
            str(record["outcome"]),
            text,
            record.get("error"),
            str(record.get("prompt", "")),
            len(record.get("image_sha256", ())),
            e2e_ms(record),
            _count(usage),
        )


def e2e_ms(record: Mapping[str, Any]) -> float | None:
    """End to end, ms, as `speed` has it; what is damaged in times costs the time, not the answer."""
    try:
        times = record["times"]
        if record["outcome"] not in ANSWERED or not record["tries"]:
            return None
        return round(float(times["chunks"][-1] - times["send"]) / 1e6, 6)
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError):
        return None


def _count(usage: Any) -> int | None:
    count = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    return count if isinstance(count, int) and 0 <= count < 1 << 63 else None


def is_answered(answer: Answer | None) -> bool:
    """Whether there is an answer."""
    return answer is not None and answer.outcome in ANSWERED


def read_answer(reader: Read, guard: Guard, sample: Sample, answer: Answer) -> Reading:
    """How an answer is read; a parser that raises or hangs leaves one without a value."""
    if answer.text is None:
        return Reading(None, reason="no text")
    truncated = answer.outcome == "truncated"
    found, fault = guard.call(reader, answer.text, sample, truncated)
    return found if fault is None else Reading(None, reason=f"parser: {fault}", truncated=truncated)
