"""Files through a pair of pipes, to another machine's hpcbench or from it.

Both ends are in this module, so that their formats agree. Control messages are JSON, one line a message;
bytes of files follow their announcement without a round trip, so that latency costs nothing. A broken
transfer continues at its last byte, and received files are checked by size and SHA-256 before they get their
names.

Sent files are kept by content below a `root`: `files/SHA256` are the files, `NAME/…` the parcels, whose files
are hard links to these, read-only. A parcel's folder exists only when it is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from hpcbench.data.progress import Moved, Progress, silent
from hpcbench.data.storage import PIECE
from hpcbench.errors import EnvironmentFault
from hpcbench.files.hashing import hash_file

STORE = "files"
"""Folder below a root: sent files, by content."""

TOGETHER = 256 << 10
"""Bytes that are buffered before a write."""

Content = Path | bytes
"""Source of a file's bytes: a file, or the bytes themselves."""


class Wire(Protocol):
    """The two pipes."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, at least one; empty: the other end has ended."""

    def readline(self) -> bytes:
        """A line, or the rest of one."""


@dataclass(frozen=True, slots=True)
class ParcelFile:
    """One file of a parcel."""

    path: str
    """Path below the parcel, with `/` between folders."""
    size: int
    """Bytes."""
    sha256: str
    """SHA-256 of its content, hexadecimal."""
    executable: bool = False
    """Whether it is executable."""

    @property
    def key(self) -> str:
        """Its name among the kept files: equal contents share one file."""
        return self.sha256 + ("x" if self.executable else "")


@dataclass(frozen=True, slots=True)
class Parcel:
    """Files of one folder."""

    files: tuple[ParcelFile, ...]
    """Sorted by path."""

    @property
    def name(self) -> str:
        """Name of its folder: the hash of its contents."""
        lines = [f"{file.key}  {file.path}" for file in self.files]
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:24]


# --- to the other machine ------------------------------------------------------------------------------


def send(
    wire: Wire,
    parcels: Iterable[Parcel],
    contents: Mapping[str, Content],
    progress: Progress = silent,
) -> int:
    """Send parcels to the other machine; returns the number of bytes sent.

    Args:
        wire: wire to `receive` there.
        parcels: the parcels.
        contents: SHA-256 → source of the bytes.
        progress: receives progress.

    Raises:
        EnvironmentFault: a file changed since it was hashed; the other end failed.
    """
    listed = {parcel.name: [_listed(file) for file in parcel.files] for parcel in parcels}
    _say(wire, {"parcels": listed})
    wanted = _hear(wire)["wanted"]
    sizes = {file.key: file.size for parcel in parcels for file in parcel.files}
    total, moved, done, sent = sum(sizes[key] for key, _ in wanted), 0, 0, 0
    moved = sum(start for _, start in wanted)
    waiting = bytearray()
    for key, start in wanted:
        waiting += _line({"key": key, "size": sizes[key] - start})
        for piece in _bytes(contents[key.rstrip("x")], start, sizes[key]):
            waiting += piece
            moved, sent = moved + len(piece), sent + len(piece)
            if len(waiting) >= TOGETHER:
                wire.write(bytes(waiting))
                waiting.clear()
                progress(Moved("sending", moved, total, done, len(wanted)))
        done += 1
    wire.write(bytes(waiting + _line({"end": True})))
    progress(Moved("sending", moved, total, done, len(wanted)))
    _hear(wire)
    return sent


def receive(wire: Wire, root: Path) -> None:
    """The other end of `send`: write received parcels below `root`.

    Raises:
        EnvironmentFault: a file differs from its announcement; the disk is full.
    """
    store = root / STORE
    parcels = {
        name: [_read(one) for one in files] for name, files in _hear(wire)["parcels"].items()
    }
    missing = {name: files for name, files in parcels.items() if not (root / _flat(name)).is_dir()}
    for name in parcels.keys() - missing.keys():  # requested again: this resets its age
        with contextlib.suppress(OSError):
            os.utime(root / name)
    wanted = {file.key: file for files in missing.values() for file in files}
    try:
        store.mkdir(parents=True, exist_ok=True)
        lacking = {key: file for key, file in wanted.items() if _size(store / key) != file.size}
        starts = {
            key: _partial_size(store / f"{key}.part", file.size) for key, file in lacking.items()
        }
        _say(wire, {"wanted": list(starts.items())})
        while "end" not in (header := _hear(wire)):
            file = lacking[header["key"]]
            _keep(wire, store / f"{file.key}.part", header["size"], file)
            place = store / file.key
            (store / f"{file.key}.part").replace(place)
            place.chmod(0o555 if file.executable else 0o444)
        for name, files in missing.items():
            _lay_out(root, name, files, store)
    except OSError as error:
        raise EnvironmentFault(f"{error.filename or root}: {error.strerror or error}") from error
    _say(wire, {"done": sorted(missing)})


def _lay_out(root: Path, name: str, files: Sequence[ParcelFile], store: Path) -> None:
    """Create a parcel's folder atomically: its files are hard links to the kept files."""
    beside = root / f".{name}.{secrets.token_hex(4)}"
    try:
        for folder in {PurePosixPath(file.path).parent for file in files}:
            (beside / folder).mkdir(parents=True, exist_ok=True)
        for file in files:
            try:
                os.link(store / file.key, beside / file.path)
            except OSError:  # a file system without hard links, or too many links to one file
                shutil.copy2(store / file.key, beside / file.path)
        with contextlib.suppress(FileExistsError, OSError):
            beside.rename(root / name)
        if not (root / name).is_dir():
            raise EnvironmentFault(f"cannot create {root / name}")
    finally:
        shutil.rmtree(beside, ignore_errors=True)


# --- from the other machine ----------------------------------------------------------------------------


def serve(wire: Wire, folder: Path) -> None:
    """The other end of `fetch`: send the files of a folder.

    Raises:
        OSError: a file cannot be read.
        EnvironmentFault: a file changed meanwhile.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    listed = [
        ParcelFile(path.relative_to(folder).as_posix(), path.stat().st_size, hash_file(path))
        for path in files
    ]
    _say(wire, {"files": [_listed(file) for file in listed]})
    known = {file.path: file for file in listed}
    for path, start in _hear(wire)["wanted"]:
        for piece in _bytes(folder / known[path].path, start, known[path].size):
            wire.write(piece)


def fetch(wire: Wire, place: Path, progress: Progress = silent) -> int:
    """Write the files that `serve` sends into a folder; returns the number of bytes received.

    Args:
        wire: wire to `serve` there.
        place: the folder; its other files stay.
        progress: receives progress.

    Raises:
        EnvironmentFault: a file differs from its announcement; the disk is full.
    """
    files = [_read(one) for one in _hear(wire)["files"]]
    try:
        lacking = [file for file in files if not _is_here(place / file.path, file)]
        parts = {file.path: _part(place, file) for file in lacking}
        starts = {file.path: _partial_size(parts[file.path], file.size) for file in lacking}
        _say(wire, {"wanted": list(starts.items())})
        total, moved, sent = sum(file.size for file in lacking), sum(starts.values()), 0

        for done, file in enumerate(lacking):

            def tell(size: int, done: int = done) -> None:
                nonlocal moved, sent
                moved, sent = moved + size, sent + size
                progress(Moved("fetching", moved, total, done, len(lacking)))

            part = parts[file.path]
            _keep(wire, part, file.size - starts[file.path], file, tell)
            part.chmod(0o644)
            part.replace(place / file.path)
    except OSError as error:
        raise EnvironmentFault(f"{error.filename or place}: {error.strerror or error}") from error
    return sent


def _is_here(path: Path, file: ParcelFile) -> bool:
    try:
        return _size(path) == file.size and hash_file(path) == file.sha256
    except OSError:
        return False


def _part(place: Path, file: ParcelFile) -> Path:
    """Temporary path of a file until it is complete; parts of other contents are removed."""
    final = place / file.path
    final.parent.mkdir(parents=True, exist_ok=True)
    for old in final.parent.glob(f".{_escaped(final.name)}.*.part"):
        if file.sha256[:16] not in old.name:
            old.unlink(missing_ok=True)
    return final.with_name(f".{final.name}.{file.sha256[:16]}.part")


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


# --- both ends -----------------------------------------------------------------------------------------


def _keep(
    wire: Wire,
    part: Path,
    size: int,
    file: ParcelFile,
    tell: Callable[[int], None] = lambda size: None,
) -> None:
    """Append received bytes to a part, and check the whole against its size and hash."""
    digest = hashlib.sha256()
    with part.open("a+b") as opened:
        opened.seek(0)
        while piece := opened.read(PIECE):
            digest.update(piece)
        while size:
            piece = wire.read(min(size, PIECE))
            if not piece:
                raise EnvironmentFault(f"the transfer of {file.path} broke off", remedy="try again")
            opened.write(piece)
            digest.update(piece)
            size -= len(piece)
            tell(len(piece))
        opened.flush()
        os.fsync(opened.fileno())
    if _size(part) != file.size or digest.hexdigest() != file.sha256:
        part.unlink(missing_ok=True)
        raise EnvironmentFault(
            f"{file.path} arrived damaged, or changed during the transfer", "try again"
        )


def _partial_size(part: Path, size: int) -> int:
    """Bytes of a file from an earlier try; a part that cannot be its beginning is removed."""
    here = _size(part)
    if here > size:
        part.unlink()
    return here if 0 <= here <= size else 0


def _size(path: Path) -> int:
    """Bytes of a file; -1: it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


def _bytes(content: Content, start: int, stop: int) -> Iterator[bytes]:
    """Bytes of a file, exactly as many as announced."""
    if isinstance(content, bytes):
        yield from (content[at : at + PIECE] for at in range(start, stop, PIECE))
        return
    with content.open("rb") as opened:
        opened.seek(start)
        while start < stop:
            piece = opened.read(min(PIECE, stop - start))
            if not piece:
                raise EnvironmentFault(
                    f"{content} became shorter during the transfer", remedy="try again"
                )
            start += len(piece)
            yield piece


def _listed(file: ParcelFile) -> list[Any]:
    return [file.path, file.size, file.sha256, file.executable]


def _read(one: Sequence[Any]) -> ParcelFile:
    """A file from the other end's announcement.

    Raises:
        EnvironmentFault: its path leads out of its folder.
    """
    path, size, sha256, executable = one
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\0" in path:
        raise EnvironmentFault(
            f"the other end announces a file {path!r}, which is not a valid place"
        )
    if not isinstance(size, int) or size < 0:
        raise EnvironmentFault(f"the other end announces {path!r} with {size!r} bytes")
    return ParcelFile(str(path), size, _flat(sha256), bool(executable))


def _flat(name: str) -> str:
    """Check that a name consists of letters and digits, as hashes do."""
    if not (isinstance(name, str) and name.isalnum() and name.isascii()):
        raise EnvironmentFault(f"the other end names {name!r}, which is not a hash")
    return name


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def _say(wire: Wire, message: Mapping[str, Any]) -> None:
    wire.write(_line(message))


def _hear(wire: Wire) -> Any:
    """The next message.

    Raises:
        EnvironmentFault: there is no message.
    """
    line = wire.readline()
    try:
        return json.loads(line)
    except ValueError as error:
        text = line.decode("utf-8", "replace").strip()[:200]
        raise EnvironmentFault(f"the other end stopped; its last line: {text!r}") from error
