"""Resource metrics: what answers took, in time, tokens, memory, energy and money.

A resource metric reads no prediction. Its values are measured: those of a sample by the stamps and counts of
its answer (`SampleResource`), those of a run task as a whole by figures that its workers recorded
(`RunResource`). docs/measuring.md has each definition with its source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from hpcbench.metrics.base import Parts, SampleMetric

Basis = Literal["times", "memory", "machine", "answers"]
"""The common ground that a comparison of two values needs.

`times`: machines and load · `memory`: machines, load and the source of the figure · `machine`: load; the
metric exists to compare machines · `answers`: nothing, because neither machine nor load changes it.
"""

MEASURED = "measurement"
"""The form that these metrics accept in place of a prediction."""


REUSED = "an earlier experiment asked for the answer; `hpcbench submit --fresh` measures"
"""Why an answer that was taken over has no value."""


class NotMeasuredError(ValueError):
    """A sample has an answer, and this measure has no value for it; the message says why."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Time and tokens of one answer; None: unknown, or not defined for this answer."""

    ttft_ms: float | None = None
    """Time to first token, ms: `send` → first chunk with new text."""
    tpot_ms: float | None = None
    """Time per output token, ms."""
    e2e_ms: float | None = None
    """End to end, ms: `send` → last chunk with new text."""
    completion_tokens: int | None = None
    """Tokens of the answer, by the engine's count."""
    reused: bool = False
    """Whether an earlier experiment asked for the answer."""
    turns: int | None = None
    """Replies of the model, of an agent's answer."""
    tool_calls: int | None = None
    """Calls of tools, of an agent's answer."""
    wasted_calls: int | None = None
    """Those of them without a result, or that repeat an earlier one."""
    plan_adherence: float | None = None
    """Share of the last plan's steps that are done, of an agent's answer with a plan."""


class Resource(SampleMetric):
    """Base of resource metrics: no options, no upper bound, less is better."""

    __slots__ = ()
    higher_is_better: ClassVar[bool] = False
    accepts: ClassVar[tuple[str, ...]] = (MEASURED,)
    bounds: ClassVar[tuple[float, float | None]] = (0.0, None)
    unit: ClassVar[str]
    """Unit of its values; `{currency}` stands for the currency of the site's price."""
    basis: ClassVar[Basis] = "times"

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Never called for a prediction.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            f"{self.name} reads no prediction: it needs the answers of an experiment, with their times"
        )


class SampleResource(Resource):
    """A resource metric with a value of each answer; its set is the mean of the answers' values."""

    __slots__ = ()
    field: ClassVar[str]
    """Field of a `Measurement` that is its value."""
    lacking: ClassVar[str]
    """Why an answer has no such value."""
    of_reused: ClassVar[bool] = False
    """Whether answers count that an earlier experiment asked for."""

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """The value of one answer.

        Raises:
            NotMeasuredError: the answer has none.
            TypeError: the prediction is no `Measurement`.
        """
        if not isinstance(prediction, Measurement):
            return super().score(prediction, references)
        if prediction.reused and not self.of_reused:
            raise NotMeasuredError(REUSED)
        value: Any = getattr(prediction, self.field)
        if value is None:
            raise NotMeasuredError(self.lacking)
        return Parts(float(value), 1.0)


class Percentile(SampleResource):
    """A percentile of the answers' values, linear between order statistics (numpy's default)."""

    __slots__ = ()
    aggregation: ClassVar[Any] = "quantile"
    share: ClassVar[float]
    """Share of the values below it."""

    def aggregate(self, parts: Sequence[Parts]) -> float:
        """The percentile of the samples' values.

        Raises:
            ValueError: there are no samples.
        """
        import numpy

        if not parts:
            raise ValueError("a metric over no samples has no value")
        return float(numpy.quantile([one.numerator for one in parts], self.share))


class RunResource(Resource):
    """A resource metric with one value for a whole run task, and none for single samples."""

    __slots__ = ()
    aggregation: ClassVar[Any] = "run"


_NO_TEXT = "the answer has no text, or no times"
_ONE_CHUNK = "an answer of one chunk has no time between tokens"
_NO_COUNT = "the engine did not count its tokens"
_NO_TURNS = "it was one request, not an agent's work in turns"


@dataclass(frozen=True, slots=True, kw_only=True)
class TtftMean(SampleResource):
    """Mean time to first token: from sending a request to the first chunk with new text."""

    name: ClassVar[str] = "ttft_mean"
    unit: ClassVar[str] = "ms"
    field: ClassVar[str] = "ttft_ms"
    lacking: ClassVar[str] = _NO_TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class TtftP50(Percentile):
    """Median time to first token: from sending a request to the first chunk with new text."""

    name: ClassVar[str] = "ttft_p50"
    unit: ClassVar[str] = "ms"
    field: ClassVar[str] = "ttft_ms"
    lacking: ClassVar[str] = _NO_TEXT
    share: ClassVar[float] = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyMean(SampleResource):
    """Mean latency of answers: from sending a request to the last chunk with new text."""

    name: ClassVar[str] = "latency_mean"
    unit: ClassVar[str] = "ms"
    field: ClassVar[str] = "e2e_ms"
    lacking: ClassVar[str] = _NO_TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyP95(Percentile):
    """95th percentile of the latency: from sending a request to the last chunk with new text."""

    name: ClassVar[str] = "latency_p95"
    unit: ClassVar[str] = "ms"
    field: ClassVar[str] = "e2e_ms"
    lacking: ClassVar[str] = _NO_TEXT
    share: ClassVar[float] = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Tpot(SampleResource):
    """Mean time per output token after the first chunk; each answer counts once."""

    name: ClassVar[str] = "tpot"
    unit: ClassVar[str] = "ms"
    field: ClassVar[str] = "tpot_ms"
    lacking: ClassVar[str] = _ONE_CHUNK


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTokens(SampleResource):
    """Mean number of tokens in an answer, by the engine's count; of an agent, in all its turns.

    Answers of earlier experiments count: neither machine nor load changes the number.
    """

    name: ClassVar[str] = "answer_tokens"
    unit: ClassVar[str] = "tokens"
    field: ClassVar[str] = "completion_tokens"
    lacking: ClassVar[str] = _NO_COUNT
    of_reused: ClassVar[bool] = True
    basis: ClassVar[Basis] = "answers"


class _OfAgents(SampleResource):
    """A metric of an agent's work: neither machine nor load changes its value."""

    __slots__ = ()
    lacking: ClassVar[str] = _NO_TURNS
    of_reused: ClassVar[bool] = True
    basis: ClassVar[Basis] = "answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnsOfAgents(_OfAgents):
    """Mean number of an agent's turns for a sample: replies of the model."""

    name: ClassVar[str] = "turns"
    unit: ClassVar[str] = "turns"
    field: ClassVar[str] = "turns"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalls(_OfAgents):
    """Mean number of an agent's tool calls for a sample."""

    name: ClassVar[str] = "tool_calls"
    unit: ClassVar[str] = "calls"
    field: ClassVar[str] = "tool_calls"


@dataclass(frozen=True, slots=True, kw_only=True)
class WastedCalls(_OfAgents):
    """Mean number of an agent's tool calls for a sample that gave no result, or repeated an earlier call."""

    name: ClassVar[str] = "wasted_calls"
    unit: ClassVar[str] = "calls"
    field: ClassVar[str] = "wasted_calls"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAdherence(_OfAgents):
    """Mean share of the steps of an agent's plan that it marked as done; samples without a plan have no
    value. The last plan of a sample counts."""

    name: ClassVar[str] = "plan_adherence"
    unit: ClassVar[str] = "share"
    field: ClassVar[str] = "plan_adherence"
    lacking: ClassVar[str] = "its agent made no plan"
    higher_is_better: ClassVar[bool] = True
    bounds: ClassVar[tuple[float, float | None]] = (0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensPerSecond(RunResource):
    """Tokens of answers per second of one engine, in the steady window."""

    name: ClassVar[str] = "tokens_per_second"
    unit: ClassVar[str] = "tokens/s"
    higher_is_better: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsPerHour(RunResource):
    """Documents per hour of one engine: its answers in the steady window × documents per answer."""

    name: ClassVar[str] = "documents_per_hour"
    unit: ClassVar[str] = "documents/h"
    higher_is_better: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakGpuMemory(RunResource):
    """Greatest memory in use on one GPU while the run task's samples were asked."""

    name: ClassVar[str] = "peak_gpu_memory"
    unit: ClassVar[str] = "GiB"
    basis: ClassVar[Basis] = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy(RunResource):
    """Energy of the GPUs for 1,000 documents, while the run task's samples were asked."""

    name: ClassVar[str] = "energy"
    unit: ClassVar[str] = "Wh per 1,000 documents"
    basis: ClassVar[Basis] = "machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost(RunResource):
    """Price of 1,000 documents: what the model's provider charges for answers, where the model has `prices`;
    else the GPUs of one engine at its steady rate. Failed requests, loading and waits are extra."""

    name: ClassVar[str] = "cost"
    unit: ClassVar[str] = "{currency} per 1,000 documents"
    basis: ClassVar[Basis] = "machine"


def unit_of(signature: str) -> str:
    """The unit of a resource metric by its signature; empty: a metric of answers, or of another package."""
    name, *options = signature.split("|")
    unit = _UNITS.get(name, "")
    (currency,) = [one.removeprefix("currency:") for one in options if one.startswith("currency:")][
        :1
    ] or [""]
    return unit.format(currency="" if currency == "none" else currency).strip()


_UNITS = {
    one.name: one.unit
    for one in (
        TtftMean, TtftP50, LatencyMean, LatencyP95, Tpot, AnswerTokens, TurnsOfAgents, ToolCalls,
        WastedCalls, PlanAdherence, TokensPerSecond, DocumentsPerHour, PeakGpuMemory, Energy, Cost,
    )
}  # fmt: skip
