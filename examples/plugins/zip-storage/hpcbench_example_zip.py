"""Files inside a ZIP by URL: `zip:///path/to/file.zip`, or a folder in it, `zip:///path/to/file.zip!/pages`."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar
from urllib.parse import unquote


def split_url(url: str) -> tuple[Path, str]:
    """The ZIP file and the folder inside it, with a slash at its end unless it is the top."""
    path, _, inner = unquote(url.partition("://")[2]).partition("!")
    folder = inner.strip("/")
    return Path(path), f"{folder}/" if folder else ""


class ZipStorage:
    """The storage for hpcbench."""

    api: ClassVar[int] = 1

    def __init__(self, options: Mapping[str, Any]) -> None:
        if options:
            raise ValueError(f"zip has no options: {', '.join(options)}")

    def list(self, url: str) -> Iterator[Any]:
        """Members below the folder, sorted; those whose names would lead out of it are refused."""
        from hpcbench.plugins import StoredFile

        file, folder = split_url(url)
        with zipfile.ZipFile(file) as archive:
            for member in sorted(archive.infolist(), key=lambda one: one.filename):
                if member.is_dir() or not member.filename.startswith(folder):
                    continue
                name = member.filename[len(folder) :]
                if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                    raise PermissionError(f"{file}: a member called {name!r} leads out of it")
                yield StoredFile(name, member.file_size, f"{member.CRC:08x}")

    def read(self, url: str, file: Any, start: int, stop: int) -> Iterator[bytes]:
        """Bytes of one member."""
        archive_file, folder = split_url(url)
        with zipfile.ZipFile(archive_file) as archive:
            try:
                member = archive.open(folder + file.path)
            except KeyError as error:
                raise FileNotFoundError(f"{archive_file} has no {folder + file.path}") from error
            with member:
                member.seek(start)
                while start < stop and (piece := member.read(min(1 << 16, stop - start))):
                    start += len(piece)
                    yield piece

    def put(self, source: Path, url: str, path: str) -> None:
        """Add or replace one member: a new archive is written beside the old one, then renamed."""
        file, folder = split_url(url)
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(descriptor, "wb") as out, zipfile.ZipFile(out, "w") as fresh:
                if file.exists():
                    with zipfile.ZipFile(file) as old:
                        for member in old.infolist():
                            if member.filename != folder + path:
                                fresh.writestr(member, old.read(member))
                fresh.write(source, folder + path)
            Path(name).replace(file)
        finally:
            Path(name).unlink(missing_ok=True)

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        """Storage that the contract tests use."""
        return {"url": f"zip://{folder}/store.zip!/pages"}
