"""Models that `hpcbench serve` serves for this user, as the user's other programs find them.

`HOME/serving/ID.json` says where a model is served and `HOME/serving/ID.key` holds its key; only the user can
read them, and both go when it ends. A file that is older than `GONE_SECONDS` remains from a `serve`
that was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from hpcbench.files.atomic import read_json, write_private

BEAT_SECONDS = 15.0
"""Seconds between two touches of the file."""

GONE_SECONDS = 90.0
"""Age of a file from which its model counts as gone; a network file system shows a touch late."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that is being served."""

    id: str
    """Identifies it among the user's."""
    model: str
    """Name of its definition."""
    engine: str
    """Its engine."""
    host: str
    """Host where it is served."""
    socket: str
    """Path of its Unix socket, for programs on this host."""
    address: str
    """`http://HOST:PORT`, for programs elsewhere; empty: it has no port."""
    started: float
    """When it was ready, seconds since the epoch."""
    ends: float | None = None
    """When its time limit ends it, seconds since the epoch; None: it has none."""

    @property
    def is_here(self) -> bool:
        """Whether it is served on this host."""
        return self.host == socket.gethostname()


class Announcement:
    """Files of a served model, from its start to its end.

    Args:
        home: folder of experiments and caches.
        key: what its requests have to show.
        identity: by what it is known among the user's; None: a new one.
    """

    def __init__(self, home: Path, key: str, identity: str | None = None) -> None:
        self._folder, self._key = home / "serving", key
        self._id = identity or secrets.token_hex(6)
        self._beat = 0.0

    @property
    def key_file(self) -> Path:
        """File with its key."""
        return self._folder / f"{self._id}.key"

    def made(self, ends: float | None = None, **fields: str) -> None:
        """Announce that the model is ready.

        Args:
            ends: when its time limit ends it, seconds since the epoch.
            fields: `model`, `engine`, `socket` and `address` of a `ServedModel`.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        served = ServedModel(
            id=self._id, host=socket.gethostname(), started=time.time(), ends=ends, **fields
        )
        write_private(self.key_file, self._key)
        write_private(self._file, json.dumps(asdict(served)))
        self._beat = time.monotonic()

    def beat(self) -> None:
        """Say, now and then, that it is still there."""
        if self._beat and time.monotonic() - self._beat > BEAT_SECONDS:
            self._beat = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(self._file)

    def end(self) -> None:
        """Remove its files."""
        for path in (self._file, self.key_file):
            path.unlink(missing_ok=True)

    @property
    def _file(self) -> Path:
        return self._folder / f"{self._id}.json"


def served_models(home: Path) -> list[ServedModel]:
    """All models that this user serves now, the newest first."""
    return sorted(_found(home / "serving"), key=lambda one: -one.started)


def key_of(home: Path, served: ServedModel) -> str:
    """The key of a served model.

    Raises:
        OSError: it has ended.
    """
    return (home / "serving" / f"{served.id}.key").read_text().strip()


def forget(home: Path, identity: str) -> None:
    """Remove the files of a served model, which another process is ending."""
    for name in (f"{identity}.json", f"{identity}.key"):
        (home / "serving" / name).unlink(missing_ok=True)


def _found(folder: Path) -> Iterator[ServedModel]:
    for path in folder.glob("*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            if time.time() - path.stat().st_mtime < GONE_SECONDS:
                yield ServedModel(**read_json(path))
