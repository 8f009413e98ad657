"""Repeated reading of a file that other processes write to, over a file system that shows changes late."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from hpcbench.files.archive import Folder
from hpcbench.files.atomic import naming

BLOCK = 1 << 20
"""Bytes read at once."""

IDLE_SHARE = 0.1
"""The pause before the next look, as a share of the time since the file last grew."""

LONGEST_PAUSE = 10.0
"""Longest pause between looks at a file that may still grow, in seconds."""


class Tail:
    """A file of lines that may grow, be cut, or be replaced by another of its name.

    Each look opens the file again: over NFS only an open shows lines of other nodes. `due` says when the next
    look is worthwhile: the longer the file has not grown, the later.

    Args:
        path: the file; it need not exist yet.
        now: the time by the caller's clock, in seconds.
        offset: start of the first line to read.
    """

    def __init__(self, path: Path, now: float = 0.0, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        """Number of bytes read."""
        self.lines = 0
        """Number of lines read of the current file."""
        self.due = 0.0
        """Time of the next look."""
        self._grown = now
        self._inode: int | None = None

    def block(self) -> bytes:
        """Whole lines from `offset` on, about BLOCK bytes; the caller passes each line it used to `take`.

        Raises:
            OSError: the file cannot be read.
        """
        with naming(self.path):
            return self._block()

    def _block(self) -> bytes:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            stat = os.fstat(descriptor)
            if self._inode not in (None, stat.st_ino) or stat.st_size < self.offset:
                self.offset = self.lines = 0
            self._inode = stat.st_ino
            if stat.st_size == self.offset:
                return b""
            if self.offset:
                # With the byte before: if it ends no line any more, this is another file's text.
                block = os.pread(descriptor, BLOCK, self.offset - 1)
                if block[:1] != b"\n":
                    self.offset = self.lines = 0
                elif (end := block.rfind(b"\n")) or len(block) < BLOCK:
                    return block[1 : end + 1]
            return _whole_lines(descriptor, self.offset)
        finally:
            os.close(descriptor)

    def take(self, line: bytes) -> None:
        """Count the next line, given without its end, as read."""
        self.offset += len(line) + 1
        self.lines += 1

    def looked(self, now: float, found: bool) -> None:
        """Set `due` after a look; `found`: the look found new lines."""
        if found:
            self._grown = now
        self.due = now + min(LONGEST_PAUSE, IDLE_SHARE * (now - self._grown))


class ArchivedTail:
    """New lines of a file of a folder, even if the file is archived meanwhile.

    Args:
        folder: gives the folder by a look that is not older than the last read.
        name: the file's name.
    """

    def __init__(self, folder: Callable[[], Folder], name: str) -> None:
        self._folder, self._name = folder, name
        self._offset, self._rest = 0, b""
        self._archived: Iterator[bytes] | None = None
        self.written: float | None = None
        """Time of the last write to it, by the file system's clock; None where it is not loose."""
        self.whole = False
        """Whether the last read reached the end of the file."""

    def read(self) -> bytes:
        """The next whole lines, about BLOCK bytes of them; empty if there are no new lines."""
        while block := self._block():
            self._offset += len(block)
            data = self._rest + block
            cut = data.rfind(b"\n") + 1
            self._rest = data[cut:]
            if cut:
                self.whole = False
                return data[:cut]
        return b""

    def _block(self) -> bytes:
        self.whole = False
        try:
            block = self._loose() if self._archived is None else next(self._archived, b"")
        except OSError:  # it is being replaced, or the file server is away: the next read retries
            return b""
        self.whole = not block
        return block

    def _loose(self) -> bytes:
        path = self._folder().path / self._name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            self.written, self._archived = None, self._behind()
            return next(self._archived, b"")
        try:
            self.written = os.fstat(descriptor).st_mtime
            return os.pread(descriptor, BLOCK, self._offset)
        finally:
            os.close(descriptor)

    def _behind(self) -> Iterator[bytes]:
        """Yield the unread rest of an archived file."""
        skip = self._offset
        for block in self._folder().blocks(self._name):
            if skip < len(block):
                yield block[skip:]
            skip = max(0, skip - len(block))


def last_bytes(path: Path, most: int) -> bytes:
    """The end of a file, which may begin inside of a line.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - most))
        return file.read(most)


def last_lines(path: Path, count: int) -> int:
    """Offset of the last `count` lines of a file; 0 if it has fewer.

    Raises:
        OSError: the file cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        end = os.fstat(descriptor).st_size
        # No line starts after the end of the last line.
        left = max(1, count + (end > 0 and os.pread(descriptor, 1, end - 1) == b"\n"))
        while end > 0:
            begin = max(0, end - BLOCK // 16)
            block = os.pread(descriptor, end - begin, begin)
            at = len(block)
            while (at := block.rfind(b"\n", 0, at)) >= 0:
                left -= 1
                if left == 0:
                    return begin + at + 1
            end = begin
        return 0
    finally:
        os.close(descriptor)


def _whole_lines(descriptor: int, offset: int) -> bytes:
    size = BLOCK
    while True:
        block = os.pread(descriptor, size, offset)
        end = block.rfind(b"\n") + 1
        if end or len(block) < size:
            return block[:end]
        size *= 4  # one very long line
