"""Transfer of large files: in parts, in any order, hashed from their beginning as parts arrive."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hpcbench.data.durability import BOOT, force_file
from hpcbench.data.received import Arrivals, check_hash, write_all
from hpcbench.data.tree import VersionFile
from hpcbench.plugins import StoredFile

PART = 32 << 20
"""A larger file is transferred in parts, several at once."""

PARTS_AT_ONCE = max(4, min(16, 2 * len(os.sched_getaffinity(0))))
"""Number of parts of large files written at once: more than the machine can copy would slow each other."""


class _Large:
    """A large file whose parts come in any order."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.at = 0
        self.busy = False  # a thread hashes
        self.writing = threading.Lock()  # the kernel's own lock spins and occupies a core


class Parts:
    """The parts of all large files of one transfer."""

    def __init__(self, here: Arrivals) -> None:
        self._here = here
        self._files: dict[str, _Large] = {}
        self._starts: dict[str, set[int]] = {}  # started files → offsets of arrived parts
        self._logged: set[str] = (
            set()
        )  # files of which the log has parts, whether they count or not
        self._restarted: list[str] = []  # logged files that are started again
        self._at_once = threading.BoundedSemaphore(PARTS_AT_ONCE)

    def take_up(self, record: Mapping[str, Any], wanted: Mapping[str, StoredFile]) -> None:
        """Count a logged part if it is on the disk (no boot is named), or the machine has not rebooted since.

        A record without a start means that a machine started the file again because earlier parts did not
        count for it: they do not count here either.
        """
        self._logged.add(record["path"])
        if record["start"] is None:
            self._starts.pop(record["path"], None)
            return
        file = wanted.get(record["path"])
        try:
            place = self._here.files / record["path"]
            whole = file is not None and place.stat().st_size == file.size
        except OSError:
            whole = False
        if whole and record["boot"] in ("", BOOT):
            self._starts.setdefault(record["path"], set()).add(record["start"])

    def lacking(self, file: StoredFile) -> Iterator[tuple[StoredFile, int, int]]:
        """Yield the missing parts of a file."""
        here = self._starts.setdefault(file.path, set())
        if not here:  # never write into a file that another version may link to
            (self._here.files / file.path).unlink(missing_ok=True)
            if file.path in self._logged:
                self._restarted.append(file.path)
        self._here.count(sum(min(PART, file.size - start) for start in here))
        for start in range(0, file.size, PART):
            if start not in here:
                yield file, start, min(start + PART, file.size)
        if len(here) == -(-file.size // PART):
            yield file, 0, 0  # all parts are here, and the file is not logged as whole

    def begin(self) -> None:
        """Log the files that are started again, before the first byte: a file gets its full size at once."""
        for path in self._restarted:
            self._here.log.write({"path": path, "start": None, "boot": None})
        if self._restarted:
            self._here.log.sync()

    def write(self, file: StoredFile, start: int, stop: int, pieces: Iterable[bytes]) -> None:
        """Write a part and continue the hash; the thread that hashes the last part finishes the file."""
        with self._at_once:
            writing = self._files.setdefault(file.path, _Large()).writing
            place = self._here.files / file.path
            descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                if os.fstat(descriptor).st_size != file.size:
                    _allocate(descriptor, file.size)
                at = start
                for piece in pieces:
                    with writing:
                        at += write_all(descriptor, piece, at)
                with self._here.lock:
                    if stop:
                        self._starts[file.path].add(start)
                        self._here.log.write({"path": file.path, "start": start, "boot": BOOT})
                self._hash_on(file, descriptor)
            finally:
                os.close(descriptor)

    def keep(self) -> None:
        """Force arrived parts to the disk, so that they count for the next attempt on any machine."""
        for path, starts in self._starts.items():
            if starts and path not in self._here.kept:
                with contextlib.suppress(OSError):
                    force_file(self._here.files / path)
                    for start in sorted(starts):
                        self._here.log.write({"path": path, "start": start, "boot": ""})

    def _hash_on(self, file: StoredFile, descriptor: int) -> None:
        """Hash arrived parts that follow the hashed bytes, so that little is left after the last part."""
        hashing, place = self._files[file.path], self._here.files / file.path
        buffer = bytearray(1 << 18)
        view = memoryview(buffer)
        while True:
            with self._here.lock:
                ahead = hashing.at in self._starts[file.path]
                if hashing.busy or not ahead:
                    return
                hashing.busy = True
            stop = min(hashing.at + PART, file.size)
            at = hashing.at
            while at < stop:
                count = os.preadv(descriptor, [view[: stop - at]], at)
                if not count:
                    raise OSError(f"{place} became shorter")
                hashing.digest.update(view[:count])
                at += count
            with self._here.lock:
                hashing.at, hashing.busy = at, False
            if at == file.size:
                digest = hashing.digest.hexdigest()
                if file.sha256 not in (None, digest):
                    place.unlink()
                check_hash(file, digest)
                mtime_ns = os.fstat(descriptor).st_mtime_ns
                self._here.whole(VersionFile(file.path, file.size, digest, file.mark, mtime_ns))
                return


def _allocate(descriptor: int, size: int) -> None:
    """Give a file its size and its disk blocks: parallel writes into holes would wait for each other.

    It uses the system call itself: the C library's `posix_fallocate` may write every block.
    """
    allocate = ctypes.CDLL(None, use_errno=True).fallocate
    if allocate(descriptor, 0, ctypes.c_int64(0), ctypes.c_int64(size)) != 0:
        if (code := ctypes.get_errno()) in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(code, os.strerror(code))
        os.ftruncate(descriptor, size)
