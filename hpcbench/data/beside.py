"""Files that belong together by their names: a page and what is written of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hpcbench.data.tree import Tree

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".pdf")
"""What a page may be, in the order in which they are tried."""


class Beside:
    """Finds files by their names without suffix; `.JPG` is as good as `.jpg`. A folder is listed once."""

    def __init__(self, tree: Tree, suffixes: Sequence[str] = SUFFIXES) -> None:
        self._tree, self._suffixes = tree, suffixes
        self._listed: dict[Path, dict[str, Path]] = {}

    def find(self, stem: Path) -> Path | None:
        """The file of this path and one of the suffixes."""
        known = self._names(stem.parent)
        found = (known.get(stem.name + suffix) for suffix in self._suffixes)
        return next(filter(None, found), None)

    def _names(self, folder: Path) -> dict[str, Path]:
        if folder not in self._listed:
            # Of 1.PNG and 1.png the second is taken: capitals come first in a listing.
            self._listed[folder] = {
                path.stem + path.suffix.lower(): path for path in self._tree.listing(folder)
            }
        return self._listed[folder]
