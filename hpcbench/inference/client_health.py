"""Whether the client itself was the bottleneck: the lag of its event loop behind arrived data.

An answer that waits for the event loop gets a time stamp that is late by this lag. A thread samples the lag
25 times a second on average: a timer of the loop itself would add up to 1 ms, because epoll rounds to that.
A run shorter than 0.04 s is not sampled: the start of the thread would take longer than the requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator

BOUND_MS = 1.0
BOUND_SHARE = 0.02
"""A run is client-bound if the p99 of the lag is above both 1 ms and this share of the median TTFT.

1 ms is the intended precision of time stamps; a lag below 2 % of the median TTFT is less than any
difference between engines that such a run can show, so it invalidates no result.
"""

FEWEST = 100
"""Fewest samples for a 99th percentile."""

TIDY_SECONDS = 30.0
"""Garbage is collected before a run, but at most once in this many seconds."""

_tidied = float("-inf")
"""Time of the last collection, on the monotonic clock."""

_EVERY = 0.04  # seconds on average; each sample costs two task switches
_STEP_MS = 0.02  # bin width of the histogram: its size does not grow with the length of the run


class Health:
    """Observations of the client during runs; adds up over several runs."""

    def __init__(self) -> None:
        self.ticks = 0
        """Samples of the lag."""
        self.longest_ms = 0.0
        """The longest lag, milliseconds."""
        self.seconds = 0.0
        """Duration of the runs."""
        self.cpu_seconds = 0.0
        """CPU time of this process in the runs, of all its threads."""
        self._lags: Counter[int] = Counter()

    def add(self, lag_ms: float) -> None:
        """Add one sample."""
        self.ticks += 1
        self.longest_ms = max(self.longest_ms, lag_ms)
        self._lags[round(lag_ms / _STEP_MS)] += 1

    def lag_ms(self, share: float) -> float:
        """The lag that this share of the samples does not exceed, milliseconds to 0.02; 0 without samples."""
        left = share * self.ticks
        for step in sorted(self._lags):
            left -= self._lags[step]
            if left <= 0:
                return step * _STEP_MS
        return 0.0

    @property
    def cpu_share(self) -> float:
        """CPU seconds per second of a run; 1 is one core."""
        return self.cpu_seconds / self.seconds if self.seconds else 0.0

    def client_bound(self, median_ttft_ms: float) -> bool:
        """Whether its time stamps depend more on the client than on the engine (`BOUND_SHARE`).

        Fewer than `FEWEST` samples give no 99th percentile: then the answer is no.
        """
        return self.ticks >= FEWEST and self.lag_ms(0.99) > max(
            BOUND_MS, BOUND_SHARE * median_ttft_ms
        )

    def to_json(self) -> dict[str, float]:
        """The stored form."""
        return {
            "lag_p50_ms": round(self.lag_ms(0.5), 2),
            "lag_p99_ms": round(self.lag_ms(0.99), 2),
            "lag_max_ms": round(self.longest_ms, 2),
            "ticks": self.ticks,
            "seconds": round(self.seconds, 3),
            "cpu_share": round(self.cpu_share, 4),
        }


@contextlib.contextmanager
def watched(health: Health) -> Iterator[None]:
    """Sample the event loop's lag inside the block, with live objects hidden from the garbage collector."""
    loop = asyncio.get_running_loop()
    ended = threading.Event()
    begin, cpu = time.monotonic(), time.process_time()
    ticker = threading.Thread(target=_tick, args=(loop, health, ended), daemon=True)
    _tidy()
    gc.freeze()
    begins = loop.call_later(_EVERY, ticker.start)
    try:
        yield
    finally:
        begins.cancel()
        ended.set()
        gc.unfreeze()
        health.seconds += time.monotonic() - begin
        health.cpu_seconds += time.process_time() - cpu


def _tidy() -> None:
    """Collect garbage, unless it was just collected: that takes longer than a small shard's requests."""
    global _tidied
    if time.monotonic() - _tidied >= TIDY_SECONDS:
        gc.collect()
        _tidied = time.monotonic()


def _tick(loop: asyncio.AbstractEventLoop, health: Health, ended: threading.Event) -> None:
    """Wake the loop at random moments: a regular interval could coincide with the loop's own work."""
    due = time.monotonic()
    while not ended.is_set():
        due += random.expovariate(1 / _EVERY)
        time.sleep(max(0.0, due - time.monotonic()))

        def come(due: float = due) -> None:
            if not ended.is_set():
                health.add((time.monotonic() - due) * 1e3)

        try:
            loop.call_soon_threadsafe(come)
        except RuntimeError:  # the loop is closed
            return
