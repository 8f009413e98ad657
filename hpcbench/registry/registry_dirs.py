"""Paths of registries; a light module, for shell completion and for commands that only need a path."""

from __future__ import annotations

import os
from pathlib import Path

import hpcbench


def share_dir() -> Path:
    """Folder of the files shipped beside the code: `registries/`, `examples/`."""
    package = Path(hpcbench.__file__).parent
    installed = package / "share"
    return installed if installed.is_dir() else package.parent


def user_dir() -> Path:
    """The user's own registry, where `hpcbench init` writes the site profile."""
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "hpcbench"


def site_dir() -> Path:
    """The registry that a cluster's administrators keep for all users."""
    return Path(os.environ.get("HPCBENCH_SITE") or "/etc/hpcbench")


def has_default_site() -> bool:
    """Whether a site profile applies without a plan; only then is it worth loading the schemas."""
    folders = (share_dir() / "registries", site_dir(), user_dir())
    return any(any((folder / "sites").glob("default.*")) for folder in folders)
