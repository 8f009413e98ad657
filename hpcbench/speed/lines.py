"""Lines of responses as columns, without an object for each response."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hpcbench.schema.records import ANSWERED
from hpcbench.schema.response_lines import decoded
from hpcbench.speed.request_times import NOT_COUNTED, Timed, joined

_READ = ("scheduled", "chunks", "empty", "tokens", "usage", "recount", "trajectory")


def read(pages: Iterable[bytes]) -> Timed:
    """The responses of a file, each to one request: agents' answers, of several requests, are left out.

    Args:
        pages: its complete lines, in pages.
    """
    return joined(_columns(page) for page in pages)


def _columns(page: bytes) -> Timed:
    """The same as `columns` of `Timed.of`."""
    import polars
    from polars import col

    frame, _ = decoded([page], _READ)
    frame = frame.filter(col("trajectory").struct.field("exit").is_null())
    frame = frame.unnest("usage", "times")
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
    fields = {**numbers.to_dict(), **flat}
    return Timed(**{name: field.to_numpy() for name, field in fields.items()})


def token_span(chunks: Any, empty: Any, tokens: Any, total: Any) -> tuple[Any, Any]:
    """`until`, null without a chunk, and `after` of `Timed`, as polars expressions of a response's fields."""
    from polars import max_horizontal, when

    by_chunk, last = tokens.list.last() - tokens.list.first(), chunks.list.last()
    unseen = when(by_chunk.is_null()).then(empty.list.last())
    until = when(last.is_not_null()).then(max_horizontal(last, unseen))
    return until, when(by_chunk.is_null()).then(total.fill_null(0) - 1).otherwise(by_chunk)
