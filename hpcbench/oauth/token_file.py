"""A credential's token in a file of the user, for all processes on all nodes, and the lease to ask for one.

The file is below `$XDG_STATE_HOME/hpcbench/auth`, on the home that all nodes share, mode 0600 in a folder of
mode 0700. A process on the boot that wrote it reads the token's age from the clock of that boot. Any other
process compares the file's time with that of a new file beside it: the clocks of two nodes may differ by
hours, but both times come from one file server.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from hpcbench import secret
from hpcbench.errors import EnvironmentFault
from hpcbench.files.atomic import age, write_private
from hpcbench.files.lease import alone, boot_id
from hpcbench.files.private import own_folder, read_secret, state_folder
from hpcbench.oauth.lifecycle import Token

SILENCE_SECONDS = 60.0
"""A holder of the lease without a sign of life for so long is dead."""


@dataclass(frozen=True, slots=True)
class Record:
    """Contents of the file."""

    server: str
    """The token server, as the user named it."""
    client: str
    grant: str
    access: str
    """The access token; empty: there is none."""
    lifetime: float
    """Seconds from the moment its request was sent."""
    boot: str
    """The boot whose clock `since` and `written` are of."""
    since: float
    """When its request was sent."""
    written: float
    """When this record was written."""
    refresh: str | None = None
    """The refresh token for the next request."""
    sent: bool = False
    """Whether `refresh` went out and no answer was recorded: a token that rotates is not sent again."""
    rotates: bool | None = None
    """Whether the server replaces a refresh token at each use; None: not known yet."""
    seed: str | None = None
    """SHA-256 of the configured refresh token that this chain began with."""
    proof: str | None = None
    """Made of the secrets by which the token was got; None: they are not known."""


_RECORD = TypeAdapter(Record)
"""Reads a record; keys of later versions are left out."""


class Store:
    """The file of one credential.

    Args:
        key: the credential's name, without secrets.
        folder: where the file is; default: the user's state.

    Raises:
        EnvironmentFault: the folder cannot be made, or others have access to it.
    """

    def __init__(self, key: str, folder: Path | None = None) -> None:
        place = folder or state_folder("auth")
        try:
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise EnvironmentFault(
                f"{place.parent}: {(error.strerror or str(error)).lower()}",
                remedy="set XDG_STATE_HOME to a folder of yours that all nodes see",
            ) from error
        own_folder(place, f"only you may have access: `chmod 700 {place}`, or remove it")
        self.path = place / f"{key}.json"
        self._lock = place / f"{key}.lock"

    def read(self) -> Record | None:
        """The record; None: there is no file, or it is damaged.

        Raises:
            EnvironmentFault: other users can read the file.
        """
        text = read_secret(self.path)
        if text is None:
            return None
        try:
            found = _RECORD.validate_json(text, strict=True)
            Token(found.access, found.since, found.lifetime)
        except ValueError:
            return None
        if not (math.isfinite(found.since) and math.isfinite(found.written)):
            return None
        for one in (found.access, found.refresh):
            secret.remember(one or "")
        return found

    def damaged(self) -> bool:
        """Whether there is a file that cannot be read as a record."""
        return self.path.exists() and self.read() is None

    def write(self, record: Record) -> None:
        """Replace the record; it is on the disk when this returns."""
        write_private(self.path, json.dumps(asdict(record)))

    def forget(self) -> bool:
        """Remove the file; returns whether there was one."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

    @contextlib.contextmanager
    def lease(self) -> Iterator[bool]:
        """Yield whether this process alone may ask for a token while inside."""
        with alone(self._lock, silence=SILENCE_SECONDS) as mine:
            yield mine

    def token(self, record: Record) -> Token | None:
        """A record's access token by this boot's clock; None: there is none, or its age cannot be known."""
        if not record.access:
            return None
        if record.boot == this_boot():
            return Token(record.access, record.since, record.lifetime)
        try:
            old = (record.written - record.since) + age(self.path)
        except OSError:
            return None
        if old < 0 or record.written < record.since:
            return None
        return Token(record.access, now() - old, record.lifetime)


def stores() -> list[Store]:
    """All files of the user's state.

    Raises:
        EnvironmentFault: others have access to their folder.
    """
    place = state_folder("auth")
    found = sorted(place.glob("*.json")) if place.is_dir() else []
    return [Store(path.stem, place) for path in found]


def now() -> float:
    """Seconds of a clock that never steps, the same in all processes of a boot; it goes on in suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def this_boot() -> str:
    """Names the boot whose clock `now` is."""
    try:
        return boot_id()
    except OSError:
        return ""
