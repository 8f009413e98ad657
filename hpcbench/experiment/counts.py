"""The counts of a run task's samples: one vocabulary for command line, reports, pages and files.

    asked      = responded + failed
    responded  = ok + unreadable
    coverage   = ok ÷ (asked + skipped)

`done` measures progress only: samples that need no more work, however their requests ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

DEFINITIONS: Mapping[str, str] = {
    "asked": "samples that the run task asks about",
    "responded": "samples with an answer, cut ones included",
    "ok": "samples whose answer was read and can be scored",
    "unreadable": "samples whose answer could not be read, or breaks its schema",
    "failed": "samples without an answer: refused, bad, failed or not asked",
    "skipped": "bad rows of the dataset, which no request asked about",
    "coverage": "ok ÷ (asked + skipped)",
}
"""Count → its definition. The docs and the pages say the same; a test compares them."""

OUTCOMES: Mapping[str, str] = {
    "ok": "answered",
    "truncated": "answered, cut",
    "refused": "refused",
    "invalid": "bad request",
    "failed": "failed",
    "missing": "not asked",
}
"""Outcome of a request → its label for people: a label must not look like one of the counts."""


def outcomes_in_words(outcomes: Mapping[str, int]) -> str:
    """`18 answered, 2 bad request`: how requests ended, the most frequent first."""
    some = sorted(outcomes.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{count:,} {OUTCOMES.get(name, name)}" for name, count in some if count)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of samples of a run task, or of several together."""

    asked: int
    """Samples that the run task asks about."""
    responded: int
    """Asked samples with an answer."""
    unreadable: int
    """Samples whose answer could not be read."""
    skipped: int = 0
    """Unusable samples, not counted in `asked`."""
    unasked: int = 0
    """Samples counted in `asked` that were never asked."""

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
        """Denominator of the coverage."""
        return self.asked + self.skipped

    @property
    def coverage(self) -> float:
        """Share of ok samples; 0 if there are no samples."""
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
