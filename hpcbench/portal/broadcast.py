"""Live messages: one ring for all readers; any thread writes it; streams, sockets and polls read it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from hpcbench.portal.models.live import News, Polled, Reset

RING = 4_096
"""Messages kept for readers that reconnect; a reader that missed more gets a `Reset` and fetches all data."""

POLL_COUNTS_SECONDS = 60.0
"""How long after a poll its reader counts as connected."""


class Hub:
    """Messages in order, with increasing numbers; numbers increase across restarts of the portal, too."""

    def __init__(self, ring: int = RING) -> None:
        self._lock = threading.Lock()
        self._ring: deque[News] = deque(maxlen=ring)
        # Milliseconds: a reader from before a restart is always behind, and gets a `Reset`.
        self._seq = int(time.time() * 1000)
        self._dropped = self._seq
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._readers = 0
        self._polled = -POLL_COUNTS_SECONDS
        self._closed = False

    @property
    def seq(self) -> int:
        """Number of the newest message."""
        return self._seq

    @property
    def closed(self) -> bool:
        """Whether the portal is shutting down."""
        return self._closed

    @property
    def watched(self) -> bool:
        """Whether there are readers: without readers, followers may do less."""
        return self._readers > 0 or time.monotonic() - self._polled < POLL_COUNTS_SECONDS

    def publish(self, make: Callable[[int, float], News]) -> None:
        """Send a message to all readers; from any thread.

        Args:
            make: returns the message for a number and time; called once, must be quick and not publish.
        """
        with self._lock:
            if len(self._ring) == self._ring.maxlen:
                self._dropped = self._ring[0].seq
            message = make(self._seq + 1, time.time())
            self._seq += 1
            self._ring.append(message)
            self._wake()

    def since(self, after: int) -> Polled:
        """Messages after a given one; a `Reset` if the given message is no longer known."""
        with self._lock:
            return self._since(after)

    async def wait(self, after: int, seconds: float) -> Polled:
        """Wait for messages after a given one; none at the timeout (seconds) or at shutdown."""
        event = asyncio.Event()
        with self._lock:
            found = self._since(after)
            if found.news or self._closed:
                return found
            self._waiting[event] = asyncio.get_running_loop()
        try:
            await asyncio.wait_for(event.wait(), seconds)
        except asyncio.TimeoutError:
            pass
        finally:
            with self._lock:
                self._waiting.pop(event, None)
        return self.since(after)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """A context that counts as one reader."""
        with self._lock:
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1

    def polled(self) -> None:
        """Note a poll: its reader counts as connected for `POLL_COUNTS_SECONDS`."""
        self._polled = time.monotonic()

    def close(self) -> None:
        """Shut down: no further messages, and all readers end."""
        with self._lock:
            self._closed = True
            self._wake()

    def _since(self, after: int) -> Polled:
        if not self._dropped <= after <= self._seq:
            lost = Reset(seq=self._seq, time=time.time())
            return Polled(news=(lost,), seq=self._seq)
        new = self._seq - after
        kept = len(self._ring)
        return Polled(
            news=tuple(self._ring[place] for place in range(kept - new, kept)), seq=self._seq
        )

    def _wake(self) -> None:
        for event, loop in self._waiting.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)
