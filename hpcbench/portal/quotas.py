"""Free space of the user's file systems and quotas; all answers are fast, though a file server may hang."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from hpcbench.files.mounts import kind_of
from hpcbench.files.quotas import Quota, lustre_quotas, quotas
from hpcbench.portal.models.cluster import DiskUsage

PATIENCE = 3.0
"""Seconds to wait for a file system."""


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
        if kind_of(path) == "lustre":
            found.extend(_usage(one, name, str(path)) for one in lustre_quotas(path))
    return (*found, *map(_usage, quotas("-p")))


def _usage(quota: Quota, name: str = "", path: str = "") -> DiskUsage:
    return DiskUsage(
        name=name or quota.place,
        path=path or quota.place,
        used=quota.used * 1024,
        size=quota.size * 1024,
        files_used=quota.files_used,
        files=quota.files or None,
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
