"""Files in /dev/shm that an engine's processes have mapped: killed processes leave them there for ever.

Python removes its own files by a tracker process (hpcbench.wrapper.process_tree spares it), other programs
remove none. A file is only removed if a process of the engine had it mapped, its name is newer than the
engine, and it is our user's. Files are known by their inodes: a semaphore is made under one name and kept
under another, so the process that made it shows a name that is gone.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path("/dev/shm")


class SharedMemory:
    """Shared memory of one engine; create it before the engine starts."""

    def __init__(self) -> None:
        self._before = frozenset(_listed())
        self._found: set[int] = set()

    def look(self, pids: Iterable[int]) -> None:
        """Record the mapped files of these processes."""
        for pid in pids:
            self.note(_mapped(pid))

    def note(self, inodes: Iterable[int]) -> None:
        """Record files by their inodes."""
        self._found.update(inodes)

    def remove(self) -> None:
        """Remove the recorded files, after the last process of the engine ended."""
        for name in set(_listed()) - self._before:
            path = FOLDER / name
            with contextlib.suppress(OSError):  # already removed, as it should be
                status = path.lstat()
                ours = status.st_ino in self._found and status.st_uid == os.geteuid()
                if ours and stat.S_ISREG(status.st_mode):
                    path.unlink()


def _listed() -> list[str]:
    try:
        return os.listdir(FOLDER)  # noqa: PTH208 (only names are needed)
    except OSError:
        return []


def _mapped(pid: int) -> set[int]:
    """Inodes of the files in the folder that a process has mapped, of files without a name too."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return set()  # the process is gone
    return {int(line.split(maxsplit=5)[4]) for line in lines if f" {FOLDER}/" in line}
