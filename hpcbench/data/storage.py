"""Storage of the shared file system itself, `file:///folder`, and the common code of all storages."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel

from hpcbench import plugins, secret
from hpcbench.errors import HpcbenchError, Problem, UserError, unreached
from hpcbench.files.atomic import replacing
from hpcbench.plugins import Storage, StoredFile

PIECE = 96 << 10
"""Bytes read at a time: a larger buffer is new memory from the kernel at each read, which costs more time."""

CHANGED = "changed while it was read: sync again"


def open_storage(url: str, options: Mapping[str, Any]) -> Storage:
    """The storage of a URL's scheme; a plain path is on this machine.

    Raises:
        UserError: there is no such storage, or it does not know an option, or a secret is not set, or the
            URL is mistyped or contains a secret.
    """
    scheme, marks, _ = url.partition("://")
    if problem := _mistyped(url):
        raise UserError(problem)
    plugin = plugins.load("storage", scheme if marks else "file")
    revealed = plugins.revealed(plugin, options)
    if wrong := plugins.check_options(plugin, revealed):
        raise UserError(*(Problem(f"storage of {url}: {message}") for _, message in wrong))
    storage: Storage = plugin(revealed)
    return storage


@contextlib.contextmanager
def as_os_error(
    place: str, explain: Callable[[BaseException], tuple[type[OSError], str]]
) -> Iterator[None]:
    """Inside, a client library's error becomes the OSError that `explain` returns, in one line."""
    try:
        yield
    except HpcbenchError:
        raise
    except BaseException as error:
        # A library's errors share no class, nor do panics of Rust libraries.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if isinstance(error, OSError) and "\n" not in str(error):
            raise
        kind, text = explain(error)
        line = " ".join(secret.mask(text).split())[:300]
        raise kind(f"{place}: {line or type(error).__name__}") from error


def no_answer(url: str, options: Mapping[str, Any], error: BaseException) -> str | None:
    """A storage's host name and why it did not answer; None: the error has another cause.

    Args:
        url: the requested URL.
        options: of the storage.
        error: raised by the storage's client.
    """
    why = unreached(error)
    if why is None:
        return None
    scheme = url.partition("://")[0]
    usual = {
        "hf": os.environ.get("HF_ENDPOINT") or "https://huggingface.co",
        "s3": "https://s3.amazonaws.com",
    }
    place = str(options.get("endpoint") or usual.get(scheme) or url)
    return f"{urlsplit(place).hostname or place}: {why}"


class FileStorage:
    """Folders of this machine, or one file."""

    api: ClassVar[int] = 1
    parallel: ClassVar[int] = 8

    class Options(BaseModel, extra="forbid", frozen=True):
        """It has none."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        pass

    def list(self, url: str) -> Iterable[StoredFile]:
        """Yield every file below the folder, sorted, without hidden ones; links to folders are followed."""
        folder = _folder(url)
        if folder.is_file():
            yield _stored(folder.name, folder.stat())
            return
        if not folder.is_dir():
            raise FileNotFoundError(f"no such folder: {folder}")
        yield from sorted(_walk(str(folder), "", frozenset()), key=lambda file: file.path)

    def read(self, url: str, file: StoredFile, start: int, stop: int) -> Iterator[bytes]:
        """Yield bytes of one file."""
        folder = str(_folder(url))
        try:
            opened = os.open(f"{folder}/{file.path}", os.O_RDONLY | os.O_CLOEXEC)
        except NotADirectoryError:  # the URL is the file itself
            opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while start < stop and (piece := os.pread(opened, min(PIECE, stop - start), start)):
                if not _is_still(file, os.fstat(opened)):
                    raise OSError(f"{file.path} {CHANGED}")
                start += len(piece)
                yield piece
        finally:
            os.close(opened)

    def put(self, source: Path, url: str, path: str) -> None:
        """Copy one file into the folder; whole or not at all."""
        with replacing(_folder(url) / path) as temporary:
            shutil.copyfile(source, temporary)


def _walk(folder: str, below: str, above: frozenset[tuple[int, int]]) -> Iterator[StoredFile]:
    found = os.stat(folder)  # noqa: PTH116 - paths as text: a million of them are read here
    here = (found.st_dev, found.st_ino)
    if here in above:
        raise OSError(f"{folder} is a link to a folder above it")
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                yield from _walk(entry.path, f"{below}{entry.name}/", above | {here})
            else:
                try:
                    found = entry.stat()
                except FileNotFoundError as error:
                    raise FileNotFoundError(f"{entry.path} is a broken link") from error
                if not stat.S_ISREG(found.st_mode):
                    raise PermissionError(
                        f"{entry.path} is not a file, but a pipe, socket or device"
                    )
                yield _stored(below + entry.name, found)


def _stored(path: str, found: os.stat_result) -> StoredFile:
    return StoredFile(path, found.st_size, f"{found.st_mtime_ns}-{found.st_ino}")


def _is_still(file: StoredFile, found: os.stat_result) -> bool:
    """Whether a file is unchanged since the listing; a FUSE file may have another inode at each open."""
    same = found.st_size == file.size and file.mark.startswith(f"{found.st_mtime_ns}-")
    return same or not file.mark


def _folder(url: str) -> Path:
    """The folder of `file:///FOLDER`, where `#` and `?` are ordinary letters, or of a path."""
    _, marks, place = url.partition("://")
    return Path("/" + unquote(place.partition("/")[2])) if marks else Path(url)


# --- mistakes in URLs ----------------------------------------------------------------------------------

_HOST = re.compile(r"\w[\w.-]*|[0-9a-f:.]+(%[\w.-]+)?")

_SECRET = re.compile(
    r"((^|[-_.])(sig|auth|jwt|sas|session|pwd)|^key|signature|credential|token|secret|passw(or)?d"
    r"|(access|api|auth|secret|subscription)[-_]?key(id)?)$",
    re.IGNORECASE,
)
"""Names in a query whose values are secrets."""


def _mistyped(url: str) -> Problem | None:
    """The problem of a URL of our own storages, worded without possible secrets in it."""
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    shown = re.sub(r"://.*@", "://***@", url).partition("?")[0]
    if scheme == "file":
        if host not in ("", "localhost"):
            what = "the URL of a folder on this machine has three slashes"
            return Problem(what, url, remedy=f"write file:///{rest}")
        return None if path.strip("/") else Problem("names no folder", url)
    if scheme == "s3":
        named = re.fullmatch(r"[A-Za-z0-9._-]+", host)
        return (
            None if named else Problem("names no bucket", shown, remedy="write s3://BUCKET/PREFIX")
        )
    if scheme not in ("http", "https", "sftp"):
        return None
    user, at, _ = host.rpartition("@")
    if at and (":" in user or scheme != "sftp"):
        option = "password" if scheme == "sftp" else "headers: {Authorization: …}"
        return _problem(shown, f"`{option}` of its `storage:`, as ${{env:NAME}}")
    try:
        parts = urlsplit(url)
        sound = parts.port != 0 and _HOST.fullmatch(parts.hostname or "")
    except ValueError:
        sound = None
    if not sound:
        return Problem("names no valid host and port", shown)
    if scheme != "sftp" and parts.query:
        if any(_SECRET.search(name) for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
            return _problem(
                shown, "`headers` of its `storage:`, as ${env:NAME}; or use s3:// or sftp://"
            )
        if parts.path.endswith("/"):
            return Problem(
                "the URL of a folder cannot have a query: leave out `?` and the rest", shown
            )
    return None


def _problem(shown: str, instead: str) -> Problem:
    what = "this URL contains a secret, and hpcbench writes URLs into manifests"
    return Problem(what, shown, remedy=f"give the secret as {instead}")
