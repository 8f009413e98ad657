"""The verdict of a judge as a number from 0 to 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from hpcbench.metrics.base import Parts, SampleMetric, over_one

_VERDICTS: Mapping[str, Mapping[object, float]] = {
    "binary": {"right": 1.0, "wrong": 0.0},
    "pairwise": {"first": 1.0, "second": 0.0, "tie": 0.5},
}

VERDICT = "verdict"
"""The form that this metric accepts: the object of an ML task of plugin `judge`."""


@dataclass(frozen=True, kw_only=True)
class Judge(SampleMetric):
    """The field `verdict` of a judge's answer; the mean over samples.

    Signature: `judge|kind:graded|1-5|v1`, `judge|kind:pairwise|swapped|v1`.

    Raises:
        ValueError: `worst` is not below `best`, or `swapped` is not of pairs.
    """

    kind: Literal["binary", "graded", "pairwise"] = "binary"
    """`binary`: right is 1, wrong 0. `graded`: a whole number, `worst` is 0 and `best` 1. `pairwise`: 1 if
    the answer of `judge.of` is the better one, 0 if the other is, 0.5 for a tie."""
    worst: int = 1
    """Lowest grade of `graded`."""
    best: int = 5
    """Highest grade of `graded`."""
    swapped: bool = False
    """Whether `first` is the other run task's answer: hpcbench sets it in even repeats of a judge of
    pairs."""

    name: ClassVar[str] = "judge"
    accepts: ClassVar[tuple[str, ...]] = (VERDICT,)

    def __post_init__(self) -> None:
        if self.worst >= self.best:
            raise ValueError(f"worst is {self.worst}; it must be below best, {self.best}")
        if self.swapped and self.kind != "pairwise":
            raise ValueError("swapped is only for kind pairwise")

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """The verdict's value over 1; 0 where there is no object, which no judge's policy counts.

        Raises:
            ValueError: the object has no such verdict; that sample has no score.
        """
        if not isinstance(prediction, Mapping):
            return over_one(0.0)
        said = prediction.get("verdict")
        if self.kind == "graded":
            if isinstance(said, bool) or not isinstance(said, int | float):
                raise ValueError(f"verdict {said!r} is not a grade")
            if not self.worst <= said <= self.best:
                raise ValueError(
                    f"verdict {said!r} is not a grade from {self.worst} to {self.best}"
                )
            return over_one((said - self.worst) / (self.best - self.worst))
        values = _VERDICTS[self.kind]
        if not isinstance(said, str) or said not in values:
            raise ValueError(f"verdict {said!r} is none of {', '.join(map(str, values))}")
        return over_one(1 - values[said] if self.swapped else values[said])

    @property
    def signature(self) -> str:
        """Name, kind, grades, order, version."""
        grades = f"|{self.worst}-{self.best}" if self.kind == "graded" else ""
        order = "|swapped" if self.swapped else ""
        return f"{self.name}|kind:{self.kind}{grades}{order}|v1"
