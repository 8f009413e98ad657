"""Whether a folder is on a disk of this machine: SQLite's locks and its log need one."""

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
    """Whether a folder, which need not exist, is on a disk of this machine.

    Args:
        path: the folder.
        mounts: content of /proc/self/mountinfo; None: read it. A folder without a known mount is local.
    """
    if mounts is None:
        try:
            mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return True
    wanted = Path(os.path.realpath(path))
    kinds: dict[Path, str] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        if len(fields := before.split()) > 4 and after:
            kinds[Path(_ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[4]))] = (
                after.split()[0]
            )
    own = next((kinds[one] for one in (wanted, *wanted.parents) if one in kinds), None)
    return own is None or own in LOCAL
