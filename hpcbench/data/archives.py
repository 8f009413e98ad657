"""Datasets in one file: ZIP and tar, unpacked where nothing in them can do harm.

Members that lead out of the folder, links and devices, encrypted ones, and archives that would grow past all
measure are refused in one line, before or while they are read; then nothing is left.
"""

from __future__ import annotations

import lzma
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from hpcbench.data.progress import size_text
from hpcbench.errors import Problem, UserError
from hpcbench.files.user import open_file

ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
"""What can be unpacked."""

FOREIGN = (".7z", ".rar", ".tar.zst", ".gz", ".bz2", ".xz", ".zst")
"""What only other programs unpack."""

MOST_MEMBERS = 2_000_000

GROWTH = 200
"""So many times its own size an archive may become, beyond a GiB: pages hardly shrink."""

_DAMAGED = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError,
    ValueError, OverflowError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Member:
    """A file in an archive."""

    name: str
    """Path in the folder that it is unpacked to."""
    size: int
    """Bytes, as the archive says."""
    open: Any
    """Opens it to read its bytes."""


def is_archive(path: Path | str) -> bool:
    """Whether a file's name is that of an archive."""
    return str(path).lower().endswith((*ENDINGS, *FOREIGN))


def stem_of(path: Path) -> str:
    """An archive's name without its ending."""
    ending = max((one for one in ENDINGS if path.name.lower().endswith(one)), key=len, default="")
    return path.name[: len(path.name) - len(ending)] or path.name


def unpack(archive: Path, target: Path) -> bool:
    """Have an archive's files in a folder; visible there once all are.

    Returns:
        Whether it was unpacked now; else the folder holds the same files already.

    Raises:
        UserError: it is no archive, is not to be trusted, or the folder holds something else.
        OSError: the folder cannot be written.
    """
    with _opened(archive) as members:
        if target.exists():
            if _same(members, target):
                return False
            what = "there already, and holds other files than the archive"
            raise UserError(Problem(what, str(target), remedy="add that folder, or rename it"))
        _check(archive, members, target)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name[:50]}-", dir=target.parent) as name:
            inside = Path(name) / "files"
            inside.mkdir()
            for member in members:
                _write(archive, member, inside)
            inside.rename(target)
    return True


def inner(folder: Path) -> Path:
    """The folder that an archive's files are in, where all are in one."""
    while True:
        below = [one for one in folder.iterdir() if not one.name.startswith(".")]
        if len(below) != 1 or not below[0].is_dir():
            return folder
        folder = below[0]


@contextmanager
def _opened(archive: Path) -> Iterator[list[_Member]]:
    low = archive.name.lower()
    if not low.endswith(ENDINGS):
        what = "no archive that can be unpacked here"
        raise UserError(Problem(what, str(archive), remedy="unpack it, and add the folder"))
    with open_file(archive) as file:
        try:
            with _reader(file, low) as reader:
                yield list(_members(archive, reader))
        except _DAMAGED as error:
            what = f"cannot be unpacked: {str(error) or type(error).__name__}"
            remedy = "fetch or make it again, or unpack it and add the folder"
            raise UserError(Problem(what, str(archive), remedy=remedy)) from error


def _reader(
    file: IO[bytes], name: str
) -> AbstractContextManager[zipfile.ZipFile | tarfile.TarFile]:
    return (
        zipfile.ZipFile(file) if name.endswith(".zip") else tarfile.open(fileobj=file, mode="r:*")
    )


def _members(archive: Path, reader: zipfile.ZipFile | tarfile.TarFile) -> Iterator[_Member]:
    if isinstance(reader, zipfile.ZipFile):
        for info in reader.infolist():
            name = _zip_name(info)
            if stat.S_ISLNK(info.external_attr >> 16):
                raise _refused(archive, name, "is a link")
            if info.flag_bits & 1:
                what = "is encrypted"
                raise _refused(
                    archive, name, what, "unpack it with its password, and add the folder"
                )
            if not info.is_dir() and not _is_clutter(name):
                yield _Member(_safe(archive, name), info.file_size, partial(reader.open, info))
        return
    for number, one in enumerate(reader):
        if number >= MOST_MEMBERS:
            raise UserError(Problem(f"more than {MOST_MEMBERS} members", str(archive)))
        if one.isdir() or _is_clutter(one.name):
            continue
        if not one.isreg():
            raise _refused(archive, one.name, "is a link or a device")
        yield _Member(_safe(archive, one.name), one.size, partial(reader.extractfile, one))


def _is_clutter(name: str) -> bool:
    """What other systems leave in archives."""
    parts = PurePosixPath(name).parts
    return "__MACOSX" in parts or (
        bool(parts) and parts[-1] in (".DS_Store", "Thumbs.db", "desktop.ini")
    )


def _zip_name(info: zipfile.ZipInfo) -> str:
    """A member's name; of old programs, which do not say the encoding, UTF-8 or else that of DOS."""
    if info.flag_bits & 0x800 or info.filename.isascii():
        return info.filename
    try:
        raw = info.filename.encode("cp437")
    except UnicodeEncodeError:
        return info.filename
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("cp866")
    strange = [one for one in text if not one.isascii()]
    cyrillic = sum("а" <= one.lower() <= "ё" for one in strange)
    return text if cyrillic * 2 > len(strange) else info.filename


def _safe(archive: Path, name: str) -> str:
    """The name as a path inside the folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    outside = path.is_absolute() or ".." in path.parts or re.match("[A-Za-z]:", str(path))
    if outside or "\0" in name or not path.parts:
        raise _refused(archive, name, "leads out of the folder")
    return str(path)


def _refused(
    archive: Path, name: str, what: str, remedy: str = "unpack it yourself if you trust it"
) -> UserError:
    return UserError(Problem(f"'{name}' in it {what}", str(archive), remedy=remedy))


def _check(archive: Path, members: list[_Member], target: Path) -> None:
    """Raises UserError: there is nothing in it, or too much."""
    if not members:
        raise UserError(Problem("there is no file in it", str(archive)))
    size, own = sum(one.size for one in members), archive.stat().st_size
    if len(members) > MOST_MEMBERS or size > max(1 << 30, GROWTH * own):
        what = f"{size_text(own)} that become {size_text(size)}"
        raise UserError(Problem(what, str(archive), remedy="unpack it yourself if you trust it"))
    above = next(one for one in target.absolute().parents if one.is_dir())
    if size > (free := shutil.disk_usage(above).free):
        what = f"its files take {size_text(size)}, and {size_text(free)} are free"
        raise UserError(Problem(what, str(above), remedy="make room, or unpack it elsewhere"))


def _same(members: list[_Member], target: Path) -> bool:
    """Whether a folder has an archive's files, by names and sizes."""
    wanted = {one.name: one.size for one in members}
    if not target.is_dir():
        return False
    found = {
        path.relative_to(target).as_posix(): path.stat().st_size
        for path in target.rglob("*")
        if path.is_file()
    }
    return found == wanted


def _write(archive: Path, member: _Member, folder: Path) -> None:
    place, left = folder / member.name, member.size
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with member.open() as source, place.open("xb") as out:
            while block := source.read(1 << 18):
                left -= len(block)
                if left < 0:
                    raise _refused(archive, member.name, "is larger than it says")
                out.write(block)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise _refused(archive, member.name, "stands twice") from error
    except RuntimeError as error:  # zipfile's, of encryption it does not know
        raise _refused(archive, member.name, f"cannot be read: {error}") from error
