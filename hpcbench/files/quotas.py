"""The user's quotas, as the programs `quota` and `lfs quota` print them."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hpcbench.subprocesses import run

PATIENCE = 3.0
"""Seconds to wait for the programs: a file server may hang."""


class Quota(NamedTuple):
    """A limit of a user's space and files in one file system."""

    place: str
    """The program's name for the file system."""
    used: int
    """KiB in use."""
    size: int
    """KiB that may be used: the soft limit, after which a grace period begins, else the hard one; 0: any."""
    files_used: int
    """Files there."""
    files: int
    """Files that may be there; 0: any number."""


def lustre_quotas(folder: Path) -> list[Quota]:
    """Quotas of this user in the Lustre file system of a folder."""
    return list(parsed(_printed("lfs", "quota", "-q", "-u", _user(), str(folder))))


def quotas(*options: str) -> list[Quota]:
    """Quotas of this user that `quota` prints with these options."""
    return list(parsed(_printed("quota", "-w", *options)))


def parsed(text: str) -> Iterator[Quota]:
    """Quotas in the programs' output; file systems without limits are left out."""
    # lfs breaks the line behind a long path.
    for line in re.sub(r"^(\s*/\S+)\s*\n\s+(?=\d)", r"\1 ", text, flags=re.MULTILINE).splitlines():
        place, *columns = line.replace("*", " ").split() or [""]
        if len(columns) > 7 or (len(columns) > 3 and not columns[3].isdigit()):
            del columns[3]  # the grace period, which may be blank
        if len(columns) > 5 and all(map(str.isdigit, columns[:6])):
            used, soft, hard, files, few, most = map(int, columns[:6])
            if soft or hard or few or most:
                yield Quota(place, used, soft or hard, files, few or most)


def _printed(*command: str) -> str:
    """Output of a program, whatever its exit code: `quota` fails where a limit is exceeded."""
    try:
        ended = run(command, PATIENCE, env={**os.environ, "LC_ALL": "C"})
    except OSError:
        return ""
    return "" if ended.late else ended.text


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
