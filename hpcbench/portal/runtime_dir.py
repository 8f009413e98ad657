"""Folders of the portal's socket, token and records, which no other user can access."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.errors import EnvironmentFault
from hpcbench.files.atomic import write_private
from hpcbench.files.flock import locked
from hpcbench.files.private import folder_fault, own_folder, read_secret, state_folder

LONGEST_SOCKET = 107
"""Most bytes of a socket's path on Linux."""


@dataclass(frozen=True, slots=True)
class RuntimeDir:
    """The folder of a running portal on this host; a user has one portal on a host."""

    folder: Path
    """The folder, with mode 0700 and our account as its owner."""

    @property
    def socket(self) -> Path:
        """The socket on which it serves."""
        return self.folder / "portal.sock"

    @property
    def token(self) -> Path:
        """The token that the command line sends."""
        return self.folder / "portal.token"

    @property
    def state(self) -> Path:
        """The file that says how to reach it."""
        return self.folder / "portal.json"

    @property
    def lock(self) -> Path:
        """The lock that it holds while it runs."""
        return self.folder / "portal.lock"


def find() -> RuntimeDir:
    """The folder of this user on this host, created if missing.

    Raises:
        EnvironmentFault: another user owns it, or other users can access it.
    """
    user = os.geteuid()
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    # The environment names it even after its removal: after logout, or after `su`.
    if runtime and folder_fault(Path(runtime)) is None:
        folder = Path(runtime) / "hpcbench"
    else:
        folder = Path(f"/tmp/hpcbench-{user}")
    place = RuntimeDir(own_folder(folder))
    if len(os.fsencode(place.socket)) > LONGEST_SOCKET:
        raise EnvironmentFault(
            f"{place.socket}: the path is too long for a socket",
            remedy="set XDG_RUNTIME_DIR to a folder of yours with a short path, mode 0700",
        )
    return place


def refused() -> str | None:
    """Reason why the session's own runtime folder is not used; None: it is used, or there is none."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    fault = folder_fault(Path(runtime)) if runtime and Path(runtime).exists() else None
    return f"XDG_RUNTIME_DIR {runtime} {fault}" if fault else None


def records() -> Path:
    """The user's own folder for files that outlive a portal: tokens, notes, logs; created if missing.

    Raises:
        EnvironmentFault: other users can access it.
    """
    folder = state_folder("portal")
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return own_folder(folder)


def write_state(place: RuntimeDir, state: Mapping[str, Any]) -> None:
    """Write down how to reach the portal that runs here; no secrets."""
    write_private(place.state, json.dumps(state, indent=2, sort_keys=True) + "\n")


def read_state(place: RuntimeDir) -> dict[str, Any] | None:
    """How to reach the portal that runs here; None: no portal runs."""
    if not running(place):
        return None
    try:
        found = json.loads(read_secret(place.state) or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def running(place: RuntimeDir) -> bool:
    """Whether a portal holds the lock."""
    try:
        with locked(place.lock) as free:
            return not free
    except FileNotFoundError:
        return False
