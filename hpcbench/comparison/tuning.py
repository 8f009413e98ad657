"""Search for the fastest settings of an engine: pure; duels of two settings are run by the caller.

Coordinate ascent: each knob's values are in order, and the search walks from the value in use in the
direction that is faster until no step is. It assumes that speed over a knob's values has one peak. Knobs are
tried once, in the order in which they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Value = str | int | float | bool | None
"""Value of a setting; None: the setting is not given."""

Settings = Mapping[str, Value]
"""Path of a setting, as for `hpcbench ab --a` → value."""

CONCURRENCY = "concurrency"
REPLICAS = "model.replicas_per_node"
"""Engines in a job."""

BY_JOBS = frozenset({REPLICAS, "model.gpu_memory_share"})
"""Settings that change how many engines a job has: they cannot take turns within a job."""

AT_ONCE = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Requests in flight that are tried."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A setting and the values to try, in order."""

    path: str
    values: tuple[Value, ...]
    start: int = 0
    """Place of the value in use."""

    @classmethod
    def around(cls, path: str, used: Value, values: Sequence[Value]) -> Knob:
        """A knob whose value in use is among the values or not; None in use: it comes before all values."""
        if used is None or used in values:
            every = tuple(values) if used in values else (None, *values)
            return cls(path, every, every.index(used))
        numbers = [one for one in (*values, used) if isinstance(one, int | float)]
        every = tuple(sorted(numbers)) if len(numbers) == len(values) + 1 else (used, *values)
        return cls(path, every, every.index(used))


@dataclass(frozen=True, slots=True)
class Duel:
    """Two settings that answered the same samples in turns."""

    settings: Settings
    """The settings that were tried."""
    against: Settings
    """The settings that were the fastest so far."""
    experiment: str
    """Id of the experiment."""
    verdict: Literal["better", "worse", "equivalent", "inconclusive"]
    """The tried settings, by answers a second."""
    ratio: float | None = None
    """Answers a second of the tried settings ÷ those so far."""
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    """Pairs of blocks that were compared."""
    worse: tuple[str, ...] = ()
    """Metrics of the answers by which the tried settings are worse; then they do not win."""

    @property
    def won(self) -> bool:
        """Whether the tried settings are faster, and no worse by any metric."""
        return self.verdict == "better" and not self.worse


Run = Callable[[Settings, Settings], Duel | None]
"""Runs a duel: the settings so far, the settings to try. None: the budget is used up."""


def search(knobs: Sequence[Knob], run: Run) -> tuple[Settings, bool]:
    """The fastest settings found, without those that are as at the start; and whether the search ended.

    At the end the fastest settings meet those of the start once more, unless a single duel already was this
    comparison: the gain of a chain of duels has no interval.
    """
    best: Settings = {}
    won = 0
    for knob in knobs:
        for step in (1, -1):
            place = knob.start + step
            while 0 <= place < len(knob.values):
                tried = {**best, knob.path: knob.values[place]}
                duel = run(best, tried)
                if duel is None:
                    return best, False
                if not duel.won:
                    break
                best, won, place = tried, won + 1, place + step
            if knob.path in best:
                break
    if won > 1:
        duel = run({}, best)
        if duel is None:
            return best, False
        if not duel.won:
            return {}, True
    return best, True
