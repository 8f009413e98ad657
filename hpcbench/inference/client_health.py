"""Whether the client itself was the bottleneck: the lag of its event loop behind arrived data.

An answer that waits for the event loop gets a time stamp that is late by this lag. It is sampled 25 times a
second on average, by a timer of the kernel (timerfd), which wakes the loop as arrived data do. A timer of
the loop itself would add up to 1 ms, because epoll rounds to that; a thread would cost more, and be late
itself on a busy machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import random
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

_EVERY = 0.04  # seconds on average
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC  # TFD_NONBLOCK, TFD_CLOEXEC
_ABSOLUTE = 1  # TFD_TIMER_ABSTIME
_TICK_BYTES = 8
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
    begin, cpu = time.monotonic(), time.process_time()
    _tidy()
    gc.freeze()
    try:
        with _sampled(asyncio.get_running_loop(), health):
            yield
    finally:
        gc.unfreeze()
        health.seconds += time.monotonic() - begin
        health.cpu_seconds += time.process_time() - cpu


def _tidy() -> None:
    """Collect garbage, unless it was just collected: that takes longer than a small shard's requests."""
    global _tidied
    if time.monotonic() - _tidied >= TIDY_SECONDS:
        gc.collect()
        _tidied = time.monotonic()


@contextlib.contextmanager
def _sampled(loop: asyncio.AbstractEventLoop, health: Health) -> Iterator[None]:
    """Wake the loop at random moments: a regular interval could coincide with the loop's own work."""
    timer = _LIBC.timerfd_create(time.CLOCK_MONOTONIC, _FLAGS)
    if timer < 0:
        raise OSError(ctypes.get_errno(), "the kernel gives no timer")
    due = time.monotonic_ns()

    def arm() -> None:
        nonlocal due
        due += max(1, round(random.expovariate(1 / _EVERY) * 1e9))
        seconds, rest = divmod(due, 10**9)
        _LIBC.timerfd_settime(timer, _ABSOLUTE, _Timing(0, 0, seconds, rest), None)

    def come() -> None:
        os.read(timer, _TICK_BYTES)
        health.add((time.monotonic_ns() - due) / 1e6)
        arm()

    loop.add_reader(timer, come)
    arm()
    try:
        yield
    finally:
        loop.remove_reader(timer)
        os.close(timer)


class _Timing(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("every", "every_ns", "due", "due_ns"))


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.timerfd_settime.argtypes = [
    ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Timing), ctypes.c_void_p,
]  # fmt: skip
