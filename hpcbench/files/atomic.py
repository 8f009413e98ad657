"""Writing that survives a kill at any moment, and reading what a kill left behind.

Small files are replaced as a whole (`write_atomic`), logs grow line by line with one writer each
(`Appender`). This module needs neither locks nor rename semantics beyond POSIX, so NFS and Lustre will do.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from hpcbench.errors import OTHER_FORM

LEFT_OVER = re.compile(r"\..+\.[0-9a-f]{8}")
"""Names of files that are not whole yet; a writer that was killed leaves one behind."""

GONE = (errno.ENOENT, errno.ESTALE)
"""Errors for a file that another node has removed. NFS gives ESTALE where this node knew the file."""

WRITES_FAILED = (errno.ENOSPC, errno.EDQUOT)
"""Errors that a network file system gives even to readers of a file: their node delayed another process's
writes, and the server had no space for them."""

LOOK_SECONDS = 15.0
"""How long a look at a file is repeated. A mount may remember the file that a name meant for seconds, and not
ask the server even after ESTALE (GlusterFS opens a file when it is first read)."""

Tell = Callable[[Path, int], None]
"""Receives each damaged line: its file and its number, from 1."""

SHORT = 512
"""Bytes of a line up to which json parses it, in a microsecond more than pydantic_core. For longer lines this
takes less than half the time, but 0.04 s to load."""

_log = logging.getLogger(__name__)
_logged: set[Path] = set()
_decode = json.JSONDecoder().raw_decode
_T = TypeVar("_T")


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace a file as a whole: readers see the old content or the new one, never a part."""
    data = content.encode() if isinstance(content, str) else content
    descriptor, temporary = open_beside(path)
    try:
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        _take_name(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_private(path: Path | str, text: str, *, folder: int | None = None) -> None:
    """Replace a file as a whole that at no time another user can read; a link of its name goes.

    Args:
        path: The file; its folder exists.
        text: The new content.
        folder: Descriptor of an open folder, for a `path` that is relative to it.
    """
    parent, name = os.path.split(path)
    temporary = os.path.join(parent, f".{name}.{os.urandom(4).hex()}")  # noqa: PTH118 - Path knows no dir_fd
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        try:
            os.fchmod(descriptor, 0o600)  # whatever the umask
            write_all(descriptor, text.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path, src_dir_fd=folder, dst_dir_fd=folder)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)  # noqa: PTH108
        raise
    if folder is None:
        sync_folder(Path(parent))
    else:
        os.fsync(folder)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a name to write a file's replacement under: `write_atomic` for writers that take a path.

    When the block ends normally, the new file is forced to the disk and takes the old one's name. After an
    error or a kill the old file stays as it is.
    """
    descriptor, temporary = open_beside(path)
    os.close(descriptor)
    try:
        yield temporary
        descriptor = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        _take_name(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _take_name(temporary: Path, path: Path) -> None:
    """Replace the file `path` by a whole file. A device or pipe stays and receives the bytes."""
    if _is_stream(path):
        with path.open("wb") as stream, temporary.open("rb") as whole:
            while block := whole.read(1 << 20):
                stream.write(block)
        temporary.unlink()
        return
    os.replace(temporary, path)  # noqa: PTH105 - Path.replace is the same call with less said
    sync_folder(path.parent)


def _is_stream(path: Path) -> bool:
    """Whether the system uses the name for a device or a pipe: /dev/null, /dev/stdout, the path of a `>()`.

    No file may take such a name: root can rename one over /dev/null, and the machine then has no /dev/null.
    """
    name = os.path.abspath(path)  # noqa: PTH100 - of the name alone: /dev/stdout may lead to the user's file
    return name.startswith(("/dev/", "/proc/")) and not name.startswith("/dev/shm/")


def write_json(path: Path, data: Any) -> None:
    """Write JSON by `write_atomic`; the same data give the same bytes: sorted keys, two spaces."""
    text = json.dumps(data, ensure_ascii=False, indent=2, sort_keys=True, allow_nan=False)
    write_atomic(path, text + "\n")


def read_json(path: Path) -> Any:
    """Read a file of `write_json`."""
    return json.loads(unless_stale(path.read_bytes))


def derived(path: Path, form: Callable[[Any], _T]) -> _T | None:
    """The data of a file of `write_json` that can be made again, as `form` reads them.

    None: the file is missing, unreadable or damaged, or has another form.
    """
    try:
        return form(read_json(path))
    except (OSError, *OTHER_FORM):
        return None


def unless_stale(look: Callable[[], _T]) -> _T:
    """Look at a file by its name, again for up to LOOK_SECONDS if an error may pass: see `ReadRetries`."""
    retries = ReadRetries()
    while True:
        try:
            return look()
        except OSError as error:
            if not retries.again(error):
                raise


class ReadRetries:
    """Repeated reads of a file that other nodes replace or write to.

    A node remembers for a while which file a name means: ESTALE says that this file was removed. A look is
    also repeated where other processes' writes to the file found no space: a look needs no space.
    """

    def __init__(self) -> None:
        self._until: float | None = None
        self._pause = 0.0

    def again(self, error: OSError) -> bool:
        """Whether another look may succeed; pauses before it, longer each time.

        It does not raise the error: the raising frame and the error would hold references to each other.
        """
        if error.errno != errno.ESTALE and error.errno not in WRITES_FAILED:
            return False
        self._until = self._until or time.monotonic() + LOOK_SECONDS
        if time.monotonic() > self._until:
            return False
        time.sleep(self._pause)  # the first look again needs no pause over NFS
        self._pause = min(0.5, 2 * self._pause + 0.005)
        return True


@contextlib.contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Give errors of reading a descriptor its file's name, which they lack."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or os.fspath(path)
        raise


def create_exclusive(path: Path, first_line: Mapping[str, Any]) -> bool:
    """Create a JSONL file with its first line, or find that another process did; see `create_whole`."""
    return create_whole(path, line_of(first_line))


def create_whole(path: Path, content: bytes) -> bool:
    """Create a file with its content. An existing file of that name stays as it is.

    The content is written to a private file first and then linked: `link` is atomic and exclusive on every
    POSIX file system (O_EXCL is not on old NFS), and no process ever sees the file without its content.

    Returns:
        Whether this call created it.
    """
    descriptor, temporary = open_beside(path)
    try:
        try:
            write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if not link_exclusive(temporary, path):
            return False
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def open_beside(path: Path) -> tuple[int, Path]:
    """Create a private file in the folder of `path`, and the folder if need be; return descriptor and name.

    An error names `path`: users know no other name. For a device or pipe the file is in the folder for
    temporary files: no process should write files to /dev.
    """
    if _is_stream(path):
        import tempfile

        path = Path(tempfile.gettempdir(), path.name)
    flags, made = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, False
    while True:
        temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
        try:
            return os.open(temporary, flags, 0o666), temporary
        except FileNotFoundError:
            if made:  # the folder exists and accepts no files (/proc)
                raise
            path.parent.mkdir(parents=True, exist_ok=True)
            made = True
        except FileExistsError:
            continue
        except OSError as error:
            error.filename = os.fspath(path)
            raise


def age(path: Path) -> float:
    """Seconds since a file was written, by the clock of its file system: that of this machine may be wrong.

    A new file beside it shows what that clock says now. The age is negative where two nodes write by clocks
    of their own, and those differ.

    Raises:
        OSError: there is no such file, or none can be made beside it.
    """
    descriptor, beside = open_beside(path)
    try:
        os.close(descriptor)
        return (beside.stat().st_mtime_ns - path.stat().st_mtime_ns) / 1e9
    finally:
        beside.unlink(missing_ok=True)


def link_exclusive(temporary: Path, path: Path) -> bool:
    """Give a whole file its second name; False if a file of that name exists."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        # NFS may send a LINK twice and report the second: two names mean that our LINK succeeded.
        return temporary.stat().st_nlink > 1
    return True


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte.

    Raises:
        OSError: the disk is full or gone; a part of the data may be written.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class Appender:
    """Appends JSON lines to a file that has no other writer.

    A line is *acknowledged* once `sync` returned after it. A torn last line, left by a kill, is cut on
    opening. Use as a context manager.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written = False
        """Whether anything was written since the last sync."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            self._descriptor = os.open(path, flags, 0o666)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, flags, 0o666)
        self._cut_torn_line()
        self._good = os.lseek(self._descriptor, 0, os.SEEK_END)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one line; visible to readers at once, safe from power loss after `sync`.

        Raises:
            OSError: the disk is full or gone; a half-written line is cut off.
        """
        data = line_of(record)
        self._written = True
        try:
            write_all(self._descriptor, data)
        except OSError:
            os.ftruncate(self._descriptor, self._good)
            raise
        self._good += len(data)

    def sync(self) -> None:
        """Force all written lines to the disk."""
        os.fsync(self._descriptor)
        self._written = False

    def lines(self) -> int:
        """How many lines the file has; reads the file."""
        count = at = 0
        while block := os.pread(self._descriptor, 1 << 20, at):
            count, at = count + block.count(b"\n"), at + len(block)
        return count

    def linked(self) -> bool:
        """Whether the file still has its name: no process removed it."""
        return os.fstat(self._descriptor).st_nlink > 0

    def close(self) -> None:
        """Sync unsynced lines, and close."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            try:
                if self._written:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def __enter__(self) -> Appender:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _cut_torn_line(self) -> None:
        size = os.lseek(self._descriptor, 0, os.SEEK_END)
        end = size
        while end > 0:
            start = max(0, end - 65536)
            block = os.pread(self._descriptor, end - start, start)
            newline = block.rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            os.ftruncate(self._descriptor, end)


def read_lines(path: Path, tell: Tell | None = None) -> Iterator[dict[str, Any]]:
    """Yield every whole JSON line of a file; a torn last line and a missing file are no error.

    A line that a power cut or a broken disk has damaged is left out; it is no error either.

    Args:
        path: the file.
        tell: receives damaged lines; None: they are logged, once for each file.
    """
    yield from parse_lines(_lines_of(path), path, tell)


def _lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file. If another node replaces the file meanwhile, continue in the new file."""
    at, retries = 0, ReadRetries()
    while True:
        try:
            with naming(path), path.open("rb") as file:
                file.seek(at)
                for line in file:
                    at += len(line)
                    yield line
                return
        except OSError as error:
            # The reader has left, and closing reports another process's failed write.
            if isinstance(error.__context__, GeneratorExit):
                return
            if error.errno == errno.ENOENT:
                return
            if not retries.again(error):
                if error.errno == errno.ESTALE:  # removed, and this node still remembers its name
                    return
                raise


def parse_lines(
    lines: Iterable[bytes], path: Path, tell: Tell | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the records of lines, as `read_lines` does; `tell` gets `path` as the file of damaged lines."""
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            return
        record = parse_line(line)
        if record is not None:
            yield record
        else:
            (tell or _log_line)(path, number)


def parse_line(line: bytes) -> dict[str, Any] | None:
    """The record of a line; None if it is damaged."""
    if len(line) > SHORT:
        from pydantic_core import from_json

        try:
            found = from_json(line)
        except ValueError:
            pass  # json accepts half a surrogate pair and any depth
        else:
            return found if isinstance(found, dict) else None
    try:
        # Decoded here: json would read bytes that begin with NULs as UTF-16.
        text = line.decode().strip()
        found, end = _decode(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and end == len(text) else None


def _log_line(path: Path, number: int) -> None:
    log_damage(path, f"{path}: line {number} is damaged and left out; there may be more")


def log_damage(path: Path, what: str) -> None:
    """Log that a file is damaged, once a process; `what` names it."""
    if path not in _logged:
        _logged.add(path)
        _log.warning("%s", what)


def sync_folder(folder: Path) -> None:
    """Make added and removed names of a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def line_of(record: Mapping[str, Any]) -> bytes:
    """One line of JSON. Half a surrogate pair, which engines do send, is written as its JSON escape."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"
