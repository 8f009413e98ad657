"""Many small files in one tar file: where its members are, and how they are written.

Any `tar` reads it; hpcbench reads members in place, by the offsets that the manifest holds.
"""

from __future__ import annotations

import os
import tarfile

from hpcbench.data.tree import BLOCK, Kept, Version

WRITE = 1 << 17
"""Bytes written at a time: for more the kernel breaks up large free blocks, and a virtual machine may have to
get those from its host first, which was measured to take longer than all the rest."""


def following(kept: Kept) -> int:
    """Where the member of a tar file after this one begins."""
    return (kept.offset or 0) + kept.size + -kept.size % BLOCK


def write_member(pack: int, kept: Kept, data: bytes) -> None:
    """Write a member of a tar file where it belongs."""
    assert kept.offset is not None
    header = tar_header(kept.path, kept.size)
    write_all(pack, b"".join((header, data, bytes(-len(data) % BLOCK))), kept.offset - len(header))


def write_header(pack: int, kept: Kept) -> None:
    """Write only the header of a member, whose bytes are there."""
    assert kept.offset is not None
    header = tar_header(kept.path, kept.size)
    write_all(pack, header, kept.offset - len(header))


def end_pack(version: Version) -> None:
    """See that the pack ends as a tar file does: it may have been cut, or be new."""
    ends = [following(kept) for kept in version.kept() if kept.offset is not None]
    if ends:
        pack = os.open(version.folder / "pack.tar", os.O_WRONLY | os.O_CLOEXEC)
        try:
            if os.fstat(pack).st_size < max(ends) + 2 * BLOCK:
                write_all(pack, bytes(2 * BLOCK), max(ends))
                os.fsync(pack)
        finally:
            os.close(pack)


def tar_header(path: str, size: int) -> bytes:
    """The header of a member, as `tarfile` writes it; a plain name is put into a copy of one."""
    name = path.encode()
    if len(name) > 100 or not path.isascii() or size >= 1 << 33:
        member = tarfile.TarInfo(path)
        member.size = size
        return member.tobuf(tarfile.PAX_FORMAT)
    header = bytearray(_PLAIN)
    header[: len(name)] = name
    header[124:135] = b"%011o" % size
    header[148:156] = b" " * 8  # the sum is taken over spaces where it will stand
    header[148:155] = b"%06o\0" % sum(header)
    return bytes(header)


_PLAIN = tarfile.TarInfo("").tobuf(tarfile.PAX_FORMAT)


def write_all(descriptor: int, data: bytes, at: int | None) -> int:
    """Write all of it, at a place or at the end; returns how much it was."""
    view = memoryview(data)
    while view:
        now = view[:WRITE]
        done = os.write(descriptor, now) if at is None else os.pwrite(descriptor, now, at)
        view = view[done:]
        at = at + done if at is not None else None
    return len(data)
