"""Free space of the user's file systems and quotas; all answers are fast, though a file server may hang."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from hpcbench.files.mounts import kind_of
from hpcbench.portal.models.cluster import DiskUsage

PATIENCE = 3.0
"""Seconds to wait for a file system or for a quota's program."""

_FIGURES = re.compile(
    r"^\s*(?P<place>\S+)\s+(?P<used>\d+)\*?\s+(?P<quota>\d+)\s+(?P<limit>\d+)\s+(?P<grace>[^\s\d]\S*|0|\d+\S*)"
    r"\s+(?P<files>\d+)\*?\s+(?P<soft>\d+)\s+(?P<most>\d+)"
)


def disk_usages(places: Mapping[str, Path]) -> tuple[DiskUsage, ...]:
    """Space at each place, each file system once, and the user's quotas.

    Args:
        places: display name of a folder → the folder.
    """
    found: list[DiskUsage] = []
    seen: set[int] = set()
    for name, path in places.items():
        looked = _look(path)
        if looked is None or looked[0] in seen:
            continue
        device, usage = looked
        seen.add(device)
        found.append(usage.model_copy(update={"name": name}))
        if kind_of(path) == "lustre" and shutil.which("lfs"):
            argv = ("lfs", "quota", "-q", "-u", _user(), str(path))
            found.extend(parse_quota(_said(*argv), name, str(path)))
    if shutil.which("quota"):
        found.extend(parse_quota(_said("quota", "-w", "-p"), "", ""))
    return tuple(found)


def parse_quota(text: str, name: str, path: str) -> Iterator[DiskUsage]:
    """Quotas in the output of `quota -w -p` or `lfs quota -q`, both in KiB; without unlimited ones.

    Args:
        text: the output.
        name: display name of the place; empty: the program's name for it.
        path: the folder; empty: the program's name for the file system.
    """
    # lfs breaks the line behind a long path.
    for line in re.sub(r"^(\s*/\S+)\s*\n\s+(?=\d)", r"\1 ", text, flags=re.MULTILINE).splitlines():
        match = _FIGURES.match(line)
        if match is None:
            continue
        size = int(match["quota"]) or int(match["limit"])
        files = int(match["soft"]) or int(match["most"])
        if size or files:
            yield DiskUsage(
                name=name or match["place"],
                path=path or match["place"],
                used=int(match["used"]) * 1024,
                size=size * 1024,
                files_used=int(match["files"]),
                files=files or None,
                quota=True,
            )


def _look(path: Path) -> tuple[int, DiskUsage] | None:
    """Device and space of a folder's file system; None: it does not exist, or does not answer."""
    found: list[tuple[int, DiskUsage]] = []

    def look() -> None:
        try:
            stats, device = os.statvfs(path), path.stat().st_dev
        except OSError:
            return
        size = stats.f_blocks * stats.f_frsize
        # Space reserved for root is not free.
        used = size - stats.f_bfree * stats.f_frsize
        mine = used + stats.f_bavail * stats.f_frsize
        usage = DiskUsage(name="", path=str(path), used=used, size=mine)
        if stats.f_files:
            files = {"files_used": stats.f_files - stats.f_ffree, "files": stats.f_files}
            usage = usage.model_copy(update=files)
        found.append((device, usage))

    # A thread that hangs in its file system is abandoned: it cannot be ended.
    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(PATIENCE)
    return found[0] if found else None


def _said(*argv: str) -> str:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=PATIENCE, check=False, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
