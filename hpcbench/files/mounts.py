"""Mounted file systems of a process, and the kind of the one that a folder is on.

SQLite's locks and its log need a disk of this machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LOCAL = frozenset(
    {
        "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs", "rootfs",
        "tmpfs", "xfs", "zfs",
    }
)  # fmt: skip
"""Local file systems. All others count as network file systems, which are too many to list."""

MOUNTS = Path("/proc/self/mountinfo")

_ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A line of proc(5)'s mountinfo."""

    root: str
    """Path within the file system that is mounted."""
    place: str
    """Where it is mounted."""
    options: tuple[str, ...]
    """Options of this mount: `rw`, `nosuid`."""
    kind: str
    """Kind of file system: `xfs`, `cgroup2`."""
    of_system: tuple[str, ...]
    """Options of the file system."""


def mounted(mountinfo: str) -> Iterator[Mount]:
    """The mounts in the content of a mountinfo, in its order: later ones hide earlier ones."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, system = before.split(" "), after.split(" ")
        if len(fields) > 5 and len(system) > 2:
            place = _ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[4])
            options, of_system = fields[5].split(","), system[2].split(",")
            yield Mount(fields[3], place, tuple(options), system[0], tuple(of_system))


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
    kinds = {Path(one.place): one.kind for one in mounted(mounts)}
    return next((kinds[one] for one in (wanted, *wanted.parents) if one in kinds), None)
