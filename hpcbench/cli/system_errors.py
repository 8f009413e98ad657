"""Errors of the machine or the network that no other code expected become one line here.

A path from the command line is the user's input (exit 2); any other path is the environment's (exit 3).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from hpcbench.errors import (
    NO_NETWORK,
    REMEDIES,
    EnvironmentFault,
    HpcbenchError,
    UserError,
    printable,
    unreached,
)


def explain(error: BaseException, words: Sequence[str] = ()) -> HpcbenchError | None:
    """The line and the exit code of an error of the machine; None: a bug of hpcbench.

    Args:
        error: the error that reached the top.
        words: the command line.
    """
    if isinstance(error, MemoryError):
        return EnvironmentFault("out of memory", remedy=REMEDIES[errno.ENOMEM])
    if "Too many open files" in str(error):  # also as a library's own exception
        return EnvironmentFault("too many open files", remedy=REMEDIES[errno.EMFILE])
    if isinstance(error, RuntimeError) and "home directory" in str(error):
        return EnvironmentFault("this account has no home folder", remedy="set HOME to a folder")
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):
        return UserError(str(error).replace("from ", "at "), remedy=REMEDIES[errno.ELOOP])
    if (fault := _of_network(error)) is not None:
        return fault
    if not isinstance(error, OSError):
        return None
    path = error.filename2 or error.filename
    if path is None and error.errno == errno.ENOENT and not _has_folder():
        return EnvironmentFault("the current folder was deleted", remedy="cd to an existing folder")
    remedy = REMEDIES.get(error.errno or 0)
    if path is None and remedy is None:
        return None
    where = os.fsdecode(path) if isinstance(path, str | bytes) else None
    what = error.strerror or type(error).__name__
    if where is not None and _is_named(where, words):
        return UserError(what, file=where, remedy=remedy)
    place = f": {printable(where)}" if where is not None else ""
    return EnvironmentFault(f"{what}{place}", remedy=remedy)


def _of_network(error: BaseException) -> EnvironmentFault | None:
    """An unexpected client error, if a host did not answer."""
    if isinstance(error, (AssertionError, AttributeError, LookupError, NameError, TypeError)):
        return None  # a bug in any case
    why = unreached(error)
    if why is None:
        return None
    said = " ".join(str(error).split())[:300]
    return EnvironmentFault(f"hpcbench cannot reach a host, {why}: {said}", remedy=NO_NETWORK)


def _has_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109
    except OSError:
        return False
    return True


def _is_named(path: str, words: Sequence[str]) -> bool:
    """Whether a path is on the command line, or below such a path."""
    for word in words:
        named = word.rpartition("=")[2] if word.startswith("-") else word
        if named and f"{path}/".startswith(f"{named.rstrip('/')}/"):
            return True
        if named and _has_folder() and f"{path}/".startswith(f"{os.path.abspath(named)}/"):  # noqa: PTH100
            return True
    return False
