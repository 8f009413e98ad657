"""Whether what was brought is safe from a power cut: not at once, but before anything rests on it.

A transfer forces only its manifest to the disk, for every file would cost more than its transfer. So the
version carries a mark, `unsettled`, until somebody has looked again: on the machine that brought it, as long
as that was not started anew, all is forced to the disk then; else every byte is read again, once.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from pathlib import Path

from hpcbench.data.progress import Progress, silent, verifying
from hpcbench.data.tree import Kept, Version, at_once
from hpcbench.files.atomic import sync_folder, write_atomic
from hpcbench.files.lease import boot_id

MARK = "unsettled"


def _boot() -> str:
    """This machine since it was started."""
    try:
        since = boot_id()
    except OSError:
        since = secrets.token_hex(8)  # unknown: what an earlier process wrote does not count
    return f"{socket.gethostname()} {since}"


BOOT = _boot()


def mark_unsettled(folder: Path) -> None:
    """Note in a version's folder that its files may not be on the disk yet; the note itself is."""
    write_atomic(folder / MARK, BOOT)


def in_doubt(version: Version) -> bool:
    """Whether a power cut may have taken something of a version: to be told by its hashes alone."""
    try:
        return (version.folder / MARK).read_text(encoding="utf-8", errors="replace") != BOOT
    except OSError:  # there is none, or it is not ours to look at
        return False


def settle(version: Version, progress: Progress = silent) -> list[Kept]:
    """See that a version is safe from a power cut, if it is ours.

    Args:
        version: it.
        progress: told how far it is where every byte has to be read.

    Returns:
        What a power cut took of it; the version is unsettled until that is repaired.
    """
    doubtful = ours(version) and in_doubt(version)
    count = verifying(version.bytes, version.count, progress)
    damaged = version.damaged(thorough=True, progress=count) if doubtful else []
    if not damaged:
        release(version)
    return damaged


def ours(version: Version) -> bool:
    """Whether we may take its mark away; else every look of ours would be a long one."""
    return os.access(version.folder, os.W_OK)


def release(version: Version) -> None:
    """Take the mark away: every byte was read after another start, or is forced to the disk now."""
    mark = version.folder / MARK
    if mark.exists() and ours(version):
        if not in_doubt(version):
            _force(version.folder)
        mark.unlink(missing_ok=True)


def _force(folder: Path) -> None:
    """Force every file below a folder, and every name, to the disk."""
    files = (Path(where) / name for where, _, names in os.walk(folder) for name in names)
    for _ in at_once(force_file, files):  # a disk writes what many wait for in one go
        pass
    for _ in at_once(sync_folder, (Path(where) for where, _, _ in os.walk(folder))):
        pass


def force_file(path: Path) -> None:
    """Force one file to the disk; nothing where it is gone, or not ours to open."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
