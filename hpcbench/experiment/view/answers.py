"""Responses as frames, a few MiB of lines at a time: decoded by polars, by Python only where polars fails.

Times follow the formulas of `speed`, which docs/measuring.md defines; a test compares the two.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hpcbench.experiment.claims import withdrawn
from hpcbench.experiment.layout import Experiment, attempts_in, responses_name
from hpcbench.files.archive import Folder
from hpcbench.files.atomic import parse_line
from hpcbench.schema.records import ANSWERED, Outcome
from hpcbench.speed import token_span

BLOCK = 4 << 20
"""Bytes of lines that are decoded at once."""

MOST_FILES = 2_000
"""Files whose lines are decoded at once."""

Damage = Callable[[Path, int], None]
"""Receives a file and the number of its lines that were left out."""

_OUTCOMES: tuple[Outcome, ...] = ("ok", "truncated", "refused", "invalid", "failed")


@dataclass(frozen=True, slots=True)
class _Piece:
    """Whole lines of one attempt's file."""

    shard: int
    attempt: int
    path: Path
    data: bytes
    lines: int


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
    for pieces in _batches(experiment, run_task, shards):
        frame = _decoded(pieces, damage, columns).unique(
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
            for data in _counting(folder.pages(path.name, BLOCK), gone.get(attempt)):
                pieces.append(_Piece(shard.index, attempt, path, data, data.count(b"\n")))
                size += len(data)
                if size >= BLOCK or len(pieces) >= MOST_FILES:
                    yield pieces
                    pieces, size = [], 0
    if pieces:
        yield pieces


def _counting(pages: Iterable[bytes], gone: frozenset[str] | None) -> Iterator[bytes]:
    """Lines without withdrawn answers."""
    for page in pages:
        yield page if not gone else without(page, gone)


def without(lines: bytes, samples: Collection[str]) -> bytes:
    """Whole lines of responses, without the responses to some samples."""
    return b"".join(
        line
        for line in lines.splitlines(keepends=True)
        if (parse_line(line) or {}).get("sample_id") not in samples
    )


def _decoded(pieces: list[_Piece], damage: Damage, columns: Collection[str] | None = None) -> Any:
    """Pieces as one frame with the fields of their records, shard and attempt."""
    import numpy
    import polars

    data, lines = b"".join(piece.data for piece in pieces), sum(one.lines for one in pieces)
    # Half a surrogate pair is written as its escape, which polars misreads.
    frame = None if b"\\ud" in data else _parsed(data, lines, columns)
    if frame is None:
        mended = [_mended(piece, damage) for piece in pieces]
        data = b"".join(one for some in mended for one in some)
        frame = _parsed(data, sum(map(len, mended)), columns)
        assert frame is not None  # its lines were just written
        counts = [len(some) for some in mended]
    else:
        counts = [piece.lines for piece in pieces]
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


def _parsed(data: bytes, lines: int, columns: Collection[str] | None) -> Any:
    """Lines decoded by polars; None if one of them is not in the form that workers write."""
    import polars

    if not lines:
        return polars.DataFrame(schema=_schema(columns))
    try:
        frame = polars.read_ndjson(data, schema=_schema(columns))
    except (polars.exceptions.PolarsError, ValueError):
        return None
    lacking = any(frame[name].null_count() for name in ("sample_id", "outcome", "times", "tries"))
    sound = frame.height == lines and not lacking
    return (
        frame if sound and {*frame["outcome"].value_counts()["outcome"]} <= {*_OUTCOMES} else None
    )


_FOR: Mapping[str, tuple[str, ...]] = {
    "text": ("answer",), "reasoning": ("reasoning",), "finish_reason": ("finish_reason",),
    "error": ("error",), "prompt": ("prompt",), "image_sha256": ("images", "image_sha256"),
    "recount": ("recount",),
    "trajectory": ("images", "exit", "agent_turns", "think_seconds", "tool_seconds"),
}  # fmt: skip
"""Slow field of a record → columns that need it."""


_STAMPS: Mapping[str, tuple[str, ...]] = {
    "chunks": ("chunks",), "ttft_ms": ("send", "chunks"), "tpot_ms": ("chunks", "empty", "tokens"),
    "e2e_ms": ("send", "chunks"), "ttft_due_ms": ("start", "scheduled", "chunks"),
    "e2e_due_ms": ("start", "scheduled", "chunks"), "queue_ms": ("start", "scheduled"),
    "prepare_ms": ("start", "send"), "headers_ms": ("send", "headers"), "done_ms": ("send", "done"),
    "start_ns": ("start",), "send_ns": ("send",), "chunk_ms": ("send", "chunks"),
}  # fmt: skip
"""Column → stamps that its formula reads."""


def _schema(columns: Collection[str] | None) -> dict[str, Any]:
    """The fields of a record that some columns, or all, need; other fields are not read."""
    import polars

    whole, text = polars.Int64, polars.String
    stamps: dict[str, Any] = dict.fromkeys(("start", "send", "headers", "done", "scheduled"), whole)
    stamps |= dict.fromkeys(("chunks", "empty", "tokens"), polars.List(whole))
    if columns is not None:
        read = {"send"}.union(*(_STAMPS.get(name, ()) for name in columns))
        stamps = {name: kind for name, kind in stamps.items() if name in read}
    fields = {
        "sample_id": text,
        "outcome": text,
        "text": text,
        "reasoning": text,
        "finish_reason": text,
        "usage": polars.Struct({"prompt_tokens": whole, "completion_tokens": whole}),
        "times": polars.Struct(stamps),
        "tries": whole,
        "image_sha256": polars.List(text),
        "error": text,
        "prompt": text,
        "recount": whole,
        "trajectory": polars.Struct(
            {
                "exit": text,
                "turns": whole,
                "images": whole,
                "think_seconds": polars.Float64,
                "tool_seconds": polars.Float64,
            }
        ),
    }
    return {
        name: kind
        for name, kind in fields.items()
        if columns is None or name not in _FOR or not {*_FOR[name]}.isdisjoint(columns)
    }


def _mended(piece: _Piece, damage: Damage) -> list[bytes]:
    """The lines of a piece that are responses, rewritten for polars."""
    lines = [_line(line) for line in piece.data.split(b"\n")[:-1]]
    sound = [line for line in lines if line is not None]
    if len(sound) < len(lines):
        damage(piece.path, len(lines) - len(sound))
    return sound


def _line(line: bytes) -> bytes | None:
    """A response rewritten with every field of its type; None: the line is no response."""
    record = parse_line(line)
    try:
        assert record is not None
        times, usage = record["times"], record["usage"] or {}
        picked = {
            "sample_id": _text(str(record["sample_id"])),
            "outcome": record["outcome"],
            "text": _text(record["text"]),
            "reasoning": _text(record.get("reasoning")),
            "finish_reason": _text(record.get("finish_reason")),
            "usage": {
                key: _whole(usage.get(key)) for key in ("prompt_tokens", "completion_tokens")
            },
            "times": {
                **{key: int(times[key]) for key in ("start", "send", "done")},
                **{key: _whole(times.get(key)) for key in ("headers", "scheduled")},
                **{
                    key: [int(one) for one in times.get(key, ())]
                    for key in ("chunks", "empty", "tokens")
                },
            },
            "tries": int(record["tries"]),
            "image_sha256": [str(one) for one in record["image_sha256"]],
            "error": _text(record.get("error")),
            "prompt": _text(record.get("prompt")),
            "recount": _whole(record.get("recount")),
            "trajectory": _figures(record.get("trajectory")),
        }
        assert picked["outcome"] in _OUTCOMES
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    return json.dumps(picked, ensure_ascii=False).encode() + b"\n"


def _figures(figures: Any) -> dict[str, Any] | None:
    """Figures of an agent's work; None: it was one request, or they are damaged."""
    try:
        return {
            "exit": _text(figures["exit"]),
            **{key: _whole(figures.get(key)) for key in ("turns", "images")},
            **{key: float(figures[key]) for key in ("think_seconds", "tool_seconds")},
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _text(value: Any) -> str | None:
    """Text; half a surrogate pair becomes its escape, as in scores."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError("not text")
    return value.encode("utf-8", "backslashreplace").decode()


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
