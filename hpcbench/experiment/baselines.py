"""Baselines: names for experiments that others are compared with, and who gave them when.

Every change of a name is a file of its own, `HOME/baselines/NAME/NNNNN.jsonl`, linked into place whole:
a kill leaves nothing half written, two at once become two entries, and the highest number counts.
Nothing is ever overwritten, so the folder is the name's history. An experiment without a name there may
be deleted.
"""

from __future__ import annotations

import getpass
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpcbench.errors import Problem, UserError
from hpcbench.files.atomic import create_exclusive, read_lines

NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,79}")
"""What a baseline may be called. Not by a digit first, as ids of experiments begin: one word is never
both."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a name stood for, from one moment on."""

    name: str
    """The name."""
    number: int
    """1 for its first entry."""
    experiment: str | None
    """Id of the experiment, or the path of one outside the home; None: the name was given up."""
    by: str
    """Who said so, `user@host`."""
    time: float
    """When, seconds since the epoch."""
    note: str = ""
    """Why, in their words."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def baselines(root: Path) -> list[Baseline]:
    """What every name stands for now, by name; names that were given up are left out."""
    try:
        names = sorted(path.name for path in _folder(root).iterdir() if NAME.fullmatch(path.name))
    except FileNotFoundError:
        return []
    found = (current(root, name) for name in names)
    return [one for one in found if one is not None]


def current(root: Path, name: str) -> Baseline | None:
    """What a name stands for now; None: nothing."""
    for entry in entries(root, name, newest_first=True):
        return entry if entry.experiment is not None else None
    return None


def entries(root: Path, name: str, *, newest_first: bool = False) -> Iterator[Baseline]:
    """All a name ever stood for, in order."""
    if not NAME.fullmatch(name):
        return
    for number in sorted(_numbers(root, name), reverse=newest_first):
        for line in read_lines(_path(root, name, number)):
            told = {key: line.get(key) for key in ("experiment", "by", "time", "note")}
            yield Baseline(name, number, **told)  # type: ignore[arg-type]
            break


def name_it(root: Path, name: str, experiment: str | None, note: str = "") -> Baseline:
    """Let a name stand for another experiment from now on, or for none.

    Args:
        root: the home.
        name: the name.
        experiment: what `Baseline.experiment` is to be.
        note: why.

    Raises:
        UserError: it cannot be a name.
        OSError: it cannot be written; the name stands for what it did.
    """
    if not NAME.fullmatch(name):
        remedy = "a letter first, then letters, digits, dots and dashes"
        raise UserError(Problem(f"'{name}' is no name for a baseline", remedy=remedy))
    told = {"experiment": experiment, "by": _me(), "time": time.time(), "note": note}
    number = max(_numbers(root, name), default=0) + 1
    while not create_exclusive(_path(root, name, number), told):
        number += 1
    return Baseline(name, number, **told)  # type: ignore[arg-type]


def _folder(root: Path) -> Path:
    return root / "baselines"


def _path(root: Path, name: str, number: int) -> Path:
    return _folder(root) / name / f"{number:05d}.jsonl"


def _numbers(root: Path, name: str) -> list[int]:
    try:
        files = list((_folder(root) / name).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [int(path.stem) for path in files if path.suffix == ".jsonl" and path.stem.isdecimal()]


def _me() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
