"""One answer of Slurm for all readers of a user on a machine: a small file on a local disk, and a lock.

A reader that finds the last answer too old asks Slurm, one reader at a time: the right to ask is a lock.
Other readers use the old answer meanwhile, unless it is much too old for them: then they wait for the new
one. A failed question keeps the last good answer and is not repeated before its time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hpcbench.errors import EnvironmentFault
from hpcbench.files.atomic import write_atomic
from hpcbench.files.lease import alone
from hpcbench.slurm.commands import TIMEOUT

ASKING_SECONDS = 2 * TIMEOUT + 10
"""Longest time of a question; a reader without a sign of life for this time has lost the right to ask."""

INDULGENCE = 5
"""While another reader asks, an answer suffices whose age is at most this multiple of the requested age."""


@dataclass(frozen=True, slots=True)
class SharedAnswer:
    """The last good answer, and whether Slurm has since failed to give another."""

    text: str = ""
    """The command's output."""
    time: float = 0.0
    """Time of the question, seconds since the epoch; 0: there never was an answer."""
    tried: float = 0.0
    """Time of the last question, with or without success."""
    fault: str | None = None
    """Why the last question failed; None: it did not."""


def private_folder() -> Path | None:
    """A folder of this user on a local disk that no other user can write to or read; None: there is none."""
    user = os.geteuid()
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{user}"):
        if parent and _private(Path(parent)):
            folder = Path(parent) / "hpcbench"
            break
    else:
        folder = Path(f"/tmp/hpcbench-{user}")
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        if _private(folder):
            return folder
    return None


def shared_answer(
    key: str,
    question: Callable[[], str],
    max_age: float,
    *,
    newer_than: float = 0.0,
    folder: Path | None = None,
) -> SharedAnswer:
    """The answer to a question, from the file or from Slurm.

    Args:
        key: name of the question; equal for equal questions.
        question: asks Slurm; raises EnvironmentFault where it fails.
        max_age: maximum age of the answer, seconds; 0: ask now.
        newer_than: an answer from before this moment (seconds since the epoch) does not suffice.
        folder: folder of the file; None: `private_folder`.
    """
    place = folder or private_folder()
    if place is None:
        return _put(question, SharedAnswer())
    # Other clusters give other answers: SLURM_CONF identifies the cluster.
    digest = hashlib.sha256(f"{os.environ.get('SLURM_CONF', '')}\n{key}".encode()).hexdigest()[:16]
    path, right = place / f"{digest}.json", place / f"{digest}.asking"
    began = time.time()
    wanted = max(min(newer_than, began), began - max_age)
    tolerated = max(min(newer_than, began), began - INDULGENCE * max_age)
    known = _read(path)
    while not wanted <= known.tried <= time.time() + 1:
        with _asking(right) as allowed:
            if allowed:
                known = _read(path)  # another reader may just have asked
                if not wanted <= known.tried <= time.time() + 1:
                    known = _put(question, known)
                    _write(path, known)
                break
        if tolerated <= known.time <= began or time.time() - began > ASKING_SECONDS:
            break
        time.sleep(0.1)
        known = _read(path)
    return known


def _put(question: Callable[[], str], known: SharedAnswer) -> SharedAnswer:
    # The moment before the question: later events may be missing in the answer.
    now = time.time()
    try:
        return SharedAnswer(question(), now, now)
    except EnvironmentFault as fault:
        return replace(known, tried=now, fault=fault.message)


def _read(path: Path) -> SharedAnswer:
    try:
        return SharedAnswer(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return SharedAnswer()


def _write(path: Path, answer: SharedAnswer) -> None:
    # A full disk prevents the sharing, not the answer.
    with contextlib.suppress(OSError):
        fields = {name: getattr(answer, name) for name in SharedAnswer.__slots__}
        write_atomic(path, json.dumps(fields))


def _private(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.geteuid()
        and not stat.S_IMODE(found.st_mode) & 0o077
    )


@contextlib.contextmanager
def _asking(right: Path) -> Iterator[bool]:
    """The right to ask; where the lock cannot be checked (a full disk), every reader has the right."""
    with contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(alone(right, silence=ASKING_SECONDS))
        except OSError:
            held = True
        yield held
