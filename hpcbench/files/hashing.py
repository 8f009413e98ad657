"""Which bytes were used: SHA-256 of files, and one hash over many files.

The hash over many files is SHA-256 over lines `SHA256  RELATIVE/PATH`, sorted by path: a hash of the lines
that `sha256sum` prints for these files. Hashes of files can be cached by path, size, mtime and inode, so that
the gigabytes of a model are read once. A verification reads every byte.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from hpcbench.errors import REMEDIES, Problem, UserError
from hpcbench.files.atomic import write_atomic


def combined(hashes: Mapping[str, str]) -> str:
    """`sha256:…` over files known by their hashes: path → SHA-256 in hexadecimal digits."""
    paths = sorted(hashes, key=lambda path: path.split("/"))
    text = "".join(f"{hashes[path]}  {path}\n" for path in paths)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def hash_file(path: Path, progress: Callable[[int], None] = lambda count: None) -> str:
    """SHA-256 of a file's bytes, in hexadecimal digits.

    Args:
        path: the file.
        progress: called after each read with the number of bytes read.

    Raises:
        OSError: the file cannot be read.
    """
    digest, buffer = hashlib.sha256(), bytearray(1 << 18)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(view[:count])
            progress(count)
    return digest.hexdigest()


def file_hashes(
    files: Iterable[Path],
    cache: Path | None = None,
    progress: Callable[[int], None] | None = None,
    *,
    read: bool = False,
) -> dict[Path, str]:
    """SHA-256 of each file, in hexadecimal digits.

    Args:
        files: the files.
        cache: file that remembers hashes between runs.
        progress: called with the bytes of each file when it is done.
        read: read every byte, even of cached files.

    Raises:
        UserError: a file is missing or unreadable.
    """
    known = _read_cache(cache)
    fresh: dict[str, str] = {}
    found: dict[Path, str] = {}
    for path in files:
        try:
            stat = path.stat()
            key = _cache_key(path, stat)
            digest = None if read else known.get(key)
            found[path] = fresh[key] = digest or hash_file(path)
        except OSError as error:
            what, remedy = f"cannot be read: {error.strerror}", REMEDIES.get(error.errno or 0)
            raise UserError(Problem(what, str(path), remedy=remedy)) from error
        if progress is not None:
            progress(stat.st_size)
    if cache is not None and not fresh.items() <= known.items():
        _write_cache(cache, {**known, **fresh})
    return found


class FileHashes:
    """SHA-256 of files, one at a time; files that a cache of `file_hashes` knows are not read.

    Args:
        cache: the cache; it is not written.
    """

    def __init__(self, cache: Path) -> None:
        self._known = _read_cache(cache)

    def known(self, path: Path) -> str | None:
        """SHA-256 of a file that the cache knows, in hexadecimal digits; None: it does not know it.

        Raises:
            OSError: the file is gone.
        """
        return self._known.get(_cache_key(path, path.stat()))

    def of(self, path: Path) -> str:
        """SHA-256 of a file's bytes, in hexadecimal digits.

        Raises:
            OSError: the file cannot be read.
        """
        key = _cache_key(path, path.stat())
        if key not in self._known:
            self._known[key] = hash_file(path)
        return self._known[key]


def _cache_key(path: Path, stat: os.stat_result) -> str:
    return f"{path}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ino}"


def _read_cache(cache: Path | None) -> dict[str, str]:
    try:
        text = cache.read_text(encoding="utf-8") if cache is not None else "{}"
        known = json.loads(text)
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _write_cache(cache: Path, known: dict[str, str]) -> None:
    """Write the cache. A full disk is no error: a lost cache only costs time."""
    try:
        write_atomic(cache, json.dumps(known, indent=0))
    except OSError:
        return
