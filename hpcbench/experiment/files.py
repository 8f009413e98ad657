"""Writing that survives a kill at any moment, and reading what a kill left behind.

Small files are replaced as a whole (`write_atomic`), logs grow line by line with one writer each
(`Appender`). Nothing here needs locks or rename-over semantics beyond POSIX, so NFS and Lustre will do.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace a file as a whole: readers see the old content or the new one, never a part."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        os.replace(temporary, path)  # noqa: PTH105 - Path.replace is the same call with less said
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def write_json(path: Path, data: Any) -> None:
    """`write_atomic` of JSON that is the same for the same data: sorted keys, two spaces."""
    text = json.dumps(data, ensure_ascii=False, indent=2, sort_keys=True, allow_nan=False)
    write_atomic(path, text + "\n")


def read_json(path: Path) -> Any:
    """Read what `write_json` wrote."""
    return json.loads(path.read_text(encoding="utf-8"))


def create_exclusive(path: Path, first_line: Mapping[str, Any]) -> bool:
    """Create a JSONL file with its first line, or find that somebody else did.

    The line is written to a private file first and then linked: `link` is atomic and exclusive on every
    POSIX file system (O_EXCL is not on old NFS), and nobody ever sees the file without its line.

    Returns:
        Whether this call created it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_line(first_line))
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        try:
            os.link(temporary, path)
        except FileExistsError:
            # NFS may send a LINK twice and report the second: two names mean that it was ours.
            if Path(temporary).stat().st_nlink < 2:
                return False
    finally:
        Path(temporary).unlink(missing_ok=True)
    _sync_folder(path.parent)
    return True


class Appender:
    """Appends JSON lines to a file that has no other writer.

    A line is *acknowledged* once `sync` returned after it. A torn last line, left by a kill, is cut on
    opening. Use as a context manager.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._cut_torn_line()
        self._good = os.lseek(self._descriptor, 0, os.SEEK_END)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one line; visible to readers at once, safe from power loss after `sync`.

        Raises:
            OSError: the disk is full or gone; what a half-written line left is cut off.
        """
        data = _line(record)
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            os.ftruncate(self._descriptor, self._good)
            raise
        self._good += len(data)

    def sync(self) -> None:
        """Force everything written to the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Sync and close."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def __enter__(self) -> Appender:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole JSON line of a file; a torn last line and a missing file are no error."""
    try:
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    return
                yield json.loads(line)
    except FileNotFoundError:
        return


def _line(record: Mapping[str, Any]) -> bytes:
    """One line of JSON. Half a surrogate pair, which engines do send, stays the escape JSON knows for it."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _sync_folder(folder: Path) -> None:
    """Make a new name in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
