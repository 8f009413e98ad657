"""The kind of file system that a folder is on. SQLite's locks and its log need a disk of this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

LOCAL = frozenset(
    {
        "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs", "rootfs",
        "tmpfs", "xfs", "zfs",
    }
)  # fmt: skip
"""Local file systems. All others count as network file systems, which are too many to list."""

MOUNTS = Path("/proc/self/mountinfo")

_ESCAPE = re.compile(r"\\([0-7]{3})")


def is_local(path: Path, mounts: str | None = None) -> bool:
    """Whether a folder is on a disk of this machine, as `kind_of`; a folder without a known mount is."""
    kind = kind_of(path, mounts)
    return kind is None or kind in LOCAL


def kind_of(path: Path, mounts: str | None = None) -> str | None:
    """Kind of the file system of a folder, which need not exist: `xfs`, `lustre`; None: no known mount.

    Args:
        mounts: content of /proc/self/mountinfo; None: read it.
    """
    if mounts is None:
        try:
            mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
    wanted = Path(os.path.realpath(path))
    kinds: dict[Path, str] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        if len(fields := before.split()) > 4 and after:
            kinds[Path(_ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[4]))] = (
                after.split()[0]
            )
    return next((kinds[one] for one in (wanted, *wanted.parents) if one in kinds), None)
