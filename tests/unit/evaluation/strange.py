"""Metrics as others may write them: that raise, hang, count, look at how an answer was read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hpcbench.metrics.base import Parts, add_up, ratio_of_sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """1 for the right answer, else 0."""

    api: ClassVar[int] = 1
    name: ClassVar[str] = "mean"
    higher_is_better: ClassVar[bool] = True
    accepts: ClassVar[tuple[str, ...]] = ("text", "label", "object")
    aggregation: ClassVar[str] = "mean"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    factor: float = 1.0

    def score(self, prediction: object, references: Sequence[object]) -> Any:
        return Parts(self.factor * (prediction in references), 1)

    def aggregate(self, parts: Sequence[Parts]) -> float:
        return sum(part.numerator for part in parts) / len(parts)  # as most would write it

    @property
    def signature(self) -> str:
        return f"{self.name}|factor:{self.factor:g}|v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Digits(Mean):
    """Ignores everything but digits."""

    name: ClassVar[str] = "digits"

    def score(self, prediction: object, references: Sequence[object]) -> Any:
        return Parts("".join(filter(str.isdigit, str(prediction))) in references, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Mean):
    """Returns a text instead of parts."""

    def score(self, prediction: object, references: Sequence[object]) -> Any:
        return "1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Raises(Mean):
    """Cannot stand the number 2."""

    name: ClassVar[str] = "raises"

    def score(self, prediction: object, references: Sequence[object]) -> Any:
        if prediction == "2":
            raise KeyError("two")
        return Parts(math.nan if prediction == "3" else 1.0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hangs(Mean):
    """Never comes back from the number 2, and catches what it can."""

    name: ClassVar[str] = "hangs"

    def score(self, prediction: object, references: Sequence[object]) -> Any:
        while prediction == "2":
            try:
                sum(range(100))
            except Exception:  # noqa: BLE001, S112 - foreign code does that
                continue
        return Parts(1.0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted(Mean):
    """Corpus metric: the share of right ones among those of the commonest reference."""

    name: ClassVar[str] = "counted"
    aggregation: ClassVar[str] = "corpus"

    def score(self, prediction: object, references: Sequence[object]) -> Any:
        label = str(references[0])
        return {f"asked.{label}": 1.0, f"right.{label}": float(prediction == label)}

    def aggregate(self, parts: Sequence[Any]) -> float:
        return float(self.combine(add_up(parts)))

    def combine(self, sums: Mapping[str, Any]) -> Any:
        labels = [name.partition(".")[2] for name in sums if name.startswith("asked.")]
        right = sum(sums.get(f"right.{label}", 0.0) for label in labels)
        asked = sum(sums[f"asked.{label}"] for label in labels)
        return right / (asked + (asked == 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ByField(Mean):
    """Right values of an object, all together and field by field."""

    name: ClassVar[str] = "by_field"
    accepts: ClassVar[tuple[str, ...]] = ("object",)
    aggregation: ClassVar[str] = "ratio"

    def aggregate(self, parts: Sequence[Parts]) -> float:
        return ratio_of_sums(parts)

    def score(self, prediction: object, references: Sequence[object]) -> Any:
        fields = self.score_fields(prediction, references).values()
        return Parts(sum(one.numerator for one in fields), sum(one.denominator for one in fields))

    def score_fields(self, prediction: object, references: Sequence[object]) -> dict[str, Parts]:
        expected: Any = references[0]
        found: Any = prediction or {}
        return {key: Parts(found.get(key) == value, 1) for key, value in expected.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable(Mean):
    """Share of answers that could be read."""

    name: ClassVar[str] = "readable"
    accepts: ClassVar[tuple[str, ...]] = ("reading",)

    def score(self, prediction: Any, references: Sequence[object]) -> Any:
        return Parts(prediction is not None and prediction.value is not None, 1)


class ParserThatRaises:
    """Reads all but the letter x."""

    api: ClassVar[int] = 1

    def parse(self, text: str) -> str:
        if text == "x":
            raise RuntimeError("an x")
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken(Mean):
    """Scores nothing."""

    name: ClassVar[str] = "broken"

    def score(self, prediction: object, references: Sequence[object]) -> Any:
        raise RuntimeError("never well")
