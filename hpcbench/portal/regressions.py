"""Results over months: rows of the heat map, changes of their level, and acknowledgements of these.

The source is the history that `hpcbench history` reads. Change points are computed once for the same points,
and outside of requests: a thousand series take seconds.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench.comparison import history as past
from hpcbench.metrics.resources import unit_of
from hpcbench.portal.acknowledgements import (
    ChangeNote,
    acknowledgements,
    noted_stamp,
    write,
)
from hpcbench.portal.lru import LruCache
from hpcbench.portal.models.regressions import (
    Acknowledgement,
    Regression,
    TrendPoint,
    TrendRow,
    Trends,
)
from hpcbench.statistics.changes import Change

if TYPE_CHECKING:
    import polars

ROWS = 200
"""Most rows of an answer."""

SERIES = 1_000
"""Most series of one query, those with the newest points."""

POINTS = 1_000
"""Points of a series that are judged, the newest: nearly three years of nights. With fewer points, a series
would start elsewhere each night, and changes would appear and disappear."""

QUESTIONS = 16
"""Queries whose series and answers are kept."""

SHOWN = 60
"""Points of a row that are sent, the newest."""

KNOWN = 20_000
"""Series whose change points are kept."""

NEAR = 2
"""A change that moves by at most so many experiments as new ones arrive is the same: its note stays valid."""

WAIT_SECONDS = 0.03
"""Seconds that an answer waits for change points that are not computed yet."""


@dataclass(frozen=True, slots=True)
class Series:
    """A trend without its changes."""

    trend: past.Trend
    """Its plan, run task, figure and signature, and its points."""
    id: str
    """Permanent id: the hash of plan, run task, figure and signature."""
    key: str
    """Hash of the values: the key of the change points."""

    @classmethod
    def of(cls, trend: past.Trend) -> Series:
        """The series of a trend."""
        text = repr([one.value for one in trend.points])
        key = hashlib.sha256(text.encode()).hexdigest()
        of = (trend.plan, trend.run_task, trend.name, trend.made_by)
        return cls(trend, _hash(*of), key)

    @property
    def drift(self) -> float:
        """Distance of the newest third from the rest, as a share of the range; largest judged first."""
        values = [one.value for one in self.trend.points]
        cut = len(values) - max(1, len(values) // 3)
        spread = (max(values) - min(values)) or 1.0
        if not cut:
            return 0.0
        old, new = sum(values[:cut]) / cut, sum(values[cut:]) / (len(values) - cut)
        return abs(new - old) / spread


class Judge:
    """Computes change points in a thread of its own, which ends when no work is left."""

    def __init__(self, work: Callable[[past.Trend], tuple[Change, ...]] = past.changes_of) -> None:
        self._work = work
        self._known: OrderedDict[str, tuple[Change, ...]] = OrderedDict()
        self._asked: deque[Series] = deque()
        self._waiting: set[str] = set()
        self._lock = threading.Condition()
        self._busy = False

    def changes(
        self, wanted: Sequence[Series], seconds: float = WAIT_SECONDS
    ) -> list[tuple[Change, ...] | None]:
        """Change points of each series; None: they are being computed.

        Args:
            wanted: the series.
            seconds: how long to wait for them.
        """
        until = time.monotonic() + seconds
        with self._lock:
            new = [one for one in wanted if not self._has(one)]
            for one in sorted(new, key=lambda one: -one.drift):
                self._waiting.add(one.key)
                self._asked.append(one)
            if self._asked and not self._busy:
                self._busy = True
                threading.Thread(target=self._run, name="change-points", daemon=True).start()
            while not all(one.key in self._known for one in wanted):
                if not self._lock.wait(max(0.0, until - time.monotonic())):
                    break
            return [self._known.get(one.key) for one in wanted]

    def known(self, series: Series) -> tuple[Change, ...]:
        """Change points of a series; empty where they are not computed yet."""
        with self._lock:
            return self._known.get(series.key) or ()

    def _has(self, one: Series) -> bool:
        if one.key in self._known:
            self._known.move_to_end(one.key)
            return True
        return one.key in self._waiting

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._asked:
                    self._busy = False
                    return
                one = self._asked.popleft()
            try:
                found = self._work(one.trend)
            except ValueError:  # a value that is no number
                found = ()
            with self._lock:
                self._known[one.key] = found
                self._waiting.discard(one.key)
                while len(self._known) > KNOWN:
                    self._known.popitem(last=False)
                self._lock.notify_all()


class History:
    """The history of a home, read when it changes.

    Args:
        root: the home.
        judge: computes change points.
    """

    def __init__(self, root: Path, judge: Judge | None = None) -> None:
        self.root = root
        self.judge = judge or Judge()
        self._tables: LruCache[Any] = LruCache(1)
        self._series: LruCache[list[Series]] = LruCache(QUESTIONS)
        self._answers: LruCache[bytes] = LruCache(QUESTIONS)
        self._rows: LruCache[bytes] = LruCache(2 * ROWS)

    def answer(self, name: str | None = None, plan: str | None = None, since: float = 0.0) -> bytes:
        """Rows of the heat map (`Trends`) as JSON, the latest falls first; computed again after a change.

        Args:
            name: metric or figure; None: all metrics of quality.
            plan: only this plan; None: all plans.
            since: only experiments created then or later, seconds since the epoch.
        """
        stamp = past.stamp(self.root)
        found = self._questioned(name, plan, since)
        judged = self.judge.changes(found)
        pending = sum(one is None for one in judged)
        # A muting note ends at its time: the answer is checked again each minute.
        when = stamp, noted_stamp(self.root), pending, int(time.time() // 60)
        return self._answers.of(
            (name, plan, since), when, lambda: self._written(found, judged, since)
        )

    def _written(
        self, found: Sequence[Series], judged: Sequence[tuple[Change, ...] | None], since: float
    ) -> bytes:
        """An answer in JSON; only its changed rows are serialised again."""
        head, rows = self._sorted(found, judged, since)
        texts = (
            self._rows.of(
                one.id, (one.key, changes, shown), partial(_row_text, one, changes, shown)
            )
            for one, changes in rows
            for shown in (_shown(one, since),)
        )
        empty = head.model_dump_json().encode()
        return empty.replace(b'"rows":[]', b'"rows":[' + b",".join(texts) + b"]", 1)

    def find(self, identity: str) -> tuple[Series, Change] | None:
        """The change with an id; None: there is no such change, or it is not computed yet."""
        notes = _by_trend(self.root)
        for one in self._questioned(None, None, 0.0, every=True):
            for change in self.judge.known(one):
                if _regression(one, change, notes).id == identity:
                    return one, change
        return None

    def _sorted(
        self, found: Sequence[Series], judged: Sequence[tuple[Change, ...] | None], since: float
    ) -> tuple[Trends, list[tuple[Series, tuple[Regression, ...]]]]:
        """An answer without its rows, and the rows in order."""
        whole = self.table()
        if whole is None:
            return Trends(names=(), plans=(), rows=()), []
        notes = _by_trend(self.root)
        rows = [
            (one, tuple(_regression(one, change, notes) for change in _since(one, changes, since)))
            for one, changes in zip(found, judged, strict=True)
        ]
        rows.sort(key=lambda row: _newest_fall(*row), reverse=True)
        head = Trends(
            names=tuple(sorted(whole["name"].unique().to_list())),
            plans=tuple(sorted(whole["plan"].unique().to_list())),
            rows=(),
            pending=sum(one is None for one in judged),
            left_out=max(0, len(rows) - ROWS),
        )
        return head, rows[:ROWS]

    def table(self) -> polars.DataFrame | None:
        """All rows of the history; None: there are none."""
        found: polars.DataFrame | None = self._tables.of(
            "table", past.stamp(self.root), lambda: past.table(self.root)
        )
        return found

    def _questioned(
        self, name: str | None, plan: str | None, since: float, *, every: bool = False
    ) -> list[Series]:
        """Series of a query."""
        whole = self.table()
        if whole is None:
            return []
        found = self._series.of(
            (name, plan, every),
            past.stamp(self.root),
            lambda: [Series.of(one) for one in _chosen(whole, name, plan, every=every)],
        )
        # All points of a series decide where its level changed, also points before `since`.
        return [one for one in found if one.trend.points[-1].time >= since]


def _chosen(
    whole: polars.DataFrame, name: str | None, plan: str | None, *, every: bool
) -> list[past.Trend]:
    import polars

    wanted = polars.col("state") == "done"
    if name is not None:
        wanted &= polars.col("name") == name
    elif not every:
        wanted &= polars.col("kind") == "quality"
    if plan is not None:
        wanted &= polars.col("plan") == plan
    newest = (
        whole.filter(wanted)
        .sort("created", "experiment")
        .group_by(_KEY, maintain_order=True)
        .tail(POINTS)
    )
    keys = newest.group_by(_KEY).agg(polars.col("created").max())
    if len(keys) > SERIES and not every:
        keys = keys.sort("created", descending=True).head(SERIES)
        newest = newest.join(keys.select(_KEY), on=_KEY, how="semi", nulls_equal=True)
    return past.series(newest)


_KEY = list(past.SAME)


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


def _since(series: Series, changes: Sequence[Change] | None, since: float) -> Iterator[Change]:
    """Changes at `since` or later."""
    points = series.trend.points
    return (one for one in changes or () if points[one.at].time >= since)


def _shown(series: Series, since: float) -> int:
    """Number of the newest points that are sent."""
    return sum(one.time >= since for one in series.trend.points[-SHOWN:])


def _row_text(series: Series, changes: tuple[Regression, ...], shown: int) -> bytes:
    trend = series.trend
    row = TrendRow(
        id=series.id,
        plan=trend.plan,
        run_task=trend.run_task,
        name=trend.name,
        kind=trend.kind,
        model=trend.model,
        signature=trend.made_by,
        unit=unit_of(trend.made_by) if trend.kind == "quality" else "",
        higher_is_better=trend.higher_is_better,
        points=tuple(
            TrendPoint(experiment=p.experiment, time=p.time, value=p.value, low=p.low, high=p.high)
            for p in trend.points[-shown:]
        ),
        changes=changes,
    )
    return row.model_dump_json().encode()


Notes = Mapping[str, Sequence[ChangeNote]]
"""Id of a trend → notes of its changes."""


def _by_trend(root: Path) -> Notes:
    found: dict[str, list[ChangeNote]] = {}
    for one in acknowledgements(root):
        found.setdefault(one.trend, []).append(one)
    return found


def _regression(series: Series, change: Change, notes: Notes) -> Regression:
    """A change of a trend; a note of a near change in the same direction applies to it."""
    points = series.trend.points
    worse = (change.after < change.before) == series.trend.higher_is_better
    first = points[change.at]
    near = {one.experiment for one in points[max(0, change.at - NEAR) : change.at + NEAR + 1]}
    known = next(
        (one for one in notes.get(series.id, ()) if one.first in near and one.worse == worse), None
    )
    return Regression(
        id=_hash(series.id, first.experiment) if known is None else known.id,
        before=change.before,
        after=change.after,
        worse=worse,
        first=first.experiment,
        last_good=points[change.at - 1].experiment,
        time=first.time,
        acknowledged=None if known is None or not known.holds else _acknowledgement(known),
    )


def _acknowledgement(noted: ChangeNote) -> Acknowledgement:
    assert noted.reason is not None
    return Acknowledgement(reason=noted.reason, by=noted.by, time=noted.time, until=noted.until)


def _newest_fall(series: Series, changes: Sequence[Regression]) -> tuple[float, float]:
    """Sort key: time of the newest unacknowledged change for the worse, then of the newest point."""
    falls = [one.time for one in changes if one.worse and one.acknowledged is None]
    return max(falls, default=0.0), series.trend.points[-1].time


def note(
    history: History, identity: str, reason: str | None, by: str, until: float | None
) -> Regression | None:
    """Acknowledge a change, or withdraw that.

    Args:
        history: the history of the home.
        identity: id of the change.
        reason: why the change is no alarm; None: it is an alarm again.
        by: author of the note.
        until: end of the muting, seconds since the epoch; None: it has no end.

    Returns:
        The change with the note; None: no change has this id.

    Raises:
        OSError: the note cannot be written.
    """
    found = history.find(identity)
    if found is None:
        return None
    series, change = found
    before = _regression(series, change, _by_trend(history.root))
    write(
        history.root,
        ChangeNote(
            id=identity, trend=series.id, first=before.first, worse=before.worse, by=by,
            time=time.time(), reason=reason, until=until,
        ),
    )  # fmt: skip
    return _regression(series, change, _by_trend(history.root))
