"""Many small files of a folder as one, and a reader to whom it is all the same.

`folded.jsonl` holds files byte for byte, one after the other, and at its end where each of them stands:

    {"folded":1,"generation":1}
    {"file":"00000.1.events.jsonl","bytes":264}
    ⋯ the file's own bytes; a line's end after them if they have none …
    {"index":[["00000.1.events.jsonl",73,264,2,NOTE],…]}      name, offset, bytes, lines, what was noted of it
    {"index_at":"000000000004711","index_bytes":"…","crc32":"…"}

It appears whole, under a name that only one process can take; the files it replaces are removed after that.
So a kill at any moment leaves the files, the folded one, or both, and where both are the folded one counts.
A damaged index is found again from the lines between the files.
"""

from __future__ import annotations

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
    Tell,
    link_exclusive,
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
"""A whole folded file on its way to its name; see `_publish`."""

_FOOTER = '{{"index_at":"{:015d}","index_bytes":"{:015d}","crc32":"{:08x}"}}\n'
_FOOTER_BYTES = len(_FOOTER.format(0, 0, 0))

SMALL = 65536
"""Most bytes of a file of which something is noted."""

Note = Callable[[str, bytes], Any]
"""What to note of a small file, by its name and bytes, so that nobody has to read it; None: nothing."""


class Entry(NamedTuple):
    """A file inside a folded one."""

    at: int
    """Offset of its first byte."""
    bytes: int
    """Its length."""
    lines: int | None
    """Its whole lines; None where the index had to be found again."""
    note: Any
    """What was noted of it."""


class Folder:
    """The files of a folder as one look finds them, loose or folded; a fold while we read does no harm.

    Raises:
        OSError: the folder cannot be read; one that is not there is empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._root = str(path)
        self.look()

    def look(self) -> None:
        """Look again at what there is."""
        # In this order: what is folded after the list was made is in the file that is opened after it.
        self.loose = _listed(self.path)
        self._folded = unless_stale(lambda: _read_index(self.path / FOLDED))

    @property
    def folded(self) -> dict[str, Entry]:
        """Files inside the folded one."""
        return self._folded.entries

    @property
    def generation(self) -> int:
        """How often the folder was folded."""
        return self._folded.generation

    @property
    def names(self) -> set[str]:
        """All files by name."""
        return self.loose | self.folded.keys()

    def unchanged(self) -> bool:
        """Whether nothing was folded since the look."""
        return _identity(self.path / FOLDED) == self._folded.identity

    def lines_of(self, name: str) -> int:
        """How many whole lines a file has; 0 for one that is not there."""
        entry = self.folded.get(name)
        if entry is None and name not in self.loose:
            return 0
        if entry is not None and entry.lines is not None:
            return entry.lines
        return sum(block.count(b"\n") for block in self.blocks(name))

    def read(self, name: str) -> bytes:
        """All bytes of a file; none if it is not there."""
        if name not in self.folded:
            try:
                return _all_of(f"{self._root}/{name}")
            except OSError as error:
                if error.errno not in GONE:
                    raise
        return b"".join(self.blocks(name))

    def records(self, name: str, tell: Tell | None = None) -> Iterator[dict[str, Any]]:
        """What `read_lines` would read, wherever the file stands now."""
        return parse_lines(self._lines(name), self.path / name, tell)

    def blocks(self, name: str) -> Iterator[bytes]:
        """A file's bytes, piece by piece; nothing if it is not there."""
        done = 0
        while True:
            try:
                for block in self._blocks(name, done):
                    done += len(block)
                    yield block
                return
            except OSError as error:
                # Folded since the look, or, over NFS, while we read: the same bytes stand there.
                if error.errno not in GONE or name not in self.names:
                    raise
            self.look()
            if name not in self.names:
                return

    def pages(self, name: str, most: int = 4 * BLOCK) -> Iterator[bytes]:
        """A file's whole lines, about `most` bytes at a time; a torn last line is left out."""
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

    def _blocks(self, name: str, skip: int) -> Iterator[bytes]:
        entry = self.folded.get(name)
        if entry is None and name not in self.loose:
            return
        path = f"{self._root}/{name if entry is None else FOLDED}"
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if entry is None:
                at, left = skip, None
            else:
                if _identity(descriptor) != self._folded.identity:
                    raise OSError(errno.ESTALE, "folded again")
                at, left = entry.at + skip, entry.bytes - skip
            while left is None or left > 0:
                block = os.pread(descriptor, BLOCK if left is None else min(BLOCK, left), at)
                if not block:
                    return
                at += len(block)
                left = None if left is None else left - len(block)
                yield block
        finally:
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
    """Whether a file has been folded; quick where nothing of its folder was."""
    folded = path.with_name(FOLDED)
    identity = _identity(folded)
    return identity is not None and path.name in _names(folded, identity)


def fold_files(path: Path, names: Sequence[str], note: Note = lambda name, data: None) -> bool:
    """Bring files of a folder into its folded file, and remove them.

    Args:
        path: the folder.
        names: the files, in the order in which they are written and removed. Nobody may need to write to them
            any more.
        note: what to note of each.

    Returns:
        Whether all of them are folded now; not where one is still written to, or another process folds.

    Raises:
        OSError: the disk is full or gone; everything is where it was.
    """
    _finish(path)
    before = Folder(path)
    fresh = {name: None for name in names if name in before.loose and name not in before.folded}
    if fresh and not _Writer(before, tuple(fresh), note).write():
        return False
    left = False
    for name in names:
        # What was folded just now was compared; what a killed fold left was not.
        if name in fresh or (name in before.loose and _begins_with(path / name, before, name)):
            (path / name).unlink(missing_ok=True)
        elif name in before.loose:
            left = True
    sync_folder(path)
    return not left


@dataclass(frozen=True, slots=True)
class _Index:
    """Where everything stands in a folded file."""

    identity: tuple[int, ...] | None
    """Which file it is; None: there is none."""
    generation: int
    entries: dict[str, Entry]


class _Writer:
    """Writes the next generation of a folder's folded file."""

    def __init__(self, before: Folder, fresh: Sequence[str], note: Note) -> None:
        self._before, self._fresh, self._note = before, fresh, note
        self._rows: list[tuple[str, int, int, int, Any]] = []
        self._at = 0

    def write(self) -> bool:
        """Write it, see that every byte is there, give it its name; False if somebody was in our way."""
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
        except FileNotFoundError:  # another process folded it meanwhile
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
        """Whether what was written is, byte for byte, what the file holds now."""
        done = 0
        for block in self._before.blocks(name):
            if os.pread(descriptor, len(block), at + done) != block:
                return False
            done += len(block)
            if done > size:
                return False
        return done == size


def _publish(folder: Path, temporary: Path, generation: int) -> bool:
    """Put a whole file in the place of the one of the generation before; False if another was quicker.

    Who holds the name `folded.GENERATION.jsonl` is alone with this step. It is free again after the step was
    made: then the folded file is of this generation already, and ours comes too late.
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
    except FileNotFoundError:  # another made it for us
        return True
    sync_folder(step.parent)
    return True


def _finish(folder: Path) -> None:
    """Take the step that a killed process was about to take."""
    for name in _listed(folder):
        if match := _STEP.fullmatch(name):
            _take_step(folder / name, int(match[1]))


def _begins_with(loose: Path, folder: Folder, name: str) -> bool:
    """Whether a file still begins with what was folded of it.

    What came after that no reader has seen, and its writer was never told that it is safe.
    """
    try:
        with loose.open("rb") as file:
            return all(file.read(len(block)) == block for block in folder.blocks(name))
    except FileNotFoundError:  # another process removed it
        return False


def _read_index(path: Path) -> _Index:
    """Where everything stands in a folded file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return _Index(None, 0, {})
    try:
        head = parse_line(os.pread(descriptor, 200, 0).partition(b"\n")[0]) or {}
        generation = head.get("generation")
        rows = _indexed(descriptor)
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
    """Files by the lines that stand before them."""
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        while line := file.readline():
            if not line.startswith(b'{"file":'):
                continue
            head = parse_line(line)
            if head is None or not isinstance(head.get("bytes"), int):
                continue  # what follows is read line by line until the next file begins
            at, size = file.tell(), head["bytes"]
            yield str(head["file"]), Entry(at, size, None, None)
            file.seek(at + size)


def _identity(of: int | Path) -> tuple[int, ...] | None:
    """What tells one folded file from the next; None if there is none."""
    if isinstance(of, int):
        stat = os.fstat(of)
        return (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    try:
        return unless_stale(lambda: _identity_of(of))
    except FileNotFoundError:
        return None


def _identity_of(path: Path) -> tuple[int, ...] | None:
    """The same by name. It is read from: the name alone may tell what it once meant on this node."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.pread(descriptor, 1, 0)
        return _identity(descriptor)
    finally:
        os.close(descriptor)


def _listed(folder: Path) -> set[str]:
    """Files of a folder by name, but for those of the folding itself and those that are not whole yet."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are all that is wanted, of many files
    except FileNotFoundError:
        return set()
    return {name for name in names if name[:1] != "." and name != FOLDED}


def _all_of(path: str) -> bytes:
    """A file's bytes; for thousands of small files, hence without a file object."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, SMALL)
        while len(data) % SMALL == 0 and (more := os.read(descriptor, BLOCK)):
            data += more
    finally:
        os.close(descriptor)
    return data


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
