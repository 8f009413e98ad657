"""What every metric is, and how samples become one number.

A metric is a frozen dataclass whose fields are its options. It gives each sample two numbers, `Parts`, and
a set of samples one:

- a *mean* metric has denominator 1 at every sample: the aggregate is the mean of the samples' values;
- a *ratio* metric (CER, WER, micro F1) has the size of the sample as denominator: the aggregate is the sum
  of numerators over the sum of denominators, not the mean of the samples' rates.

Both are one formula, `ratio_of_sums`. The value of one sample is the aggregate of that sample alone,
`metric.aggregate([parts])`: what a denominator of 0 means differs from metric to metric.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

Aggregation = Literal["mean", "ratio"]
"""How samples become one number; tells which interval fits (hpcbench.statistics)."""

Bounds = tuple[float, float | None]
"""Least and greatest value a metric can take; None: no limit."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What one sample brings to a metric."""

    numerator: float
    """What is counted: a score in [0, 1], errors, right pairs."""
    denominator: float
    """What it is counted over: 1, the reference's length, pairs; 0 is possible in ratio metrics."""


class Metric(Protocol):
    """Scores predictions against references."""

    api: ClassVar[int]
    """Version of this Protocol: 1."""
    name: ClassVar[str]
    """Name in the entry-point group `hpcbench.metrics`."""
    higher_is_better: ClassVar[bool]
    aggregation: ClassVar[Aggregation]
    bounds: ClassVar[Bounds]

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Score one sample against its acceptable answers; the best one counts.

        A prediction that is None (it could not be read) or of another type is scored as the worst the
        metric knows, it never raises: models answer anything.

        Raises:
            ValueError: no reference.
            TypeError: a reference of a type the metric does not know.
        """
        ...

    def aggregate(self, parts: Sequence[Parts]) -> float:
        """One number for a set of samples, the same in any order.

        Raises:
            ValueError: no samples.
        """
        ...

    @property
    def signature(self) -> str:
        """Name, options and version: equal signatures mean comparable numbers."""
        ...


def divide(numerator: float, denominator: float) -> float:
    """`numerator / denominator`, or the numerator alone over 0.

    jiwer's rule for empty references: the error rate of text where none belongs is its length.
    """
    return numerator / denominator if denominator else float(numerator)


def ratio_of_sums(parts: Sequence[Parts], over_nothing: float | None = None) -> float:
    """Sum of numerators over sum of denominators; exactly rounded, so the order does not matter.

    Args:
        parts: one per sample.
        over_nothing: the value when the denominators sum to 0; None: jiwer's rule, see `divide`.

    Raises:
        ValueError: no parts.
    """
    if not parts:
        raise ValueError("a metric over no samples has no value")
    numerator = math.fsum(part.numerator for part in parts)
    denominator = math.fsum(part.denominator for part in parts)
    if not denominator and over_nothing is not None:
        return over_nothing
    return divide(numerator, denominator)


def best(
    metric: str, references: Sequence[object], key: Callable[[object], tuple[float, float, Parts]]
) -> Parts:
    """The parts of the reference that suits a prediction best.

    Args:
        metric: name, for the message.
        references: acceptable answers.
        key: gives (cost, size, parts) of a reference; the lowest cost wins, then the smaller size, so the
            order of the references does not matter.

    Raises:
        ValueError: no reference.
    """
    if not references:
        raise ValueError(f"{metric} needs at least one reference")
    return min((key(reference) for reference in references), key=lambda entry: entry[:2])[2]
