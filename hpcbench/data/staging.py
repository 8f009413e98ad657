"""Datasets and weights on the disk of the node itself: copied once for all workers of a node.

    FOLDER/hpcbench-UID/KEY/files/…     a copy
    FOLDER/hpcbench-UID/KEY/boot        host name and boot ID of the machine at the time of the copy
    FOLDER/hpcbench-UID/KEY.use         locked (flock) by every process that uses it, touched at each use

Only the owner may read the folder: other users share the node. A copy gets its name when it is whole.
If the site keeps the folder between jobs, the next job on the node finds the copy, compares it with its
source, and copies changed files again. After a reboot of the machine everything is copied again: nothing was
forced to the disk, and a power cut leaves zeros of the right size. If another copy needs space, unused copies
are removed, the least recently used first.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import secrets
import shutil
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from hpcbench.data.durability import BOOT
from hpcbench.data.progress import size_text
from hpcbench.data.tree import Tree, at_once, walk
from hpcbench.errors import EnvironmentFault
from hpcbench.files import flock
from hpcbench.files.lease import (
    alone,
    leftovers,
    make_once,
    remove,
)

SPARE = 1 << 30
"""Bytes left free for other users."""

_held: dict[Path, int] = {}
"""Copies that this process uses until its end, and the descriptors of its locks on them."""

_holding = threading.Lock()


def staging_folder(wanted: str) -> Path:
    """The folder of the copies, created if it is missing.

    Args:
        wanted: the site's setting; variables such as `$TMPDIR` are expanded.

    Raises:
        EnvironmentFault: a variable is not set, or the folder cannot be created or belongs to another user.
    """
    expanded = os.path.expandvars(wanted)
    if "$" in expanded:
        raise EnvironmentFault(f"staging folder {wanted}: the variable is not set in this job")
    folder = Path(expanded) / f"hpcbench-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid() or folder.is_symlink():
            raise EnvironmentFault(f"staging folder {folder} belongs to another user")
        folder.chmod(0o700)
    except OSError as error:
        raise EnvironmentFault(f"staging folder {folder}: {error.strerror}") from error
    return folder


def stage(source: Path, folder: Path) -> Path:
    """A copy of a dataset's or model's folder on this node; it stays until this process ends.

    Args:
        source: the folder; if it is a version's `files`, its manifest and pack are copied too.
        folder: folder of the copies, created if it is missing.

    Raises:
        EnvironmentFault: there is no space, or the source cannot be read.
    """
    version = Tree(source).version
    top = version.folder if version is not None else source
    own = {top / "used", top / "done.jsonl"} if version is not None else set()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in leftovers(folder):
            remove(left)
        sizes = {path: path.stat() for path in _files(top) if path not in own}
        if version is not None:
            key = version.folder.name
        else:
            listing = "".join(
                f"{path}|{one.st_size}|{one.st_mtime_ns}\n" for path, one in sizes.items()
            )
            key = hashlib.sha256(listing.encode()).hexdigest()[:24]
        target = folder / key
        below = "" if version is not None else "files"

        def build(place: Path) -> None:
            _copy(top, sizes, place, below)
            (place / "boot").write_text(BOOT)

        _drop_if_old(target)
        _hold(target)
        if not make_once(target, build):
            _mend(top, sizes, target, below)
    except OSError as error:
        raise EnvironmentFault(
            f"cannot copy {top} to {folder}: {error.strerror or error}"
        ) from error
    return target / "files"


def _drop_if_old(target: Path) -> None:
    """Remove a copy from before this machine's boot; a copy in use was checked since the boot."""
    if not _is_old(target):
        return
    with alone(target.with_name("room.lock"), math.inf), _unused(target.parent) as idle:
        if target in idle and _is_old(target):
            _drop(target)


def _is_old(target: Path) -> bool:
    """Whether a copy is from before this machine's boot; copies of other machines are not old."""
    try:
        made = (target / "boot").read_text(errors="replace")
    except FileNotFoundError:
        return target.exists()
    host, _, since = made.partition(" ")
    return not since or (host == BOOT.partition(" ")[0] and made != BOOT)


def _drop(target: Path) -> None:
    """Remove a copy whose exclusive lock we hold."""
    trash = target.with_name(f"tmp-{secrets.token_hex(4)}-{target.name}")
    target.rename(trash)
    _use_file(target).unlink()
    remove(trash)


def _mend(top: Path, sizes: Mapping[Path, os.stat_result], target: Path, below: str) -> None:
    """Copy changed or missing files again: users and cleanup jobs may have touched the folder."""

    def wrong() -> dict[Path, os.stat_result]:
        places = ((path, target / below / path.relative_to(top)) for path in sizes)
        return {path: sizes[path] for path, place in places if not _same(place, sizes[path])}

    if wrong():
        with alone(target.with_name(f"{target.name}.lock"), math.inf):
            _copy(top, wrong(), target, below)


def _same(copy: Path, stat: os.stat_result) -> bool:
    """Whether a copy has the size and mtime of its source; disks may cut times to seconds."""
    try:
        found = copy.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (found.st_size, int(found.st_mtime)) == (stat.st_size, int(stat.st_mtime))


def _copy(top: Path, sizes: Mapping[Path, os.stat_result], place: Path, below: str) -> None:
    """Copy files with their mtimes: manifests record them."""
    _make_room(top, sum(one.st_size for one in sizes.values()), place.parent)
    (place / "files").mkdir(parents=True, exist_ok=True)
    root = place / below
    for folder in {path.relative_to(top).parent for path in sizes}:
        (root / folder).mkdir(parents=True, exist_ok=True)

    def one(path: Path) -> None:
        goal = root / path.relative_to(top)
        temporary = goal.with_name(f".{goal.name}.copy")  # a process may have the old file open
        shutil.copyfile(path, temporary)
        os.utime(temporary, ns=(sizes[path].st_atime_ns, sizes[path].st_mtime_ns))
        if temporary.stat().st_size != sizes[path].st_size:
            raise OSError(f"{path} changed while it was copied")
        temporary.replace(goal)

    for _ in at_once(one, sizes, 4):
        pass


def _make_room(top: Path, need: int, folder: Path) -> None:
    """Remove unused copies, the least recently used first, until a new copy fits.

    Raises:
        EnvironmentFault: even then it would not fit; nothing is removed.
    """

    def free() -> int:
        return shutil.disk_usage(folder).free - SPARE

    if need <= free():
        return
    with alone(folder / "room.lock", math.inf), _unused(folder) as idle:
        if need > free() + sum(_bytes(target) for target in idle):
            raise EnvironmentFault(
                f"a copy of {top} needs {size_text(need)}, {folder} has {size_text(free() + SPARE)} free"
            )
        for target in idle:
            if need <= free():
                return
            _drop(target)


@contextlib.contextmanager
def _unused(folder: Path) -> Iterator[list[Path]]:
    """Yield the unused copies, the least recently used first, locked while inside; new users wait."""
    found: list[tuple[float, Path]] = []
    with contextlib.ExitStack() as stack:
        for target in folder.iterdir():
            if not target.is_dir() or target.name.startswith("tmp-"):
                continue
            with contextlib.suppress(OSError):
                if stack.enter_context(flock.locked(_use_file(target))):
                    found.append((_use_file(target).stat().st_mtime, target))
        yield [target for _, target in sorted(found)]


def _hold(target: Path) -> None:
    """Lock a copy until this process ends, and note that it is used now."""
    with _holding:
        while target not in _held:
            descriptor = os.open(_use_file(target), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            # On a file system without locks no process removes copies either.
            with contextlib.suppress(OSError):
                flock.lock(descriptor, wait=True, shared=True)
            if os.fstat(descriptor).st_nlink:
                _held[target] = descriptor
            else:  # the copy was removed just now
                os.close(descriptor)
        os.utime(_held[target])


def _use_file(target: Path) -> Path:
    return target.with_name(f"{target.name}.use")


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in _files(folder))


def _files(top: Path) -> list[Path]:
    """All files below a folder."""
    return sorted(folder / name for folder, _, names in walk(top) for name in names)
