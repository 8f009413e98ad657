"""What happens to an experiment, written down: logs of events, and the words they are written in.

Every event has its number `seq` in its file, 1, 2, 3 …: who reads the same file twice, after a break or
after somebody replaced it, tells by file and number which events are new.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from hpcbench.files.atomic import Appender

Kind = Literal[
    # the submission, and what people wish
    "round", "intent", "submitted", "dropped", "shrunk", "refused", "handed", "throttle",
    "pause", "resume", "cancel", "stop", "fail", "enough", "ended",
    # shards
    "claimed", "done", "drained", "released", "failed",
    # workers and their models
    "started", "finished", "stopped", "disk_full", "draining", "fenced",
    "shard_claimed", "shard_done", "shard_failed",
    "model_loading", "loading", "model_ready", "model_failed", "engine_died", "memory_returned",
    "bad_node", "poisonous", "staged", "staging_skipped", "orphans_reaped", "alarm", "unreadable",
    # how far, and what it took
    "progress", "resources", "monitor", "monitor_note", "client_health", "concurrency",
]  # fmt: skip
"""Every kind of event there is; docs/events.md says of each who tells it, with what, and what it means."""

Sort = Literal["state", "progress", "resources", "warning"]
"""What an event is about."""

WARNINGS: frozenset[Kind] = frozenset(
    {
        "failed", "released", "stop", "fail", "refused", "disk_full", "fenced",
        "shard_failed", "model_failed", "engine_died", "bad_node", "poisonous", "staging_skipped",
        "orphans_reaped", "alarm", "unreadable", "monitor_note",
    }
)  # fmt: skip
"""Kinds that tell of something wrong."""

_OTHERS: Mapping[str, Sort] = {
    "progress": "progress", "loading": "progress",
    "resources": "resources", "monitor": "resources", "client_health": "resources",
    "memory_returned": "resources",
}  # fmt: skip

LAST_WORDS = frozenset({"finished", "stopped", "failed", "disk_full"})
"""Kinds after which a worker writes no more; its job may need a moment to end."""

SHARD_ENDS = frozenset({"done", "drained", "released", "failed"})
"""Kinds after which nothing more is written about an attempt."""


def sort_of(kind: str) -> Sort:
    """What an event of this kind is about; of a kind from a later version: a state."""
    return "warning" if kind in WARNINGS else _OTHERS.get(kind, "state")


def event(kind: Kind, /, seq: int = 1, **details: Any) -> dict[str, Any]:
    """An event as a line of a log; the first of its file unless `seq` says otherwise."""
    return {"event": kind, "seq": seq, "time": round(time.time(), 3), **details}


def time_of(record: Mapping[str, Any] | None) -> float:
    """When an event was, seconds since the epoch by its writer's clock; 0: that is not told, or damaged."""
    when = (record or {}).get("time")
    return float(when) if type(when) in (float, int) else 0.0  # type: ignore[arg-type]


def ends_told(
    said: Mapping[str, Any], owner: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """First and last event of an attempt that is done, by what its owner said of it: a `shard_done`."""
    first = {"event": "claimed", "time": said.get("began"), "owner": owner}
    return first, {"event": "done", "time": said.get("ended"), "answered": said.get("answered")}


class EventLog:
    """A file of events with no other writer; one that is opened again goes on where it was.

    Use as a context manager.
    """

    def __init__(self, path: Path) -> None:
        self._file = Appender(path)
        self._seq = self._file.lines()

    def write(self, kind: Kind, /, *, sync: bool = False, **details: Any) -> dict[str, Any]:
        """Append an event; `sync`: it has to survive a loss of power from here on. Returns its line.

        Raises:
            OSError: the disk is full or gone; the event is not there, and its number is the next one's.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
