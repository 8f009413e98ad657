"""Faults that the contract of metrics finds in a metric of an author who made a mistake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from hpcbench.metrics.base import Parts
from hpcbench.testing import check


@dataclass(frozen=True)
class Digits:
    """Share of digits that are right."""

    api: ClassVar[int] = 1
    name: ClassVar[str] = "digits"
    higher_is_better: ClassVar[bool] = True
    accepts: ClassVar[Any] = ("text",)
    aggregation: ClassVar[str] = "mean"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    side: Literal["left", "right"] = "left"
    fold: bool = False

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        return Parts(float(prediction in references), 1)

    def aggregate(self, parts: Sequence[Parts]) -> float:
        return sum(part.numerator for part in parts) / len(parts)

    @property
    def signature(self) -> str:
        return f"digits|side:{self.side}|fold:{self.fold:d}|v1"


def test_a_right_metric_passes(tmp_path: Path) -> None:
    check("metrics", Digits, tmp_path)


class ForgetsAnOption(Digits):
    @property
    def signature(self) -> str:
        return f"digits|fold:{self.fold:d}|v1"


class AlwaysRight(Digits):
    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        return Parts(1.0, 1)


class NoTuple(Digits):
    accepts: ClassVar[Any] = "text"


class OtherForm(Digits):
    accepts: ClassVar[Any] = ("txt",)


class NeedsDigits(Digits):
    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        digits = [one for one in str(references[0]) if one.isdigit()]
        return Parts(len(digits) * (prediction in references) / len(digits), 1)


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (ForgetsAnOption, "with side='right' the signature is 'digits|fold:0|v1', too"),
        (AlwaysRight, "every prediction scores 1.0: the metric tells none apart"),
        (NoTuple, "accepts is 'text'; it must be a tuple of some of text, label, object, reading"),
        (OtherForm, "accepts is ('txt',); it must be a tuple"),
        (NeedsDigits, "division by zero"),
    ],
)
def test_a_mistake_is_found_and_named(tmp_path: Path, metric: type, said: str) -> None:
    with pytest.raises((AssertionError, ZeroDivisionError)) as found:
        check("metrics", metric, tmp_path)
    assert said in str(found.value)
