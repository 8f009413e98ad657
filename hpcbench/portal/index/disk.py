"""Where SQLite's file lies: on a disk of this machine, for SQLite's locks and its log need one."""

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
"""File systems of one machine. All others are taken for network ones: there are too many of these."""

MOUNTS = Path("/proc/self/mountinfo")

_ESCAPE = re.compile(r"\\([0-7]{3})")


def home_key(home: Path) -> str:
    """What tells the homes of a database apart."""
    return hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:24]


def default_file(home: Path) -> Path:
    """The index's file of a home; its folder is made where there is none.

    It is in the user's cache where that is on a local disk, else in `/tmp`.

    Raises:
        EnvironmentFault: somebody else has made the folder in `/tmp`.
        OSError: the folder cannot be made.
    """
    name = f"{home_key(home)}-{VERSION}.sqlite"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    if cache.is_absolute() and is_local(cache):
        folder = cache / "hpcbench" / "portal"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:  # a home that is full, or read-only
            pass
        else:
            if os.access(folder, os.W_OK):
                return folder / name
    return runtime_dir.own_folder(Path(f"/tmp/hpcbench-{os.geteuid()}")) / name


def is_local(path: Path, mounts: str | None = None) -> bool:
    """Whether a folder, there or not yet, is on a disk of this machine.

    Args:
        path: the folder.
        mounts: what /proc says of mounts; None: it is read. Where nothing says it, all is local.
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
