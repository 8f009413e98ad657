"""Removing folders that other programs filled."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def remove_tree(folder: Path) -> None:
    """Remove a folder with all in it, however deep; what may not be removed stays, and nothing is raised."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:  # Python before 3.13 goes down by calls; `rm` goes down by descriptors
        subprocess.run(["rm", "-rf", "--", folder], stderr=subprocess.DEVNULL, check=False)
