"""What the wrapper counts about requests, and how Prometheus reads it.

Written by the data plane, a few assignments a block; nothing here allocates or waits.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 300)
"""Upper bounds of the histogram of seconds to the first byte."""
STATES = ("empty", "loading", "ready", "draining", "failed")

CLIENT_LEFT = 499
"""Counted for a request whose client went away before the answer's head; nginx's number for it."""


class Meter:
    """Counts of one wrapper, over all engines it held."""

    def __init__(self) -> None:
        self.in_flight = 0
        """Requests now with the engine."""
        self.unread = 0
        """Of those, the ones whose client has to take what was sent before the engine is heard again."""
        self.served = 0
        """Requests it has answered to the end."""
        self.starts = 0
        """Engines started."""
        self.bytes_in = self.bytes_out = 0
        """Of bodies, as they came from clients and from the engine."""
        self.codes: Counter[int] = Counter()
        """Answers by HTTP status."""
        self.last_byte = time.monotonic()
        """When the engine last said something, or was first waited for after a pause."""
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._first_byte_sum = 0.0

    def begin(self) -> None:
        """A request goes to the engine."""
        if not self.waiting:
            self.last_byte = time.monotonic()
        self.in_flight += 1

    @property
    def waiting(self) -> int:
        """Requests that wait for the engine, not for their client."""
        return self.in_flight - self.unread

    def first_byte(self, seconds: float) -> None:
        """An answer's first byte has come."""
        self._buckets[bisect_left(BUCKETS, seconds)] += 1
        self._first_byte_sum += seconds

    def text(self, state: str) -> str:
        """Prometheus' text form, version 0.0.4."""
        lines: list[str] = []

        def family(name: str, kind: str, about: str) -> str:
            full = f"hpcbench_wrapper_{name}"
            lines.extend((f"# HELP {full} {about}", f"# TYPE {full} {kind}"))
            return full

        full = family("state", "gauge", "1 for the state the wrapper is in.")
        lines += [f'{full}{{state="{one}"}} {int(one == state)}' for one in STATES]
        full = family("requests_total", "counter", "Requests by HTTP status of the answer.")
        lines += [f'{full}{{code="{code}"}} {n}' for code, n in sorted(self.codes.items())]
        for name, kind, about, value in (
            ("requests_in_flight", "gauge", "Requests now with the engine.", self.in_flight),
            ("engine_starts_total", "counter", "Engines started.", self.starts),
            ("request_bytes_total", "counter", "Bytes of requests' bodies.", self.bytes_in),
            ("response_bytes_total", "counter", "Bytes of answers' bodies.", self.bytes_out),
        ):
            lines.append(f"{family(name, kind, about)} {value}")
        full = family("first_byte_seconds", "histogram", "From request to the engine's first byte.")
        total = 0
        for bound, count in zip((*BUCKETS, "+Inf"), self._buckets, strict=True):
            total += count
            lines.append(f'{full}_bucket{{le="{bound}"}} {total}')
        lines += [f"{full}_sum {self._first_byte_sum:.6f}", f"{full}_count {total}"]
        return "\n".join(lines) + "\n"
