"""Access to an experiment's files: the site's umask and its Unix group.

The umask alone sets the mode of files (`experiment.files` requests 0666, the kernel subtracts the umask).
Folders pass their group on (setgid): the right group on one folder is enough for every folder below it.
"""

from __future__ import annotations

import contextlib
import grp
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.errors import EnvironmentFault

if TYPE_CHECKING:
    from hpcbench.schema.site import Site

PRIVATE = 0o750
"""Mode of an experiment's folder where the site sets neither group nor umask."""


def use_umask(site: Site) -> None:
    """Set the site's umask for this process and its children; a site without a umask changes nothing."""
    if site.umask is not None:
        os.umask(int(site.umask, 8))


OTHERS_WRITE = 0o022
"""Permissions of group and others to change a file, or the entries of a folder."""

NOBODY = 65534
"""Owner of all files where NFS knows no users; a user cannot give a file to it."""


@contextlib.contextmanager
def owner_writes() -> Iterator[None]:
    """New files and folders can be changed by their owner only, also where a site shares experiments.

    For all that a job executes or unpickles: who can change it runs code as the job's user. The umask
    belongs to the process: child processes that start meanwhile inherit it.
    """
    before = os.umask(0o077)
    os.umask(before | OTHERS_WRITE)
    try:
        yield
    finally:
        os.umask(before)


def is_foreign(path: Path) -> bool:
    """Whether a file or folder belongs to another user, or is a link."""
    state = path.lstat()
    return stat.S_ISLNK(state.st_mode) or state.st_uid not in (os.geteuid(), 0, NOBODY)


def own_place(path: Path) -> Path:
    """A place of a cache for code: the path, or, where another user has it, one with this user's number."""
    try:
        foreign = is_foreign(path)
    except FileNotFoundError:
        foreign = False
    return path.with_name(f"{path.stem}-{os.geteuid()}{path.suffix}") if foreign else path


def close_to_others(folder: Path) -> None:
    """Take from group and others the right to change anything in a folder: copied files bring their modes."""
    for path in (folder, *folder.rglob("*")):
        state = path.lstat()
        if state.st_mode & OTHERS_WRITE and not stat.S_ISLNK(state.st_mode):
            path.chmod(stat.S_IMODE(state.st_mode) & ~OTHERS_WRITE)


def readable_like(path: Path, like: os.stat_result) -> None:
    """Let only those accounts read a file that another file or folder lets in: its group and permissions.

    For what is kept of an experiment outside its folder. The file belongs to this user. A group that this
    user is not in gets nothing.
    """
    own = path.stat()
    mode = like.st_mode & 0o666
    if own.st_gid != like.st_gid:
        path.chmod(own.st_mode & 0o600)  # the other group must not see it meanwhile
        try:
            os.chown(path, -1, like.st_gid)
        except PermissionError:
            mode &= ~0o070
    path.chmod(mode | 0o600)


def others_write(path: Path) -> bool:
    """Whether group or others can change a file, or the entries of a folder."""
    return bool(path.stat().st_mode & OTHERS_WRITE)


def new_folder(path: Path, site: Site) -> None:
    """Make one folder, shared as the site says; its parent must exist.

    Raises:
        FileExistsError: a file or folder of that name exists.
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
            remedy="`groups` lists your groups; name one of them as `group` in the site profile",
        ) from None


def ensure_folder(path: Path, site: Site) -> None:
    """Make a folder and its missing parents, shared as the site says; existing folders stay unchanged.

    Raises:
        EnvironmentFault: see `new_folder`.
        OSError: a folder cannot be made.
    """
    if path.is_dir():
        return
    ensure_folder(path.parent, site)
    if site.group is None:
        path.mkdir(
            exist_ok=True
        )  # mode from the umask: the folder holds other users' folders and no files
        return
    try:
        new_folder(path, site)
    except FileExistsError:
        if not path.is_dir():
            raise


def group_id(name: str) -> int:
    """Number of a Unix group.

    Raises:
        EnvironmentFault: no group has that name here.
    """
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise EnvironmentFault(
            f"this machine has no Unix group '{name}'", remedy="correct `group` in the site profile"
        ) from None
