"""Scoring: samples with their answers become columns, a batch at a time; batches are independent."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hpcbench.evaluation.mistakes import mistake_of
from hpcbench.evaluation.reading import read_answer
from hpcbench.experiment.view.answer import (
    MISSING,
    Answer,
    is_answered,
)
from hpcbench.experiment.view.scores import ENDINGS, META, OF_FIELDS, OF_SAMPLES
from hpcbench.metrics.resources import NotMeasuredError
from hpcbench.parsers import Read
from hpcbench.schema.records import Fault, Reading, Sample
from hpcbench.scorer.handover import Asked
from hpcbench.scorer.isolate import Guard
from hpcbench.scorer.one import Score, Scorer, takes_measurement

BATCH = 20_000
"""Samples in memory as objects at a time."""

Answered = Iterable[tuple[Sample, Answer | None]]
"""Every sample of the run task with its answer; None without one."""

Outcome = tuple[Score | None, str | None]
"""The score of a sample, or why it has none: (score, None) or (None, fault)."""


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


class Elsewhere(Protocol):
    """Scores a batch by metrics that do not run in this process."""

    @property
    def metrics(self) -> Sequence[str]:
        """Names of the metrics."""
        ...

    def score(self, asked: Sequence[Asked]) -> Mapping[str, Sequence[Outcome]]:
        """Metric → score or fault of each sample, in their order."""
        ...


def batches(
    answered: Answered,
    reader: Read,
    metrics: Mapping[str, Any],
    policy: Policy,
    columns: Sequence[str],
    guard: Guard,
    elsewhere: Sequence[Elsewhere] = (),
) -> Iterator[Batch]:
    """Read and score answers.

    Args:
        answered: the samples.
        reader: how their answers are read.
        metrics: the metrics to score by, by the names of their columns.
        policy: how samples count that have no answer, or no readable one.
        columns: metadata to keep.
        guard: turns an exception of a parser or metric into a fault of its sample.
        elsewhere: score by those of the metrics that do not run in this process.
    """
    pairs = iter(answered)
    while some := list(itertools.islice(pairs, BATCH)):
        yield _scored(some, reader, metrics, policy, columns, guard, elsewhere)


def _scored(
    pairs: Sequence[tuple[Sample, Answer | None]],
    reader: Read,
    metrics: Mapping[str, Any],
    policy: Policy,
    columns: Sequence[str],
    guard: Guard,
    elsewhere: Sequence[Elsewhere],
) -> Batch:
    scorers = {name: _Scorer(name, metric, policy) for name, metric in metrics.items()}
    away = {name for one in elsewhere for name in one.metrics}
    measuring = [one for one in scorers.values() if one.measures]
    here = [one for name, one in scorers.items() if name not in away and not one.measures]
    asked: list[Asked] = []
    with guard:
        samples = _read(pairs, reader, columns, guard, here, asked if away else None)
    for sample, answer in pairs if measuring else ():
        for scorer in measuring:
            scorer.take(sample, None, *_measured(scorer.metric, answer))
    for one in elsewhere:
        for name, found in one.score(asked).items():
            for (sample, reading), outcome in zip(asked, found, strict=True):
                scorers[name].take(sample, reading, *outcome)
    fields: dict[str, list[Any]] = {name: [] for name in OF_FIELDS}
    for scorer in scorers.values():
        for name, cells in scorer.fields.items():
            fields[name] += cells
    return Batch(samples, {name: one.columns for name, one in scorers.items()}, fields)


def _read(
    pairs: Sequence[tuple[Sample, Answer | None]],
    reader: Read,
    columns: Sequence[str],
    guard: Guard,
    scorers: Sequence[_Scorer],
    asked: list[Asked] | None,
) -> dict[str, list[Any]]:
    """Columns of the samples. Each sample is scored when it is read, and kept in `asked` for others."""
    samples: dict[str, list[Any]] = {
        name: [] for name in (*OF_SAMPLES, *(META + one for one in columns))
    }
    add = {name: values.append for name, values in samples.items()}
    for sample, answer in pairs:
        answers = is_answered(answer)
        reading = None
        if answer is not None and answers:
            reading = read_answer(reader, guard, sample, answer.text, answer.outcome)
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
        add["exit"](answer.exit if answer else None)
        add["agent_turns"](answer.turns if answer else None)
        add["agent_calls"](answer.tool_calls if answer else None)
        add["references"]([as_text(one) for one in sample.references])
        for one in columns:
            add[META + one](as_text(sample.metadata.get(one, sample.fields.get(one))))
        for scorer in scorers:
            scorer.take(sample, reading, *guard.call(scorer.score, sample, reading))
        if asked is not None:
            asked.append((sample, reading))
    return samples


def _measured(metric: Any, answer: Answer | None) -> Outcome:
    """Score of an answer by a resource metric; neither value nor fault where there is no answer."""
    if answer is None or not is_answered(answer):
        return None, None
    try:
        parts = metric.score(answer.measured, ())
    except NotMeasuredError as error:
        return None, str(error)
    return Score((parts.numerator, parts.denominator), parts.numerator), None


@dataclass(slots=True)
class _Scorer:
    """The columns of one metric over the samples of a batch.

    Parts are also kept of samples that the policy leaves out, such as unreadable answers: so tables can give
    the value under the other policy. The value of such a sample is None.
    """

    name: str
    metric: Any
    policy: Policy
    columns: dict[str, list[Any]] = field(init=False)
    fields: dict[str, list[Any]] = field(init=False)
    score: Callable[[Sample, Reading | None], Score] = field(init=False)
    """Scores one sample in this process."""
    measures: bool = field(init=False)
    """Whether it looks at what answers took, not at what they say."""
    _scorer: Scorer = field(init=False)

    def __post_init__(self) -> None:
        self._scorer = Scorer(self.metric)
        self.score = self._scorer.score
        self.measures = takes_measurement(self.metric)
        endings = (
            ("", ".counts", ".fault") if self._scorer.is_corpus else ("", *ENDINGS[:2], ".fault")
        )
        self.columns = {self.name + ending: [] for ending in endings}
        self.fields = {name: [] for name in OF_FIELDS}

    def take(
        self, sample: Sample, reading: Reading | None, score: Score | None, fault: str | None
    ) -> None:
        """Add the score of one sample, or why it has none."""
        if self.measures:
            counted = score is not None
        elif self._scorer.takes_reading or reading is None:
            counted = reading is not None or self.policy.on_failed == "zero"
        else:
            counted = reading.value is not None or self.policy.on_invalid == "zero"
        columns, name = self.columns, self.name
        columns[name].append(score.value if score is not None and counted else None)
        columns[f"{name}.fault"].append(fault)
        if self._scorer.is_corpus:
            columns[f"{name}.counts"].append(None if score is None else score.parts)
        else:
            numerator, denominator = (None, None) if score is None else score.parts
            columns[f"{name}.numerator"].append(numerator)
            columns[f"{name}.denominator"].append(denominator)
        for key, numerator, denominator in score.fields if score is not None else ():
            for column, cell in zip(
                self.fields.values(),
                (sample.id, sample.document, name, key, numerator, denominator),
                strict=True,
            ):
                column.append(cell)


def as_text(value: object | None) -> str | None:
    """Text as it is, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _faults(faults: Sequence[Fault]) -> str:
    return "; ".join(f"{one.kind} {one.path}".strip() for one in faults)
