"""Opens files below a folder; no name, link or exchange of links can lead out of the folder."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to open each folder of the path."""

FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Flags to open the file: a pipe or a terminal in its place must not block the portal."""


def open_beneath(root: Path, *parts: str) -> int:
    """Open a regular file below a folder for reading; no part of the path may be a link.

    All checks are on opened descriptors: replacing a folder by a link in between has no effect. The caller
    limits the size: `os.fstat` first, then a read of no more bytes than needed.

    Args:
        root: the folder; its own path is trusted.
        parts: names of the folders below it, and of the file; each is a single name, not a path.

    Returns:
        A descriptor, which the caller closes.

    Raises:
        FileNotFoundError: the file does not exist, or a name is not valid for a file here.
        PermissionError: it may not be read, a link is in the path, or it is no regular file.
        OSError: the disk or file server fails.
    """
    if not parts:
        raise FileNotFoundError(errno.ENOENT, "the path is empty")
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
        # O_DIRECTORY gives this error for a link as well as for a file.
        raise PermissionError(errno.EACCES, "a link or a file in the path") from None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO, errno.ENODEV}:
            raise PermissionError(errno.EACCES, "a link, or not a regular file") from None
        raise
