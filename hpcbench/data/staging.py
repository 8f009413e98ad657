"""Datasets and weights on the disk of the node itself: copied once, however many workers a node has.

    FOLDER/hpcbench-UID/KEY/files/…     a copy
    FOLDER/hpcbench-UID/KEY/boot        the machine since it was started, when the copy was made
    FOLDER/hpcbench-UID/KEY.use         held (flock) by every process that uses it, touched when it begins

Only its owner may read the folder, for others use the node too. A copy appears under its name when it is
whole; the next job on the node finds it there, if the site keeps the folder between jobs: it is held against
what it was copied from, and what is not the same is copied again. So is all of it once the machine was
started anew: nothing was forced to the disk, and a power cut leaves zeros of the right size. Without room for
another copy those that nobody uses go, the one used longest ago first.
"""

from __future__ import annotations

import contextlib
import fcntl
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
from hpcbench.files.lease import (
    alone,
    leftovers,
    make_once,
    remove,
)

SPARE = 1 << 30
"""Bytes that are left free for others."""

_held: dict[Path, int] = {}
"""Copies that this process uses, as long as it lives, and the descriptors by which it holds them."""

_holding = threading.Lock()


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
    """A copy of a dataset's or model's folder on this node; it stays as long as this process lives.

    Args:
        source: the folder; if it is a version's `files`, its manifest and pack come along.
        folder: where copies are kept, made if it is not there.

    Raises:
        EnvironmentFault: there is no room, or it cannot be read.
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
            told = "".join(
                f"{path}|{one.st_size}|{one.st_mtime_ns}\n" for path, one in sizes.items()
            )
            key = hashlib.sha256(told.encode()).hexdigest()[:24]
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
    """Remove a copy that was made before this machine was started; one in use was looked at since."""
    if not _is_old(target):
        return
    with alone(target.with_name("room.lock"), math.inf), _unused(target.parent) as idle:
        if target in idle and _is_old(target):
            _drop(target)


def _is_old(target: Path) -> bool:
    """Whether a copy was made before this machine was started; what another machine made it may know."""
    try:
        made = (target / "boot").read_text(errors="replace")
    except FileNotFoundError:
        return target.exists()
    host, _, since = made.partition(" ")
    return not since or (host == BOOT.partition(" ")[0] and made != BOOT)


def _drop(target: Path) -> None:
    """Remove a copy that is held against all others."""
    doomed = target.with_name(f"tmp-{secrets.token_hex(4)}-{target.name}")
    target.rename(doomed)
    _use_file(target).unlink()
    remove(doomed)


def _mend(top: Path, sizes: Mapping[Path, os.stat_result], target: Path, below: str) -> None:
    """Copy again what is not as it was copied: people and cleaners reach such folders, too."""

    def wrong() -> dict[Path, os.stat_result]:
        places = ((path, target / below / path.relative_to(top)) for path in sizes)
        return {path: sizes[path] for path, place in places if not _same(place, sizes[path])}

    if wrong():
        with alone(target.with_name(f"{target.name}.lock"), math.inf):
            _copy(top, wrong(), target, below)


def _same(copy: Path, stat: os.stat_result) -> bool:
    """Whether a copy has the size and time of change it was given; disks may cut times to seconds."""
    try:
        found = copy.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (found.st_size, int(found.st_mtime)) == (stat.st_size, int(stat.st_mtime))


def _copy(top: Path, sizes: Mapping[Path, os.stat_result], place: Path, below: str) -> None:
    """Copy files; times of change come along, for manifests know them."""
    _make_room(top, sum(one.st_size for one in sizes.values()), place.parent)
    (place / "files").mkdir(parents=True, exist_ok=True)
    root = place / below
    for folder in {path.relative_to(top).parent for path in sizes}:
        (root / folder).mkdir(parents=True, exist_ok=True)

    def one(path: Path) -> None:
        goal = root / path.relative_to(top)
        temporary = goal.with_name(f".{goal.name}.copy")  # the old one may be open somewhere
        shutil.copyfile(path, temporary)
        os.utime(temporary, ns=(sizes[path].st_atime_ns, sizes[path].st_mtime_ns))
        if temporary.stat().st_size != sizes[path].st_size:
            raise OSError(f"{path} changed while it was copied")
        temporary.replace(goal)

    for _ in at_once(one, sizes, 4):
        pass


def _make_room(top: Path, need: int, folder: Path) -> None:
    """Remove copies that nobody uses, the one used longest ago first, until another one has room.

    Raises:
        EnvironmentFault: it has none even then; nothing is removed.
    """

    def free() -> int:
        return shutil.disk_usage(folder).free - SPARE

    if need <= free():
        return
    with alone(folder / "room.lock", math.inf), _unused(folder) as idle:
        if need > free() + sum(_bytes(target) for target in idle):
            raise EnvironmentFault(
                f"{top} has {size_text(need)}, {folder} has {size_text(free() + SPARE)} free"
            )
        for target in idle:
            if need <= free():
                return
            _drop(target)


@contextlib.contextmanager
def _unused(folder: Path) -> Iterator[list[Path]]:
    """The copies that no process uses, the one used longest ago first; who wants one waits meanwhile."""
    found: list[tuple[float, Path]] = []
    with contextlib.ExitStack() as stack:
        for target in folder.iterdir():
            if not target.is_dir() or target.name.startswith("tmp-"):
                continue
            descriptor = os.open(_use_file(target), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, descriptor)
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.append((os.fstat(descriptor).st_mtime, target))
        yield [target for _, target in sorted(found)]


def _hold(target: Path) -> None:
    """See that a copy stays as long as this process lives, and note that it is used now."""
    with _holding:
        while target not in _held:
            descriptor = os.open(_use_file(target), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with contextlib.suppress(
                OSError
            ):  # a file system without locks: nobody removes it either
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            if os.fstat(descriptor).st_nlink:
                _held[target] = descriptor
            else:  # it was removed just now
                os.close(descriptor)
        os.utime(_held[target])


def _use_file(target: Path) -> Path:
    return target.with_name(f"{target.name}.use")


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in _files(folder))


def _files(top: Path) -> list[Path]:
    """All files below a folder."""
    return sorted(folder / name for folder, _, names in walk(top) for name in names)
