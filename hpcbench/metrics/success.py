"""Success: whether another metric's value of an answer is good enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any, ClassVar

from hpcbench.metrics.base import SampleMetric, over_one, value_of

_ACCEPTED = ("text", "label", "object")


@dataclass(frozen=True, kw_only=True)
class Success(SampleMetric):
    """1 if another metric's value of the answer reaches a threshold, else 0; over samples the share.

    For agents: whether the task is solved. `pass@k` and `pass^k` over repeats are made of such values.
    Signature: `success|of:(anls_star|…|v1)|at:1|v1`.

    Raises:
        ValueError: `of` is no metric of answers, or its options are wrong, or the threshold is outside its
            bounds.
    """

    of: str = "anls_star"
    """The other metric, by its name in the entry-point group `hpcbench.metrics`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the other metric."""
    threshold: float | None = None
    """A value at least this good is a success: so much or more, or so much or less where lower values are
    better. Without it: the metric's best value."""

    name: ClassVar[str] = "success"
    accepts: ClassVar[tuple[str, ...]] = _ACCEPTED

    def __post_init__(self) -> None:
        if not {*getattr(self._inner, "accepts", _ACCEPTED)} & {*_ACCEPTED}:
            raise ValueError(f"metric '{self.of}' reads no answers, so it cannot be 'of'")
        low, high = self._inner.bounds
        if self._best is None:
            raise ValueError(f"metric '{self.of}' has no best value: set 'threshold'")
        if not low <= self._best <= (self._best if high is None else high):
            raise ValueError(
                f"threshold {self._best:g} is outside the bounds of metric '{self.of}'"
            )

    @cached_property
    def _inner(self) -> Any:
        points = [*entry_points(group="hpcbench.metrics", name=self.of)]
        if not points:
            raise ValueError(f"there is no metric '{self.of}'; `hpcbench metrics list` shows all")
        kind = points[0].load()
        if kind is Success:
            raise ValueError("'of' must be another metric than 'success'")
        try:
            return kind(**self.options)
        except TypeError as error:
            raise ValueError(f"options of metric '{self.of}': {error}") from None

    @cached_property
    def _best(self) -> float | None:
        if self.threshold is not None:
            return float(self.threshold)
        low, high = self._inner.bounds
        found: float | None = high if self._inner.higher_is_better else low
        return found

    def score(self, prediction: object, references: Sequence[object]) -> Any:
        """0 or 1, over 1. Raises as the other metric does."""
        value = value_of(self._inner, self._inner.score(prediction, references))
        assert self._best is not None
        slack = 1e-9 * max(1.0, abs(self._best))  # errors of rounding
        if self._inner.higher_is_better:
            return over_one(float(value >= self._best - slack))
        return over_one(float(value <= self._best + slack))

    @property
    def signature(self) -> str:
        """Name, the other metric's signature, threshold, version."""
        return f"{self.name}|of:({self._inner.signature})|at:{self._best:g}|v1"
