"""Files that users name: only regular files, read up to a limit; decoding errors name line and column.

A reader would wait for a pipe, would read a device without end, and a folder's error would be unclear: all
are refused in one line, before a byte is read.
"""

from __future__ import annotations

import codecs
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from hpcbench.errors import REMEDIES, Problem, UserError, nearest

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_file(path: Path) -> BinaryIO:
    """Open a regular file to read its bytes.

    Raises:
        UserError: the file is missing, not regular, or not readable for us.
    """
    try:
        # O_NONBLOCK: opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise UserError(_cannot(path, error)) from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    kind = _KINDS.get(stat.S_IFMT(mode), "something else")
    raise UserError(Problem(f"is {kind}, not a file", str(path), remedy="name a regular file"))


def refuse_pipes(path: Path) -> None:
    """Refuse a path that a reader would wait for, or read without end.

    Raises:
        OSError: the path is a pipe, a socket or a device, or is missing.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # reading a folder raises a clear error
        raise OSError(errno.EINVAL, f"is {_KINDS[stat.S_IFMT(mode)]}, not a file", str(path))


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """All bytes of a file.

    Raises:
        UserError: as `open_file`; or the file is larger than `limit` bytes.
    """
    with open_file(path) as file:
        try:
            data = file.read() if limit is None else file.read(limit + 1)
        except OSError as error:
            raise UserError(_cannot(path, error)) from error
    if limit is not None and len(data) > limit:
        raise UserError(
            Problem(
                f"larger than {limit} bytes", str(path), remedy="check that it is the right file"
            )
        )
    return data


def read_text(path: Path, limit: int | None = None) -> str:
    """A file's text, without its byte order mark.

    Raises:
        UserError: as `read_bytes`; or the file is not UTF-8, with line and column.
    """
    data = read_bytes(path, limit).removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        lines = data[: error.start].decode("utf-8").split("\n")
        place = (len(lines), len(lines[-1]) + 1)
        raise UserError(Problem("not UTF-8", str(path), *place, "save it as UTF-8 text")) from error


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        UserError: as `read_text`; or the file is not JSON, with line and column.
    """
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(not_json(error, path)) from None


def not_json(error: ValueError | RecursionError, path: Path, line: int | None = None) -> Problem:
    """An error of `json.loads` over a file, or over one line of it, as a problem with its place."""
    if isinstance(error, json.JSONDecodeError):
        remedy = "the file may be incomplete: copy it again, or correct the line"
        where = (line or error.lineno, error.colno)
        return Problem(f"not JSON: {error.msg}", str(path), *where, remedy)
    if isinstance(error, RecursionError):
        return Problem("not JSON: nested too deeply", str(path), line, remedy="use fewer levels")
    what = "not JSON: a number has too many digits"
    return Problem(what, str(path), line, remedy="put it in quotes")


def _cannot(path: Path, error: OSError | ValueError) -> Problem:
    if isinstance(error, FileNotFoundError):
        return Problem("no such file", str(path), remedy=_nearest(path))
    if isinstance(error, OSError):
        if error.errno == errno.ENXIO:
            return Problem("is a socket, not a file", str(path), remedy="name a regular file")
        remedy = REMEDIES.get(error.errno or 0, "check the path")
        return Problem(f"cannot be read: {error.strerror}", str(path), remedy=remedy)
    return Problem(f"cannot be read: {error}", str(path), remedy="check the path")


def _nearest(path: Path) -> str:
    """A remedy for a missing file: a similar name from its folder."""
    if path.is_symlink():
        return "it is a link to a file that does not exist"
    try:
        names = sorted(one.name for one in path.parent.iterdir())
    except OSError:
        return f"there is no folder {path.parent}"
    close = nearest(path.name, names, cutoff=0.75)
    return f"did you mean '{close}'?" if close else "check the path"
