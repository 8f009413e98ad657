"""Scoring: samples with their answers become columns, a batch at a time; batches are independent."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcbench.evaluation.isolate import Guard
from hpcbench.evaluation.mistakes import mistake_of
from hpcbench.evaluation.reading import read_answer
from hpcbench.experiment.view.answer import (
    MISSING,
    Answer,
    is_answered,
)
from hpcbench.experiment.view.scores import ENDINGS, META, OF_FIELDS, OF_SAMPLES
from hpcbench.metrics.base import outside, value_of
from hpcbench.parsers import Read
from hpcbench.schema.records import Fault, Reading, Sample

BATCH = 20_000
"""Samples in memory as objects at a time."""

Answered = Iterable[tuple[Sample, Answer | None]]
"""Every sample of the run task with its answer; None without one."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How samples count that give a metric nothing to compare."""

    on_failed: str
    """For samples without an answer: `exclude` or `zero`."""
    on_invalid: str
    """For answers without a value: `exclude` or `zero`."""


@dataclass(slots=True)
class Batch:
    """Columns of consecutive samples."""

    samples: dict[str, list[Any]]
    """Columns of the samples themselves."""
    metrics: dict[str, dict[str, list[Any]]]
    """Metric → its columns."""
    fields: dict[str, list[Any]]
    """Columns of fields, one row per field of a sample."""

    @property
    def size(self) -> int:
        """Number of samples."""
        return len(self.samples["sample"])


def batches(
    answered: Answered,
    reader: Read,
    metrics: Mapping[str, Any],
    policy: Policy,
    columns: Sequence[str],
    guard: Guard,
) -> Iterator[Batch]:
    """Read and score answers.

    Args:
        answered: the samples.
        reader: how their answers are read.
        metrics: the metrics to score by, by the names of their columns.
        policy: how samples count that have no answer, or no readable one.
        columns: metadata to keep.
        guard: turns an exception of a parser or metric into a fault of its sample.
    """
    pairs = iter(answered)
    while some := list(itertools.islice(pairs, BATCH)):
        with guard:
            batch = _scored(some, reader, metrics, policy, columns, guard)
        yield batch


def _scored(
    pairs: Sequence[tuple[Sample, Answer | None]],
    reader: Read,
    metrics: Mapping[str, Any],
    policy: Policy,
    columns: Sequence[str],
    guard: Guard,
) -> Batch:
    samples: dict[str, list[Any]] = {
        name: [] for name in (*OF_SAMPLES, *(META + one for one in columns))
    }
    scorers = [_Scorer(name, metric, policy, guard) for name, metric in metrics.items()]
    add = {name: values.append for name, values in samples.items()}
    for sample, answer in pairs:
        answers = is_answered(answer)
        reading = read_answer(reader, guard, sample, answer) if answer and answers else None
        value = reading.value if reading is not None else None
        add["sample"](sample.id)
        add["document"](sample.document)
        add["outcome"](answer.outcome if answer else MISSING)
        add["prompt"](answer.prompt if answer else None)
        add["error"](answer.error if answer and not answers else None)
        add["answer"](answer.text if answer else None)
        add["prediction"](as_text(value))
        add["reason"]((reading.reason or None) if reading else None)
        add["form"]((reading.form or None) if reading else None)
        add["repairs"]("; ".join(reading.repairs) or None if reading else None)
        add["faults"](_faults(reading.faults) if reading and reading.faults else None)
        add["mistake"](
            mistake_of(value, sample.references, bool(answer and answer.outcome == "truncated"))
        )
        add["images"](answer.images if answer else None)
        add["truncated"](answer.outcome == "truncated" if answer else None)
        add["invalid"](reading is not None and value is None)
        add["e2e_ms"](answer.e2e_ms if answer else None)
        add["completion_tokens"](answer.completion_tokens if answer else None)
        add["references"]([as_text(one) for one in sample.references])
        for one in columns:
            add[META + one](as_text(sample.metadata.get(one, sample.fields.get(one))))
        for scorer in scorers:
            scorer.add(sample, reading)
    fields: dict[str, list[Any]] = {name: [] for name in OF_FIELDS}
    for scorer in scorers:
        for name, cells in scorer.fields.items():
            fields[name] += cells
    return Batch(samples, {one.name: one.columns for one in scorers}, fields)


@dataclass(slots=True)
class _Scorer:
    """One metric over the samples of a batch.

    Parts are also kept of samples that the policy leaves out, such as unreadable answers: so tables can give
    the value under the other policy. The value of such a sample is None.
    """

    name: str
    metric: Any
    policy: Policy
    guard: Guard
    columns: dict[str, list[Any]] = field(init=False)
    fields: dict[str, list[Any]] = field(init=False)
    _takes_reading: bool = field(init=False)
    _plain_mean: bool = field(init=False)
    _score_fields: Any = field(init=False)

    def __post_init__(self) -> None:
        endings = (
            ("", ".counts", ".fault") if is_corpus(self.metric) else ("", *ENDINGS[:2], ".fault")
        )
        self.columns = {self.name + ending: [] for ending in endings}
        self._takes_reading = takes_reading(self.metric)
        self._plain_mean = self.metric.aggregation == "mean" and not hasattr(self.metric, "value")
        self._score_fields = getattr(self.metric, "score_fields", None)
        self.fields = {name: [] for name in OF_FIELDS}

    def add(self, sample: Sample, reading: Reading | None) -> None:
        """Score one sample."""
        if self._takes_reading or reading is None:
            prediction: object | None = reading
            counted = reading is not None or self.policy.on_failed == "zero"
        else:
            prediction = reading.value
            counted = prediction is not None or self.policy.on_invalid == "zero"
        references = (sample,) if takes_sample(self.metric) else sample.references
        found, fault = self.guard.call(self._score, prediction, references)
        parts, value, fields = found if fault is None else ((None, None), None, ())
        columns, name = self.columns, self.name
        columns[name].append(value if counted else None)
        columns[f"{name}.fault"].append(fault)
        if f"{name}.counts" in columns:
            columns[f"{name}.counts"].append(None if fault else parts)
        else:
            columns[f"{name}.numerator"].append(parts[0])
            columns[f"{name}.denominator"].append(parts[1])
        for key, numerator, denominator in fields:
            for column, cell in zip(
                self.fields.values(),
                (sample.id, sample.document, name, key, numerator, denominator),
                strict=True,
            ):
                column.append(cell)

    def _score(
        self, prediction: object | None, references: Sequence[Any]
    ) -> tuple[Any, float, Sequence[tuple[str, float, float]]]:
        """Parts, value and fields of one sample.

        Raises:
            ValueError: a number is not finite, or outside the metric's bounds. The metric may raise other
                exceptions.
            TypeError: the metric returns something else than parts.
        """
        parts = parts_of(self.metric, prediction, references)
        if f"{self.name}.counts" in self.columns:
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
        return kept, value, fields


def parts_of(metric: Any, prediction: object | None, references: Sequence[Any]) -> Any:
    """What one sample brings to a metric.

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


def is_ours(metric: Any) -> bool:
    """Whether a metric ships with hpcbench."""
    return type(metric).__module__.startswith("hpcbench.")


def is_corpus(metric: Any) -> bool:
    """Whether a sample gives a metric counts instead of a numerator and a denominator."""
    return bool(metric.aggregation == "corpus")


def as_text(value: object | None) -> str | None:
    """Text as it is, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _faults(faults: Sequence[Fault]) -> str:
    return "; ".join(f"{one.kind} {one.path}".strip() for one in faults)


def _finite(number: Any) -> float:
    found = float(number)
    if not math.isfinite(found):
        raise ValueError(f"the metric gave {found}")
    return found
