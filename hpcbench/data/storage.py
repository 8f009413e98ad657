"""Storage of the shared file system itself: `file:///folder`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit


class FileStorage:
    """Folders of this machine by URL."""

    api: ClassVar[int] = 1

    def list(self, url: str) -> Iterable[tuple[str, int]]:
        """Every file below the folder with its size in bytes, sorted; hidden ones left out."""
        folder = _folder(url)
        for path in sorted(folder.rglob("*")):
            relative = path.relative_to(folder)
            if path.is_file() and not any(part.startswith(".") for part in relative.parts):
                yield relative.as_posix(), path.stat().st_size

    def fetch(self, url: str, path: str, target: Path) -> None:
        """Copy one file to `target`."""
        shutil.copyfile(_folder(url) / path, target)

    def put(self, source: Path, url: str, path: str) -> None:
        """Copy one file below the folder; whole or not at all."""
        place = _folder(url) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
        shutil.copyfile(source, temporary)
        temporary.replace(place)


def _folder(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))
