"""Safety of transferred versions from a power cut: not at once, but before an experiment relies on them.

A transfer forces only its manifest to the disk: forcing every file would cost more than the transfer. So the
version carries a mark, `unsettled`, until its next check. A check within the same boot of the same machine
forces all files to the disk; any other check reads every byte again, once.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from pathlib import Path

from hpcbench.data.progress import Progress, silent, verifying
from hpcbench.data.tree import Version, VersionFile, at_once
from hpcbench.files.atomic import sync_folder, write_atomic
from hpcbench.files.lease import boot_id

MARK = "unsettled"


def _boot() -> str:
    """Host name and boot ID of this machine."""
    try:
        since = boot_id()
    except OSError:
        since = secrets.token_hex(8)  # unknown: marks of earlier processes do not match
    return f"{socket.gethostname()} {since}"


BOOT = _boot()


def mark_unsettled(folder: Path) -> None:
    """Mark in a version's folder that its files may not be on the disk yet; the mark itself is."""
    write_atomic(folder / MARK, BOOT)


def in_doubt(version: Version) -> bool:
    """Whether a power cut may have damaged a version: only its hashes can show it."""
    try:
        return (version.folder / MARK).read_text(encoding="utf-8", errors="replace") != BOOT
    except OSError:  # there is no mark, or we may not read it
        return False


def settle(version: Version, progress: Progress = silent) -> list[VersionFile]:
    """Make a version safe from a power cut, if it is ours.

    Args:
        version: the version.
        progress: receives the progress if every byte has to be read.

    Returns:
        Files that a power cut damaged; the version is unsettled until they are repaired.
    """
    doubtful = ours(version) and in_doubt(version)
    count = verifying(version.bytes, version.count, progress)
    damaged = version.damaged(thorough=True, progress=count) if doubtful else []
    if not damaged:
        release(version)
    return damaged


def ours(version: Version) -> bool:
    """Whether we may remove a version's mark; if not, each of our checks would read every byte."""
    return os.access(version.folder, os.W_OK)


def release(version: Version) -> None:
    """Remove the mark: every byte was read after a reboot, or is forced to the disk now."""
    mark = version.folder / MARK
    if mark.exists() and ours(version):
        if not in_doubt(version):
            _force(version.folder)
        mark.unlink(missing_ok=True)


def _force(folder: Path) -> None:
    """Force every file below a folder, and every name, to the disk."""
    files = (Path(where) / name for where, _, names in os.walk(folder) for name in names)
    for _ in at_once(force_file, files):  # a disk serves many waiting syncs at once
        pass
    for _ in at_once(sync_folder, (Path(where) for where, _, _ in os.walk(folder))):
        pass


def force_file(path: Path) -> None:
    """Force one file to the disk; do nothing if it is gone or we may not open it."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
