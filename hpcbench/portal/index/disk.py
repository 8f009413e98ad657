"""The path of SQLite's file: on a local disk, because SQLite's locks and its log need one."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from hpcbench.files.mounts import is_local
from hpcbench.files.private import own_folder
from hpcbench.portal.index.schema import VERSION


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
    return own_folder(Path(f"/tmp/hpcbench-{os.geteuid()}")) / name
