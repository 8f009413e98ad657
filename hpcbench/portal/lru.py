"""Values computed from files, kept while these files are unchanged and memory permits."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Generic, TypeVar

ValueT = TypeVar("ValueT")

Stamp = tuple[int, int, int] | None
"""Identifies the content of a file; None: the file does not exist."""


def stamp_of(path: Path) -> Stamp:
    """Inode, size and modification time of a file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


class LruCache(Generic[ValueT]):
    """Values by key, each with the stamp of its source; the least recently used value is dropped first.

    If several threads need the same value, exactly one computes it, and the others wait.

    Args:
        most: most that is kept, in the unit of `cost`.
        cost: size of a value; None: each value counts 1.
    """

    def __init__(self, most: int, cost: Callable[[ValueT], int] | None = None) -> None:
        self._most, self._cost = most, cost or (lambda value: 1)
        self._values: OrderedDict[Hashable, tuple[Hashable, ValueT, int]] = OrderedDict()
        self._taken = 0
        self._lock = threading.Lock()
        self._making: dict[Hashable, threading.Lock] = {}

    def of(self, key: Hashable, stamp: Hashable, make: Callable[[], ValueT]) -> ValueT:
        """The value of a key, computed again if the stamp differs.

        Raises:
            Exception: any exception of `make`; nothing is kept then.
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
        """Compute the cost of a value again, after it has grown."""
        with self._lock:
            if (held := self._values.get(key)) is not None:
                stamp, value, before = held
                cost = self._cost(value)
                self._values[key] = stamp, value, cost
                self._taken += cost - before
                self._make_room()

    def held(self, key: Hashable, stamp: Hashable) -> tuple[ValueT] | None:
        """The kept value of a key, as a tuple of one; None: no value with this stamp is kept."""
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
