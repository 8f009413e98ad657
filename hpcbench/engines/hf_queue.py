"""The queue in front of the model: chooses the requests of the next batch, and its start.

One thread prepares requests (decodes images, builds the prompt) while another generates; `Line` connects the
two. A batch starts as soon as no further request is expected: with a client that sends one request at a time
nothing ever waits, with eight at a time the batch waits for the eighth.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, Protocol, TypeVar

SPREAD = 2
"""Largest ratio of the longest to the shortest prompt of a batch: padding is computed, too."""
AHEAD = 2
"""Batches to prepare ahead of the model; a prepared page takes some 20 MB."""


class Waiting(Protocol):
    """A prepared request."""

    tokens: int
    """Length of its prompt."""
    kind: Hashable
    """A batch only holds requests of equal kind."""

    over: bool
    """Its answer is complete."""

    @property
    def cancelled(self) -> bool: ...


T = TypeVar("T", bound=Waiting)


class Line(Generic[T]):
    """Connects the thread that prepares with the thread that generates; its methods are for any thread."""

    def __init__(
        self,
        max_batch: int,
        wait_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_batch, self._wait, self._clock = max_batch, wait_seconds, clock
        self._changed = threading.Condition()
        self._ready: list[tuple[float, T]] = []
        self._batch: list[T] = []
        self._coming = 0
        self._crowd = 0  # most requests at once since the last batch started
        self._closed = False

    @property
    def waiting(self) -> int:
        """Requests that no batch has taken yet."""
        return self._coming + len(self._ready)

    @property
    def running(self) -> int:
        """Requests of the current batch with a client that waits."""
        return sum(not (one.over or one.cancelled) for one in self._batch)

    def announce(self) -> None:
        """Count a new request; `put` or `drop` will follow."""
        with self._changed:
            self._coming += 1
            self._crowd = max(self._crowd, self.waiting + self.running)

    def put(self, one: T) -> None:
        """Add a prepared request. Blocks while more than enough are prepared."""
        with self._changed:
            enough = AHEAD * self.max_batch
            self._changed.wait_for(lambda: self._closed or len(self._ready) < enough)
            self._coming -= 1
            self._ready.append((self._clock(), one))
            self._changed.notify_all()

    def drop(self) -> None:
        """Remove an announced request: it was refused, or its client left."""
        with self._changed:
            self._coming -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Allow no further batches."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self) -> list[T]:
        """The next batch, when it is due; empty when the line is closed."""
        with self._changed:
            self._batch = []
            while True:
                wanted = [entry for entry in self._ready if not entry[1].cancelled]
                if len(wanted) < len(self._ready):
                    self._ready = wanted
                    self._changed.notify_all()  # there is space: `put` may be waiting for it
                if self._closed:
                    return []
                patience = self._patience()
                if patience is not None and patience <= 0:
                    break
                self._changed.wait(patience)
            batch = choose([one for _, one in self._ready], self.max_batch)
            self._ready = [entry for entry in self._ready if entry[1] not in batch]
            self._batch = batch
            self._crowd = self.waiting + len(batch)
            self._changed.notify_all()
            return batch

    def _patience(self) -> float | None:
        """Seconds to wait for further requests; None: until something changes."""
        if not self._ready:
            return None
        if len(self._ready) >= min(self.max_batch, self._crowd):
            return 0
        if self._coming:
            return None
        return self._ready[0][0] + self._wait - self._clock()


def choose(ready: Sequence[T], most: int) -> list[T]:
    """The first of the requests, in order of arrival, and those most similar to it."""
    first = ready[0]
    alike = [
        one
        for one in ready[1:]
        if one.kind == first.kind
        and max(one.tokens, first.tokens) <= SPREAD * min(one.tokens, first.tokens)
    ]
    alike.sort(key=lambda one: abs(one.tokens - first.tokens))
    return [first, *alike[: most - 1]]
