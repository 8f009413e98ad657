"""The wrapper's counts of requests, and their form for Prometheus.

The data plane updates them by a few assignments per block, without allocation or wait; `collect` reads them.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from hpcbench.wrapper.direct import DirectClients, Report

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 300)
"""Upper bounds of the histogram of seconds to the first byte."""
STATES = ("empty", "loading", "ready", "draining", "failed")

_OURS = "hpcbench_wrapper_"

CLIENT_LEFT = 499
"""Counted for a request whose client left before the answer's head; nginx's number for it."""


class Meter:
    """Counts of one wrapper, over all its engines.

    Args:
        state: returns the wrapper's state.
    """

    def __init__(self, state: Callable[[], str]) -> None:
        self._state = state
        self.in_flight = 0
        """Requests in the engine now."""
        self.unread = 0
        """Open requests whose client must read before the wrapper reads the engine's next block."""
        self.served = 0
        """Requests with a complete answer."""
        self.starts = 0
        """Engines started."""
        self.bytes_in = self.bytes_out = 0
        """Bytes of bodies, from clients and from the engine."""
        self.codes: Counter[int] = Counter()
        """Answers by HTTP status."""
        self.last_byte = time.monotonic()
        """Time of the engine's last output, or of the first request after a pause."""
        self.direct = DirectClients()
        """Requests that do not pass through the wrapper."""
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._first_byte_sum = 0.0

    def begin(self) -> None:
        """Count a request to the engine."""
        if not self.waiting:
            self.last_byte = time.monotonic()
        self.in_flight += 1

    @property
    def waiting(self) -> int:
        """Requests that wait for the engine, not for their client."""
        return self.in_flight - self.unread

    @property
    def at_engine(self) -> int:
        """Requests in the engine now, by both routes."""
        return self.in_flight + self.direct.in_flight

    def silence(self) -> tuple[int, float]:
        """Requests that wait for the engine, and the seconds for which it has sent nothing to any."""
        sides = (
            (self.waiting, time.monotonic() - self.last_byte),
            (self.direct.in_flight, self.direct.silent),
        )
        waiting = [side for side in sides if side[0]]
        return sum(count for count, _ in waiting), min((s for _, s in waiting), default=0.0)

    def report(self, report: Report) -> None:
        """Add what a client reports of requests that it sent to the engine itself."""
        self.direct.take(report)
        self.served += report.served
        self.codes.update(report.codes)
        self.bytes_in += report.bytes_in
        self.bytes_out += report.bytes_out
        for seconds in report.first_bytes:
            self.first_byte(seconds)

    def first_byte(self, seconds: float) -> None:
        """Record the first byte of an answer."""
        self._buckets[bisect_left(BUCKETS, seconds)] += 1
        self._first_byte_sum += seconds

    def collect(self) -> Iterator[Metric]:
        """The current counts, in `prometheus_client`'s form."""
        current = self._state()
        states = GaugeMetricFamily(
            f"{_OURS}state",
            "1 for the wrapper's current state, 0 for all others.",
            labels=["state"],
        )
        for state in STATES:
            states.add_metric([state], state == current)
        yield states
        requests = CounterMetricFamily(
            f"{_OURS}requests_total", "Requests by HTTP status of the answer.", labels=["code"]
        )
        for code, count in sorted(self.codes.items()):
            requests.add_metric([str(code)], count)
        yield requests
        about = "Requests in flight at the engine."
        yield GaugeMetricFamily(f"{_OURS}requests_in_flight", about, self.at_engine)
        for name, about, value in (
            ("engine_starts_total", "Engines started.", self.starts),
            ("request_bytes_total", "Bytes of requests' bodies.", self.bytes_in),
            ("response_bytes_total", "Bytes of answers' bodies.", self.bytes_out),
        ):
            yield CounterMetricFamily(f"{_OURS}{name}", about, value)
        yield HistogramMetricFamily(
            f"{_OURS}first_byte_seconds",
            "Seconds from the request to the engine's first byte.",
            [*zip(map(str, (*BUCKETS, "+Inf")), accumulate(self._buckets), strict=True)],
            self._first_byte_sum,
        )
