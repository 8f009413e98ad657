"""Reading: answers as they were written, and what their ML task makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hpcbench.evaluation.guard import Guard
from hpcbench.parsers import Read
from hpcbench.schema.records import Reading, Sample
from hpcbench.speed import ANSWERED

MISSING = "missing"
"""Stands where an outcome would for a sample nobody has asked about yet."""


class Answer(NamedTuple):
    """What evaluation needs of a response; its times are `speed`'s."""

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

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Answer:
        """Read what `Response.to_json` wrote.

        Raises:
            KeyError, TypeError: it is no response.
        """
        record["times"], record["usage"]
        text = record["text"]
        if text is not None and not isinstance(text, str):
            raise TypeError("an answer is a text")
        return cls(
            str(record["sample_id"]),
            str(record["outcome"]),
            text,
            record.get("error"),
            str(record.get("prompt", "")),
            len(record.get("image_sha256", ())),
        )


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
