"""Doing something the rarer the longer it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Pace:
    """When something that is done again and again is due, so that it takes a share of a core at most.

    Args:
        share: of one core.
        clock: seconds, never going back.
        busy: seconds of work done by this thread.
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
        """Whether it may be done now."""
        return self._clock() >= self._next

    def soon(self, seconds: float) -> None:
        """Do it in so many seconds at the latest, if it did not take long the last time."""
        self._next = min(self._next, max(self._clock() + seconds, self._earliest))

    @contextmanager
    def work(self, pause: float) -> Iterator[None]:
        """It is done within this context, and then not for `pause` seconds, or longer if it took long."""
        begun = self._busy()
        try:
            yield
        finally:
            now = self._clock()
            self._earliest = now + (self._busy() - begun) / self.share
            self._next = max(now + pause, self._earliest)

    _earliest = 0.0
