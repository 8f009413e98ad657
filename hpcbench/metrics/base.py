"""The contract of metrics, and how samples become one number.

A metric is a frozen dataclass whose fields are its options. It gives each sample numbers that can be added
up over samples, and a set of samples one number, made of the sums alone:

- a *mean* metric has denominator 1 at every sample: the aggregate is the mean of the samples' values;
- a *ratio* metric (CER, WER, micro F1) has the size of the sample as denominator: the aggregate is the sum
  of numerators over the sum of denominators, not the mean of the samples' rates;
- a *corpus* metric (BLEU, macro F1) needs more than two sums: its samples give `Counts`, named numbers, and
  `combine` makes a value of their sums.

That a set's value depends on sums alone is what makes groups, intervals by resampling whole documents and
results merged from shards cheap. The value of one sample is `value_of(metric, parts)`: what a denominator of
0 means differs from metric to metric, and so may the rule for one sample (BLEU of a sentence).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Protocol, TypeVar

Aggregation = Literal["mean", "ratio", "corpus"]
"""How samples become one number; tells which interval fits (hpcbench.statistics)."""

One = TypeVar("One")

Bounds = tuple[float, float | None]
"""Least and greatest value a metric can take; None: no limit."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of one sample for a metric."""

    numerator: float
    """The counted amount: a score in [0, 1], errors, right pairs."""
    denominator: float
    """The amount that it is divided by: 1, the reference's length, pairs; 0 is possible in ratio metrics."""


Counts = Mapping[str, float]
"""Counts of one sample for a corpus metric: added up name by name over samples; an absent name is 0."""


class Metric(Protocol):
    """Scores predictions against references.

    Optional parts of a class:

    - `accepts: tuple[str, ...]`: outputs of ML tasks it is for: text, label, object; or `reading`, then a
      prediction is how an answer was read (`.value`, `.reason`, `.repairs`, `.faults`, `.truncated`);
      with `sample` the sample itself takes the place of its references: numbers that came with it;
    - `combine(sums) -> value`: of a corpus metric, from named sums, which are numbers, or numpy arrays of one
      shape with one element a resample; 0 stands for nothing;
    - `value(parts) -> float`: of one sample, where that is not `aggregate([parts])`;
    - `score_fields(prediction, references) -> {field: parts}`: the same by field of an object, for tables;
    - `compat: str` with `dialects: ClassVar[Mapping[str, Dialect]]` (hpcbench.metrics.kits): see
      `take_dialect`.
    """

    api: ClassVar[int]
    """Version of this Protocol: 1."""
    name: ClassVar[str]
    """Name in the entry-point group `hpcbench.metrics`."""
    higher_is_better: ClassVar[bool]
    aggregation: ClassVar[Aggregation]
    bounds: ClassVar[Bounds]

    def score(self, prediction: object, references: Sequence[object]) -> Any:
        """Score one sample against its acceptable answers; the best one counts.

        A prediction that is None (it could not be read) or of another type is scored as the worst the
        metric knows, it never raises: models answer anything.

        Returns:
            `Parts`, or of a corpus metric `Counts`.

        Raises:
            ValueError: no reference.
            TypeError: a reference of a type the metric does not know.
        """
        ...

    def aggregate(self, parts: Sequence[Any]) -> float:
        """One number for a set of samples, the same in any order.

        Raises:
            ValueError: no samples.
        """
        ...

    @property
    def signature(self) -> str:
        """Name, options and version: equal signatures mean comparable numbers."""
        ...


class SampleMetric:
    """Defaults of a metric: a mean of values in [0, 1], of texts, more is better."""

    __slots__ = ()
    api: ClassVar[int] = 1
    name: ClassVar[str]
    higher_is_better: ClassVar[bool] = True
    accepts: ClassVar[tuple[str, ...]] = ("text", "label")
    aggregation: ClassVar[Aggregation] = "mean"
    bounds: ClassVar[Bounds] = (0.0, 1.0)
    over_nothing: ClassVar[float | None] = None
    """Value of a set whose denominators sum to 0; None: jiwer's rule, see `divide`."""

    def aggregate(self, parts: Sequence[Any]) -> float:
        """Sum of numerators over sum of denominators: of a mean metric, the mean."""
        return ratio_of_sums(parts, self.over_nothing)

    @property
    def signature(self) -> str:
        """Name and version; with its options, where it has some."""
        return f"{self.name}|v1"


class CorpusMetric(SampleMetric):
    """A metric whose value is made of sums of named counts."""

    __slots__ = ()
    aggregation: ClassVar[Aggregation] = "corpus"

    def aggregate(self, parts: Sequence[Any]) -> float:
        """The value of the sums of all samples' counts."""
        return float(self.combine(add_up(parts)))

    def combine(self, sums: Mapping[str, Any]) -> Any:
        """The value that sums of counts give, for numbers and for arrays alike."""
        raise NotImplementedError


class TooLarge(ValueError):
    """A sample is larger than a metric may compare; counted as not scored, with this reason."""


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
    if len(parts) == 1:  # asked for each sample of a run
        numerator, denominator = parts[0].numerator, parts[0].denominator
    else:
        numerator = math.fsum(part.numerator for part in parts)
        denominator = math.fsum(part.denominator for part in parts)
    if not denominator and over_nothing is not None:
        return over_nothing
    return divide(numerator, denominator)


_WRONG = Parts(0.0, 1)
_RIGHT = Parts(1.0, 1)


def over_one(value: float) -> Parts:
    """The parts of one sample of a mean metric."""
    if (
        value == 1
    ):  # most samples are right or wrong, and making an object takes as long as a comparison
        return _RIGHT
    return Parts(value, 1) if value else _WRONG


def acceptable(metric: str, references: Sequence[One]) -> Sequence[One]:
    """The references themselves.

    Args:
        metric: name, for the message.
        references: acceptable answers.

    Raises:
        ValueError: there is none.
    """
    if not references:
        raise ValueError(f"{metric} needs at least one reference")
    return references


def best(
    metric: str, references: Sequence[One], key: Callable[[One], tuple[float, float, Parts]]
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
    if len(acceptable(metric, references)) == 1:  # the usual case
        return key(references[0])[2]
    return min((key(reference) for reference in references), key=lambda entry: entry[:2])[2]


def value_of(metric: Any, parts: Any) -> float:
    """The value of one sample."""
    value = getattr(metric, "value", None)
    if value is not None:
        return float(value(parts))
    if metric.aggregation == "mean":  # the mean of one; asked for each sample of a run
        return float(parts.numerator)
    return float(metric.aggregate([parts]))


OF_BOUNDS = "value in the metric's bounds"
"""End of what `outside` says."""


def outside(metric: Any, value: float) -> str:
    """Why a value is outside a metric's bounds, `above 1, the …`; empty: it is inside."""
    low, high = limits(metric)
    if value < low:
        return f"below {metric.bounds[0]:g}, the least {OF_BOUNDS}"
    if value > high:
        return f"above {metric.bounds[1]:g}, the greatest {OF_BOUNDS}"
    return ""


def limits(metric: Any) -> tuple[float, float]:
    """A metric's bounds as numbers, wider by errors of rounding."""
    low, high = getattr(metric, "bounds", (-math.inf, None))
    slack = 1e-9 * max(1.0, abs(low), abs(high or 0.0)) if math.isfinite(low) else 0.0
    return low - slack, math.inf if high is None else high + slack


def add_up(counts: Iterable[Counts]) -> dict[str, float]:
    """Sums of counts by name; exactly rounded, so the order does not matter.

    Raises:
        ValueError: no counts.
    """
    found: dict[str, list[float]] = {}
    nothing = True
    for one in counts:
        nothing = False
        for name, count in one.items():
            found.setdefault(name, []).append(count)
    if nothing:
        raise ValueError("a metric over no samples has no value")
    return {name: math.fsum(numbers) for name, numbers in found.items()}


def added(values: Iterable[float]) -> float:
    """Sum, rounded at each step from left to right, as reference code rounded its sums.

    Python's `sum` did so up to 3.11. Since 3.12 it compensates, which would change the last bit of a value.
    """
    return functools.reduce(operator.add, values, 0.0)


def take_dialect(metric: Any, keep: Sequence[str] = ()) -> None:
    """Set the options that `compat` stands for; for `__post_init__` of a frozen dataclass.

    A dialect is how another kit computes the metric, bugs included: `dialects` of the class maps its name to
    a `Dialect`, or to options alone. It says all: other options beside it are refused.

    Args:
        metric: a new one.
        keep: options that say what the data are, not how they are scored; they may be combined with it.

    Raises:
        ValueError: no such dialect, or an option beside it.
    """
    if not metric.compat:
        return
    one_of = ", ".join(sorted(metric.dialects))
    if metric.compat not in metric.dialects:
        raise ValueError(f"compat is {metric.compat!r}; it can be {one_of}")
    for option in fields(metric):
        if option.name in ("compat", *keep):
            continue
        if getattr(metric, option.name) != option.default:
            raise ValueError(
                f"{option.name} cannot be combined with compat, which sets all options"
            )
    dialect = metric.dialects[metric.compat]
    for name, value in getattr(dialect, "options", dialect).items():
        object.__setattr__(metric, name, value)


def version(metric: Any) -> str:
    """Last part of a signature: `v1`, under `compat` the version of the dialect.

    So a change in one dialect leaves the signatures of the others and of the default alone.
    """
    return f"v{metric.dialects[metric.compat].version}" if metric.compat else "v1"
