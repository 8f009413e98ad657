"""The files of a dataset or model by name, in a plain folder or in a version of a cache.

A version has the files of a source at one time, and never changes once it has its name:

    KEY/manifest.jsonl      a header, then one line for each file with size and SHA-256, sorted by path
    KEY/files/…             its files
    KEY/pack.tar            its small files, if there are many: a million pages are one file
    KEY/used                touched at every use
    KEY/unsettled           present while a power cut could damage the version (`durability`)

`Tree(KEY/files)` reads folders and versions alike. Every read from a pack is checked against the file's hash.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import itertools
import json
import mmap
import os
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.files.atomic import parse_line, read_lines, write_atomic
from hpcbench.files.hashing import FileHashes, combined, file_hashes, hash_file
from hpcbench.files.user import not_json, read_bytes
from hpcbench.schema.records import StoredImage

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

MANIFEST_VERSION = 1

BLOCK = 512
"""Bytes of a block of a tar file."""

QUEUED = 2000
"""Most calls that wait for a thread."""

PACK = "../pack.tar"
"""Name of the pack among the paths of a version's files; no file has such a path."""


@dataclass(frozen=True, slots=True)
class VersionFile:
    """A file of a version: a line of its manifest."""

    path: str
    """Below `files/`, parts joined by `/`."""
    size: int
    """Bytes."""
    sha256: str
    """Hash of the content."""
    mark: str = ""
    """The source's mark at the transfer."""
    mtime_ns: int | None = None
    """The file's mtime after writing; None if it is packed."""
    offset: int | None = None
    """Offset of its bytes in `pack.tar`; None if it is a file."""

    def record(self) -> dict[str, Any]:
        """The object of its line, without unset fields."""
        fields: dict[str, Any] = {"path": self.path, "size": self.size, "sha256": self.sha256}
        for key in ("mark", "mtime_ns", "offset"):
            if (value := getattr(self, key)) not in (None, ""):
                fields[key] = value
        return fields


@dataclass(frozen=True, slots=True)
class Version:
    """The files of a source at one time."""

    folder: Path
    """Folder of the version."""
    url: str
    """URL of the source."""
    count: int
    """Number of files."""
    bytes: int
    """Total size of the files."""
    content: str
    """`sha256:…` over hashes and paths of all files, as `content_hash` gives it."""
    pack_mtime_ns: int | None = None
    """Mtime of `pack.tar` after writing; None: there is no pack."""

    @property
    def files(self) -> Path:
        """The folder with the files."""
        return self.folder / "files"

    @property
    def used(self) -> float:
        """Time of its last use, seconds since the epoch; 0 if it is gone."""
        stat = _stat(self.folder / "used") or _stat(self.folder)
        return stat.st_mtime if stat is not None else 0.0

    def touch(self) -> Version:
        """Note that it is used; a version that we may not write to belongs to another user."""
        with contextlib.suppress(OSError):
            (self.folder / "used").touch()
        return self

    def kept(self) -> Iterator[VersionFile]:
        """Its files, sorted by path."""
        lines = read_lines(self.folder / "manifest.jsonl")
        next(lines, None)
        for line in lines:
            try:
                kept = VersionFile(**line)
            except TypeError:  # damaged, but still JSON: see `sound`
                continue
            yield kept

    @classmethod
    def read(cls, folder: Path) -> Version | None:
        """The version in a folder; None if it is missing, unreadable, or of another manifest version."""
        try:
            header = next(read_lines(folder / "manifest.jsonl"), None)
            if header is None or header.pop("version", None) != MANIFEST_VERSION:
                return None
            return cls(folder, **header)
        except (PermissionError, TypeError):  # private, or its first line is damaged
            return None

    @classmethod
    def write(cls, folder: Path, url: str, kept: Iterable[VersionFile]) -> Version:
        """Write the manifest of files in a folder."""
        files = sorted(kept, key=lambda one: one.path)
        pack = folder / "pack.tar"
        version = cls(
            folder,
            url,
            len(files),
            sum(one.size for one in files),
            combined({one.path: one.sha256 for one in files}),
            pack.stat().st_mtime_ns if pack.exists() else None,
        )
        header = {"version": MANIFEST_VERSION, **asdict(version)}
        del header["folder"]
        records = [header, *(one.record() for one in files)]
        lines = (json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in records)
        write_atomic(folder / "manifest.jsonl", "\n".join((*lines, "")))
        return version

    def sound(self) -> bool:
        """Whether the manifest's lines match its header."""
        files = list(self.kept())
        return (
            len(files) == self.count
            and sum(one.size for one in files) == self.bytes
            and combined({one.path: one.sha256 for one in files}) == self.content
        )

    def on_disk(self) -> Iterator[os.stat_result]:
        """Yield the stat results of its pack and of its unpacked files."""
        places = [self.folder / "pack.tar"]
        for folder, _, names in os.walk(self.files):
            places += [Path(folder) / name for name in names]
        return (stat for place in places if (stat := _stat(place)) is not None)

    def damaged(
        self,
        *,
        thorough: bool,
        progress: Callable[[int], None] = lambda count: None,
        known: dict[str, int] | None = None,
    ) -> list[VersionFile]:
        """The files that differ from the manifest.

        Args:
            thorough: read every byte; otherwise only files with another size or mtime are read.
            progress: called after each read with the number of bytes read.
            known: path → mtime of right files whose mtime differs from the manifest; they are not read again.
                Files found right now are added.
        """
        times = known if known is not None else {}
        pack = _stat(self.folder / "pack.tar")
        same_pack = pack is not None and pack.st_mtime_ns in (self.pack_mtime_ns, times.get(PACK))
        tree = Tree(self.files)

        def wrong(one: VersionFile) -> bool:
            if one.offset is not None:
                if pack is not None and (thorough or not same_pack):
                    progress(one.size)
                    return hashlib.sha256(tree.packed_bytes(one)).hexdigest() != one.sha256
                return pack is None
            place = self.files / one.path
            stat = _stat(place)
            if stat is None or stat.st_size != one.size:
                return True
            time = stat.st_mtime_ns
            if thorough or time not in (one.mtime_ns, times.get(one.path)):
                if hash_file(place, progress) != one.sha256:
                    times.pop(one.path, None)  # so that it is read until it is repaired
                    return True
                if time != one.mtime_ns:
                    times[one.path] = time
            return False

        def look(one: VersionFile) -> VersionFile | None:
            return one if wrong(one) else None

        found = [one for one in at_once(look, self.kept()) if one is not None]
        if any(one.offset is not None for one in found):
            times.pop(PACK, None)
        elif pack is not None and not same_pack:
            times[PACK] = pack.st_mtime_ns
        return found


class Tree:
    """The files below a folder, named by paths inside it. Creating it reads no file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def version(self) -> Version | None:
        """The version of these files; None for a plain folder."""
        return Version.read(self.folder.parent) if self.folder.name == "files" else None

    @property
    def is_packed(self) -> bool:
        """Whether some files are in a pack."""
        return self.version is not None and self.version.pack_mtime_ns is not None

    def files(self, below: Path | None = None) -> list[Path]:
        """All files below a folder of the tree, sorted by name, without hidden ones."""
        below = below or self.folder
        if self.is_packed:
            prefix = "" if below == self.folder else f"{self._name(below)}/"
            inside = (one.path for one in self._starting(prefix))
            return [self.folder / name for name in inside if not _hidden(name[len(prefix) :])]
        found: list[Path] = []
        for folder, folders, names in walk(below):
            folders[:] = [name for name in folders if not name.startswith(".")]
            found += [folder / name for name in names if not name.startswith(".")]
        return sorted(found, key=str)

    def listing(self, folder: Path) -> list[Path]:
        """The files directly in a folder of the tree, sorted by name, without hidden ones."""
        if self.is_packed:
            return [path for path in self.files(folder) if path.parent == folder]
        if not folder.is_dir():
            return []
        with os.scandir(folder) as entries:
            names = [one.name for one in entries if not one.name.startswith(".") and one.is_file()]
        return [folder / name for name in sorted(names)]

    def glob(self, pattern: str) -> list[Path]:
        """The files whose paths inside the folder match, sorted by name, without hidden ones.

        `**` matches any number of nested folders.
        """
        parts = [*PurePosixPath(pattern).parts]
        if parts[-1:] == ["**"]:
            parts.append("*")
        literal = re.split(r"[*?\[]", "/".join(parts))[0]
        if not self.is_packed and "**" in parts:
            # `Path.glob` does not follow links to folders; `files` does.
            below = self.files(self.folder / literal.rpartition("/")[0])
            names = sorted(
                name for name in map(self._name, below) if _matches(name.split("/"), parts)
            )
        elif self.is_packed:
            inside = (one.path for one in self._starting(literal))
            names = [name for name in inside if _matches(name.split("/"), parts)]
        else:
            found = self.folder.glob("/".join(parts))
            names = sorted(self._name(path) for path in found if path.is_file())
        return [self.folder / name for name in names if not _hidden(name)]

    def has(self, path: Path) -> bool:
        """Whether the file exists."""
        return self._in_pack(path) is not None or path.is_file()

    def read(self, path: Path) -> bytes:
        """A file's bytes.

        Raises:
            UserError: there is no such file, or it cannot be read.
            EnvironmentFault: the packed file is damaged.
        """
        if (kept := self._in_pack(path)) is not None:
            data = self.packed_bytes(kept)
            if hashlib.sha256(data).hexdigest() != kept.sha256:
                raise EnvironmentFault(
                    f"{self.folder.parent / 'pack.tar'}: {kept.path} is damaged",
                    remedy="`hpcbench data verify --repair` fetches it again",
                )
            return data
        return read_bytes(path)

    def text(self, path: Path, errors: str = "strict") -> str:
        """A file's text, UTF-8 with or without BOM.

        Raises:
            UserError: it cannot be read, or is not UTF-8, with its line.
        """
        data = self.read(path)
        try:
            return data.decode("utf-8-sig", errors)
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            what = f"not UTF-8: byte 0x{data[error.start]:02x}"
            raise UserError(Problem(what, str(path), line, remedy="convert it to UTF-8")) from error

    def parsed(self, path: Path) -> Any:
        """The content of a JSON file.

        Raises:
            UserError: as `text`; or it is not JSON, with line and column.
        """
        text = self.text(path)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError(not_json(error, path)) from error

    def image(self, path: Path) -> Path | StoredImage:
        """An image as a sample holds it: its path, or a reader if it is packed."""
        if self._in_pack(path) is None:
            return path
        return StoredImage(self._name(path), partial(self.read, path))

    def sha256(self, path: Path) -> str | None:
        """Hash of a file from the manifest; None if it is not there, or the file was touched since."""
        if self.version is None:
            return None
        kept = self._kept(self._name(path))
        if kept is None or kept.offset is not None:
            return kept.sha256 if kept is not None else None
        stat = _stat(path)
        same = stat is not None and (stat.st_size, stat.st_mtime_ns) == (kept.size, kept.mtime_ns)
        return kept.sha256 if same else None

    def packed_bytes(self, kept: VersionFile) -> bytes:
        """The bytes of a packed file, not checked; fewer if the pack is cut off."""
        assert kept.offset is not None
        return os.pread(self._pack, kept.size, kept.offset)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _in_pack(self, path: Path) -> VersionFile | None:
        kept = self._kept(self._name(path)) if self.is_packed else None
        return kept if kept is not None and kept.offset is not None else None

    def _kept(self, name: str) -> VersionFile | None:
        """The manifest's line for a name."""
        first = next(self._starting(name), None)
        return first if first is not None and first.path == name else None

    def _starting(self, prefix: str) -> Iterator[VersionFile]:
        """Yield the lines for names with a prefix, by bisection: a million lines should not be in memory."""
        lines = self._manifest
        low, high = lines.find(b"\n") + 1, len(lines)
        while low < high:
            middle = (low + high) // 2
            start = lines.rfind(b"\n", low - 1, middle) + 1
            end = lines.find(b"\n", start)
            if self._line(start, end).path < prefix:
                low = end + 1
            else:
                high = start
        while low < len(lines):
            end = lines.find(b"\n", low)
            kept = self._line(low, end)
            if not kept.path.startswith(prefix):
                return
            yield kept
            low = end + 1

    def _line(self, start: int, end: int) -> VersionFile:
        try:
            return VersionFile(**(parse_line(self._manifest[start:end]) or {}))
        except TypeError:
            raise EnvironmentFault(
                f"{self.folder.parent / 'manifest.jsonl'} is damaged",
                remedy="`hpcbench data sync` makes it again",
            ) from None

    @cached_property
    def _manifest(self) -> mmap.mmap:
        with (self.folder.parent / "manifest.jsonl").open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @cached_property
    def _pack(self) -> int:
        """Descriptor of the pack; open as long as the tree exists."""
        try:
            opened = os.open(self.folder.parent / "pack.tar", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise EnvironmentFault(
                f"{self.folder.parent / 'pack.tar'} cannot be read: {error.strerror}",
                remedy="`hpcbench data sync` fetches it again",
            ) from error
        weakref.finalize(self, os.close, opened)
        return opened


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a path match those of a pattern, as in `Path.glob`."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[start:], pattern[1:]) for start in range(len(parts)))
    return (
        bool(parts)
        and fnmatch.fnmatchcase(parts[0], pattern[0])
        and _matches(parts[1:], pattern[1:])
    )


def at_once(
    do: Callable[[ItemT], ResultT], items: Iterable[ItemT], threads: int = 8
) -> Iterator[ResultT]:
    """Yield a function's results, in order, from parallel calls: a shared file system answers many at once.

    A waiting call takes more than a kilobyte, so calls for a million files are queued in batches.
    """
    waiting = iter(items)
    with ThreadPoolExecutor(threads) as pool:
        while batch := list(itertools.islice(waiting, QUEUED)):
            yield from pool.map(do, batch)


def walk(top: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield every folder with the names of its folders and files, as `os.walk` does.

    It follows links to folders, except a link to a folder on its own path, or above: such a link has no new
    files and never ends. The caller may remove folders from the list.
    """
    # Folder → the real folders on the path to it.
    ways: dict[Path, tuple[Path, ...]] = {top: (top.resolve(),)}
    for folder, folders, names in os.walk(top, followlinks=True):
        here = Path(folder)
        way = ways.pop(here)
        yield here, folders, names
        for name in [*folders]:
            place = here / name
            real = place.resolve() if place.is_symlink() else way[-1] / name
            if any(one.is_relative_to(real) for one in way):
                folders.remove(name)
            else:
                ways[place] = (*way, real)


def _hidden(name: str) -> bool:
    return "/." in f"/{name}"


def content_hash(
    folder: Path,
    files: Iterable[Path],
    cache: Path | None = None,
    progress: Callable[[int], None] | None = None,
    *,
    read: bool = False,
    gone: bool = False,
) -> str:
    """`sha256:…` over the content and relative paths of files in a folder.

    Args:
        folder: folder of the relative paths.
        files: the files, in any order; each counts once.
        cache: file that remembers hashes between runs.
        progress: called with the bytes of each file when it is done.
        read: read every byte, even of files known to manifest or cache.
        gone: whether a file may be missing; it then counts with `missing` as its hash.

    Raises:
        UserError: a file is missing or unreadable.
    """
    tree = Tree(folder)
    found: dict[str, str] = {}
    others: list[Path] = []
    for path in set(files):
        if not read and (digest := tree.sha256(path)):
            found[path.relative_to(folder).as_posix()] = digest
        elif gone and not path.is_file():
            found[path.relative_to(folder).as_posix()] = "missing"
        else:
            others.append(path)
    for path, digest in file_hashes(others, cache, progress, read=read).items():
        found[path.relative_to(folder).as_posix()] = digest
    return combined(found)


def known_content_hash(folder: Path, files: Iterable[Path], cache: Path) -> str | None:
    """`content_hash` of files that were all hashed before; None: one has to be read."""
    tree, hashes, found = Tree(folder), FileHashes(cache), dict[str, str]()
    for path in files:
        digest = tree.sha256(path) or hashes.known(path)
        if digest is None:
            return None
        found[path.relative_to(folder).as_posix()] = digest
    return combined(found)


def folder_files(folder: Path) -> list[Path]:
    """All files of a folder except hidden ones, e.g. the files of a model.

    Raises:
        UserError: the folder does not exist or is empty.
    """
    if not folder.is_dir():
        raise UserError(Problem("no such folder", str(folder)))
    files = [
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not files:
        raise UserError(Problem("the folder is empty", str(folder)))
    return sorted(files)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
