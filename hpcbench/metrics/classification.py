"""Metrics over labels: accuracy of a single label per sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hpcbench.metrics.normalise import Case, Whitespace
from hpcbench.metrics.text import ExactMatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy(ExactMatch):
    """Share of samples whose label is right, whatever its case and spacing.

    A label is a text or a whole number (`7` and `"7"` are the same). An unread label is wrong.
    """

    name: ClassVar[str] = "accuracy"

    case: Case = "lower"
    whitespace: Whitespace = "collapse"
