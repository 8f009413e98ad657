"""Reading a file that others write to, again and again, over a file system that shows it late."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from hpcbench.files.archive import Folder

BLOCK = 1 << 20
"""Bytes read at once."""

IDLE_SHARE = 0.1
"""A file that was silent for so long is looked at again after this share of it."""

LONGEST_PAUSE = 10.0
"""A file that may still grow is looked at at least so often, in seconds."""


class Growing:
    """A file of lines that may grow, be cut, or be replaced by another of its name.

    It is opened anew at each look: over NFS only that shows what another node wrote. `due` says when the next
    look pays: the longer nothing came, the later.

    Args:
        path: the file; it need not be there yet.
        now: the time by the caller's clock, in seconds.
        offset: begin of the first line to read.
    """

    def __init__(self, path: Path, now: float = 0.0, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        """Bytes that have been read."""
        self.lines = 0
        """Lines that have been read, of the file as it is now."""
        self.due = 0.0
        """When to look again."""
        self._grown = now
        self._inode: int | None = None

    def block(self) -> bytes:
        """Whole lines from `offset` on, about BLOCK bytes of them; `take` says how far they were read.

        Raises:
            OSError: it cannot be read.
        """
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            stat = os.fstat(descriptor)
            if self._inode not in (None, stat.st_ino) or stat.st_size < self.offset:
                self.offset = self.lines = 0
            self._inode = stat.st_ino
            if stat.st_size == self.offset:
                return b""
            if self.offset:
                # With the byte before: where no line ends any more, this is another file's text.
                block = os.pread(descriptor, BLOCK, self.offset - 1)
                if block[:1] != b"\n":
                    self.offset = self.lines = 0
                elif (end := block.rfind(b"\n")) or len(block) < BLOCK:
                    return block[1 : end + 1]
            return _whole_lines(descriptor, self.offset)
        finally:
            os.close(descriptor)

    def take(self, line: bytes) -> None:
        """The next line, without its end, was read."""
        self.offset += len(line) + 1
        self.lines += 1

    def looked(self, now: float, found: bool) -> None:
        """A look is done: something was found, or not."""
        if found:
            self._grown = now
        self.due = now + min(LONGEST_PAUSE, IDLE_SHARE * (now - self._grown))


class ArchivedTail:
    """New lines of a file of a folder, whether it lies there or was archived meanwhile.

    Args:
        folder: gives the folder as a look found it that is not older than the last read.
        name: the file's name.
    """

    def __init__(self, folder: Callable[[], Folder], name: str) -> None:
        self._folder, self._name = folder, name
        self._offset, self._rest = 0, b""
        self._archived: Iterator[bytes] | None = None
        self.written: float | None = None
        """When it was last written to, by the file system's clock; None where it is not loose."""
        self.whole = False
        """Whether the last read found all there was."""

    def read(self) -> bytes:
        """The next whole lines, about BLOCK bytes of them; nothing where nothing new is there."""
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
        except OSError:  # it is being replaced, or the file server is away: next time
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
        """What follows of a file that was archived."""
        skip = self._offset
        for block in self._folder().blocks(self._name):
            if skip < len(block):
                yield block[skip:]
            skip = max(0, skip - len(block))


def last_lines(path: Path, count: int) -> int:
    """Offset of the last so many lines of a file; 0 if it has fewer.

    Raises:
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        end = os.fstat(descriptor).st_size
        # The end of the last line begins none.
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
