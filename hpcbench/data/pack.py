"""Many small files in one tar file: offsets of its members, and writing them.

Any `tar` reads it; hpcbench reads members in place, by the offsets in the manifest.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import threading
from collections.abc import Iterable, Sequence

from hpcbench.data.received import Arrivals, check_hash, write_all
from hpcbench.data.tree import BLOCK, Version, VersionFile
from hpcbench.plugins import StoredFile

PACK = "pack.tar"

AHEAD = 64 << 20
"""Most bytes that wait to be packed."""


class PackWriter:
    """Appends members to the pack of an unfinished version: one thread at a time writes all waiting files.

    So a kill leaves no gap, where `tar` would stop; and threads need not wait for each other at every file,
    which would cost more than the writing.

    Args:
        here: the folder of the transfer.
        members: members of an earlier attempt.
    """

    def __init__(self, here: Arrivals, members: Sequence[VersionFile]) -> None:
        self._here, self._end = here, max(map(following, members), default=0)
        self._room = threading.Condition()
        self._waiting: list[tuple[StoredFile, bytes, str]] = []
        self._waiting_bytes, self._packing = 0, False
        self._file = os.open(here.folder / PACK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.ftruncate(self._file, self._end)
        for kept in members:  # a power cut may have left zeros, where `tar` would stop
            write_header(self._file, kept)

    def add(self, file: StoredFile, data: bytes) -> None:
        """Queue a file; if no thread is appending, this one appends all waiting files."""
        digest = hashlib.sha256(data).hexdigest()
        check_hash(file, digest)
        with self._room:
            while self._waiting_bytes > AHEAD and not self._here.stopped.is_set():
                self._room.wait(0.2)
            self._waiting.append((file, data, digest))
            self._waiting_bytes += len(data)
            if self._packing:
                return
            self._packing = True
        while True:
            with self._room:
                members, self._waiting, self._waiting_bytes = self._waiting, [], 0
                self._room.notify_all()
                if not members:
                    self._packing = False
                    return
            self._append(members)

    def finish(self) -> None:
        """Write the end of the tar file and force the file to the disk."""
        os.pwrite(self._file, bytes(2 * BLOCK), self._end)
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file, whole or not."""
        os.close(self._file)

    def _append(self, members: Iterable[tuple[StoredFile, bytes, str]]) -> None:
        blocks: list[bytes] = []
        added: list[VersionFile] = []
        end = self._end
        for file, data, digest in members:
            blocks += (tar_header(file.path, file.size), data, bytes(-len(data) % BLOCK))
            offset = end + len(blocks[-3])
            added.append(VersionFile(file.path, file.size, digest, file.mark, offset=offset))
            end = following(added[-1])
        write_all(self._file, b"".join(blocks), self._end)
        self._end = end
        self._here.whole(*added)


def following(kept: VersionFile) -> int:
    """Offset at which the next member of the tar file starts."""
    return (kept.offset or 0) + kept.size + -kept.size % BLOCK


def write_member(pack: int, kept: VersionFile, data: bytes) -> None:
    """Write a member of a tar file at its offset."""
    assert kept.offset is not None
    header = tar_header(kept.path, kept.size)
    write_all(pack, b"".join((header, data, bytes(-len(data) % BLOCK))), kept.offset - len(header))


def write_header(pack: int, kept: VersionFile) -> None:
    """Write only the header of a member whose bytes are written already."""
    assert kept.offset is not None
    header = tar_header(kept.path, kept.size)
    write_all(pack, header, kept.offset - len(header))


def end_pack(version: Version) -> None:
    """Ensure that the pack has the end of a tar file: it may be cut off, or new."""
    ends = [following(kept) for kept in version.kept() if kept.offset is not None]
    if ends:
        pack = os.open(version.folder / PACK, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if os.fstat(pack).st_size < max(ends) + 2 * BLOCK:
                write_all(pack, bytes(2 * BLOCK), max(ends))
                os.fsync(pack)
        finally:
            os.close(pack)


def tar_header(path: str, size: int) -> bytes:
    """The header of a member, as `tarfile` writes it; a plain name goes into a copy of a prepared header."""
    name = path.encode()
    if len(name) > 100 or not path.isascii() or size >= 1 << 33:
        member = tarfile.TarInfo(path)
        member.size = size
        return member.tobuf(tarfile.PAX_FORMAT)
    header = bytearray(_PLAIN)
    header[: len(name)] = name
    header[124:135] = b"%011o" % size
    header[148:156] = b" " * 8  # the checksum counts its own field as spaces
    header[148:155] = b"%06o\0" % sum(header)
    return bytes(header)


_PLAIN = tarfile.TarInfo("").tobuf(tarfile.PAX_FORMAT)
