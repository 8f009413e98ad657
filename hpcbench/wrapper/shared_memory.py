"""Files in /dev/shm that an engine's processes have mapped: killed processes leave them there for ever.

Python removes its own files by a tracker process (hpcbench.wrapper.process_tree spares it), other programs
remove none. A file is only removed if a process of the engine had it mapped, it did not exist before the
engine, it is our user's, and it is still the same file.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

FOLDER = Path("/dev/shm")


class SharedMemory:
    """Shared memory of one engine; create it before the engine starts."""

    def __init__(self) -> None:
        self._before = frozenset(_listed())
        self._found: dict[str, int] = {}

    def look(self, pids: Iterable[int]) -> None:
        """Record the mapped files of these processes."""
        for pid in pids:
            self.note(_mapped(pid))

    def note(self, inodes: Mapping[str, int]) -> None:
        """Record files by name and inode."""
        self._found.update(inodes)

    def remove(self) -> None:
        """Remove the recorded files, after the last process of the engine ended."""
        for name in self._found.keys() - self._before:
            path = FOLDER / name
            with contextlib.suppress(OSError):  # already removed, as it should be
                status = path.lstat()
                same = status.st_ino == self._found[name] and status.st_uid == os.geteuid()
                if same and stat.S_ISREG(status.st_mode):
                    path.unlink()


def _listed() -> list[str]:
    try:
        return os.listdir(FOLDER)  # noqa: PTH208 (only names are needed)
    except OSError:
        return []


def _mapped(pid: int) -> dict[str, int]:
    """Name and inode of each file directly in the folder that a process has mapped."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return {}  # the process is gone
    found = {}
    for line in lines:
        if f" {FOLDER}/" in line:
            *_, inode, path = line.split(maxsplit=5)
            name = path.removeprefix(f"{FOLDER}/")
            if "/" not in name and not name.endswith(" (deleted)"):
                found[name] = int(inode)
    return found
