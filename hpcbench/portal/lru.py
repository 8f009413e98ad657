"""What was made of files, kept as long as these files stay as they are and there is room."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Generic, TypeVar

ValueT = TypeVar("ValueT")

Stamp = tuple[int, int, int] | None
"""What tells one content of a file from another; None: it is not there."""


def stamp_of(path: Path) -> Stamp:
    """Inode, size and time of change of a file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


class Kept(Generic[ValueT]):
    """Values by key, each with the stamp of what it was made of; what was not used for longest goes first.

    Of several threads that want the same value one makes it, and the others wait for it.

    Args:
        most: how much is kept, in the unit of `cost`.
        cost: how much a value takes; None: each takes 1.
    """

    def __init__(self, most: int, cost: Callable[[ValueT], int] | None = None) -> None:
        self._most, self._cost = most, cost or (lambda value: 1)
        self._values: OrderedDict[Hashable, tuple[Hashable, ValueT, int]] = OrderedDict()
        self._taken = 0
        self._lock = threading.Lock()
        self._making: dict[Hashable, threading.Lock] = {}

    def of(self, key: Hashable, stamp: Hashable, make: Callable[[], ValueT]) -> ValueT:
        """The value of a key, made anew where the stamp is another one.

        Raises:
            Exception: what `make` raises; nothing is kept then.
        """
        with self._lock:
            if (found := self._find(key, stamp)) is not None:
                return found[0]
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if (found := self._find(key, stamp)) is not None:
                    return found[0]
            try:
                value = make()
                self._keep(key, stamp, value)
            finally:
                with self._lock:
                    self._making.pop(key, None)
        return value

    def weigh(self, key: Hashable) -> None:
        """Find anew what a value takes that has grown since it was made."""
        with self._lock:
            if (held := self._values.get(key)) is not None:
                stamp, value, before = held
                cost = self._cost(value)
                self._values[key] = stamp, value, cost
                self._taken += cost - before
                self._make_room()

    def held(self, key: Hashable, stamp: Hashable) -> tuple[ValueT] | None:
        """The value of a key if it is there with this stamp, alone in a tuple; None: it is not."""
        with self._lock:
            return self._find(key, stamp)

    def _find(self, key: Hashable, stamp: Hashable) -> tuple[ValueT] | None:
        held = self._values.get(key)
        if held is None or held[0] != stamp:
            return None
        self._values.move_to_end(key)
        return (held[1],)

    def _keep(self, key: Hashable, stamp: Hashable, value: ValueT) -> None:
        cost = self._cost(value)
        with self._lock:
            old = self._values.pop(key, None)
            self._taken -= old[2] if old else 0
            self._values[key] = (stamp, value, cost)
            self._taken += cost
            self._make_room()

    def _make_room(self) -> None:
        while self._taken > self._most and len(self._values) > 1:
            _, (_, _, freed) = self._values.popitem(last=False)
            self._taken -= freed
