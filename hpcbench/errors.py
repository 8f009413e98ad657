"""Every error a user can meet, and the exit code it ends in.

    HpcbenchError
    ├── RunFailed            1   the run itself failed: jobs, answers, scores
    ├── UserError            2   the user's input: where, what, remedy
    └── EnvironmentFault     3   what the machine lacks: what, remedy

A verdict of a gate is no error: its verbs end in 4 (NO-GO) or 5 (INCONCLUSIVE), see `gate/verdict.py`.
Whatever else reaches the top is a bug: the CLI writes its traceback to a file and one line to the user.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

REMEDIES = {
    errno.EACCES: "allow yourself to use it, or name another path",
    errno.EPERM: "allow yourself to use it, or name another path",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "a part of this path is a file: check the path",
    errno.EISDIR: "name a file, not a folder",
    errno.EEXIST: "remove it, or name another path",
    errno.ENOTEMPTY: "empty it, or name another path",
    errno.ELOOP: "a symbolic link of this path leads to itself: remove it",
    errno.ENAMETOOLONG: "a name has at most 255 bytes, a path 4095",
    errno.ENXIO: "name a regular file",
    errno.EMFILE: "allow more open files: ulimit -n 4096",
    errno.ENFILE: "this machine has too many open files: wait, or use another",
    errno.ENOSPC: "make room, and do it again",
    errno.EDQUOT: "make room, and do it again",
    errno.EFBIG: "allow larger files (ulimit -f), or use another file system",
    errno.EROFS: "see whether its file system is well",
    errno.EIO: "see whether its file system is well",
    errno.ESTALE: "see whether its file system is well",
    errno.EBUSY: "wait until nobody uses it",
    errno.ETXTBSY: "wait until nobody uses it",
    errno.EAGAIN: "this machine is out of processes or memory: close some (ulimit -u)",
    errno.ENOMEM: "this machine is out of memory: close programs, or use another",
    errno.ECONNREFUSED: "see whether the other side runs, and whether this machine has a network",
    errno.ECONNRESET: "see whether the other side runs, and whether this machine has a network",
    errno.ENETUNREACH: "see whether this machine has a network",
    errno.EHOSTUNREACH: "see whether this machine has a network",
    errno.ETIMEDOUT: "see whether this machine has a network, and do it again",
    errno.EADDRINUSE: "choose another port or address",
    errno.EADDRNOTAVAIL: "choose an address of this machine",
}
"""What an error of the operating system asks of the user."""


class HpcbenchError(Exception):
    """Base of all errors that end in one clear line instead of a traceback."""

    exit_code = 1


class RunFailed(HpcbenchError):
    """Work was started and did not come to its end."""

    exit_code = 1


class Problem(NamedTuple):
    """One thing wrong with the user's input, at its place.

    A named tuple: `dataclasses` brings `inspect`, `ast` and `dis` into every start of the command line.
    """

    message: str
    """What is wrong, in one sentence."""
    file: str | None = None
    """The file it stands in."""
    line: int | None = None
    """1-based line in that file."""
    column: int | None = None
    """1-based column in that line."""
    remedy: str | None = None
    """What to do about it."""

    def __str__(self) -> str:
        place = [str(part) for part in (self.file, self.line, self.column) if part is not None]
        where = ":".join(place) + ": " if place else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        return printable(f"{where}{self.message}{remedy}")


class UserError(HpcbenchError):
    """The user's input is wrong; carries every problem found, not only the first."""

    exit_code = 2

    def __init__(self, *problems: Problem | str, remedy: str | None = None) -> None:
        self.problems = tuple(
            problem if isinstance(problem, Problem) else Problem(problem, remedy=remedy)
            for problem in problems
        )
        super().__init__("\n".join(_lines(self.problems)))


class EnvironmentFault(HpcbenchError):
    """The machine lacks something; says what would cure it."""

    exit_code = 3

    def __init__(self, message: str, remedy: str | None = None) -> None:
        self.message, self.remedy = message, remedy
        super().__init__(cut(message) + (f" ({remedy})" if remedy else ""))


def _lines(problems: Iterable[Problem]) -> Iterator[str]:
    """A line a mistake; one that is made at several places of a file is one line, which counts them."""
    same: dict[Hashable, list[Problem]] = {}
    for one in problems:
        same.setdefault(mistake(one), []).append(one)
    for first, *others in same.values():
        yield f"{first}{_also(others)}"


def mistake(problem: Problem) -> Hashable:
    """What two problems have in common that are one mistake, made at two places or by two samples."""
    kind = re.sub(r"\.\d+(?=[.:])", ".*", problem.message)  # whichever entry of a list it is
    kind = re.sub(r"\bsample '[^']*'", "sample *", kind)
    return problem.file, kind, problem.remedy


def most_mistakes(problems: Iterable[Problem], most: int) -> list[Problem]:
    """Problems of the first so many mistakes, with each place where they were made."""
    kept, seen = [], set[Hashable]()
    for one in problems:
        kind = mistake(one)
        if kind in seen or len(seen) < most:
            seen.add(kind)
            kept.append(one)
    return kept


def _also(others: Sequence[Problem]) -> str:
    """How often a mistake was made besides, and in which lines."""
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
"""Characters of a word in a message; of a longer one the beginning and the end are shown."""


def cut(text: str) -> str:
    """Text without words that would fill a screen."""
    if len(text) <= LONGEST_WORD:
        return text
    return re.sub(
        rf"\S{{{LONGEST_WORD + 1},}}", lambda word: f"{word[0][:200]}…{word[0][-100:]}", text
    )


def printable(text: str) -> str:
    """Text for one line of a terminal: what would end the line or steer the terminal is escaped."""
    text = cut(text)
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)


def nearest(name: str, names: Collection[str], cutoff: float = 0.6) -> str | None:
    """The name that somebody may have meant; None where none of them is near."""
    import difflib  # when something is wrong, not whenever anything starts

    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=cutoff)), None)


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """`unknown WHAT 'NAME' (did you mean …)`, or the names there are."""
    names = sorted(known)
    if close := nearest(name, names):
        return f"unknown {what} '{name}' (did you mean '{close}'?)"
    listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"unknown {what} '{name}' (there are: {listed or 'none'})"


NO_NETWORK = "is there a network here? compute nodes often have none; `https_proxy` names a proxy"
"""What to do where a host cannot be reached."""

_UNREACHED = (
    (
        r"name resolution|name or service not known|could not resolve|failed to lookup|dns error"
        r"|nodename nor servname|no address associated|getaddrinfo",
        "its name is not known here",
    ),
    (r"network is (unreachable|down)|no route to host|host is down", "there is no way to it"),
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
"""What clients say where no host answered, in small letters, and what that means; the first that fits."""


def unreached(error: BaseException) -> str | None:
    """Why no host answered, if that is what an error or what it came of says; None: it is another error.

    Clients share no class for it: some raise an OSError, some keep it as a reason or a cause, and those that
    are written in Rust have only its text.
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
    import re  # when something is wrong, not whenever anything starts

    said = " ".join(f"{type(one).__name__} {one}" for one in seen).lower()
    own = " ".join(str(error).split())[:200] or "no connection"
    return next((why for pattern, why in _UNREACHED if re.search(pattern, said)), own)


def _of_network(error: BaseException) -> bool:
    """Whether an error is one of a connection, by its class, its number or its client's name for it."""
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
        return True  # a socket's; others say something else, or nothing
    named = f"{type(error).__name__}: {error}".lower()
    return any(word in named for word in _NAMED)


_NAMED = (
    "name resolution", "could not resolve", "failed to lookup", "dns error", "connect error",
    "connection error", "connecterror", "connectionerror", "connecttimeout", "readtimeout", "sockettimeout",
    "error sending request", "network is unreachable", "no route to host", "connection refused",
    "connection timed out", "operation timed out", "maxretryerror",
)  # fmt: skip
"""What clients call it, in small letters."""
