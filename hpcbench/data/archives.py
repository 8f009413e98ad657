"""Datasets in one file: ZIP and tar, unpacked safely.

Members that lead out of the folder, links, devices, encrypted members, and archives that would grow too large
are refused in one line, before or while they are read; no unpacked file remains then.
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
"""Suffixes of archives that can be unpacked."""

FOREIGN = (".7z", ".rar", ".tar.zst", ".gz", ".bz2", ".xz", ".zst")
"""Suffixes of archives that only other programs unpack."""

MOST_MEMBERS = 2_000_000

GROWTH = 200
"""Most times its own size that an archive may unpack to, beyond a GiB: images of pages hardly shrink."""

_DAMAGED = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError,
    ValueError, OverflowError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Member:
    """A file in an archive."""

    name: str
    """Path in the target folder."""
    size: int
    """Bytes, as the archive says."""
    open: Any
    """Opens the member to read its bytes."""


def is_archive(path: Path | str) -> bool:
    """Whether a file's name is that of an archive."""
    return str(path).lower().endswith((*ENDINGS, *FOREIGN))


_BY_HAND = "unpack it yourself if you trust it"


def stem_of(path: Path) -> str:
    """An archive's name without its suffix."""
    ending = max((one for one in ENDINGS if path.name.lower().endswith(one)), key=len, default="")
    return path.name[: len(path.name) - len(ending)] or path.name


def unpack(archive: Path, target: Path) -> bool:
    """Unpack an archive into a folder, which appears when all files are in it.

    Returns:
        Whether it was unpacked now; False: the folder holds the same files already.

    Raises:
        UserError: the file is no archive or cannot be trusted, or the folder holds other files.
        OSError: the folder cannot be written.
    """
    with _opened(archive) as members:
        if target.exists():
            if _same(members, target):
                return False
            what = "exists already, with other files than the archive"
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
    """The innermost folder that holds all files of an unpacked archive."""
    while True:
        below = [one for one in folder.iterdir() if not one.name.startswith(".")]
        if len(below) != 1 or not below[0].is_dir():
            return folder
        folder = below[0]


@contextmanager
def _opened(archive: Path) -> Iterator[list[_Member]]:
    low = archive.name.lower()
    if not low.endswith(ENDINGS):
        what = "not an archive that hpcbench can unpack"
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
            raise UserError(
                Problem(f"more than {MOST_MEMBERS} members", str(archive), remedy=_BY_HAND)
            )
        if one.isdir() or _is_clutter(one.name):
            continue
        if not one.isreg():
            raise _refused(archive, one.name, "is a link or a device")
        yield _Member(_safe(archive, one.name), one.size, partial(reader.extractfile, one))


def _is_clutter(name: str) -> bool:
    """Whether a member is a system file that other systems add to archives."""
    parts = PurePosixPath(name).parts
    return "__MACOSX" in parts or (
        bool(parts) and parts[-1] in (".DS_Store", "Thumbs.db", "desktop.ini")
    )


def _zip_name(info: zipfile.ZipInfo) -> str:
    """A member's name. Old programs do not give its encoding: then it is UTF-8 or else that of DOS."""
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


def _refused(archive: Path, name: str, what: str, remedy: str = _BY_HAND) -> UserError:
    return UserError(Problem(f"its member '{name}' {what}", str(archive), remedy=remedy))


def _check(archive: Path, members: list[_Member], target: Path) -> None:
    """Check the size. Raises UserError: the archive is empty or too large."""
    if not members:
        raise UserError(Problem("the archive has no files", str(archive)))
    size, own = sum(one.size for one in members), archive.stat().st_size
    if len(members) > MOST_MEMBERS or size > max(1 << 30, GROWTH * own):
        what = f"its {size_text(own)} unpack to {size_text(size)}"
        raise UserError(Problem(what, str(archive), remedy=_BY_HAND))
    above = next(one for one in target.absolute().parents if one.is_dir())
    if size > (free := shutil.disk_usage(above).free):
        what = f"the archive's files need {size_text(size)}, and only {size_text(free)} are free"
        raise UserError(Problem(what, str(above), remedy="free some space, or unpack it elsewhere"))


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
                    raise _refused(archive, member.name, "is larger than the archive declares")
                out.write(block)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise _refused(archive, member.name, "occurs twice") from error
    except RuntimeError as error:  # from zipfile, for an unknown encryption
        raise _refused(archive, member.name, f"cannot be read: {error}") from error
