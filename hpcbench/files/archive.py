"""Folding many small files of a folder into one, and a reader for folded and loose files alike.

`folded.jsonl` holds files byte for byte, one after the other, and at its end an index of their positions:

    {"folded":1,"generation":1}
    {"file":"00000.1.events.jsonl","bytes":264}
    ⋯ the file's own bytes; a line's end after them if they have none …
    {"index":[["00000.1.events.jsonl",73,264,2,NOTE],…]}      name, offset, bytes, lines, note
    {"index_at":"000000000004711","index_bytes":"…","crc32":"…"}

It appears whole, under a name that only one process can take; the files it replaces are removed after that.
So a kill at any moment leaves the loose files, the folded file, or both; of both, the folded one counts.
A damaged index is rebuilt from the lines between the files.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from hpcbench.files.atomic import (
    GONE,
    WRITES_FAILED,
    ReadRetries,
    Tell,
    link_exclusive,
    log_damage,
    naming,
    open_beside,
    parse_line,
    parse_lines,
    sync_folder,
    unless_stale,
    write_all,
)

FOLDED = "folded.jsonl"
"""The folded file of a folder."""

VERSION = 1

BLOCK = 1 << 20

_STEP = re.compile(r"folded\.([0-9]+)\.jsonl")
"""Name of a whole folded file before its rename; see `_publish`."""

_FOOTER = '{{"index_at":"{:015d}","index_bytes":"{:015d}","crc32":"{:08x}"}}\n'
_FOOTER_BYTES = len(_FOOTER.format(0, 0, 0))

_BETWEEN = (b'{"file":', b'{"index":', b'{"index_at":')
"""How lines between the files begin; no line of a file begins so."""

SMALL = 65536
"""Most bytes of a file that gets a note."""

Note = Callable[[str, bytes], Any]
"""Gives the note of a small file, by its name and bytes; the note saves reading the file. None: no note."""


class Entry(NamedTuple):
    """A file inside a folded file."""

    at: int
    """Offset of its first byte."""
    bytes: int
    """Its length."""
    lines: int | None
    """Number of its whole lines; None where the index was rebuilt."""
    note: Any
    """Its note; see `Note`."""


class Folder:
    """The files of a folder at one look, loose or folded; a fold during a read does no harm.

    Raises:
        OSError: the folder cannot be read. A missing folder counts as empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._root = str(path)
        self.look()

    def look(self) -> None:
        """List the folder and read the index again."""
        # In this order: a file folded after the listing is in the folded file, which is opened later.
        self.loose = _listed(self.path)
        self._folded = unless_stale(lambda: _read_index(self.path / FOLDED))

    @property
    def folded(self) -> dict[str, Entry]:
        """Files inside the folded file, by name."""
        return self._folded.entries

    @property
    def generation(self) -> int:
        """How many times the folder was folded."""
        return self._folded.generation

    @property
    def names(self) -> set[str]:
        """Names of all files."""
        return self.loose | self.folded.keys()

    def unchanged(self) -> bool:
        """Whether no file was folded since the look."""
        return _identity(self.path / FOLDED) == self._folded.identity

    def lines_of(self, name: str) -> int:
        """How many whole lines a file has; 0 for a missing file."""
        entry = self.folded.get(name)
        if entry is None and name not in self.loose:
            return 0
        if entry is not None and entry.lines is not None:
            return entry.lines
        return sum(block.count(b"\n") for block in self.blocks(name))

    def read(self, name: str) -> bytes:
        """All bytes of a file; empty for a missing file."""
        if name not in self.folded:
            try:
                return unless_stale(lambda: _all_of(f"{self._root}/{name}"))
            except OSError as error:
                if error.errno not in GONE:
                    raise
        return b"".join(self.blocks(name))

    def records(self, name: str, tell: Tell | None = None) -> Iterator[dict[str, Any]]:
        """The records that `read_lines` would yield, for loose and folded files alike."""
        return parse_lines(self._lines(name), self.path / name, tell)

    def part(self, name: str, at: int, size: int) -> bytes:
        """`size` bytes of a file from an offset; fewer where the file ends before."""
        return b"".join(self.blocks(name, at, size))

    def blocks(self, name: str, at: int = 0, size: int | None = None) -> Iterator[bytes]:
        """Yield a file's bytes, block by block; nothing for a missing file.

        Args:
            name: the file.
            at: offset of the first byte.
            size: most bytes; None: all.
        """
        done, retries = 0, ReadRetries()
        while True:
            try:
                left = None if size is None else size - done
                for block in self._blocks(name, at + done, left):
                    done += len(block)
                    yield block
                return
            except OSError as error:
                if error.errno in WRITES_FAILED and retries.again(error):
                    continue
                # Folded since the look, or, over NFS, during the read: the folded file has the same bytes.
                if error.errno not in GONE or name not in self.names:
                    raise
            self.look()
            if name not in self.names:
                return

    def pages(self, name: str, most: int = 4 * BLOCK) -> Iterator[bytes]:
        """Yield a file's whole lines, about `most` bytes at a time; a torn last line is left out."""
        parts, size = list[bytes](), 0
        for block in self.blocks(name):
            parts.append(block)
            size += len(block)
            if size < most or b"\n" not in block:
                continue
            data = b"".join(parts)
            end = data.rfind(b"\n") + 1
            yield data[:end]
            parts, size = [data[end:]], len(data) - end
        data = b"".join(parts)
        if end := data.rfind(b"\n") + 1:
            yield data[:end]

    def _blocks(self, name: str, skip: int, most: int | None) -> Iterator[bytes]:
        entry = self.folded.get(name)
        if entry is None and name not in self.loose:
            return
        path = f"{self._root}/{name if entry is None else FOLDED}"
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if entry is None:
                at, left = skip, most
            else:
                if _identity(descriptor) != self._folded.identity:
                    raise OSError(errno.ESTALE, "folded again")
                at, left = entry.at + skip, entry.bytes - skip
                left = left if most is None else min(left, most)
            while left is None or left > 0:
                with naming(path):
                    block = os.pread(descriptor, BLOCK if left is None else min(BLOCK, left), at)
                if not block:
                    return
                at += len(block)
                left = None if left is None else left - len(block)
                yield block
        finally:
            with contextlib.suppress(OSError):  # it reports another process's failed write
                os.close(descriptor)

    def _lines(self, name: str) -> Iterator[bytes]:
        rest = b""
        for block in self.blocks(name):
            *whole, rest = (rest + block).split(b"\n") if b"\n" in block else (rest + block,)
            for line in whole:
                yield line + b"\n"
        if rest:
            yield rest


def is_folded(path: Path) -> bool:
    """Whether a file has been folded; fast where its folder has no folded file."""
    folded = path.with_name(FOLDED)
    identity = _identity(folded)
    return identity is not None and path.name in _names(folded, identity)


def fold_files(path: Path, names: Sequence[str], note: Note = lambda name, data: None) -> bool:
    """Add files of a folder to its folded file, and remove them.

    Args:
        path: the folder.
        names: the files, in the order in which they are written and removed. No process may need to write to
            them any more.
        note: gives the note of each file.

    Returns:
        Whether all of them are folded now; False if a file is still written to, or another process folds.

    Raises:
        OSError: the disk is full or gone; all files are as before.
    """
    _finish(path)
    before = Folder(path)
    fresh = {name: None for name in names if name in before.loose and name not in before.folded}
    if fresh and not _Writer(before, tuple(fresh), note).write():
        return False
    left = False
    for name in names:
        # Files folded just now were compared; files that a killed fold left were not.
        if name in fresh or (name in before.loose and _begins_with(path / name, before, name)):
            (path / name).unlink(missing_ok=True)
        elif name in before.loose:
            left = True
    sync_folder(path)
    return not left


@dataclass(frozen=True, slots=True)
class _Index:
    """The index of a folded file."""

    identity: tuple[int, ...] | None
    """Identity of the folded file; None: there is none."""
    generation: int
    entries: dict[str, Entry]


class _Writer:
    """Writes the next generation of a folder's folded file."""

    def __init__(self, before: Folder, fresh: Sequence[str], note: Note) -> None:
        self._before, self._fresh, self._note = before, fresh, note
        self._rows: list[tuple[str, int, int, int, Any]] = []
        self._at = 0

    def write(self) -> bool:
        """Write the file, check every byte, give it its name; False if another process interfered."""
        folder, generation = self._before.path, self._before.generation + 1
        descriptor, temporary = open_beside(folder / FOLDED)
        try:
            try:
                self._put(descriptor, _line({"folded": VERSION, "generation": generation}))
                for name, entry in self._before.folded.items():
                    self._copy(descriptor, name, entry.bytes, entry.note)
                for name in self._fresh:
                    size = (folder / name).stat().st_size
                    self._copy(descriptor, name, size, None)
                self._put_index(descriptor)
                os.fsync(descriptor)
                if not all(self._same(descriptor, *row[:3]) for row in self._rows):
                    return False
            finally:
                os.close(descriptor)
            return _publish(folder, temporary, generation)
        except FileNotFoundError:  # another process folded the file meanwhile
            return False
        finally:
            temporary.unlink(missing_ok=True)

    def _copy(self, descriptor: int, name: str, size: int, note: Any) -> None:
        self._put(descriptor, _line({"file": name, "bytes": size}))
        begin, lines, last = self._at, 0, b"\n"
        parts = list[bytes]()
        for block in self._before.blocks(name):
            piece = block[: size - (self._at - begin)]
            self._put(descriptor, piece)
            lines, last = lines + piece.count(b"\n"), piece[-1:] or last
            if note is None and self._at - begin <= SMALL:
                parts.append(piece)
        if note is None and self._at - begin <= SMALL:
            note = self._note(name, b"".join(parts))
        self._rows.append((name, begin, self._at - begin, lines, note))
        if last != b"\n":
            self._put(descriptor, b"\n")

    def _put_index(self, descriptor: int) -> None:
        at, index = self._at, _line({"index": self._rows})
        self._put(descriptor, index)
        self._put(descriptor, _FOOTER.format(at, len(index), zlib.crc32(index)).encode())

    def _put(self, descriptor: int, data: bytes) -> None:
        write_all(descriptor, data)
        self._at += len(data)

    def _same(self, descriptor: int, name: str, at: int, size: int) -> bool:
        """Whether the written bytes equal the bytes that the file holds now."""
        done = 0
        for block in self._before.blocks(name):
            if os.pread(descriptor, len(block), at + done) != block:
                return False
            done += len(block)
            if done > size:
                return False
        return done == size


def _publish(folder: Path, temporary: Path, generation: int) -> bool:
    """Replace the folded file of the previous generation by a whole new one; False if another process did.

    Only the process that holds the name `folded.GENERATION.jsonl` takes this step. After the step the name is
    free again: the folded file then has this generation already, and ours is too late.
    """
    step = folder / f"folded.{generation}.jsonl"
    if not link_exclusive(temporary, step):
        return False
    sync_folder(folder)
    return _take_step(step, generation)


def _take_step(step: Path, generation: int) -> bool:
    target = step.with_name(FOLDED)
    if unless_stale(lambda: _read_index(target)).generation >= generation:
        step.unlink(missing_ok=True)
        return False
    try:
        os.rename(step, target)  # noqa: PTH104 - Path.rename is the same call with less said
    except FileNotFoundError:  # another process took the step for us
        return True
    sync_folder(step.parent)
    return True


def _finish(folder: Path) -> None:
    """Take the step (see `_publish`) of a killed process."""
    for name in _listed(folder):
        if match := _STEP.fullmatch(name):
            _take_step(folder / name, int(match[1]))


def _begins_with(loose: Path, folder: Folder, name: str) -> bool:
    """Whether a file still begins with its folded bytes.

    No reader has seen the bytes after them, and their writer got no acknowledgement.
    """
    try:
        with loose.open("rb") as file:
            return all(file.read(len(block)) == block for block in folder.blocks(name))
    except FileNotFoundError:  # another process removed it
        return False


def _read_index(path: Path) -> _Index:
    """Read the index of a folded file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return _Index(None, 0, {})
    try:
        with naming(path):
            head = parse_line(os.pread(descriptor, 200, 0).partition(b"\n")[0]) or {}
        generation = head.get("generation")
        rows = _indexed(descriptor)
        if rows is None:
            log_damage(path, f"{path} is damaged; what is left of it is read")
        entries = (
            {row[0]: Entry._make(row[1:]) for row in rows}
            if rows is not None
            else dict(_found_again(descriptor))
        )
        return _Index(
            _identity(descriptor), generation if isinstance(generation, int) else 1, entries
        )
    finally:
        os.close(descriptor)


@lru_cache(maxsize=8)
def _names(path: Path, identity: tuple[int, ...]) -> frozenset[str]:
    """Names of the files in a folded file."""
    return frozenset(_read_index(path).entries)


def _indexed(descriptor: int) -> Collection[Sequence[Any]] | None:
    """The rows of the index; None if it is damaged."""
    size = os.fstat(descriptor).st_size
    footer = parse_line(os.pread(descriptor, _FOOTER_BYTES, max(0, size - _FOOTER_BYTES)))
    try:
        assert footer is not None
        data = os.pread(descriptor, int(footer["index_bytes"]), int(footer["index_at"]))
        if zlib.crc32(data) != int(footer["crc32"], 16):
            return None
        rows: Collection[Sequence[Any]] = json.loads(data)["index"]
    except (AssertionError, KeyError, TypeError, ValueError, OSError):
        return None
    return rows


def _found_again(descriptor: int) -> Iterator[tuple[str, Entry]]:
    """Rebuild the index from the line before each file: it ends at the latest where the next one begins."""
    name, begin, size, at = "", 0, 0, 0
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        for line in file:
            if line.startswith(_BETWEEN):
                if name:
                    yield name, Entry(begin, min(size, at - begin), None, None)
                head = parse_line(line) or {}
                begin, known = at + len(line), isinstance(head.get("bytes"), int)
                # Without its number of bytes lines are skipped until the next file begins.
                name, size = (str(head.get("file", "")), head["bytes"]) if known else ("", 0)
            at += len(line)
    if name:
        yield name, Entry(begin, min(size, at - begin), None, None)


def _identity(of: int | Path) -> tuple[int, ...] | None:
    """Numbers that differ between one folded file and the next; None if there is none."""
    if isinstance(of, int):
        stat = os.fstat(of)
        return (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    try:
        return unless_stale(lambda: _identity_of(of))
    except FileNotFoundError:
        return None


def _identity_of(path: Path) -> tuple[int, ...] | None:
    """`_identity` by name. One byte is read: the name alone may still mean an old file on this node."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.pread(descriptor, 1, 0)
        return _identity(descriptor)
    finally:
        os.close(descriptor)


def _listed(folder: Path) -> set[str]:
    """Names of a folder's files, without the folded file and without files that are not whole yet."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are all that is wanted, of many files
    except FileNotFoundError:
        return set()
    return {name for name in names if name[:1] != "." and name != FOLDED}


def _all_of(path: str) -> bytes:
    """A file's bytes, read without a file object: there are thousands of small files."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with naming(path):
            data = os.read(descriptor, SMALL)
            while len(data) % SMALL == 0 and (more := os.read(descriptor, BLOCK)):
                data += more
    finally:
        os.close(descriptor)
    return data


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
