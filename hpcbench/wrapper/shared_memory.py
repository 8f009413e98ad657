"""Files in /dev/shm that an engine's processes have mapped: killed processes leave them there for good.

Python removes its own by a process that tracks them (hpcbench.wrapper.process_tree spares it), other programs
nobody's. Removed is only what is known: a process of the engine had it mapped, it was not there before the
engine, it is a file of ours, and still the same one.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

FOLDER = Path("/dev/shm")


class SharedMemory:
    """That of one engine; to be made before the engine is started."""

    def __init__(self) -> None:
        self._before = frozenset(_listed())
        self._found: dict[str, int] = {}

    def look(self, pids: Iterable[int]) -> None:
        """Remember what these processes have mapped."""
        for pid in pids:
            self.note(_mapped(pid))

    def note(self, inodes: Mapping[str, int]) -> None:
        """Remember files by name and inode."""
        self._found.update(inodes)

    def remove(self) -> None:
        """Remove what was seen, once no process of the engine is left."""
        for name in self._found.keys() - self._before:
            path = FOLDER / name
            with contextlib.suppress(OSError):  # gone already, as it should be
                status = path.lstat()
                same = status.st_ino == self._found[name] and status.st_uid == os.geteuid()
                if same and stat.S_ISREG(status.st_mode):
                    path.unlink()


def _listed() -> list[str]:
    try:
        return os.listdir(FOLDER)  # noqa: PTH208 (names are all that is wanted)
    except OSError:
        return []


def _mapped(pid: int) -> dict[str, int]:
    """Name and inode of the files right below the folder that a process has mapped."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return {}  # it is gone
    found = {}
    for line in lines:
        if f" {FOLDER}/" in line:
            *_, inode, path = line.split(maxsplit=5)
            name = path.removeprefix(f"{FOLDER}/")
            if "/" not in name and not name.endswith(" (deleted)"):
                found[name] = int(inode)
    return found
