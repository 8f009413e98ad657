"""A sample scored by a metric: its parts, its value, and its fields."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hpcbench.metrics.base import outside, value_of
from hpcbench.metrics.resources import MEASURED
from hpcbench.schema.records import Reading, Sample
from hpcbench.scorer.isolate import error_line


class Score(NamedTuple):
    """A sample's score by a metric."""

    parts: Any
    """Numerator and denominator; of a corpus metric its counts, as JSON."""
    value: float
    """The value of this sample alone."""
    fields: Sequence[tuple[str, float, float]] = ()
    """Field of the object, numerator, denominator."""


@dataclass(slots=True)
class Scorer:
    """Scores samples by one metric."""

    metric: Any
    is_corpus: bool = field(init=False)
    """Whether a sample gives counts instead of a numerator and a denominator."""
    takes_reading: bool = field(init=False)
    """Whether every answer has a value, also an unreadable one."""
    _takes_sample: bool = field(init=False)
    _plain_mean: bool = field(init=False)
    _score_fields: Any = field(init=False)

    def __post_init__(self) -> None:
        self.is_corpus = is_corpus(self.metric)
        self.takes_reading = takes_reading(self.metric)
        self._takes_sample = takes_sample(self.metric)
        self._plain_mean = self.metric.aggregation == "mean" and not hasattr(self.metric, "value")
        self._score_fields = getattr(self.metric, "score_fields", None)

    def score(self, sample: Sample, reading: Reading | None) -> Score:
        """The score of one sample.

        Args:
            sample: the sample with its references.
            reading: how its answer was read; None without an answer.

        Raises:
            ValueError: a number is not finite, or outside the metric's bounds. The metric may raise other
                exceptions.
            TypeError: the metric returns something else than parts.
        """
        prediction, references = self._pair(sample, reading)
        return self._score(parts_of(self.metric, prediction, references), prediction, references)

    def score_all(
        self, asked: Sequence[tuple[Sample, Reading | None]], seconds: float
    ) -> list[tuple[Score | None, str | None]]:
        """The scores of samples by a metric whose program scores many in one run: score or fault of each.

        Args:
            asked: samples, and how their answers were read.
            seconds: time for one sample.
        """
        pairs = [self._pair(*one) for one in asked]
        found: list[tuple[Score | None, str | None]] = []
        for pair, parts in zip(pairs, self.metric.score_all(pairs, seconds), strict=True):
            try:
                if isinstance(parts, Exception):
                    raise parts
                found.append((self._score(parts, *pair), None))
            except Exception as error:  # noqa: BLE001 - foreign code: its failure is the finding
                found.append((None, error_line(error)))
        return found

    def _pair(self, sample: Sample, reading: Reading | None) -> tuple[object | None, Sequence[Any]]:
        """Prediction and references as the metric takes them."""
        prediction = reading if self.takes_reading or reading is None else reading.value
        return prediction, (sample,) if self._takes_sample else sample.references

    def _score(self, parts: Any, prediction: object | None, references: Sequence[Any]) -> Score:
        if self.is_corpus:
            counts = {str(name): float(count) for name, count in parts.items()}
            kept: Any = json.dumps(counts, ensure_ascii=False, allow_nan=False, sort_keys=True)
        else:
            kept = (_finite(parts.numerator), _finite(parts.denominator))
        plain = self._plain_mean and kept[1]
        value = kept[0] / kept[1] if plain else _finite(value_of(self.metric, parts))
        if wrong := outside(self.metric, value):
            raise ValueError(f"the metric gave a value {wrong}")
        fields: list[tuple[str, float, float]] = []
        if self._score_fields is not None:
            for name, one in self._score_fields(prediction, references).items():
                fields.append((str(name), _finite(one.numerator), _finite(one.denominator)))
        return Score(kept, value, fields)


def parts_of(metric: Any, prediction: object | None, references: Sequence[Any]) -> Any:
    """Parts of one sample for a metric.

    Raises:
        TypeError: it is neither a numerator and a denominator nor, of a corpus metric, counts. The metric may
            raise other exceptions.
    """
    found = metric.score(prediction, references)
    if is_corpus(metric):
        if not isinstance(found, Mapping):
            what = type(found).__name__
            raise TypeError(f"score() returns a {what}; a corpus metric returns counts by name")
    elif not (hasattr(found, "numerator") and hasattr(found, "denominator")):
        what = type(found).__name__
        raise TypeError(f"score() returns a {what}; it returns Parts(numerator, denominator)")
    return found


def takes_reading(metric: Any) -> bool:
    """Whether a metric uses how an answer was read, and so has a value for every answer."""
    return "reading" in getattr(metric, "accepts", ())


def takes_sample(metric: Any) -> bool:
    """Whether a metric receives the sample instead of its references: numbers that came with the sample."""
    return "sample" in getattr(metric, "accepts", ())


def takes_measurement(metric: Any) -> bool:
    """Whether a metric reads no answer, but what it took: time, tokens, memory."""
    return MEASURED in getattr(metric, "accepts", ())


def is_of_run(metric: Any) -> bool:
    """Whether a metric has one value for a whole run task, and none for single samples."""
    return bool(metric.aggregation == "run")


def is_ours(metric: Any) -> bool:
    """Whether a metric ships with hpcbench."""
    return type(metric).__module__.startswith("hpcbench.")


def is_corpus(metric: Any) -> bool:
    """Whether a sample gives a metric counts instead of a numerator and a denominator."""
    return bool(metric.aggregation == "corpus")


def _finite(number: Any) -> float:
    found = float(number)
    if not math.isfinite(found):
        raise ValueError(f"the metric gave {found}")
    return found
