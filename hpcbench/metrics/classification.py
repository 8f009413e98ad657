"""Metrics over labels: accuracy, balanced accuracy, macro F1.

A label is a text or a whole number (`7` and `"7"` are the same), whatever its case and spacing. An answer
that could not be read is of no class: wrong, counted against the recall of the right class and against
nothing else. So is a label that no reference has: models invent
class names, and a made-up one is not a class of its own whose F1 of 0 would enter the mean. Numbers are those
of scikit-learn with `labels` = the labels of the references and `zero_division=0`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from hpcbench.metrics.base import CorpusMetric, Counts, acceptable
from hpcbench.metrics.normalise import (
    Case,
    TextMetric,
    TextOptions,
    Whitespace,
    one_of,
    read_text,
    reference_text,
)
from hpcbench.metrics.text import ExactMatch

Average = Literal["macro", "weighted"]
"""Classes count `macro` alike, or `weighted` by their samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy(ExactMatch):
    """Share of samples with the right label; case and spacing do not count.

    A label is a text or a whole number (`7` and `"7"` are the same). An unread label is wrong.
    """

    name: ClassVar[str] = "accuracy"

    case: Case = "lower"
    whitespace: Whitespace = "collapse"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ByClass(CorpusMetric, TextMetric):
    """A metric made of three counts for each class: `of:` samples, `right:` hits, `said:` predictions."""

    accepts: ClassVar[tuple[str, ...]] = ("label", "text")

    case: Case = "lower"
    whitespace: Whitespace = "collapse"

    def score(self, prediction: object, references: Sequence[object]) -> Counts:
        """Counts of the one sample by class.

        If several labels are right, the predicted one counts as the sample's class, else the first in the
        alphabet.
        """
        right, said = self.labels(prediction, references)
        if said is None:
            return {f"of:{right}": 1}
        if said == right:
            return {f"of:{right}": 1, f"right:{right}": 1, f"said:{right}": 1}
        return {f"of:{right}": 1, f"said:{said}": 1}

    def labels(self, prediction: object, references: Sequence[object]) -> tuple[str, str | None]:
        """Right label and predicted one; None: it could not be read.

        Raises:
            ValueError: no reference.
            TypeError: a reference is no label.
        """
        known = acceptable(self.name, references)
        right = sorted(self.normalise(reference_text(self.name, one)) for one in known)
        read = read_text(prediction)
        said = None if read is None else self.normalise(read)
        return (said if said is not None and said in right else right[0]), said

    def _classes(self, sums: Mapping[str, Any]) -> Iterable[tuple[Any, Any, Any]]:
        """Samples, hits and predictions of each class, always in one order: sums of floats depend on it."""
        for name in sorted(sums):
            kind, _, label = name.partition(":")
            if kind == "of":
                yield sums[name], sums.get(f"right:{label}", 0), sums.get(f"said:{label}", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancedAccuracy(_ByClass):
    """Mean over the classes of the share of their samples that were recognised (recall)."""

    name: ClassVar[str] = "balanced_accuracy"

    def combine(self, sums: Mapping[str, Any]) -> Any:
        """Mean recall; a class without samples, as in some resamples, does not count."""
        recalls, classes = 0.0, 0.0
        for samples, hits, _ in self._classes(sums):
            recalls = recalls + hits / _one_for_none(samples)
            classes = classes + (samples > 0)
        return recalls / _one_for_none(classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MacroF1(_ByClass):
    """Mean over the classes of F1, 2 hits / (samples + predictions)."""

    name: ClassVar[str] = "macro_f1"

    average: Average = "macro"
    """How to average over classes."""

    def __post_init__(self) -> None:
        TextOptions.__post_init__(self)
        one_of("average", self.average, get_args(Average))

    def combine(self, sums: Mapping[str, Any]) -> Any:
        """Mean F1; a class without samples, as in some resamples, does not count."""
        total, weights = 0.0, 0.0
        for samples, hits, predictions in self._classes(sums):
            weight = samples if self.average == "weighted" else samples > 0
            total = total + weight * (2 * hits / _one_for_none(samples + predictions))
            weights = weights + weight
        return total / _one_for_none(weights)

    @property
    def signature(self) -> str:
        """E.g. `macro_f1|average:macro|case:lower|ws:collapse|unicode:nfc|v1`."""
        return self.describe(self.name, f"average:{self.average}")


def _one_for_none(count: Any) -> Any:
    """A divisor: the count, and 1 where it is 0; arrays element by element, without numpy being named."""
    return count + (count == 0)
