"""Baselines: names for experiments that other experiments are compared with, each with its author and time.

Every change of a name is a file of its own, `HOME/baselines/NAME/NNNNN.jsonl`, linked into place when
complete: a kill leaves no partial file, two concurrent changes become two entries, and the highest number
counts. No file is ever overwritten, so the folder is the name's history. An experiment without such a name
may be deleted.
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

from hpcbench.errors import DamagedFile, Problem, UserError
from hpcbench.files.atomic import create_exclusive, log_damage, read_lines
from hpcbench.schema.decoding import decoded_part

NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,79}")
"""A valid name of a baseline. It never starts with a digit, ids of experiments always do: no word is both."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The experiment of a name, from one moment on."""

    name: str
    """The name."""
    number: int
    """Number of the entry; the name's first is 1."""
    experiment: str | None
    """Id of the experiment, or path of an experiment outside the home; None: the name was given up."""
    by: str
    """Author of the entry, `user@host`."""
    time: float
    """Time of the entry, seconds since the epoch."""
    note: str = ""
    """The author's reason."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def baselines(root: Path) -> list[Baseline]:
    """The current entry of every name, by name; names that were given up are left out.

    Raises:
        DamagedFile: as `current`.
    """
    try:
        names = sorted(path.name for path in _folder(root).iterdir() if NAME.fullmatch(path.name))
    except FileNotFoundError:
        return []
    found = (current(root, name) for name in names)
    return [one for one in found if one is not None]


def current(root: Path, name: str) -> Baseline | None:
    """The current entry of a name; None: the name has no experiment.

    Raises:
        DamagedFile: the entry is damaged; an earlier one does not count instead.
    """
    numbers = _numbers(root, name) if NAME.fullmatch(name) else []
    entry = _entry(root, name, max(numbers)) if numbers else None
    return entry if entry is not None and entry.experiment is not None else None


def entries(root: Path, name: str) -> Iterator[Baseline]:
    """All entries of a name, in order; a damaged one is logged and left out."""
    if not NAME.fullmatch(name):
        return
    for number in sorted(_numbers(root, name)):
        try:
            yield _entry(root, name, number)
        except DamagedFile as error:
            log_damage(_path(root, name, number), error.message)


def _entry(root: Path, name: str, number: int) -> Baseline:
    path = _path(root, name, number)
    line = next(read_lines(path, lambda *_: None), {})
    try:
        return decoded_part(Baseline, {**line, "name": name, "number": number})
    except ValueError as error:
        remedy = f"name the experiment again: `hpcbench baseline set EXPERIMENT --name {name}`"
        raise DamagedFile(path, str(error), remedy) from None


def name_it(root: Path, name: str, experiment: str | None, note: str = "") -> Baseline:
    """Give a name to another experiment, or to none.

    Args:
        root: the home.
        name: the name.
        experiment: the new `Baseline.experiment`.
        note: the reason.

    Raises:
        UserError: the name is not valid.
        OSError: the entry cannot be written; the name keeps its experiment.
    """
    if not NAME.fullmatch(name):
        remedy = "use a letter, then letters, digits, dots and dashes"
        raise UserError(Problem(f"'{name}' is not a valid name for a baseline", remedy=remedy))
    record = {"experiment": experiment, "by": _me(), "time": time.time(), "note": note}
    number = max(_numbers(root, name), default=0) + 1
    while not create_exclusive(_path(root, name, number), record):
        number += 1
    return Baseline(name, number, **record)  # type: ignore[arg-type]


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
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
