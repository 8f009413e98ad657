"""Long series in few points that keep all extremes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

Point = tuple[float, float]
"""Time and value."""

LIMIT = 600
"""Most points of a series."""


class Thinned:
    """A series that keeps the least and the greatest value of each stretch, and always the newest value.

    Up to `limit` points are kept unchanged. Stretches have equal numbers of points; as points become many,
    pairs of stretches merge.

    Args:
        limit: most points that `points` returns.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit, self._most = limit, max(1, (limit - 1) // 2)
        self._few: tuple[array[float], array[float]] | None = array("d"), array("d")
        """Times and values of all points, while they are few; tuples would take six times the memory."""
        self._stretches: list[_Stretch] = []
        self._length = 1
        self._newest: Point | None = None
        self._count, self._sum = 0, 0.0

    def add(self, time: float, value: float) -> None:
        """Append a value; times may repeat or go back, and stay unchanged."""
        self.extend([(time, value)])

    def extend(self, points: Sequence[Point]) -> None:
        """Append values, as `add` does."""
        if not points:
            return
        times, values = zip(*points, strict=True)
        self._newest = points[-1]
        self._count += len(points)
        self._sum += sum(values)
        if (few := self._few) is not None:
            few[0].extend(times)
            few[1].extend(values)
            if self._count <= self._limit:
                return
            self._few, points = None, list(zip(*few, strict=True))
        for point in points:
            self._stretch(point)

    def _stretch(self, point: Point) -> None:
        last = self._stretches[-1] if self._stretches else None
        if last is not None and last.count < self._length:
            last.take(point)
            return
        if len(self._stretches) == self._most:
            pairs = self._stretches[::2], self._stretches[1::2]
            merged = [one.with_(other) for one, other in zip(*pairs, strict=False)]
            self._stretches = merged + self._stretches[len(merged) * 2 :]
            self._length *= 2
            if (last := self._stretches[-1]).count < self._length:
                last.take(point)
                return
        self._stretches.append(_Stretch(point))

    def points(self, since: float | None = None) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Times and values in the order of arrival; only those after `since`, if given."""
        if self._few is not None and since is None:
            return tuple(self._few[0]), tuple(self._few[1])
        if self._few is not None:
            found = list(zip(*self._few, strict=True))
        else:
            found = [point for one in self._stretches for point in one.points()]
        if self._newest is not None and (not found or found[-1] != self._newest):
            found.append(self._newest)
        if since is not None:
            found = [point for point in found if point[0] > since]
        return tuple(time for time, _ in found), tuple(value for _, value in found)

    @property
    def count(self) -> int:
        """Number of values added."""
        return self._count

    @property
    def bytes(self) -> int:
        """Approximate memory, bytes."""
        return 300 + 270 * len(self._stretches) + 16 * len(self._few[0] if self._few else ())

    @property
    def until(self) -> float:
        """Time of the newest value; 0: no value."""
        return self._newest[0] if self._newest is not None else 0.0

    @property
    def mean(self) -> float | None:
        """Mean of all values added; None: no value."""
        return self._sum / self._count if self._count else None

    @property
    def peak(self) -> float | None:
        """The greatest value; None: no value."""
        if self._few is not None:
            return max(self._few[1], default=None)
        return max(one.high[1] for one in self._stretches)


class _Stretch:
    __slots__ = ("count", "high", "low", "swapped")

    def __init__(self, point: Point) -> None:
        self.low = self.high = point
        self.count = 1
        self.swapped = False
        """Whether the greatest value came before the least."""

    def take(self, point: Point) -> None:
        self.count += 1
        if point[1] < self.low[1]:
            self.low, self.swapped = point, True
        elif point[1] > self.high[1]:
            self.high, self.swapped = point, False

    def with_(self, later: _Stretch) -> _Stretch:
        whole = _Stretch(self.low)
        whole.high, whole.swapped, whole.count = self.high, self.swapped, self.count
        for point in later.points():
            whole.take(point)
        whole.count = self.count + later.count
        return whole

    def points(self) -> Sequence[Point]:
        if self.low == self.high:
            return (self.low,)
        return (self.high, self.low) if self.swapped else (self.low, self.high)


def extremes(values: Sequence[float | None], limit: int) -> list[int]:
    """At most `limit` places: least and greatest values of equal stretches, and both ends."""
    count = len(values)
    if count <= limit:
        return list(range(count))
    stretches = max(1, (limit - 2) // 2)
    kept = {0, count - 1}
    for turn in range(stretches):
        begin, end = turn * count // stretches, (turn + 1) * count // stretches
        known = [place for place in range(begin, end) if values[place] is not None]
        if known:
            kept.add(min(known, key=lambda place: values[place] or 0.0))
            kept.add(max(known, key=lambda place: values[place] or 0.0))
    return sorted(kept)
