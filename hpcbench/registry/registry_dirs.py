"""Where registries are; light, for shells that complete names and verbs that only point somewhere."""

from __future__ import annotations

import os
from pathlib import Path

import hpcbench


def share_dir() -> Path:
    """Folder of what ships beside the code: `registries/`, `examples/`."""
    package = Path(hpcbench.__file__).parent
    installed = package / "share"
    return installed if installed.is_dir() else package.parent


def user_dir() -> Path:
    """The user's own registry, where `hpcbench init` writes the site profile."""
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "hpcbench"


def site_dir() -> Path:
    """The registry that a cluster's administrators keep for all."""
    return Path(os.environ.get("HPCBENCH_SITE") or "/etc/hpcbench")
