"""Lines of responses as columns, all at once; line by line where any line is damaged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hpcbench.schema.records import ANSWERED
from hpcbench.speed.request_times import NOT_COUNTED, Timed, columns, joined

_NEEDED = ("outcome", "tries", "start", "send", "done")
"""A line without one of these is no response."""


def read(pages: Iterable[bytes], records: Iterable[Mapping[str, Any]]) -> Timed:
    """The responses of a file, each to one request: agents' answers, of several requests, are left out.

    Args:
        pages: its complete lines, in pages.
        records: the readable records of the same lines; used only where a line is damaged.
    """
    parts = []
    for page in pages:
        part = _at_once(page)
        if part is None:
            return columns(_one_by_one(records))
        parts.append(part)
    return joined(parts)


def _one_by_one(records: Iterable[Mapping[str, Any]]) -> Iterator[Timed]:
    for record in records:
        if record.get("trajectory") is not None:
            continue
        try:
            yield Timed.from_json(record)
        except (KeyError, TypeError, AttributeError):
            continue  # a damaged line may still be JSON


def _at_once(page: bytes) -> Timed | None:
    """The same as `columns` of `Timed.from_json`, by polars; None where a line is damaged."""
    import polars
    from polars import col

    try:
        lines = polars.Series(page.decode().split("\n")[:-1])
        frame = lines.str.json_decode(_form()).struct.unnest().unnest("usage", "times")
        frame = frame.filter(col("trajectory").struct.field("exit").is_null())
    except (UnicodeDecodeError, polars.exceptions.PolarsError):
        return None
    size, counted = (col(name).list.len().fill_null(0) for name in ("chunks", "tokens"))
    total = col("completion_tokens")
    until, after = token_span(col("chunks"), col("empty"), col("tokens"), total)
    numbers = frame.select(
        answered=col("outcome").is_in(ANSWERED),
        tries="tries",
        rated=col("scheduled").is_not_null(),
        due=polars.coalesce("scheduled", "start"),
        start="start",
        send="send",
        first=col("chunks").list.first().fill_null(0),
        last=col("chunks").list.last().fill_null(0),
        done="done",
        size=size,
        counted=counted,
        until=until.fill_null(0),
        after=after,
        prompt_tokens=col("prompt_tokens").fill_null(NOT_COUNTED),
        completion_tokens=total.fill_null(NOT_COUNTED),
        recount=col("recount").fill_null(NOT_COUNTED),
    ).cast(polars.Int64)
    flat = {name: frame[name].explode().drop_nulls() for name in ("chunks", "tokens")}
    sizes = [numbers[name].sum() for name in ("size", "counted")]
    if any(frame[name].null_count() for name in _NEEDED) or sizes != list(map(len, flat.values())):
        return None
    fields = {**numbers.to_dict(), **flat}
    return Timed(**{name: field.to_numpy() for name, field in fields.items()})


def token_span(chunks: Any, empty: Any, tokens: Any, total: Any) -> tuple[Any, Any]:
    """`until`, null without a chunk, and `after` of `Timed`, as polars expressions of a response's fields."""
    from polars import max_horizontal, when

    by_chunk, last = tokens.list.last() - tokens.list.first(), chunks.list.last()
    unseen = when(by_chunk.is_null()).then(empty.list.last())
    until = when(last.is_not_null()).then(max_horizontal(last, unseen))
    return until, when(by_chunk.is_null()).then(total.fill_null(0) - 1).otherwise(by_chunk)


def _form() -> Any:
    """The required fields of a line."""
    from polars import Int64, List, String, Struct

    times = dict.fromkeys(("start", "send", "done", "scheduled"), Int64)
    counts = dict.fromkeys(("prompt_tokens", "completion_tokens"), Int64)
    arrivals = dict.fromkeys(("chunks", "empty", "tokens"), List(Int64))
    return Struct(
        {
            "outcome": String,
            "tries": Int64,
            "recount": Int64,
            "usage": Struct(counts),
            "times": Struct({**times, **arrivals}),
            "trajectory": Struct({"exit": String}),
        }
    )
