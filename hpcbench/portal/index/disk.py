"""The path of SQLite's file: on a local disk, because SQLite's locks and its log need one."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from hpcbench.portal import runtime_dir
from hpcbench.portal.index.schema import VERSION

LOCAL = frozenset(
    {
        "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs", "rootfs",
        "tmpfs", "xfs", "zfs",
    }
)  # fmt: skip
"""Local file systems. All others count as network file systems, which are too many to list."""

MOUNTS = Path("/proc/self/mountinfo")

_ESCAPE = re.compile(r"\\([0-7]{3})")


def home_key(home: Path) -> str:
    """A key that identifies a home in a database."""
    return hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:24]


def default_file(home: Path) -> Path:
    """The index file of a home; its folder is created if needed.

    The file is in the user's cache if the cache is on a local disk, else in `/tmp`.

    Raises:
        EnvironmentFault: another account owns the folder in `/tmp`.
        OSError: the folder cannot be created.
    """
    name = f"{home_key(home)}-{VERSION}.sqlite"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    if cache.is_absolute() and is_local(cache):
        folder = cache / "hpcbench" / "portal"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:  # the home is full or read-only
            pass
        else:
            if os.access(folder, os.W_OK):
                return folder / name
    return runtime_dir.own_folder(Path(f"/tmp/hpcbench-{os.geteuid()}")) / name


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
