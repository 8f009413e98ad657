"""Whether the client itself was the bottleneck: how late its event loop came to what had arrived.

An answer that waits until the event loop comes round gets a stamp that late. The lag is sampled 25 times a
second on average, from a thread: a timer of the loop itself would add up to 1 ms, to which epoll rounds.
Driving that is over within 0.04 s is not sampled: to start the thread would take longer than the questions.
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
"""A run is bound by the client when the p99 of the lag is above both 1 ms and this share of the median TTFT.

1 ms is the precision that time stamps are meant to have; a lag below 2 % of the median TTFT is less than any
difference between engines that such a run can show, so it invalidates nothing.
"""

FEWEST = 100
"""Samples below which nothing is said of the 99th percentile."""

TIDY_SECONDS = 30.0
"""Garbage is collected before driving, but not again within so many seconds."""

_tidied = float("-inf")
"""When that was done last, on the monotonic clock."""

_EVERY = 0.04  # seconds on average; each sample costs two task switches
_STEP_MS = 0.02  # of the histogram: its size does not grow with the length of the run


class Health:
    """What was seen of the client while it drove; adds up over several runs."""

    def __init__(self) -> None:
        self.ticks = 0
        """Samples of the lag."""
        self.longest_ms = 0.0
        """The longest lag, milliseconds."""
        self.seconds = 0.0
        """Time driven."""
        self.cpu_seconds = 0.0
        """CPU time of this process meanwhile, of all its threads."""
        self._lags: Counter[int] = Counter()

    def add(self, lag_ms: float) -> None:
        """One sample."""
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
        """CPU seconds for each second driven; 1 is one core."""
        return self.cpu_seconds / self.seconds if self.seconds else 0.0

    def client_bound(self, median_ttft_ms: float) -> bool:
        """Whether its time stamps say more about the client than about the engine (`BOUND_SHARE`).

        Fewer than `FEWEST` samples do not tell a 99th percentile: then nothing is held against it.
        """
        return self.ticks >= FEWEST and self.lag_ms(0.99) > max(
            BOUND_MS, BOUND_SHARE * median_ttft_ms
        )

    def to_json(self) -> dict[str, float]:
        """As it is stored."""
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
    """Sample the event loop's lag meanwhile, with what lives now out of the garbage collector's way."""
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
    """Collect garbage, unless that was done just now: it takes longer than a small shard's questions."""
    global _tidied
    if time.monotonic() - _tidied >= TIDY_SECONDS:
        gc.collect()
        _tidied = time.monotonic()


def _tick(loop: asyncio.AbstractEventLoop, health: Health, ended: threading.Event) -> None:
    """Ask the loop to come round at random moments: a regular beat could fall in step with what it does."""
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
