"""The position in a stream of events as a short text: for every source the number of its last event.

Most sources are attempts of shards with equal numbers, so consecutive shards are encoded together: a cursor
over ten thousand shards is a few hundred characters.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

from hpcbench.errors import Problem, UserError

_SHARD = re.compile(r"shards/(.+)/([0-9]{5,})\.([0-9]+)")
_MOST_BYTES, _MOST_SHARDS = 64 << 20, 1_000_000
"""Above the size of any real cursor: a forged cursor does no harm."""


def encode(seqs: Mapping[str, int], experiment: str) -> str:
    """The cursor of a position: letters, digits, `-` and `_`.

    Args:
        seqs: source → number of its last event.
        experiment: id of the experiment.
    """
    others: dict[str, int] = {}
    shards: dict[str, list[tuple[int, int, int]]] = {}
    for source, seq in seqs.items():
        if match := _SHARD.fullmatch(source):
            shards.setdefault(match[1], []).append((int(match[3]), int(match[2]), seq))
        else:
            others[source] = seq
    runs = {run_task: _runs(sorted(places)) for run_task, places in sorted(shards.items())}
    text = json.dumps([experiment, dict(sorted(others.items())), runs], separators=(",", ":"))
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def decode(cursor: str, experiment: str) -> dict[str, int]:
    """The position of a cursor: source → number of its last event.

    Raises:
        UserError: the text is no cursor, or the cursor belongs to another experiment.
    """
    try:
        packed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        text = zlib.decompressobj().decompress(packed, _MOST_BYTES)
        owner, others, runs = json.loads(text)
        seqs = {str(source): int(seq) for source, seq in others.items()}
        for run_task, listed in runs.items():
            for attempt, first, count, seq in listed:
                for index in range(first, first + min(count, _MOST_SHARDS)):
                    seqs[f"shards/{run_task}/{index:05d}.{attempt}"] = int(seq)
    except (binascii.Error, zlib.error, ValueError, TypeError, AttributeError) as error:
        remedy = "copy a whole cursor from the output of `hpcbench events --json`"
        raise UserError(Problem("this is not a cursor of events", remedy=remedy)) from error
    if owner != experiment:
        raise UserError(
            Problem(
                f"this cursor belongs to experiment '{owner}', not to '{experiment}'",
                remedy="name that experiment, or leave --since out",
            )
        )
    return seqs


def _runs(places: list[tuple[int, int, int]]) -> list[list[Any]]:
    """Attempt, first shard, number of consecutive shards, number of the last event."""
    runs: list[list[Any]] = []
    for attempt, index, seq in places:
        last = runs[-1] if runs else None
        if last and last[0] == attempt and last[1] + last[2] == index and last[3] == seq:
            last[2] += 1
        else:
            runs.append([attempt, index, 1, seq])
    return runs
