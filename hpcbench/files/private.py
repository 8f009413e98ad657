"""Folders and files that only their owner can access; `files/atomic.py` writes such files."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from hpcbench.errors import EnvironmentFault
from hpcbench.files.atomic import unless_stale

LARGEST = 64 * 1024
"""Most bytes of a file that is read here."""


def state_folder(name: str) -> Path:
    """The user's own folder for what is neither cache nor configuration: `$XDG_STATE_HOME/hpcbench/NAME`."""
    chosen = os.environ.get("XDG_STATE_HOME", "")
    root = Path(chosen) if chosen.startswith("/") else Path.home() / ".local" / "state"
    return root / "hpcbench" / name


def own_folder(folder: Path, remedy: str = "remove it, or make it yours alone: mode 0700") -> Path:
    """A folder that only we can access, created if missing.

    Args:
        folder: its path; its parent exists.
        remedy: what the user can do if it is not ours alone.

    Raises:
        EnvironmentFault: it cannot be created, is a link, belongs to another user, or is open to others.
    """
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        fault = folder_fault(folder)
    except OSError as error:
        fault = (error.strerror or str(error)).lower()
    if fault is not None:
        raise EnvironmentFault(
            f"{folder}: {fault}",
            remedy=remedy,
        )
    return folder


def folder_fault(folder: Path) -> str | None:
    """Reason why a folder is not ours alone; the check is of the opened folder, never of a link's target."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        return "is a link, or not a folder"
    except OSError as error:
        try:
            foreign = folder.lstat().st_uid != os.geteuid()
        except OSError:
            foreign = False
        return "belongs to another user" if foreign else (error.strerror or str(error)).lower()
    try:
        found = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    if stat.S_IMODE(found.st_mode) & 0o077:
        return f"is open to other users (mode {stat.S_IMODE(found.st_mode):04o})"
    return None


def read_secret(path: Path) -> str | None:
    """Contents of a file that `write_private` wrote; None: the file does not exist.

    Raises:
        EnvironmentFault: it is a link, belongs to another user, or other users can read it.
    """
    return unless_stale(lambda: _read(path))


def _read(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ESTALE:  # another node replaced it
            raise
        raise EnvironmentFault(
            f"{path}: {error.strerror}", remedy=f"remove it: rm {path}"
        ) from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        ours = found.st_uid == os.geteuid() and not found.st_mode & 0o077
        if not ours or not stat.S_ISREG(found.st_mode):
            raise EnvironmentFault(
                f"{path} is accessible to other users, or not a regular file",
                remedy=f"remove it: rm {path}",
            )
        return file.read(LARGEST).decode("utf-8", "replace")
