"""How invoices are scored: fields, line items, number of line items.

The method of VLMHyperBench's v0.2 plans, made precise:

- a *field* is right if its text has a character error rate of at most 0.15 (edits / characters of the
  reference, in lower case with single spaces); one that is missing, or not expected, is wrong;
- a *line item*, a mapping in a list, is right if F1 over its fields, 2 right / (predicted + expected), is at
  least 0.85; items are paired so that the number of right ones is the greatest, then that of right fields;
- an invoice has the *right number of items* if as many are right as the reference has.

Over fields and over items: accuracy, precision, recall and F1 (`measure`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, get_args

from hpcbench.metrics.base import Aggregation, Parts, acceptable, over_one
from hpcbench.metrics.fields import (
    Comparison,
    FieldCounts,
    FieldOptions,
    Fields,
    KieF1Micro,
    Measure,
)
from hpcbench.metrics.normalise import Whitespace, one_of


@dataclass(frozen=True, slots=True, kw_only=True)
class InvoiceFieldF1(KieF1Micro):
    """`kie_f1_micro` with the invoice method's rule for a field: right at CER <= 0.15."""

    name: ClassVar[str] = "invoice_field_f1"

    max_cer: float = 0.15
    whitespace: Whitespace = "collapse"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Items(FieldOptions):
    """Definition of line items, and when one is right."""

    max_cer: float = 0.15
    whitespace: Whitespace = "collapse"
    item_f1: float = 0.85
    """A line item is right if F1 over its fields is at least this."""
    items: str = ""
    """Path of the list that holds the line items, `order.lines`; empty: all lists of mappings."""

    def __post_init__(self) -> None:
        FieldOptions.__post_init__(self)
        if self.lists != "match":
            raise ValueError(f"lists is {self.lists!r}; {self.name} pairs items, so it is match")
        if not 0 < self.item_f1 <= 1:
            raise ValueError(f"item_f1 is {self.item_f1}; it must be above 0 and at most 1")

    def describe(self, *parts: str) -> str:
        """A signature, see `FieldOptions.describe`."""
        own = f"item_f1:{self.item_f1:g}", f"items:{self.items or '-'}"
        return FieldOptions.describe(self, *parts, *own)

    def count_items(self, prediction: object, reference: object) -> FieldCounts:
        """Line items of a prediction and a reference: right ones, predicted, expected, paired ones.

        Raises:
            TypeError: the reference is no mapping.
        """
        given, expected = map(self._items, self.both(prediction, reference))
        comparison = Comparison(self)
        right = paired = 0
        for path, items in expected.items():
            others = given.get(path)
            if not others:
                continue
            for mine, theirs, agreement in comparison.pairs(others, items, self._is_right):
                agreed = sum(equal for _, equal in agreement)
                right += self._is_right(agreed, others[mine].size + items[theirs].size)
                paired += 1
        predicted, wanted = (sum(map(len, side.values())) for side in (given, expected))
        return FieldCounts(right, predicted, wanted, paired)

    def best_items(self, prediction: object, references: Sequence[object]) -> FieldCounts:
        """Parts for the reference with the highest F1 over items; if equal, the one with fewer items."""
        found = [self.count_items(prediction, one) for one in acceptable(self.name, references)]
        return max(found, key=lambda counts: (counts.f1, -counts.expected, counts.shared))

    def _is_right(self, right: int, both: int) -> bool:
        return 2 * right / both >= self.item_f1

    def _items(self, fields: Fields) -> dict[str, list[Fields]]:
        found: dict[str, list[Fields]] = {}
        for path, elements in fields.lists.items():
            name = ".".join(map(str, path))
            if not self.items or self.items == name:
                found[name] = [one for one in elements if one.is_mapping]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class InvoiceItemF1(_Items):
    """F1 over line items: 2 right / (predicted + expected), a ratio of sums.

    A sample without items on either side counts for nothing (0 / 0); a set of only such samples is 1.
    """

    name: ClassVar[str] = "invoice_item_f1"
    over_nothing: ClassVar[float | None] = 1.0
    aggregation: ClassVar[Aggregation] = "ratio"

    measure: Measure = "f1"
    """The counted amount, and the amount that it is divided by."""

    def __post_init__(self) -> None:
        _Items.__post_init__(self)
        one_of("measure", self.measure, get_args(Measure))

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Right items and those they are counted over.

        No mapping is scored as no items predicted, and as one wrong item where none is expected.
        """
        counts = self.best_items(prediction, references)
        if not isinstance(prediction, Mapping) and not counts.expected:
            return Parts(0, 1)
        return counts.parts(self.measure)

    @property
    def signature(self) -> str:
        """E.g. `invoice_item_f1|f1|item_f1:0.85|items:-|lists:match|…|cer:0.15|case:lower|…|v1`."""
        return self.describe(self.name, self.measure)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCountAccuracy(_Items):
    """Share of invoices with as many right line items as the reference has; also where it has none."""

    name: ClassVar[str] = "item_count_accuracy"

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """1 or 0, over 1; any of the references. Items too many do no harm. No mapping scores 0."""
        known = acceptable(self.name, references)
        found = [self.count_items(prediction, one) for one in known]
        right = any(one.right == one.expected for one in found)
        return over_one(float(right and isinstance(prediction, Mapping)))
