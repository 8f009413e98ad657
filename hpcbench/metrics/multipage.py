"""Metrics of bundles of pages: in which order they belong, and of which class each is.

An order is a list of page ids, or a text: "3 1 2", "3, 1, 2", "[3, 1, 2]", "3 → 1 → 2", or "312", where
each digit is a page. In a table of samples, whose references are lists of acceptable answers, it is a text,
or a list in a list. Kendall's tau and Spearman's rho are between the right positions of the pages and those
they were given; both are 1 for the right order and -1 for the reverse, and equal to scipy's for orders
without ties. There are none: of a page named twice, the first is the first.

Where the pages of the answer are not those of the reference, or nothing could be read, there is no order to
compare and the value is 0, as in VLMHyperBench's rule for page order.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hpcbench.metrics.base import (
    Aggregation,
    Bounds,
    Parts,
    SampleMetric,
    acceptable,
    best,
    over_one,
)
from hpcbench.metrics.normalise import Case, TextMetric, Whitespace, read_text

_LISTED = re.compile(r"[,;|\n→]|->")
_AROUND = " \t\r\n\"'()[]{}."


def read_pages(value: object, count: int | None = None) -> list[str] | None:
    """One entry for each page, in the order given; None: it is no list of pages.

    Args:
        value: a list of texts and whole numbers, or a text.
        count: pages expected; None: unknown. A run of digits is one page only where one is expected.
    """
    if isinstance(value, (list, tuple)):
        entries = [read_text(entry) for entry in value]
        return None if None in entries else [(entry or "").strip() for entry in entries]
    text = read_text(value)
    if text is None:
        return None
    pieces = _LISTED.split(text) if _LISTED.search(text) else text.split()
    pages = [page for page in (part.strip(_AROUND) for part in pieces) if page]
    if len(pages) == 1 and count != 1 and pages[0].isdecimal():
        return list(pages[0])
    return pages


def reference_pages(metric: str, value: object) -> list[str]:
    """`read_pages` for references, where anything else is a fault of the dataset.

    Raises:
        TypeError: it is no list of pages.
    """
    pages = read_pages(value)
    if pages is None:
        raise TypeError(
            f"{metric} compares lists of pages; a reference is of type {type(value).__name__}"
        )
    return pages


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order(SampleMetric):
    """Compares the order of pages with the right one; over samples the mean."""

    accepts: ClassVar[tuple[str, ...]] = ("text",)
    bounds: ClassVar[Bounds] = (-1.0, 1.0)
    one_tree: ClassVar[bool] = True
    """A list is one order, not several acceptable ones."""

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Agreement with the closest of the right orders, over 1."""

        def agreement(reference: object) -> float:
            right = reference_pages(self.name, reference)
            given = read_pages(prediction, len(right))
            return 0.0 if given is None else self._of_pages(given, right)

        return over_one(max(map(agreement, acceptable(self.name, references))))

    def _of_pages(self, given: Sequence[str], right: Sequence[str]) -> float:
        if len(given) != len(right) or sorted(given) != sorted(right):
            return 0.0
        places: dict[str, list[int]] = {}
        for place in range(len(right) - 1, -1, -1):
            places.setdefault(right[place], []).append(place)
        return self._agreement([places[page].pop() for page in given])

    def _agreement(self, places: Sequence[int]) -> float:
        """Value of an order, given as the right place of each page; 0, 1, 2 … is right."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class KendallTau(_Order):
    """Kendall's tau: pairs of pages in the right order less those in the wrong one, over all pairs."""

    name: ClassVar[str] = "kendall_tau"

    def _agreement(self, places: Sequence[int]) -> float:
        pairs = len(places) * (len(places) - 1) // 2
        if not pairs:
            return 1.0
        wrong, before = 0, list[int]()
        for place in places:
            at = bisect.bisect(before, place)
            wrong += len(before) - at
            before.insert(at, place)
        return (pairs - 2 * wrong) / pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Spearman(_Order):
    """Spearman's rho: correlation of the places, 1 - 6 Σ d² / (n³ - n)."""

    name: ClassVar[str] = "spearman"

    def _agreement(self, places: Sequence[int]) -> float:
        count = len(places)
        if count < 2:
            return 1.0
        squares = sum((place - at) ** 2 for at, place in enumerate(places))
        return 1 - 6 * squares / (count**3 - count)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionAccuracy(_Order):
    """Share of places that have the right page."""

    name: ClassVar[str] = "position_accuracy"

    def _agreement(self, places: Sequence[int]) -> float:
        if not places:
            return 1.0
        return sum(place == at for at, place in enumerate(places)) / len(places)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAccuracy(TextMetric):
    """Share of pages whose class is right, over the pages of all bundles: a ratio of sums.

    The answer has one label for each page: "1 1 2", "112", "invoice, passport". A missing one is wrong, one
    too many is ignored.
    """

    name: ClassVar[str] = "page_accuracy"
    over_nothing: ClassVar[float | None] = 1.0
    accepts: ClassVar[tuple[str, ...]] = ("text",)
    aggregation: ClassVar[Aggregation] = "ratio"
    one_tree: ClassVar[bool] = True

    case: Case = "lower"
    whitespace: Whitespace = "collapse"

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Right pages over the pages of the closest reference (if equal, the shorter one).

        No list of pages is one wrong page where none is expected.
        """

        def cost(reference: object) -> tuple[float, float, Parts]:
            right = reference_pages(self.name, reference)
            said = read_pages(prediction, len(right))
            if not right:
                return (0.0, 1, Parts(0, 1)) if said is None else (-1.0, 0, Parts(0, 0))
            pairs = zip(said or (), right, strict=False)
            hits = sum(self.normalise(page) == self.normalise(label) for page, label in pairs)
            return -hits / len(right), len(right), Parts(hits, len(right))

        return best(self.name, references, cost)
