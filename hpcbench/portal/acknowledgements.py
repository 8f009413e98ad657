"""Notes on regressions: `HOME/results/acknowledged/NNNNN.jsonl`, one file per note, never changed.

Each file appears complete and under a number that only one process can take, so a group may share a home, and
a kill at any moment leaves a whole note or none. The newest note of a change counts; a note without a reason
revokes the earlier notes.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

from hpcbench.comparison.history import results_dir
from hpcbench.files.atomic import create_exclusive, read_lines
from hpcbench.portal.json_safe import finite
from hpcbench.portal.lru import LruCache

MOST = 10_000
"""Most notes that the portal reads, the newest."""

REASON = 500
"""Longest reason, characters."""


@dataclass(frozen=True, slots=True)
class ChangeNote:
    """A note on a change."""

    id: str
    """Id of the change."""
    trend: str
    """Id of its trend."""
    first: str
    """First experiment of the new level, at the time of the note."""
    worse: bool
    """Whether the change was for the worse."""
    by: str
    """Account that wrote the note."""
    time: float
    """Time of the note, seconds since the epoch."""
    reason: str | None
    """Why the change is no alarm any more; None: it is an alarm again."""
    until: float | None = None
    """End of the mute, seconds since the epoch; None: no end."""

    @property
    def holds(self) -> bool:
        """Whether the note mutes its change now."""
        return self.reason is not None and (self.until is None or self.until > time.time())


_notes: LruCache[tuple[ChangeNote, ...]] = LruCache(8)


def acknowledgements(root: Path) -> tuple[ChangeNote, ...]:
    """The newest note of each change in a home; newest first."""
    folder = _folder(root)
    numbers = _numbers(folder)
    return _notes.of(folder, tuple(numbers[-MOST:]), lambda: _read(folder, numbers))


def noted_stamp(root: Path) -> tuple[int, int]:
    """A stamp of the notes; it changes when a note is added."""
    numbers = _numbers(_folder(root))
    return len(numbers), max(numbers, default=0)


def write(root: Path, noted: ChangeNote) -> None:
    """Add a note.

    Raises:
        OSError: the note cannot be written; nothing has changed.
    """
    folder = _folder(root)
    line = {**asdict(noted), "reason": noted.reason and noted.reason[:REASON]}
    number = max(_numbers(folder), default=0) + 1
    while not create_exclusive(folder / f"{number:05d}.jsonl", line):
        number += 1


def _read(folder: Path, numbers: list[int]) -> tuple[ChangeNote, ...]:
    found: dict[str, ChangeNote] = {}
    for number in reversed(numbers[-MOST:]):
        for line in read_lines(folder / f"{number:05d}.jsonl"):
            noted = _noted(line)
            if noted is not None:
                found.setdefault(noted.id, noted)
            break
    return tuple(found.values())


def _noted(line: dict[str, object]) -> ChangeNote | None:
    """The note in a line; None: the line is no valid note. Other users of a group may write here."""
    at, reason = finite(line.get("time")), line.get("reason")
    texts = [line.get(name) for name in ("id", "trend", "first", "by")]
    if at is None or not all(isinstance(text, str) and len(text) <= 300 for text in texts):
        return None
    identity, trend, first, by = map(str, texts)
    return ChangeNote(
        id=identity, trend=trend, first=first, worse=bool(line.get("worse")), by=by, time=at,
        reason=reason[:REASON] if isinstance(reason, str) else None,
        until=finite(line.get("until")),
    )  # fmt: skip


def _folder(root: Path) -> Path:
    return results_dir(root) / "acknowledged"


def _numbers(folder: Path) -> list[int]:
    try:
        names = [path.stem for path in folder.iterdir() if path.suffix == ".jsonl"]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name) for name in names if name.isdecimal())
