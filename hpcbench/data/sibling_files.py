"""Files that belong together by their names: a page and its reference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from hpcbench.data.tree import Tree

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".pdf")
"""Suffixes of pages, in the order of the search."""


class SiblingFiles:
    """Finds files by their names without suffix; `.JPG` counts as `.jpg`. A folder is listed once."""

    def __init__(self, tree: Tree, suffixes: Sequence[str] = SUFFIXES) -> None:
        self._tree, self._suffixes = tree, suffixes
        self._listed: dict[Path, dict[str, Path]] = {}

    def find(self, stem: Path) -> Path | None:
        """The file of this path with one of the suffixes."""
        known = self._names(stem.parent)
        found = (known.get(stem.name + suffix) for suffix in self._suffixes)
        return next(filter(None, found), None)

    def _names(self, folder: Path) -> dict[str, Path]:
        if folder not in self._listed:
            # Of 1.PNG and 1.png, 1.png is taken: capitals sort first, and the last one counts.
            self._listed[folder] = {
                path.stem + path.suffix.lower(): path for path in self._tree.listing(folder)
            }
        return self._listed[folder]


class Finder:
    """Finds pages by their names in tables: with other folders, without suffix, with Windows' backslashes.

    `C:\\scans\\a\\7.PNG`, `a/7` and `7` all find `pages/a/7.png`, if no other page matches alike. The folder
    is listed once, at the first name.
    """

    def __init__(self, tree: Tree, below: str = "") -> None:
        self._tree, self._below = tree, below.strip("/").removeprefix("./")

    def find(self, name: str) -> str | None:
        """Path, inside the tree's folder, of the page of this name; None: none, or several match alike."""
        plain = name.strip().replace("\\", "/")
        exact, by_name = self._known
        if plain in exact:
            return plain
        wanted = [part for part in plain.lower().split("/") if part not in ("", ".")]
        found = by_name.get(wanted[-1], ()) if wanted else ()
        if not found:
            return None
        shared = {path: _shared(path.lower().split("/")[:-1], wanted[:-1]) for path in found}
        best = [path for path in found if shared[path] == max(shared.values())]
        one_place = {path.rpartition(".")[0] for path in best}
        return best[0] if len(one_place) == 1 else None

    @cached_property
    def _known(self) -> tuple[frozenset[str], dict[str, list[str]]]:
        """Paths of pages; and last part of a path, with and without suffix → paths with it."""
        top = self._tree.folder
        files = self._tree.files(top / self._below if self._below not in ("", ".") else None)
        pages = [path for path in files if path.suffix.lower() in SUFFIXES]
        pages.sort(key=lambda path: SUFFIXES.index(path.suffix.lower()))
        by_name: dict[str, list[str]] = defaultdict(list)
        names = [path.relative_to(top).as_posix() for path in pages]
        for path, name in zip(pages, names, strict=True):
            by_name[path.name.lower()].append(name)
            by_name[path.stem.lower()].append(name)
        return frozenset(names), dict(by_name)


def _shared(folders: Sequence[str], wanted: Sequence[str]) -> int:
    """Number of equal folders of two paths, counted from their ends."""
    count = 0
    for one, other in zip(reversed(folders), reversed(wanted), strict=False):
        if one != other:
            break
        count += 1
    return count
