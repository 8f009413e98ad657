"""Files that laptops sent for removed experiments: they are copies, so they may be removed as well."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.as_written import texts
from hpcbench.remote.pipe_transfer import STORE
from hpcbench.remote.server import KEPT_DAYS, SUBMISSIONS

_PARCEL = re.compile(r"\.?([0-9a-f]{24})(\.[0-9a-f]{8})?")
"""Name of a parcel's folder, or of an unfinished one."""


def unused(root: Path, experiments: Iterable[Experiment], days: float) -> list[Path]:
    """Files that no experiment names any more: parcels, files of no parcel, output of submissions.

    Args:
        root: `HOME/remote`.
        experiments: the experiments that stay.
        days: younger files are kept, by their last transfer or request: a user may be submitting them.
    """
    if not root.is_dir():
        return []
    latest = time.time() - 86400 * days
    lying = {path: match for path in root.iterdir() if (match := _PARCEL.fullmatch(path.name))}
    named = set[str]()
    if lying:
        strings = [text for one in experiments for text in texts(one)]
        named = {match[1] for match in lying.values() if any(match[1] in text for text in strings)}
    parcels = [
        path
        for path, match in lying.items()
        if path.stat().st_mtime < latest and (match[2] or match[1] not in named)
    ]
    notes = root / SUBMISSIONS
    oldest = min(latest, time.time() - 86400 * KEPT_DAYS)
    old = [path for path in _inside(notes) if path.stat().st_mtime < oldest]
    return sorted([*parcels, *_files_of_none(root / STORE, parcels, latest), *old])


def _files_of_none(store: Path, going: Iterable[Path], latest: float) -> Iterator[Path]:
    """Files whose only other names are in parcels to remove. Their modification times are the senders';
    the inode's change time is the time of arrival or of the last link."""
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
