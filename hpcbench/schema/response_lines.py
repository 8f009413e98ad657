"""Many lines of responses at once, as a frame.

polars decodes them in a fraction of the time of Python. Where it meets a line that workers do not write,
`Response.or_none` decides on each line, as for readers of single responses.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from hpcbench.files.atomic import parse_line
from hpcbench.schema.records import OUTCOMES, Response

_STAMPS = ("start", "send", "done", "headers", "scheduled")
_ARRIVALS = ("chunks", "empty", "tokens")
_TEXTS = ("text", "reasoning", "finish_reason", "error", "prompt")


def decoded(pieces: Sequence[bytes], fields: Collection[str]) -> tuple[Any, list[int]]:
    """The responses of some whole lines, in their order.

    Args:
        pieces: the lines, together some MiB.
        fields: names of fields of `Response` and of `Times`. Texts are only right if they are named.

    Returns:
        A frame with `sample_id`, `outcome`, `tries`, `times` with at least `start`, `send` and `done`, and
        the named fields; and the number of responses in each piece: other lines are left out.
    """
    data, counts = b"".join(pieces), [piece.count(b"\n") for piece in pieces]
    # Half a surrogate pair is written as its escape, which polars misreads.
    misread = b"\\ud" in data and not {"sample_id", *_TEXTS}.isdisjoint(fields)
    frame = None if misread else _at_once(data, sum(counts), fields)
    if frame is None:
        by_piece = [_one_by_one(piece) for piece in pieces]
        counts = [len(lines) for lines in by_piece]
        data = b"".join(line for lines in by_piece for line in lines)
        frame = _at_once(data, sum(counts), fields)
        assert frame is not None  # its lines were just written
    return frame, counts


def _at_once(data: bytes, lines: int, fields: Collection[str]) -> Any:
    """Lines decoded by polars; None if one of them is not in the form that workers write."""
    import polars

    schema = _schema(fields)
    if not lines:
        return polars.DataFrame(schema=schema)
    try:
        frame = polars.read_ndjson(data, schema=schema)
    except (polars.exceptions.PolarsError, ValueError):
        return None
    known = {*frame["outcome"].unique()} <= {*OUTCOMES}
    times = frame["times"].struct.unnest()
    lacking = any(frame[name].has_nulls() for name in ("sample_id", "tries", "times")) or any(
        times[name].has_nulls() for name in _STAMPS[:3]
    )
    holes = any(
        times[name].explode(empty_as_null=False).has_nulls()
        for name in _ARRIVALS
        if name in times.columns
    )
    return frame if frame.height == lines and known and not lacking and not holes else None


def _schema(fields: Collection[str]) -> dict[str, Any]:
    """The required fields of a record, and the named ones."""
    import polars

    whole, text = polars.Int64, polars.String
    stamps: dict[str, Any] = dict.fromkeys(_STAMPS, whole) | dict.fromkeys(
        _ARRIVALS, polars.List(whole)
    )
    trajectory = {
        "exit": text, "turns": whole, "images": whole,
        "think_seconds": polars.Float64, "tool_seconds": polars.Float64,
    }  # fmt: skip
    known: dict[str, Any] = {
        "sample_id": text,
        "outcome": text,
        "tries": whole,
        "times": polars.Struct(
            {name: kind for name, kind in stamps.items() if name in _STAMPS[:3] or name in fields}
        ),
        **dict.fromkeys(_TEXTS, text),
        "usage": polars.Struct({"prompt_tokens": whole, "completion_tokens": whole}),
        "recount": whole,
        "image_sha256": polars.List(text),
        "trajectory": polars.Struct(trajectory),
    }
    needed = ("sample_id", "outcome", "tries", "times")
    return {name: kind for name, kind in known.items() if name in needed or name in fields}


def _one_by_one(lines: bytes) -> list[bytes]:
    """The lines with a sound response, rewritten for polars."""
    found = []
    for line in lines.split(b"\n")[:-1]:
        response = Response.or_none(parse_line(line) or {})
        if response is None:
            continue
        record = response.to_json()
        del record["answer_key"], record["reused_from"]  # no frame has them
        record["trajectory"] = _figures(record.get("trajectory"))
        record["image_sha256"] = [_text(one) for one in record["image_sha256"]]
        for name in ("sample_id", *_TEXTS):
            if record[name] is not None:
                record[name] = _text(record[name])
        found.append(json.dumps(record, ensure_ascii=False).encode() + b"\n")
    return found


def _text(text: str) -> str:
    """Text in which half a surrogate pair is its escape, as in scores."""
    return text.encode("utf-8", "backslashreplace").decode()


def _figures(figures: Any) -> dict[str, Any] | None:
    """Figures of an agent's work; None: it was one request, or they are damaged."""
    try:
        numbers: dict[str, float] = {
            **{
                name: int(figures[name])
                for name in ("turns", "images")
                if figures.get(name) is not None
            },
            **{name: float(figures[name]) for name in ("think_seconds", "tool_seconds")},
        }
        exits = {"exit": _text(str(figures["exit"]))}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    return {**exits, **numbers} if all(abs(one) < 1 << 63 for one in numbers.values()) else None
