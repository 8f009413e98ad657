"""Repeated work whose frequency decreases with its duration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Pace:
    """Schedules repeated work, so that it takes at most a share of a core.

    Args:
        share: share of one core.
        clock: seconds, monotonic.
        busy: seconds of work of this thread.
    """

    def __init__(
        self,
        share: float,
        clock: Callable[[], float] = time.monotonic,
        busy: Callable[[], float] = time.thread_time,
    ) -> None:
        self.share = share
        self._clock, self._busy, self._next = clock, busy, 0.0

    def due(self) -> bool:
        """Whether the work is due."""
        return self._clock() >= self._next

    def soon(self, seconds: float) -> None:
        """Have the work due within so many seconds, unless its last run took too long for that."""
        self._next = min(self._next, max(self._clock() + seconds, self._earliest))

    @contextmanager
    def work(self, pause: float) -> Iterator[None]:
        """Context of the work; it is due again after `pause` seconds, or later if it took long."""
        before = self._busy()
        try:
            yield
        finally:
            now = self._clock()
            self._earliest = now + (self._busy() - before) / self.share
            self._next = max(now + pause, self._earliest)

    _earliest = 0.0
