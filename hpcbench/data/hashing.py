"""Which bytes were used: one hash for a dataset or a folder of weights.

The hash is SHA-256 over lines `SHA256  RELATIVE/PATH`, sorted by path: what `sha256sum` prints for the
same files, hashed once more. Hashes of single files are cached by path, size, mtime and inode, so
that the gigabytes of a model are read once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from hpcbench.errors import Problem, UserError
from hpcbench.experiment.files import write_atomic


def content_hash(
    folder: Path,
    files: Iterable[Path],
    cache: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> str:
    """`sha256:…` over the content and relative paths of files in a folder.

    Args:
        folder: what the paths are relative to.
        files: the files, in any order; each counts once.
        cache: file that remembers hashes between runs.
        progress: called with the bytes of each file when it is done.

    Raises:
        UserError: a file is missing or unreadable.
    """
    known = _read_cache(cache)
    fresh: dict[str, str] = {}
    lines = []
    for path in sorted(set(files)):
        try:
            stat = path.stat()
            key = f"{path}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ino}"
            digest = known.get(key) or _hash_file(path)
        except OSError as error:
            raise UserError(Problem(f"cannot be read: {error.strerror}", str(path))) from error
        fresh[key] = digest
        lines.append(f"{digest}  {path.relative_to(folder).as_posix()}\n")
        if progress is not None:
            progress(stat.st_size)
    if cache is not None and not fresh.keys() <= known.keys():
        _write_cache(cache, {**known, **fresh})
    return "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()


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


def _hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


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
