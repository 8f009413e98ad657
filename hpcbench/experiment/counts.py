"""The counts of a run task's samples: one vocabulary for the command line, reports, pages and files.

    asked      = responded + failed
    responded  = ok + unreadable
    coverage   = ok ÷ (asked + skipped)

`done` is progress alone: samples that need no more work, however their requests ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["ok", "truncated", "refused", "invalid", "failed", "missing"]

DEFINITIONS: Mapping[str, str] = {
    "asked": "samples that the run task asks about",
    "responded": "samples with an answer, cut ones included",
    "ok": "samples whose answer was read and can be scored",
    "unreadable": "samples whose answer could not be read, or breaks its schema",
    "failed": "samples without an answer: refused, bad, failed or not asked",
    "skipped": "bad rows of the dataset, asked about by nobody",
    "coverage": "ok ÷ (asked + skipped)",
}
"""Count → what it counts. Documents and pages say the same; a test compares them."""

OUTCOMES: Mapping[str, str] = {
    "ok": "answered",
    "truncated": "answered, cut",
    "refused": "refused",
    "invalid": "bad request",
    "failed": "failed",
    "missing": "not asked",
}
"""Outcome of a request → its word for people: an outcome must not look like one of the counts."""


def outcomes_in_words(outcomes: Mapping[str, int]) -> str:
    """`18 answered, 2 bad request`: how requests ended, the commonest first."""
    some = sorted(outcomes.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{count:,} {OUTCOMES.get(name, name)}" for name, count in some if count)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of samples of a run task, or of several together."""

    asked: int
    """Samples that it asks about."""
    responded: int
    """Of these, those with an answer."""
    unreadable: int
    """Of these, those whose answer could not be read."""
    skipped: int = 0
    """Samples beside `asked` that could not be used."""
    unasked: int = 0
    """Of `asked`, those that were never asked."""

    @property
    def ok(self) -> int:
        """Samples whose answer was read."""
        return max(0, self.responded - self.unreadable)

    @property
    def failed(self) -> int:
        """Samples without an answer."""
        return max(0, self.asked - self.responded)

    @property
    def whole(self) -> int:
        """What coverage is a share of."""
        return self.asked + self.skipped

    @property
    def coverage(self) -> float:
        """Share of the samples that are ok; 0 of none."""
        return self.ok / self.whole if self.whole else 0.0

    def to_json(self) -> dict[str, int | float]:
        """As plain data, under the names of `DEFINITIONS`."""
        return {name: getattr(self, name) for name in DEFINITIONS}

    def sentence(self) -> str:
        """`34 asked: 20 responded (16 ok, 4 unreadable), 14 failed (10 not asked)`."""
        unread = f" ({self.ok:,} ok, {self.unreadable:,} unreadable)" if self.unreadable else ""
        failed = f", {self.failed:,} failed" if self.failed else ""
        unasked = f" ({self.unasked:,} not asked)" if self.unasked else ""
        skipped = f"; {self.skipped:,} skipped" if self.skipped else ""
        return (
            f"{self.asked:,} asked: {self.responded:,} responded{unread}{failed}{unasked}{skipped}"
        )


def counts_of(table: Mapping[str, Any]) -> Counts:
    """Counts of a run task by its table in `metrics.json`, of any version.

    Raises:
        KeyError, TypeError, ValueError: it is damaged.
    """
    return Counts(
        asked=int(table["asked"]),
        responded=int(table["answered"]),
        unreadable=int(table.get("invalid") or 0),
        skipped=int(table.get("skipped") or 0),
        unasked=int((table.get("outcomes") or {}).get("missing") or 0),
    )


def total(counts: Iterable[Counts]) -> Counts:
    """Counts of several run tasks together."""
    each = list(counts)
    return Counts(
        asked=sum(one.asked for one in each),
        responded=sum(one.responded for one in each),
        unreadable=sum(one.unreadable for one in each),
        skipped=sum(one.skipped for one in each),
        unasked=sum(one.unasked for one in each),
    )
