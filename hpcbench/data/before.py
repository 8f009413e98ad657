"""The previous version: its unchanged files are linked or copied, not transferred."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

from hpcbench.data.received import Arrivals, check_hash
from hpcbench.data.tree import Version, VersionFile
from hpcbench.files.hashing import hash_file
from hpcbench.plugins import StoredFile


class Before:
    """The unchanged files of the previous version.

    Args:
        version: the previous version; None: there is none.
        listed: the files of the source now.
        here: destination of the files; files that it already has are not taken again.
        suspect: whether the version may have hidden damage: then every file taken from it is hashed.
            Otherwise an untouched file is linked unread: weights with a new README should not cost an hour.
    """

    def __init__(
        self, version: Version | None, listed: Iterable[StoredFile], here: Arrivals, suspect: bool
    ) -> None:
        self._here, self._suspect = here, suspect
        self._unchanged: dict[str, VersionFile] = {}
        self._pack = -1
        if version is None:
            return
        self._version = version
        wanted = {file.path: (file.size, file.mark) for file in listed if file.mark}
        for kept in version.kept():
            if wanted.get(kept.path) == (kept.size, kept.mark) and kept.path not in here.kept:
                self._unchanged[kept.path] = kept

    def __contains__(self, path: str) -> bool:
        return path in self._unchanged

    def keys(self) -> set[str]:
        """Key of the version, if any file is taken from it."""
        return {self._version.folder.name} if self._unchanged else set()

    def can_link(self) -> bool:
        """Whether unchanged files can be linked: the previous version may be on another disk."""
        probe = self._here.folder / "probe"
        for kept in self._unchanged.values():
            if kept.offset is not None:
                continue
            try:
                probe.unlink(missing_ok=True)
                os.link(self._version.files / kept.path, probe)
                probe.unlink()
                return True
            except FileNotFoundError:
                continue  # the file is damaged; try another
            except OSError:
                return False
        return True

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Keep the version's pack open while inside, if files are taken from the pack."""
        if any(kept.offset is not None for kept in self._unchanged.values()):
            with contextlib.suppress(OSError):  # the pack is damaged: its files come again
                place = self._version.folder / "pack.tar"
                self._pack = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield
        finally:
            if self._pack >= 0:
                os.close(self._pack)

    def link(self, file: StoredFile) -> bool:
        """Link a file from the version; False if that is not possible."""
        kept = self._unchanged.get(file.path)
        if kept is None or kept.mtime_ns is None:
            return False
        here, source, place = self._here, self._version.files / kept.path, file.path
        read = 0

        def count(size: int) -> None:
            nonlocal read
            here.go_on()
            here.count(size)
            read += size

        try:
            stat = source.stat()
            right = (stat.st_size, stat.st_mtime_ns) == (kept.size, kept.mtime_ns)
            if right and self._suspect:
                right = hash_file(source, count) == kept.sha256
            if right:
                (here.files / place).unlink(missing_ok=True)
                os.link(source, here.files / place)
        except OSError:
            right = False
        here.count(kept.size - read if right else -read)
        if right:
            check_hash(file, kept.sha256)
            here.whole(VersionFile(place, file.size, kept.sha256, file.mark, kept.mtime_ns))
        return right

    def copy(self, file: StoredFile) -> bool:
        """Copy a file that cannot be linked; False if it changed or is damaged in the version."""
        kept = self._unchanged.get(file.path)
        if kept is None:
            return False
        if kept.offset is not None:
            data = self.data(file)
            if data is not None:
                self._here.write(file, [data])
            return data is not None
        done = 0

        def read() -> Iterator[bytes]:
            nonlocal done
            with (self._version.files / kept.path).open("rb", buffering=0) as opened:
                while (piece := opened.read(1 << 18)) and not self._here.stopped.is_set():
                    self._here.count(len(piece))
                    done += len(piece)
                    yield piece

        check_hash(file, kept.sha256)
        try:
            self._here.write(replace(file, sha256=kept.sha256), read())
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._here.count(-done)
            return False
        return True

    def data(self, file: StoredFile) -> bytes | None:
        """A small file's bytes; None if it changed or is damaged in the version."""
        kept = self._unchanged.get(file.path)
        if kept is None:
            return None
        try:
            if kept.offset is not None:
                data = os.pread(self._pack, kept.size, kept.offset)
            else:
                data = (self._version.files / kept.path).read_bytes()
        except OSError:
            return None
        if hashlib.sha256(data).hexdigest() != kept.sha256:
            return None
        self._here.count(kept.size)
        return data
