"""Which bytes were used: one hash for a dataset or a folder of weights.

The hash is SHA-256 over lines `SHA256  RELATIVE/PATH`, sorted by path: what `sha256sum` prints for the
same files, hashed once more. Files that were synced are not read again: their manifest knows them. Hashes of
others are cached by path, size, mtime and inode, so that the gigabytes of a model are read once. Whoever
verifies asks for every byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from hpcbench.data.tree import Tree, combined, hash_file
from hpcbench.errors import REMEDIES, Problem, UserError
from hpcbench.files.atomic import write_atomic


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
        folder: what the paths are relative to.
        files: the files, in any order; each counts once.
        cache: file that remembers hashes between runs.
        progress: called with the bytes of each file when it is done.
        read: read every byte, whatever manifest and cache know.
        gone: whether a file may be missing; then the hash says that it is.

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


def file_hashes(
    files: Iterable[Path],
    cache: Path | None = None,
    progress: Callable[[int], None] | None = None,
    *,
    read: bool = False,
) -> dict[Path, str]:
    """SHA-256 of each file, in hexadecimal digits; arguments and errors as of `content_hash`."""
    known = _read_cache(cache)
    fresh: dict[str, str] = {}
    found: dict[Path, str] = {}
    for path in files:
        try:
            stat = path.stat()
            key = f"{path}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ino}"
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


def folder_files(folder: Path) -> list[Path]:
    """All files of a folder but hidden ones, e.g. those of a model.

    Raises:
        UserError: it is no folder, or it is empty.
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


def _read_cache(cache: Path | None) -> dict[str, str]:
    try:
        text = cache.read_text(encoding="utf-8") if cache is not None else "{}"
        known = json.loads(text)
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _write_cache(cache: Path, known: dict[str, str]) -> None:
    """Losing the cache costs time, nothing else: a full disk here is no error."""
    try:
        write_atomic(cache, json.dumps(known, indent=0))
    except OSError:
        return
