"""Who took note of which regression: `HOME/results/acknowledged/NNNNN.jsonl`, a file each, never changed.

Each file appears whole and under a number that only one process can take, so a group may share a home, and a
kill at any moment leaves all or nothing of a note. The newest note of a change counts; one without a reason
takes back what was noted before.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

from hpcbench.comparison.history import results_dir
from hpcbench.experiment.view.evaluated import finite
from hpcbench.files.atomic import create_exclusive, read_lines
from hpcbench.portal.lru import Kept

MOST = 10_000
"""Notes that are read, the newest."""

REASON = 500
"""Characters of a reason."""


@dataclass(frozen=True, slots=True)
class Noted:
    """One note."""

    id: str
    """Of the change."""
    trend: str
    """Id of its trend."""
    first: str
    """First experiment of the new level, as it was then."""
    worse: bool
    """Whether it was for the worse."""
    by: str
    """Account that says so."""
    time: float
    """When, seconds since the epoch."""
    reason: str | None
    """Why it is no alarm any more; None: it is one again."""
    until: float | None = None
    """Muted until then, seconds since the epoch; None: for good."""

    @property
    def holds(self) -> bool:
        """Whether it is muted now."""
        return self.reason is not None and (self.until is None or self.until > time.time())


_notes: Kept[tuple[Noted, ...]] = Kept(8)


def acknowledgements(root: Path) -> tuple[Noted, ...]:
    """The newest note of each change, in a home; newest first."""
    folder = _folder(root)
    numbers = _numbers(folder)
    return _notes.of(folder, tuple(numbers[-MOST:]), lambda: _read(folder, numbers))


def noted_stamp(root: Path) -> tuple[int, int]:
    """Changes when a note is added."""
    numbers = _numbers(_folder(root))
    return len(numbers), max(numbers, default=0)


def write(root: Path, noted: Noted) -> None:
    """Add a note.

    Raises:
        OSError: it cannot be written; all is as it was.
    """
    folder = _folder(root)
    line = {**asdict(noted), "reason": noted.reason and noted.reason[:REASON]}
    number = max(_numbers(folder), default=0) + 1
    while not create_exclusive(folder / f"{number:05d}.jsonl", line):
        number += 1


def _read(folder: Path, numbers: list[int]) -> tuple[Noted, ...]:
    found: dict[str, Noted] = {}
    for number in reversed(numbers[-MOST:]):
        for line in read_lines(folder / f"{number:05d}.jsonl"):
            noted = _noted(line)
            if noted is not None:
                found.setdefault(noted.id, noted)
            break
    return tuple(found.values())


def _noted(line: dict[str, object]) -> Noted | None:
    """A note as it was written; None for what is none. Others of a group may write here."""
    at, reason = finite(line.get("time")), line.get("reason")
    texts = [line.get(name) for name in ("id", "trend", "first", "by")]
    if at is None or not all(isinstance(text, str) and len(text) <= 300 for text in texts):
        return None
    identity, trend, first, by = map(str, texts)
    return Noted(
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
