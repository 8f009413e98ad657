"""Storage of the shared file system itself, `file:///folder`, and what all storages share."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

from pydantic import BaseModel

from hpcbench import plugins, secret
from hpcbench.errors import HpcbenchError, Problem, UserError
from hpcbench.plugins import Storage, StoredFile

PIECE = 96 << 10
"""Bytes read at a time: larger ones come fresh from the kernel each time, which costs more than it saves."""


def open_storage(url: str, options: Mapping[str, Any]) -> Storage:
    """The storage of a URL's scheme; a plain path is one of this machine.

    Raises:
        UserError: there is no such storage, or it does not know an option, or a secret is not set.
    """
    scheme, marks, _ = url.partition("://")
    plugin = plugins.load("storage", scheme if marks else "file")
    revealed = secret.reveal_all(dict(options))
    if wrong := plugins.check_options(plugin, revealed):
        raise UserError(*(Problem(f"storage of {url}: {message}") for _, message in wrong))
    storage: Storage = plugin(revealed)
    return storage


@contextlib.contextmanager
def told_as_os_error(
    place: str, explain: Callable[[Exception], tuple[type[OSError], str]]
) -> Iterator[None]:
    """Inside, what a client library raises becomes the OSError that `explain` makes of it, in one line."""
    try:
        yield
    except HpcbenchError:
        raise
    except Exception as error:  # noqa: BLE001 - a library's errors share no class
        if isinstance(error, OSError) and "\n" not in str(error):
            raise
        kind, text = explain(error)
        line = " ".join(secret.mask(text).split())[:300]
        raise kind(f"{place}: {line or type(error).__name__}") from error


class FileStorage:
    """Folders of this machine, or one file."""

    api: ClassVar[int] = 1
    parallel: ClassVar[int] = 8

    class Options(BaseModel, extra="forbid", frozen=True):
        """It has none."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        pass

    def list(self, url: str) -> Iterable[StoredFile]:
        """Every file below the folder, sorted; hidden ones left out; links to folders are followed."""
        folder = _folder(url)
        if folder.is_file():
            yield _stored(folder.name, folder.stat())
            return
        if not folder.is_dir():
            raise FileNotFoundError(f"no such folder: {folder}")
        yield from sorted(_walk(str(folder), "", frozenset()), key=lambda file: file.path)

    def read(self, url: str, file: StoredFile, start: int, stop: int) -> Iterator[bytes]:
        """Bytes of one file."""
        folder = str(_folder(url))
        try:
            opened = os.open(f"{folder}/{file.path}", os.O_RDONLY | os.O_CLOEXEC)
        except NotADirectoryError:  # it is the file itself
            opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while start < stop and (piece := os.pread(opened, min(PIECE, stop - start), start)):
                start += len(piece)
                yield piece
        finally:
            os.close(opened)

    def put(self, source: Path, url: str, path: str) -> None:
        """Copy one file below the folder; whole or not at all."""
        place = _folder(url) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
        try:
            shutil.copyfile(source, temporary)
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)


def _walk(folder: str, below: str, above: frozenset[tuple[int, int]]) -> Iterator[StoredFile]:
    stat = os.stat(folder)  # noqa: PTH116 - paths as text: a million of them are read here
    here = (stat.st_dev, stat.st_ino)
    if here in above:
        raise OSError(f"{folder} is a link to a folder it lies in")
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                yield from _walk(entry.path, f"{below}{entry.name}/", above | {here})
            else:
                try:
                    yield _stored(below + entry.name, entry.stat())
                except FileNotFoundError as error:
                    raise FileNotFoundError(f"{entry.path} is a link to nothing") from error


def _stored(path: str, stat: os.stat_result) -> StoredFile:
    return StoredFile(path, stat.st_size, f"{stat.st_mtime_ns}-{stat.st_ino}")


def _folder(url: str) -> Path:
    """`file:///FOLDER`, in which `#` and `?` are letters like others, or a path."""
    _, marks, place = url.partition("://")
    return Path("/" + unquote(place.partition("/")[2])) if marks else Path(url)
