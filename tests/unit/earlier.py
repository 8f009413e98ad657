"""Experiments that an earlier version made, unpacked into a home; see `formats/README.md`."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path
from typing import Any

from hpcbench.experiment.layout import Experiment, experiments_dir

WHOLE, SHORT, CUT = (
    "20261126-1054-kept-e7sx",
    "20261126-1055-kept-short-zvh7",
    "20261126-1055-kept-cut-73nt",
)
"""Their ids."""

_ROOT = Path(__file__).parents[2]
_SHARE = "/tmp/oldsite/hpcbench/share"
"""Where data, model and registries lay then."""
_PYTHON = "/tmp/oldvenv/bin/python"
"""The Python that ran it then; its environment is this one after an upgrade."""


def extract(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack an archive of ours; Python 3.11.2, which Debian 12 has, knows no filters yet."""
    filters: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    archive.extractall(folder, **filters)


def unpack(home: Path) -> dict[str, Experiment]:
    """Put them into a home, with paths of data, models and Python of this checkout.

    Returns:
        Id → experiment.
    """
    with tarfile.open(Path(__file__).parent / "formats" / "4f8fdd5.tar.xz") as file:
        extract(file, home)
    found = {name: Experiment(experiments_dir(home) / name) for name in (WHOLE, SHORT, CUT)}
    for one in found.values():
        for path in (one.resolved_file, one.manifest_file):
            text = path.read_text().replace(_SHARE, str(_ROOT)).replace(_PYTHON, sys.executable)
            path.write_text(text)
    return found
