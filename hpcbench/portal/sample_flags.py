"""Samples that the user flagged, with notes: stored per user, outside of experiments.

Each change appends a line to `$XDG_STATE_HOME/hpcbench/portal/flags.jsonl`; the last line of a sample counts.
The next write removes a torn last line, the result of a kill. Several portals of one user may write: each
line is one write, and a portal reads the lines of the others before each answer.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hpcbench.files.atomic import parse_line, sync_folder, write_all
from hpcbench.files.flock import lock
from hpcbench.files.private import own_folder, state_folder

MOST_NOTE = 2_000
"""Characters of a note."""


@dataclass
class Flags:
    """The user's flags; every method may be called from any thread."""

    path: Path = field(default_factory=lambda: state_folder("portal") / "flags.jsonl")
    _notes: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    _read: tuple[int, int] = (0, 0)
    """Inode of the file, and the offset up to which it was read."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, experiment: str, run_task: str) -> Mapping[str, str]:
        """Flagged samples of a run task → their notes."""
        with self._lock:
            self._look()
            return dict(self._notes.get((experiment, run_task), {}))

    def mark(self, experiment: str, run_task: str, sample: str, note: str = "") -> None:
        """Flag a sample, or change its note.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
            EnvironmentFault: other users can access the folder.
        """
        key = {"experiment": experiment, "run_task": run_task, "sample": sample}
        self._write({**key, "note": note[:MOST_NOTE], "time": round(time.time(), 3)})

    def unmark(self, experiment: str, run_task: str, sample: str) -> None:
        """Remove a flag; without a flag, nothing happens.

        Raises:
            OSError, EnvironmentFault: as `mark`.
        """
        if sample in self.of(experiment, run_task):
            key = {"experiment": experiment, "run_task": run_task, "sample": sample}
            self._write({**key, "note": None, "time": round(time.time(), 3)})

    def _write(self, record: Mapping[str, object]) -> None:
        self.path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        own_folder(self.path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o600)
        try:
            with self._lock:
                # A file system without locks cannot exclude the user's other portals.
                with suppress(OSError):
                    lock(descriptor, wait=True)
                size = os.fstat(descriptor).st_size
                whole = _whole(descriptor, size)
                if whole < size:
                    os.ftruncate(descriptor, whole)
                write_all(descriptor, json.dumps(record).encode() + b"\n")
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(self.path.parent)

    def _look(self) -> None:
        """Read lines written since the last read."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            self._notes, self._read = {}, (0, 0)
            return
        try:
            stat = os.fstat(descriptor)
            inode, done = self._read
            if stat.st_ino != inode or stat.st_size < done:
                self._notes, done = {}, 0
            data = os.pread(descriptor, stat.st_size - done, done)
        finally:
            os.close(descriptor)
        end = data.rfind(b"\n") + 1
        for line in data[:end].splitlines():
            self._take(parse_line(line) or {})
        self._read = (stat.st_ino, done + end)

    def _take(self, record: Mapping[str, object]) -> None:
        values = [record.get(name) for name in ("experiment", "run_task", "sample")]
        experiment, run_task, sample = (one if isinstance(one, str) else "" for one in values)
        if not (experiment and run_task and sample):
            return
        notes = self._notes.setdefault((experiment, run_task), {})
        note = record.get("note")
        if isinstance(note, str):
            notes[sample] = note
        else:
            notes.pop(sample, None)


def _whole(descriptor: int, size: int) -> int:
    """Bytes of a file's whole lines."""
    tail = os.pread(descriptor, 1 << 16, max(0, size - (1 << 16)))
    at = tail.rfind(b"\n")
    return size if not size else size - len(tail) + at + 1
