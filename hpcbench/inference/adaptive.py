"""How many requests to keep in flight: as few as bring (nearly) the most answers a second.

An engine that batches answers more a second the more it is asked at once, up to a point; beyond it requests
only wait longer, or, when its memory runs out, are thrown back and begun anew. Where that point lies depends
on model, images and machine, so it is looked for while the work is done:

- each limit is held for a window of answers, and answers a second are noted. What was in flight when the
  limit changed is not counted;
- the limit doubles while the highest one tried is clearly better than all others;
- then the limits around the smallest that is within `ENOUGH` of the best are tried, that one is held, and its
  neighbours are looked at again from time to time, ever more rarely;
- when the rate at a limit is far from what it was, all that was learnt is forgotten;
- requests that wait inside the engine need not be there: no limit above those it really works on is tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ENOUGH = 0.94
"""A smaller limit is as good as the best when it brings this share of its answers a second."""

_WINDOW = 24  # answers, at least; twice the limit where that is more
_IDLE = 0.1  # share of those in flight that may wait inside the engine, so that it never runs dry
_DOUBT = (
    0.5  # standard errors that speak for the smaller limit: less is in flight where it is in doubt
)
_FIRST_REST, _LONGEST_REST = (
    4,
    32,
)  # windows until a neighbour is looked at again; doubles each time
_OTHER = (
    1.6  # times as fast or slow as before: it is another engine, or other work; all is learnt anew
)


@dataclass
class _Seen:
    """Answers and seconds at one limit; what is older counts half with each new look."""

    answers: float = 0.0
    seconds: float = 0.0

    def add(self, answers: int, seconds: float) -> None:
        self.answers = self.answers / 2 + answers
        self.seconds = self.seconds / 2 + seconds

    @property
    def rate(self) -> float:
        return self.answers / max(self.seconds, 1e-9)

    @property
    def likely(self) -> float:
        """What the rate may well be: a count of n has a standard error of √n."""
        return self.rate * (1 + _DOUBT / math.sqrt(self.answers))


class Adaptive:
    """Looks for the best limit; pure: it is told what happened and when."""

    def __init__(self, most: int = 256, first: int = 4) -> None:
        self.most = most
        """The highest limit to try."""
        self.limit = min(first, most)
        """How many requests may be in flight now."""
        self._seen: dict[int, _Seen] = {}
        self._ceiling = float(most)
        self._to_ignore = 0
        self._begin: float | None = None
        self._answers = 0
        self._waiting: list[float] = []
        self._rest = self._rested = 0
        self._upwards = True

    def completed(self, now: float) -> None:
        """A request has been answered at `now` (seconds on any clock)."""
        if self._to_ignore > 0:
            self._to_ignore -= 1
        elif self._begin is None:
            self._begin = now
        else:
            self._answers += 1
            if self._answers >= max(_WINDOW, 2 * self.limit):
                self._end_window(now - self._begin)

    def resume(self) -> None:
        """A new run begins, perhaps after a pause: the open window is dropped, what is known stays."""
        self._to_ignore = self.limit
        self._begin, self._answers, self._waiting = None, 0, []

    def queued(self, waiting: float) -> None:
        """So many requests wait inside the engine."""
        if self._begin is not None:
            self._waiting.append(waiting)

    def _end_window(self, seconds: float) -> None:
        seen = self._seen.setdefault(self.limit, _Seen())
        rate = self._answers / max(seconds, 1e-9)
        if seen.answers and not 1 / _OTHER < rate / seen.rate < _OTHER:
            self._seen, self._rest = {self.limit: (seen := _Seen())}, 0
        seen.add(self._answers, seconds)
        if self._waiting:
            waiting = sum(self._waiting) / len(self._waiting)
            if waiting > _IDLE * self.limit + 0.5:
                self._ceiling = max(1.0, (self.limit - waiting) * (1 + _IDLE))
            elif self.limit >= math.floor(self._ceiling):
                self._ceiling = float(self.most)
        before, self.limit = self.limit, self._next()
        self._to_ignore = before if before != self.limit else 0
        self._begin, self._answers, self._waiting = None, 0, []

    def _next(self) -> int:
        """The limit for the next window."""
        ceiling = max(1, min(self.most, round(self._ceiling)))
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
        """Stay, and look at a neighbour when it is time."""
        self._rest = self._rest or _FIRST_REST
        self._rested += 1
        if self._rested < self._rest:
            return enough
        self._rested, self._rest = 0, min(2 * self._rest, _LONGEST_REST)
        self._upwards = not self._upwards
        neighbours = (above, below) if self._upwards else (below, above)
        return next((limit for limit in neighbours if limit is not None), enough)
