"""Logs of an experiment's events, and the vocabulary of their kinds.

Every event has its number `seq` in its file, 1, 2, 3 …: a reader that reads a file again, after a break or
after the file was replaced, finds the new events by file and number.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from hpcbench.files.atomic import Appender

RECORD_VERSION = 1
"""Version of an experiment's records, in the first event of each file."""

Kind = Literal[
    # the submission, and control requests
    "round", "intent", "submitted", "dropped", "shrunk", "refused", "handed", "throttle",
    "pause", "resume", "cancel", "stop", "fail", "enough", "ended",
    # shards
    "claimed", "done", "drained", "released", "failed",
    # workers and their models
    "started", "finished", "stopped", "disk_full", "draining", "fenced",
    "shard_claimed", "shard_done", "shard_failed",
    "model_loading", "loading", "model_ready", "model_failed", "engine_died", "memory_returned",
    "bad_node", "poisonous", "staged", "staging_skipped", "orphans_reaped", "alarm", "unreadable",
    # progress and resources
    "progress", "resources", "monitor", "monitor_note", "client_health", "concurrency", "route",
    "tool_note",
    # tokens of a model elsewhere, and its gateway's rate limits; what the budget paid
    "token", "token_failed", "limited", "budget",
]  # fmt: skip
"""All kinds of events; docs/events.md gives the writer, the fields and the meaning of each."""

Sort = Literal["state", "progress", "resources", "warning"]
"""Subject of an event."""

WARNINGS: frozenset[Kind] = frozenset(
    {
        "failed", "released", "stop", "fail", "refused", "disk_full", "fenced",
        "shard_failed", "model_failed", "engine_died", "bad_node", "poisonous", "staging_skipped",
        "orphans_reaped", "alarm", "unreadable", "monitor_note", "token_failed",
        "limited", "tool_note",
    }
)  # fmt: skip
"""Kinds that report a problem."""

_OTHERS: Mapping[str, Sort] = {
    "progress": "progress", "loading": "progress",
    "resources": "resources", "monitor": "resources", "client_health": "resources",
    "memory_returned": "resources", "token": "resources", "budget": "resources",
}  # fmt: skip

LAST_WORDS = frozenset({"finished", "stopped", "failed", "disk_full"})
"""Kinds after which a worker writes no events; its job may need a moment to end."""

SHARD_ENDS = frozenset({"done", "drained", "released", "failed"})
"""Kinds after which no event of an attempt is written."""


_NEEDED: Mapping[str, tuple[str, ...]] = {
    "model_loading": ("model",), "model_ready": ("model",), "model_failed": ("model",),
    "engine_died": ("model",), "bad_node": ("node",), "concurrency": ("run_task", "at_once"),
    "route": ("run_task", "route"), "monitor": ("run_task", "memory"), "budget": ("spent",),
}  # fmt: skip
"""Fields of a kind that every event of it has; kinds without such fields are left out."""


def is_event(record: Mapping[str, Any]) -> bool:
    """Whether a record is an event with the fields of its kind: a damaged line may still be JSON."""
    kind, answered = record.get("event"), record.get("answered", 0)
    return (
        isinstance(kind, str)
        and type(record.get("time", 0)) in (float, int)
        and type(answered) is int
        and all(name in record for name in _NEEDED.get(kind, ()))
    )


def sort_of(kind: str) -> Sort:
    """Subject of an event of this kind; a kind of a later version counts as a state."""
    return "warning" if kind in WARNINGS else _OTHERS.get(kind, "state")


def event(kind: Kind, /, seq: int = 1, **details: Any) -> dict[str, Any]:
    """An event as a line of a log; the first line of its file unless `seq` says otherwise."""
    return {"event": kind, "seq": seq, "time": round(time.time(), 3), **details}


def time_of(record: Mapping[str, Any] | None) -> float:
    """Time of an event, seconds since the epoch by its writer's clock; 0: missing or damaged."""
    when = (record or {}).get("time")
    return float(when) if type(when) in (float, int) else 0.0  # type: ignore[arg-type]


def reported_ends(
    said: Mapping[str, Any], owner: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """First and last event of a done attempt, from its owner's event `shard_done`."""
    first = {"event": "claimed", "time": said.get("began"), "owner": owner}
    return first, {"event": "done", "time": said.get("ended"), "answered": said.get("answered")}


class EventLog:
    """A file of events with one writer; an existing file is continued at its end.

    Use it as a context manager.
    """

    def __init__(self, path: Path) -> None:
        self._file = Appender(path)
        self._seq = self._file.lines()

    def write(self, kind: Kind, /, *, sync: bool = False, **details: Any) -> dict[str, Any]:
        """Append an event; `sync`: it survives a loss of power from here on. Returns its line.

        Raises:
            OSError: the disk is full or gone; the event is not written, and the next event gets its number.
        """
        line = event(kind, self._seq + 1, **details)
        self._file.write(line)
        self._seq += 1
        if sync:
            self._file.sync()
        return line

    def close(self) -> None:
        """Sync and close."""
        self._file.close()

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
