"""Datasets and weights on the disk of the node itself: copied once, however many workers a node has.

    FOLDER/hpcbench-UID/KEY/files/…

Only its owner may read the folder, for others use the node too. A copy appears under its name when it is
whole; the next job on the node finds it there, if the site keeps the folder between jobs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hpcbench.data.progress import size_text
from hpcbench.data.tree import Tree
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.once import make_once

SPARE = 1 << 30
"""Bytes that are left free for others."""


def staging_folder(wanted: str) -> Path:
    """The folder below which copies are kept, made if it is not there.

    Args:
        wanted: what the site says; variables such as `$TMPDIR` are expanded.

    Raises:
        EnvironmentFault: a variable is not set, or it cannot be made, or it is somebody else's.
    """
    expanded = os.path.expandvars(wanted)
    if "$" in expanded:
        raise EnvironmentFault(f"staging folder {wanted}: the variable is not set in this job")
    folder = Path(expanded) / f"hpcbench-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid() or folder.is_symlink():
            raise EnvironmentFault(f"staging folder {folder} belongs to somebody else")
        folder.chmod(0o700)
    except OSError as error:
        raise EnvironmentFault(f"staging folder {folder}: {error.strerror}") from error
    return folder


def stage(source: Path, folder: Path) -> Path:
    """A copy of a dataset's or model's folder on this node.

    Args:
        source: the folder; if it is a version's `files`, its manifest and pack come along.
        folder: where copies are kept.

    Raises:
        EnvironmentFault: there is no room, or it cannot be read.
    """
    version = Tree(source).version
    top = version.folder if version is not None else source
    try:
        files = [path for path in _files(top) if path.name not in ("used", "done.jsonl")]
        sizes = {path: path.stat() for path in files}
        if version is not None:
            key = version.folder.name
        else:
            told = "".join(
                f"{path}|{one.st_size}|{one.st_mtime_ns}\n" for path, one in sizes.items()
            )
            key = hashlib.sha256(told.encode()).hexdigest()[:24]
        target = folder / key
        make_once(target, lambda place: _copy(top, sizes, place, inside=version is not None))
    except OSError as error:
        raise EnvironmentFault(
            f"cannot copy {top} to {folder}: {error.strerror or error}"
        ) from error
    return target / "files"


def _copy(top: Path, sizes: dict[Path, os.stat_result], place: Path, *, inside: bool) -> None:
    """Copy all of it; times of change come along, for manifests know them."""
    need, free = sum(one.st_size for one in sizes.values()), shutil.disk_usage(place.parent).free
    if need + SPARE > free:
        raise EnvironmentFault(
            f"{top} has {size_text(need)}, {place.parent} has {size_text(free)} free"
        )
    root = place if inside else place / "files"
    for folder in {path.relative_to(top).parent for path in sizes}:
        (root / folder).mkdir(parents=True, exist_ok=True)

    def one(path: Path) -> None:
        goal = root / path.relative_to(top)
        shutil.copyfile(path, goal)
        os.utime(goal, ns=(sizes[path].st_atime_ns, sizes[path].st_mtime_ns))
        if goal.stat().st_size != sizes[path].st_size:
            raise OSError(f"{path} changed while it was copied")

    (root / "files" if inside else root).mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(one, sizes):
            pass


def _files(top: Path) -> list[Path]:
    found = [
        Path(folder) / name for folder, _, names in os.walk(top, followlinks=True) for name in names
    ]
    return sorted(found)
