"""Samples that the user marked, with notes: the user's own, beside no experiment.

`$XDG_STATE_HOME/hpcbench/portal/flags.jsonl` gets a line each time; the last one of a sample holds. A torn
last line, left by a kill, is cut on the next one. Several portals of one user may write: each line is one
write, and what others wrote is read before the next answer.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hpcbench.files.atomic import parse_line, sync_folder, write_all
from hpcbench.portal.runtime_dir import own_folder

MOST_NOTE = 2_000
"""Characters of a note."""


def state_folder() -> Path:
    """The user's own folder of the portal: what is neither cache nor configuration."""
    chosen = os.environ.get("XDG_STATE_HOME", "")
    root = Path(chosen) if chosen.startswith("/") else Path.home() / ".local" / "state"
    return root / "hpcbench" / "portal"


@dataclass
class Flags:
    """The user's marks; every method may be called from any thread."""

    path: Path = field(default_factory=lambda: state_folder() / "flags.jsonl")
    _notes: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    _read: tuple[int, int] = (0, 0)
    """Inode of the file, and how far it was read."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, experiment: str, run_task: str) -> Mapping[str, str]:
        """Marked samples of a run task → their notes."""
        with self._lock:
            self._look()
            return dict(self._notes.get((experiment, run_task), {}))

    def mark(self, experiment: str, run_task: str, sample: str, note: str = "") -> None:
        """Mark a sample, or change its note.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
            EnvironmentFault: others can get into the folder.
        """
        told = {"experiment": experiment, "run_task": run_task, "sample": sample}
        self._write({**told, "note": note[:MOST_NOTE], "time": round(time.time(), 3)})

    def unmark(self, experiment: str, run_task: str, sample: str) -> None:
        """Take the mark away; nothing happens where there is none.

        Raises:
            OSError, EnvironmentFault: as `mark`.
        """
        if sample in self.of(experiment, run_task):
            told = {"experiment": experiment, "run_task": run_task, "sample": sample}
            self._write({**told, "note": None, "time": round(time.time(), 3)})

    def _write(self, record: Mapping[str, object]) -> None:
        self.path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        own_folder(self.path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o600)
        try:
            with self._lock, _alone(descriptor):
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
        """Read what was written since."""
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
        told = [record.get(name) for name in ("experiment", "run_task", "sample")]
        experiment, run_task, sample = (one if isinstance(one, str) else "" for one in told)
        if not (experiment and run_task and sample):
            return
        notes = self._notes.setdefault((experiment, run_task), {})
        note = record.get("note")
        if isinstance(note, str):
            notes[sample] = note
        else:
            notes.pop(sample, None)


def _whole(descriptor: int, size: int) -> int:
    """How much of a file is whole lines."""
    tail = os.pread(descriptor, 1 << 16, max(0, size - (1 << 16)))
    at = tail.rfind(b"\n")
    return size if not size else size - len(tail) + at + 1


@contextmanager
def _alone(descriptor: int) -> Iterator[None]:
    """While no other portal of the user writes; over file systems without locks it is left to luck."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
