"""Responses as frames, a few MiB of lines at a time.

Times follow the formulas of `speed`, which docs/measuring.md defines; a test compares the two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hpcbench.experiment.claims import withdrawn
from hpcbench.experiment.layout import Experiment, attempts_in, responses_name
from hpcbench.files.archive import Folder
from hpcbench.files.atomic import parse_line
from hpcbench.schema.records import ANSWERED
from hpcbench.schema.response_lines import decoded
from hpcbench.speed import token_span

BLOCK = 4 << 20
"""Bytes of lines that are decoded at once."""

MOST_FILES = 2_000
"""Files whose lines are decoded at once."""

Damage = Callable[[Path, int], None]
"""Receives a file and the number of its lines that were left out."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Whole lines of one attempt's file."""

    shard: int
    attempt: int
    path: Path
    data: bytes


def answers_stamp(experiment: Experiment, run_task: str) -> tuple[int, ...]:
    """A stamp that changes with the answers of a run task, also while workers write."""
    folder, sizes = experiment.shards(run_task), 0
    try:
        changed = folder.path.stat().st_mtime_ns
    except FileNotFoundError:
        return ()
    for name in folder.loose:
        if name.endswith(".responses.jsonl"):
            with contextlib.suppress(FileNotFoundError):  # archived meanwhile
                sizes += (folder.path / name).stat().st_size
    return changed, sizes, folder.generation


class ShardSize(NamedTuple):
    """Files of a shard's answers: equal sizes mean equal answers."""

    attempt: int
    """Newest attempt. Answers are withdrawn only by a new attempt."""
    bytes: int
    """Bytes of all attempts' answers, folded or not."""


def shard_sizes(experiment: Experiment, run_task: str) -> dict[int, ShardSize]:
    """The size of each shard that a worker has claimed, from one listing and a look at each loose file."""
    folder = experiment.shards(run_task)
    found: dict[int, ShardSize] = {}
    for index, attempts in attempts_in(folder.names).items():
        names = [responses_name(index, attempt) for attempt in attempts]
        found[index] = ShardSize(attempts[-1], sum(_bytes_of(folder, name) for name in names))
    return found


def _bytes_of(folder: Folder, name: str) -> int:
    if (entry := folder.folded.get(name)) is not None:
        return entry.bytes
    if name in folder.loose:
        with contextlib.suppress(
            FileNotFoundError
        ):  # folded meanwhile: the next look has another size
            return (folder.path / name).stat().st_size
    return 0


def answer_frames(
    experiment: Experiment,
    run_task: str,
    damage: Damage = lambda path, lines: None,
    columns: Collection[str] | None = None,
    shards: Collection[int] | None = None,
) -> Iterator[Any]:
    """The answers of a run task, one a sample: the lowest attempt's answer, as in every reader.

    Args:
        experiment: the experiment.
        run_task: its name.
        damage: is called for lines that were left out.
        columns: columns to read; None: all.
        shards: numbers of the shards to read; None: all.

    Yields:
        Frames with the columns of `RESPONSES` that come from responses, including `chunk_ms`.
    """
    last: tuple[int, Any] | None = None  # a shard may continue in the next frame
    fields = {"sample_id"} | {
        field
        for field, needed_by in _FIELDS.items()
        if columns is None or not needed_by.isdisjoint(columns)
    }
    for pieces in _batches(experiment, run_task, shards):
        frame = _frame(pieces, damage, fields).unique(
            ["shard", "sample_id"], keep="first", maintain_order=True
        )
        frame, last = _new(frame, last)
        if frame.height:
            yield frame.select(_expressions(None if columns is None else tuple(columns)))


def _batches(
    experiment: Experiment, run_task: str, shards: Collection[int] | None
) -> Iterator[list[_Piece]]:
    """Lines of all attempts in order, about `BLOCK` bytes at a time."""
    folder = experiment.shards(run_task)
    attempts = attempts_in(folder.names)
    pieces, size = list[_Piece](), 0
    for shard in experiment.work.shards_of((run_task,)):
        if shards is not None and shard.index not in shards:
            continue
        own = attempts.get(shard.index, ())
        gone = withdrawn(folder, shard.index, own)
        for attempt in own:
            path = experiment.shard_responses(run_task, shard.index, attempt)
            for page in folder.pages(path.name, BLOCK):
                data = _without(page, gone[attempt]) if attempt in gone else page
                pieces.append(_Piece(shard.index, attempt, path, data))
                size += len(data)
                if size >= BLOCK or len(pieces) >= MOST_FILES:
                    yield pieces
                    pieces, size = [], 0
    if pieces:
        yield pieces


def _without(lines: bytes, samples: Collection[str]) -> bytes:
    """Whole lines of responses, without the responses to some samples."""
    return b"".join(
        line
        for line in lines.splitlines(keepends=True)
        if (parse_line(line) or {}).get("sample_id") not in samples
    )


def _frame(pieces: list[_Piece], damage: Damage, fields: Collection[str]) -> Any:
    """Pieces as one frame with fields of their records, shard and attempt."""
    import numpy
    import polars

    frame, counts = decoded([one.data for one in pieces], fields)
    for piece, count in zip(pieces, counts, strict=True):
        if lost := piece.data.count(b"\n") - count:
            damage(piece.path, lost)
    numbers = {
        "shard": [one.shard for one in pieces],
        "attempt": [one.attempt for one in pieces],
    }
    return frame.hstack(
        [
            polars.Series(name, numpy.repeat(numpy.array(values, dtype="int64"), counts))
            for name, values in numbers.items()
        ]
    )


_FIELDS: Mapping[str, frozenset[str]] = {
    field: frozenset(columns.split())
    for field, columns in {
        "text": "answer",
        "reasoning": "reasoning",
        "finish_reason": "finish_reason",
        "error": "error",
        "prompt": "prompt",
        "image_sha256": "images image_sha256",
        "recount": "recount",
        "usage": "prompt_tokens completion_tokens tpot_ms",
        "trajectory": "images exit agent_turns think_seconds tool_seconds",
        "headers": "headers_ms",
        "scheduled": "ttft_due_ms e2e_due_ms queue_ms",
        "chunks": "chunks ttft_ms tpot_ms e2e_ms ttft_due_ms e2e_due_ms chunk_ms",
        "empty": "tpot_ms",
        "tokens": "tpot_ms",
    }.items()
}
"""Field of a record → columns that need it."""


def _new(frame: Any, last: tuple[int, Any] | None) -> tuple[Any, tuple[int, Any] | None]:
    """Rows that were not yielded before, and the samples of the last shard so far."""
    import numpy
    import polars

    if not frame.height:
        return frame, last
    if last is not None:
        shard, seen = last
        again = (polars.col("shard") == shard) & polars.col("sample_id").is_in(seen.implode())
        frame = frame.filter(~again)
        if not frame.height:
            return frame, last
    shard = frame["shard"][-1]
    own = frame["sample_id"][int(numpy.searchsorted(frame["shard"].to_numpy(), shard)) :]
    if last is not None and last[0] == shard:
        own = polars.concat([last[1], own])
    return frame, (shard, own)


@cache
def _expressions(columns: tuple[str, ...] | None) -> list[Any]:
    """Expressions for all or some columns of the table from fields of records; times as in `speed`."""
    import polars

    col, when = polars.col, polars.when
    stamp: Mapping[str, Any] = {
        name: col("times").struct.field(name)
        for name in ("start", "send", "headers", "done", "scheduled", "chunks", "empty", "tokens")
    }
    sent = col("tries") > 0
    answered = col("outcome").is_in(list(ANSWERED)) & sent
    first, last = stamp["chunks"].list.first(), stamp["chunks"].list.last()
    due = polars.coalesce(stamp["scheduled"], stamp["start"])
    count = stamp["chunks"].list.len().cast(polars.Int64).fill_null(0)
    usage = {
        name: col("usage").struct.field(name) for name in ("prompt_tokens", "completion_tokens")
    }
    agent: Mapping[str, Any] = {
        name: col("trajectory").struct.field(name)
        for name in ("exit", "turns", "images", "think_seconds", "tool_seconds")
    }
    until, after = token_span(
        stamp["chunks"], stamp["empty"], stamp["tokens"], usage["completion_tokens"]
    )

    def ms(difference: Any, holds: Any) -> Any:
        return when(holds).then((difference / 1e6).round(6))

    named = {
        "sample": col("sample_id"),
        "shard": col("shard"),
        "attempt": col("attempt"),
        "outcome": col("outcome"),
        "answer": col("text"),
        "reasoning": col("reasoning"),
        "error": col("error"),
        "finish_reason": col("finish_reason"),
        "prompt": when(col("prompt") != "").then(col("prompt")),
        "tries": col("tries"),
        **usage,
        "recount": col("recount"),
        "images": polars.coalesce(
            agent["images"], col("image_sha256").list.len().cast(polars.Int64)
        ),
        "image_sha256": col("image_sha256"),
        "chunks": count,
        "ttft_ms": ms(first - stamp["send"], answered),
        "tpot_ms": ms((until - first) / after, answered & (after > 0) & (count > 1)),
        "e2e_ms": ms(last - stamp["send"], answered),
        "ttft_due_ms": ms(first - due, answered),
        "e2e_due_ms": ms(last - due, answered),
        "queue_ms": ms(stamp["start"] - stamp["scheduled"], answered),
        "prepare_ms": ms(stamp["send"] - stamp["start"], answered & (col("tries") == 1)),
        "headers_ms": ms(stamp["headers"] - stamp["send"], sent),
        "done_ms": ms(stamp["done"] - stamp["send"], sent),
        "exit": agent["exit"],
        "agent_turns": agent["turns"],
        "think_seconds": agent["think_seconds"],
        "tool_seconds": agent["tool_seconds"],
        "start_ns": when(sent).then(stamp["start"]),
        "send_ns": when(sent).then(stamp["send"]),
        "chunk_ms": when(sent).then(
            (stamp["chunks"] - stamp["send"]).list.eval(polars.element() / 1e6)
        ),
    }
    return [
        expression.alias(name)
        for name, expression in named.items()
        if columns is None or name in columns
    ]
