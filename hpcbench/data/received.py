"""The arrived part of a source: bytes, whole files, and the log from which the next attempt continues."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from hpcbench.data.tree import VersionFile
from hpcbench.files.atomic import Appender
from hpcbench.plugins import StoredFile

WRITE = 1 << 17
"""Bytes written at a time: larger writes make the kernel split large free blocks of memory. A virtual machine
may first get those from its host; by measurement this took longer than everything else."""


class Arrivals:
    """The folder that a transfer fills, shared by all its threads."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, folder / "files"
        self.kept: dict[str, VersionFile] = {}
        """Path → whole file."""
        self.moved = 0
        """Number of arrived bytes."""
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.log: Appender

    def count(self, size: int) -> None:
        """Count arrived bytes; a negative number: bytes that have to arrive again."""
        with self.lock:
            self.moved += size

    def go_on(self) -> None:
        """Check that the transfer may go on. Raises OSError: it has to end."""
        if self.stopped.is_set():
            raise OSError("stopped")

    def counted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield pieces and count each."""
        for piece in pieces:
            self.go_on()
            self.count(len(piece))
            yield piece

    def whole(self, *files: VersionFile) -> None:
        """Log whole files."""
        with self.lock:
            for kept in files:
                self.kept[kept.path] = kept
                self.log.write(kept.record())

    def write(self, file: StoredFile, pieces: Iterable[bytes]) -> None:
        """Write a file from its beginning to its end.

        Raises:
            OSError: the file cannot be written, or differs from the source's listing.
        """
        digest = hashlib.sha256()
        descriptor = _fresh(f"{self.files}/{file.path}")
        try:
            for piece in pieces:
                digest.update(piece)
                write_all(descriptor, piece, None)
            mtime_ns = os.fstat(descriptor).st_mtime_ns
        finally:
            os.close(descriptor)
        check_hash(file, digest.hexdigest())
        self.whole(VersionFile(file.path, file.size, digest.hexdigest(), file.mark, mtime_ns))


def check_hash(file: StoredFile, digest: str) -> None:
    """Check a file's hash. Raises OSError: an arrived file has another hash than the source listed."""
    if file.sha256 not in (None, digest):
        raise OSError(f"{file.path} arrived with the hash {digest}, its source lists {file.sha256}")


def write_all(descriptor: int, data: bytes, at: int | None) -> int:
    """Write all bytes, at an offset or at the current position; return their number."""
    view = memoryview(data)
    while view:
        now = view[:WRITE]
        done = os.write(descriptor, now) if at is None else os.pwrite(descriptor, now, at)
        view = view[done:]
        at = at + done if at is not None else None
    return len(data)


def _fresh(place: str) -> int:
    """Create a new empty file. An existing file is not reused: another version may link to it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(place, flags, 0o666)
    except FileExistsError:
        Path(place).unlink()
        return os.open(place, flags, 0o666)
