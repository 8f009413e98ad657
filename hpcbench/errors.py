"""All errors that a user can get, with their exit codes.

    HpcbenchError
    ├── RunFailed            1   the run itself failed: jobs, answers, scores
    ├── UserError            2   the user's input: place, message, remedy
    └── EnvironmentFault     3   what the machine lacks: message, remedy

A verdict of a gate is no error: its verbs end in 4 (NO-GO) or 5 (INCONCLUSIVE), see `gate/verdict.py`.
Any other exception is a bug: the CLI writes its traceback to a file and one line to the user.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

REMEDIES = {
    errno.EACCES: "change its permissions, or name another path",
    errno.EPERM: "change its permissions, or name another path",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "a part of this path is a file: check the path",
    errno.EISDIR: "name a file, not a folder",
    errno.EEXIST: "remove it, or name another path",
    errno.ENOTEMPTY: "empty it, or name another path",
    errno.ELOOP: "a symbolic link of this path leads to itself: remove it",
    errno.ENAMETOOLONG: "shorten it: a name has at most 255 bytes, a path 4095",
    errno.ENXIO: "name a regular file",
    errno.EMFILE: "allow more open files: ulimit -n 4096",
    errno.ENFILE: "this machine has too many open files: wait, or use another machine",
    errno.ENOSPC: "free some space, and try again",
    errno.EDQUOT: "free some space, and try again",
    errno.EFBIG: "allow larger files (ulimit -f), or use another file system",
    errno.EROFS: "check its file system",
    errno.EIO: "check its file system",
    errno.ESTALE: "check its file system",
    errno.EBUSY: "wait until no process uses it",
    errno.ETXTBSY: "wait until no process uses it",
    errno.EAGAIN: "this machine has no process or memory left for you: end some programs, see ulimit -u",
    errno.ENOMEM: "this machine has no memory left: end some programs, or use another machine",
    errno.ECONNREFUSED: "check that the server runs, and the network of this machine",
    errno.ECONNRESET: "check that the server runs, and the network of this machine",
    errno.ENETUNREACH: "check the network of this machine",
    errno.EHOSTUNREACH: "check the network of this machine",
    errno.ETIMEDOUT: "check the network of this machine, and try again",
    errno.EADDRINUSE: "choose another port or address",
    errno.EADDRNOTAVAIL: "choose an address of this machine",
}
"""Number of an error of the operating system → remedy for the user."""


class HpcbenchError(Exception):
    """Base of all errors that end in one clear line instead of a traceback."""

    exit_code = 1


class RunFailed(HpcbenchError):
    """Work was started and did not finish."""

    exit_code = 1


class Problem(NamedTuple):
    """One mistake in the user's input, at its place.

    A named tuple: `dataclasses` brings `inspect`, `ast` and `dis` into every start of the command line.
    """

    message: str
    """The mistake in one sentence."""
    file: str | None = None
    """The file of the mistake, or the option of the command line (`--limit 0`), which has no line."""
    line: int | None = None
    """1-based line in that file."""
    column: int | None = None
    """1-based column in that line."""
    remedy: str | None = None
    """The remedy."""

    def __str__(self) -> str:
        parts = (self.file,) if is_option(self.file) else (self.file, self.line, self.column)
        place = [str(part) for part in parts if part is not None]
        where = ":".join(place) + ": " if place else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        return printable(f"{where}{self.message}{remedy}")


def is_option(place: str | None) -> bool:
    """Whether the place of a mistake is an option of the command line."""
    return place is not None and place.startswith("--")


class UserError(HpcbenchError):
    """The user's input is wrong; carries every problem found, not only the first."""

    exit_code = 2

    def __init__(
        self, *problems: Problem | str, file: object = None, remedy: str | None = None
    ) -> None:
        place = None if file is None else str(file)
        self.problems = tuple(
            problem if isinstance(problem, Problem) else Problem(problem, place, remedy=remedy)
            for problem in problems
        )
        super().__init__("\n".join(_lines(self.problems)))


class EnvironmentFault(HpcbenchError):
    """The machine lacks a requirement; gives the remedy."""

    exit_code = 3

    def __init__(self, message: str, remedy: str | None = None) -> None:
        self.message, self.remedy = message, remedy
        super().__init__(cut(message) + (f" ({remedy})" if remedy else ""))


OTHER_FORM = (
    ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError,
)  # fmt: skip
"""Exceptions with which code ends that reads JSON of another form than it expects."""

RESTORE = "restore it from a backup: without it the experiment cannot be read"


class DamagedFile(EnvironmentFault, ValueError):
    """A file of an experiment cannot be read. A ValueError, too: lists pass over what they cannot decode."""

    def __init__(self, file: object, why: str, remedy: str = RESTORE) -> None:
        super().__init__(f"{file} is damaged: {why}", remedy)


def _lines(problems: Iterable[Problem]) -> Iterator[str]:
    """One line for each mistake; a mistake at several places of a file is one line with their number."""
    same: dict[Hashable, list[Problem]] = {}
    for one in problems:
        same.setdefault(mistake(one), []).append(one)
    for first, *others in same.values():
        yield f"{first}{_also(others)}"


def mistake(problem: Problem) -> Hashable:
    """Key of a mistake: problems of one mistake, at several places or samples, have the same key."""
    kind = re.sub(r"\.\d+(?=[.:])", ".*", problem.message)  # any entry of a list
    kind = re.sub(r"\bsample '[^']*'", "sample *", kind)
    return problem.file, kind, problem.remedy


def most_mistakes(problems: Iterable[Problem], most: int) -> list[Problem]:
    """Problems of the first `most` mistakes, with all their places."""
    kept, seen = [], set[Hashable]()
    for one in problems:
        kind = mistake(one)
        if kind in seen or len(seen) < most:
            seen.add(kind)
            kept.append(one)
    return kept


def _also(others: Sequence[Problem]) -> str:
    """Number and lines of the other places of a mistake."""
    if not others:
        return ""
    times = "once more" if len(others) == 1 else f"{len(others)} more times"
    lines = [str(one.line) for one in others if one.line is not None]
    if not lines:
        return f"; {times}"
    shown = ", ".join(lines[:_LINES_SHOWN]) + (", …" if len(lines) > _LINES_SHOWN else "")
    return f"; {times}, in line{'s' if len(lines) > 1 else ''} {shown}"


_LINES_SHOWN = 5

LONGEST_WORD = 400
"""Characters of a word in a message; a longer word is cut to its beginning and end."""


def cut(text: str) -> str:
    """Text with overlong words cut."""
    if len(text) <= LONGEST_WORD:
        return text
    return re.sub(
        rf"\S{{{LONGEST_WORD + 1},}}", lambda word: f"{word[0][:200]}…{word[0][-100:]}", text
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's message; without a message, its class."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def printable(text: str) -> str:
    """Text for one line of a terminal: line breaks and control characters are escaped."""
    text = cut(text)
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)


def nearest(name: str, names: Collection[str], cutoff: float = 0.6) -> str | None:
    """The name that the user may have meant; None: no name is similar."""
    import difflib  # imported only for an error, not at every start

    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=cutoff)), None)


def unknown(what: str, name: str, known: Iterable[str], *, of: str = "") -> str:
    """`unknown WHAT 'NAME' of OF (did you mean …)`, or with the known names."""
    names = sorted(known)
    said = f"unknown {what} '{name}'{of and f' of {of}'}"
    if close := nearest(name, names):
        return f"{said} (did you mean '{close}'?)"
    listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"{said} (there are: {listed or 'none'})"


NO_NETWORK = "check the network: compute nodes often have none; `https_proxy` names a proxy"
"""Remedy for an unreachable host."""

_UNREACHED = (
    (
        r"certificate|unknownissuer",
        "its certificate is not trusted (`SSL_CERT_FILE` names the file of your site's authority)",
    ),
    (
        r"name resolution|name or service not known|could not resolve|failed to lookup|dns error"
        r"|nodename nor servname|no address associated|getaddrinfo",
        "unknown host name",
    ),
    (r"network is (unreachable|down)|no route to host|host is down", "no route to it"),
    (r"connection refused|actively refused", "it refused the connection"),
    (
        r"connection (was |is )?(reset|aborted|closed)|broken pipe|remote end closed",
        "the connection broke",
    ),
    (r"timed out|timeout|took too long", "no answer in time"),
    (
        r"error sending request|cannot connect|connect(ion)? error|unable to connect",
        "no connection",
    ),
)
"""Clients' messages for an unreachable host, in small letters, and their meaning; the first match counts."""


def unreached(error: BaseException) -> str | None:
    """Why no host answered, if an error or one of its causes says so; None: another error.

    Clients share no class for this error: some raise an OSError, some have it as a reason or a cause, and
    clients written in Rust have only its text.
    """
    seen: list[BaseException] = []
    waiting = [error]
    while waiting and len(seen) < 20:
        one = waiting.pop(0)
        if one in seen:
            continue
        seen.append(one)
        parts = (getattr(one, "reason", None), one.__cause__, one.__context__, *one.args)
        waiting += [part for part in parts if isinstance(part, BaseException)]
    if not any(map(_of_network, seen)):
        return None
    import re  # imported only for an error, not at every start

    said = " ".join(f"{type(one).__name__} {one}" for one in seen).lower()
    own = " ".join(str(error).split())[:200] or "no connection"
    return next((why for pattern, why in _UNREACHED if re.search(pattern, said)), own)


def _of_network(error: BaseException) -> bool:
    """Whether an error concerns a connection, by its class, its number or its client's name for it."""
    import errno
    import socket

    if isinstance(error, FileNotFoundError | PermissionError | HpcbenchError):
        return False
    if isinstance(error, ConnectionError | socket.gaierror | socket.herror):
        return True
    numbers = (
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.EHOSTDOWN,
        errno.ETIMEDOUT,
    )
    if isinstance(error, OSError) and error.errno in numbers:
        return True
    if isinstance(error, TimeoutError) and "timed out" in str(error):
        return True  # a socket's timeout; other timeouts have another message, or none
    named = f"{type(error).__name__}: {error}".lower()
    return any(word in named for word in _NAMED)


_NAMED = (
    "name resolution", "could not resolve", "failed to lookup", "dns error", "connect error",
    "connection error", "connecterror", "connectionerror", "connecttimeout", "readtimeout", "sockettimeout",
    "error sending request", "network is unreachable", "no route to host", "connection refused",
    "connection timed out", "operation timed out", "maxretryerror", "certificate_verify_failed",
    "certificate verify failed", "invalid peer certificate",
)  # fmt: skip
"""Clients' names for errors of a connection, in small letters."""
