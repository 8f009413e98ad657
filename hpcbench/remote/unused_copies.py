"""What laptops sent for experiments that are gone: a copy of what they have, so it may go as well."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from hpcbench.experiment.layout import Experiment
from hpcbench.remote.exchange import STORE
from hpcbench.remote.server import KEPT_DAYS, SUBMISSIONS

_PARCEL = re.compile(r"\.?([0-9a-f]{24})(\.[0-9a-f]{8})?")
"""A parcel's folder, or one that was being laid out."""


def unused(root: Path, experiments: Iterable[Experiment], days: float) -> list[Path]:
    """What no experiment names any more: parcels, files of none, notes of submissions.

    Args:
        root: `HOME/remote`.
        experiments: those that stay.
        days: what came, or was wanted again, within so many is left alone: somebody may be submitting it.
    """
    if not root.is_dir():
        return []
    latest = time.time() - 86400 * days
    lying = {path: match for path in root.iterdir() if (match := _PARCEL.fullmatch(path.name))}
    named = set[str]()
    if lying:
        told = [text for one in experiments for text in _texts(one)]
        named = {match[1] for match in lying.values() if any(match[1] in text for text in told)}
    parcels = [
        path
        for path, match in lying.items()
        if path.stat().st_mtime < latest and (match[2] or match[1] not in named)
    ]
    notes = root / SUBMISSIONS
    oldest = min(latest, time.time() - 86400 * KEPT_DAYS)
    old = [path for path in _inside(notes) if path.stat().st_mtime < oldest]
    return sorted([*parcels, *_files_of_none(root / STORE, parcels, latest), *old])


def _texts(experiment: Experiment) -> Iterator[str]:
    """Where an experiment names the paths that it needs."""
    for path in (experiment.resolved_file, experiment.manifest_file):
        yield path.read_text(encoding="utf-8")


def _files_of_none(store: Path, going: Iterable[Path], latest: float) -> Iterator[Path]:
    """Files that have no other name but those in parcels that go. Their times of change are their senders';
    that of the inode is when they came or got a name."""
    names = Counter[int]()
    for parcel in going:
        for folder, _, files in os.walk(parcel):
            names.update(Path(folder, one).lstat().st_ino for one in files)
    for path in _inside(store):
        known = path.lstat()
        if known.st_nlink - names[known.st_ino] <= 1 and known.st_ctime < latest:
            yield path


def _inside(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []
