"""Opening files below a folder so that no name, link or exchange of links leads out of it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How each folder on the way is opened."""

FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""How the file is opened: a pipe or a terminal in its place must not hold the portal up."""


def open_beneath(root: Path, *parts: str) -> int:
    """Open a regular file below a folder for reading; nothing on the way may be a link.

    What is checked is what was opened: exchanging a folder for a link in between changes nothing. Mind that
    the size is the caller's matter: `os.fstat` first, then read no more than is wanted.

    Args:
        root: the folder; where it lies itself is trusted.
        parts: names of folders below it, and of the file; each is one name, not a path.

    Returns:
        A descriptor, which the caller closes.

    Raises:
        FileNotFoundError: there is no such file, or a name is not one that a file can have here.
        PermissionError: it may not be read, a link is on the way, or it is no regular file.
        OSError: the disk or file server fails.
    """
    if not parts:
        raise FileNotFoundError(errno.ENOENT, "no file is named")
    for part in parts:
        if part in {"", ".", ".."} or "/" in part or "\0" in part or len(os.fsencode(part)) > 255:
            raise FileNotFoundError(errno.ENOENT, "no such file")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            below = _open(part, FOLDER, folder)
            os.close(folder)
            folder = below
        file = _open(parts[-1], FILE, folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise PermissionError(errno.EACCES, "not a regular file")
    return file


def _open(name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except UnicodeEncodeError:
        raise FileNotFoundError(errno.ENOENT, "no such file") from None
    except NotADirectoryError:
        # O_DIRECTORY says so of a link as well as of a file.
        raise PermissionError(errno.EACCES, "a link or a file on the way") from None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO, errno.ENODEV}:
            raise PermissionError(errno.EACCES, "a link, or not a regular file") from None
        raise
