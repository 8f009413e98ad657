"""Number of requests in flight: the smallest that brings (nearly) the most answers a second.

The more requests an engine gets at once, the more answers a second it gives, up to a point; beyond it
requests only wait longer, or, when its memory runs out, are evicted and restarted. That point depends on
model, images and machine, so it is searched during the work:

- each limit stays for a window of answers, of one run or of several, and answers a second are measured. The
  first answers after a change or a start, and those after the last request of a run, do not count: other
  numbers were in flight. A run too short for anything else counts whole: the loss at its ends is accepted;
- the limit doubles while the highest one tried is clearly better than all others;
- then the limits around the smallest that is within `ENOUGH` of the best are tried, that limit stays, and its
  neighbours are tried again from time to time, ever more rarely;
- when the rate at a limit differs much from its earlier rate, all measurements are forgotten;
- requests that always wait inside the engine are superfluous: as soon as that is known, the limit falls to
  slightly above the number that the engine works on, and no higher limit is tried;
- while a gateway refuses requests by its rate limits, no higher limit is tried, and one that was just raised
  is taken back: more requests at once bring only more refusals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ENOUGH = 0.94
"""A smaller limit is as good as the best if it brings this share of the best's answers a second."""

_WINDOW = 24  # answers, at least; twice the limit if that is more
_LONG = 8  # answers per request in flight: a run this long loses hardly anything at its ends
_IDLE = 0.1  # share of the requests at work that may wait inside the engine: it never runs dry
_LOOKS = 10  # at the engine's queue, at least, before the result counts
_DOUBT = (
    0.5  # standard errors in favour of the smaller limit: in doubt, fewer requests are in flight
)
_FIRST_REST, _LONGEST_REST = (
    4,
    32,
)  # windows until a neighbour is tried again; doubles each time
_CALM = 8  # windows without a refusal until higher limits are tried again
_OTHER = (
    1.6  # times as fast or slow as before: another engine, or other work; the search starts over
)


@dataclass
class _Span:
    """Answers, and the seconds they took."""

    answers: int = 0
    seconds: float = 0.0

    def __add__(self, other: _Span) -> _Span:
        return _Span(self.answers + other.answers, self.seconds + other.seconds)


@dataclass
class _Seen:
    """Answers and seconds at one limit; each new measurement halves the weight of older ones."""

    answers: float = 0.0
    seconds: float = 0.0

    def add(self, span: _Span) -> None:
        self.answers = self.answers / 2 + span.answers
        self.seconds = self.seconds / 2 + span.seconds

    @property
    def rate(self) -> float:
        return self.answers / max(self.seconds, 1e-9)

    @property
    def likely(self) -> float:
        """Upper estimate of the rate: a count of n has a standard error of √n."""
        return self.rate * (1 + _DOUBT / math.sqrt(self.answers))


@dataclass
class _Queue:
    """Results of looks at the engine's queue."""

    looks: int = 0
    answers: int = 0
    """Answers since the first look."""
    at_work: float = 0.0
    """Largest number of requests that did not wait."""
    waiting: float = math.inf
    """Smallest number of requests that waited."""

    @property
    def known(self) -> bool:
        """Whether the requests at work have been replaced twice.

        An engine may accept new requests only after it has answered all it had: until then they wait, and
        a lower limit would be wrong.
        """
        return self.looks >= _LOOKS and self.answers >= 2 * self.at_work


class Adaptive:
    """Searches for the best limit; pure: its caller reports events and times (seconds on any clock)."""

    def __init__(self, most: int = 256, first: int = 4) -> None:
        self.most = most
        """The highest limit to try."""
        self.limit = min(first, most)
        """Largest number of requests in flight now."""
        self._seen: dict[int, _Seen] = {}
        self._ceiling = most
        self._queue = _Queue()
        self._rest = self._rested = 0
        self._upwards = True
        self._kept = _Span()  # of the open window: answers of earlier runs
        self._steady = _Span()  # of the open window: answers of this run
        self._began: float | None = None  # start of this run, if it has had no other limit
        self._last: float | None = None  # last answer of this run
        self._answered = self._longest = 0  # answers of this run; most of any run
        self._to_ignore = 0
        self._exhausted = False
        self._before = self.limit  # the limit of the window before
        self._refusing = 0  # windows until the gateway counts as calm

    def resume(self, now: float) -> None:
        """Record the first request of a run, perhaps after a pause; measurements stay."""
        self._end_run()
        self._began, self._last, self._answered = now, None, 0
        self._to_ignore, self._exhausted = self.limit, False

    def exhausted(self) -> None:
        """Record the last request of this run: fewer are in flight from now on."""
        self._exhausted = True

    def completed(self, now: float) -> None:
        """Record an answer."""
        self._answered += 1
        self._longest = max(self._longest, self._answered)
        self._queue.answers += 1
        if self._to_ignore > 0:
            self._to_ignore -= 1
        elif self._last is not None and not self._exhausted:
            self._steady += _Span(1, now - self._last)
        self._last = now
        if self._is_long:
            self._end_window_if_full()

    def queued(self, waiting: float, in_flight: int) -> None:
        """Record that `waiting` of the requests in flight wait inside the engine."""
        if self._exhausted:
            return
        queue = self._queue
        if not queue.looks:
            queue.answers = 0
        queue.looks += 1
        queue.at_work = max(queue.at_work, in_flight - waiting)
        queue.waiting = min(queue.waiting, waiting)
        if not queue.known:
            return
        self._queue = _Queue()
        enough = max(1, math.ceil(queue.at_work * (1 + _IDLE)))
        if enough < self.limit:
            self._ceiling = enough
            self._change(enough)
        elif queue.waiting == 0 and self.limit >= self._ceiling:
            self._ceiling = self.most

    def limited(self) -> None:
        """Record that a gateway refused a request by its rate limits."""
        self._ceiling = max(1, min(self.limit, self._before))
        self._refusing = _CALM
        self._change(self._ceiling)
        self._seen = {limit: seen for limit, seen in self._seen.items() if limit <= self._ceiling}

    def _end_run(self) -> None:
        """Add this run's answers to the open window."""
        if not self._is_long:
            self._steady = _Span()
            filled = self._exhausted and self._answered >= self.limit
            if filled and self._began is not None and self._last is not None:
                self._steady = _Span(self._answered, self._last - self._began)
        self._kept, self._steady = self._kept + self._steady, _Span()
        self._end_window_if_full()

    @property
    def _is_long(self) -> bool:
        return self._answered >= _LONG * self.limit

    def _end_window_if_full(self) -> None:
        window = self._kept + self._steady
        if window.answers < max(_WINDOW, 2 * self.limit):
            return
        seen = self._seen.setdefault(self.limit, _Seen())
        rate = window.answers / max(window.seconds, 1e-9)
        if seen.answers and not 1 / _OTHER < rate / seen.rate < _OTHER:
            self._seen, self._rest = {self.limit: (seen := _Seen())}, 0
        seen.add(window)
        if self._refusing:
            self._refusing -= 1
            self._ceiling = self._ceiling if self._refusing else self.most
        self._change(self._next())

    def _change(self, limit: int) -> None:
        """Open a window at this limit."""
        if limit != self.limit:
            self._to_ignore = self.limit
        self._before, self.limit = self.limit, limit
        self._kept, self._steady, self._began = _Span(), _Span(), None

    def _next(self) -> int:
        """The limit for the next window."""
        ceiling = min(self._ceiling, self._longest)  # no run has had more in flight
        best = max(seen.rate for seen in self._seen.values())
        tried = sorted(self._seen)
        enough = next(limit for limit in tried if self._seen[limit].likely >= ENOUGH * best)
        if enough > ceiling:
            return ceiling
        if enough == tried[-1] and enough < ceiling:
            return min(2 * enough, ceiling)
        below = max((limit for limit in tried if limit < enough), default=None)
        above = min((limit for limit in tried if limit > enough), default=None)
        if below is None and enough > 1:
            return enough // 2
        for one, other in ((below, enough), (enough, above)):
            if one is not None and other is not None and other >= 1.5 * one and other - one > 1:
                return round(math.sqrt(one * other))
        return self._hold(enough, below, above)

    def _hold(self, enough: int, below: int | None, above: int | None) -> int:
        """Stay at the limit, and try a neighbour when it is due."""
        self._rest = self._rest or _FIRST_REST
        self._rested += 1
        if self._rested < self._rest:
            return enough
        self._rested, self._rest = 0, min(2 * self._rest, _LONGEST_REST)
        self._upwards = not self._upwards
        neighbours = (above, below) if self._upwards else (below, above)
        return next((limit for limit in neighbours if limit is not None), enough)
