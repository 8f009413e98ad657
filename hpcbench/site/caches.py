"""The caches of a home, and of the tools that hpcbench calls: how large they are, and what uses them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcbench.data.hub import hub_path
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.outcome import ended
from hpcbench.files.atomic import unless_stale
from hpcbench.site.gc import DiskUsage, folder_usage

REMOVABLE = "rm -r, while no experiment runs"
"""Caches that can be removed as a whole: the next submit makes them again."""

_KNOWN = {
    "images": ("images as SIF files", "hpcbench images prune --older 60"),
    "datasets": ("fetched datasets", "hpcbench data prune --older 60"),
    "models": ("fetched weights", "hpcbench models prune --older 60"),
    "pages": ("rendered pages of PDFs", REMOVABLE),
    "packages": ("Python packages beside images", REMOVABLE),
    "plugins": ("packages of plans, for hpcbench's own Python", REMOVABLE),
    "wheels": ("packages of plans, built", REMOVABLE),
    "wheelhouse": ("wheels from `images restore`", "rm -r; without internet, restore them again"),
    "environments": ("copies by --snapshot-env", "hpcbench gc, once no experiment needs them"),
    "checked": ("results of checks of datasets", REMOVABLE),
    "runpod": ("records of rented machines", "nothing: hpcbench ends machines by them"),
    "skypilot": ("records of rented machines", "nothing: hpcbench ends machines by them"),
    "uv": ("downloads of uv", REMOVABLE),
    "pip": ("downloads of pip", REMOVABLE),
    "apptainer": ("layers of images", REMOVABLE),
    "tmp": ("builds of images", "hpcbench images prune"),
}
"""Folder of `HOME/cache` → its content, and what empties it."""


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """One cache."""

    path: Path
    """Its folder."""
    what: str
    """Its content, in words."""
    room: DiskUsage
    """Its size."""
    needed: int | None
    """Entries that experiments without an end name; None: hpcbench does not know it."""
    emptied: str
    """The command that frees it, or how it is freed."""


def caches(root: Path, experiments: Iterable[Experiment]) -> Iterator[CacheUsage]:
    """Every cache that exists, those of a home first, the largest first.

    Args:
        root: the home.
        experiments: all experiments of the home.
    """
    named = _named(root, experiments)
    own = [path for path in _folders(root / "cache")]
    sized = sorted(((path, folder_usage(path)) for path in own), key=lambda one: -one[1].bytes)
    for path, size in sized:
        what, emptied = _KNOWN.get(path.name, ("", ""))
        yield CacheUsage(path, what, size, named.get(path.name, 0) if what else None, emptied)
    others = {
        "Hugging Face's own cache: `hf://` of other programs": hub_path(
            "HF_HUB_CACHE", "hub"
        ).parent,
        "PyTorch's own cache": Path(os.environ.get("TORCH_HOME") or "~/.cache/torch").expanduser(),
    }
    for what, path in others.items():
        if path.is_dir():
            yield CacheUsage(
                path, what, folder_usage(path), None, "not hpcbench's; `hf cache` or rm -r"
            )


def _named(root: Path, experiments: Iterable[Experiment]) -> dict[str, int]:
    """Folder of the cache → entries of it that open experiments name."""
    found: set[tuple[str, str]] = set()
    pattern = re.compile(re.escape(f"{root / 'cache'}/") + r"([a-z]+)/([^/\"\\]+)")
    for experiment in experiments:
        if not ended(experiment):
            for file in (experiment.manifest_file, experiment.resolved_file):
                text = unless_stale(file.read_bytes).decode(errors="replace")
                found.update(match.groups() for match in pattern.finditer(text))  # type: ignore[misc]
    return {kind: sum(one == kind for one, _ in found) for kind in {kind for kind, _ in found}}


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []
