"""Who may read and write what an experiment leaves: the site's umask and its Unix group.

Files follow the umask alone (`experiment.files` asks for 0666 and lets the kernel take away); folders hand
their group down (setgid), so that one folder made right is enough for all below it.
"""

from __future__ import annotations

import grp
import os
import stat
from pathlib import Path

from hpcbench.errors import EnvironmentFault
from hpcbench.schema.documents import Site

PRIVATE = 0o750
"""Mode of an experiment's folder where the site says nothing of group or umask."""


def use_umask(site: Site) -> None:
    """Give this process, and all it starts, the site's umask; without one nothing changes."""
    if site.umask is not None:
        os.umask(int(site.umask, 8))


def new_folder(path: Path, site: Site) -> None:
    """Make one folder as the site wants it shared; its parent must be there.

    Raises:
        FileExistsError: there is something of that name.
        EnvironmentFault: the site's group is unknown here, or the user is not in it.
    """
    group = group_id(site.group) if site.group is not None else None
    shared = group is not None or site.umask is not None
    path.mkdir(mode=0o777 if shared else PRIVATE)
    if group is None:
        return
    try:
        os.chown(path, -1, group)
        # chown clears setgid, and mkdir does not set it on every file system.
        path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_ISGID)
    except PermissionError:
        path.rmdir()
        raise EnvironmentFault(
            f"cannot give {path} to group '{site.group}': you are not in it",
            remedy="`groups` lists yours; set `group` in the site profile",
        ) from None


def ensure_folder(path: Path, site: Site) -> None:
    """Make a folder and its missing parents, shared as the site says; those that are there stay as they are.

    Raises:
        EnvironmentFault: see `new_folder`.
        OSError: it cannot be made.
    """
    if path.is_dir():
        return
    ensure_folder(path.parent, site)
    if site.group is None:
        path.mkdir(
            exist_ok=True
        )  # as the umask says: it holds others' folders, and nothing to read
        return
    try:
        new_folder(path, site)
    except FileExistsError:
        if not path.is_dir():
            raise


def group_id(name: str) -> int:
    """Number of a Unix group.

    Raises:
        EnvironmentFault: there is none of that name here.
    """
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise EnvironmentFault(
            f"there is no Unix group '{name}' here", remedy="set `group` in the site profile"
        ) from None
