"""Reading: the parser of an ML task reads an answer."""

from __future__ import annotations

from hpcbench.parsers import Read
from hpcbench.schema.records import Reading, Sample
from hpcbench.scorer.isolate import Guard


def read_answer(
    reader: Read, guard: Guard, sample: Sample, text: str | None, outcome: str
) -> Reading:
    """Read an answer; a parser that raises or hangs gives a reading without a value."""
    if text is None:
        return Reading(None, reason="no text")
    truncated = outcome == "truncated"
    found, fault = guard.call(reader, text, sample, truncated)
    return found if fault is None else Reading(None, reason=f"parser: {fault}", truncated=truncated)
