"""Gates: how much worse than its baseline a candidate may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from hpcbench.schema.definition import Definition
from hpcbench.schema.shared_types import Part

GateLevel = Literal["critical", "advisory"]
"""A critical check decides the verdict; the report only lists an advisory one."""


class QualityRule(Part):
    """Margin by which a metric may be worse than the baseline's; of both kinds, the wider one counts."""

    absolute: float | None = Field(default=None, gt=0)
    """Margin in the metric's unit."""
    relative: float | None = Field(default=None, gt=0, lt=1)
    """Margin as a share of the baseline's value."""
    level: GateLevel = "critical"
    """A `critical` check decides the verdict; the report only lists an `advisory` one."""


class RatioRule(Part):
    """Margin by which a figure of speed or memory may be worse than the baseline's."""

    relative: float = Field(gt=0)
    """Margin as a share of the baseline's value: 0.1 allows a latency 10 % longer, a rate 10 % lower."""
    level: GateLevel = "advisory"
    """A `critical` check decides the verdict; the report only lists an `advisory` one."""


class CoverageRule(Part):
    """The share of samples that must be ok."""

    least: float = Field(default=0.98, ge=0, le=1)
    """Minimum of ok ÷ (asked + skipped), for each run task."""
    level: GateLevel = "critical"
    """A `critical` check decides the verdict; the report only lists an `advisory` one."""


SameInBoth = Literal["dataset", "ml_task", "model", "prompt", "samples"]
"""Settings that a gate can require to be the same in candidate and baseline."""

SPEED_FIGURES = (
    *(f"{latency}_{at}" for latency in ("ttft", "tpot", "e2e", "ttft_due", "e2e_due", "itl")
      for at in ("mean", "p50", "p90", "p95", "p99")),
    "answers_per_s", "documents_per_s", "good_per_s", "tokens_per_s",
)  # fmt: skip
"""Figures of speed that a gate can judge, see docs/measuring.md; latencies in milliseconds."""

MEMORY_FIGURES = (
    "gpu_peak", "torch_allocated", "kv_peak", "effective", "host_peak", "host_held_peak",
)  # fmt: skip
"""Figures of memory that a gate can judge, in bytes, see docs/measuring.md."""


class Gate(Definition):
    """How much worse than its baseline a candidate may be: the policy of `hpcbench gate` and `regress`.

    Keys of `metrics`, `speed` and `memory` are `[RUN_TASK:]NAME`; both parts may contain `*` and `?`. A key
    with a run task has priority over one without, then a name over a pattern, then the first key. The gate
    does not judge a metric or figure that matches no key.
    """

    metrics: Mapping[str, QualityRule] = Field(default_factory=dict)
    """Metric → its margin. For a resource metric only a key with its own name counts."""
    speed: Mapping[str, RatioRule] = Field(default_factory=dict)
    """Figure of speed → its margin: `ttft_p95`, `e2e_*`, `answers_per_s`, see docs/gate.md."""
    memory: Mapping[str, RatioRule] = Field(default_factory=dict)
    """Figure of memory → its margin: `gpu_peak`, `host_*`."""
    coverage: CoverageRule = Field(default_factory=CoverageRule)
    """The share of the candidate's samples that must be ok."""
    same: tuple[SameInBoth, ...] = ("dataset", "ml_task", "samples")
    """Settings that must be the same in candidate and baseline for a comparison of scores; a difference makes
    these checks inconclusive. Without `samples`, the gate judges the samples that both have asked, e.g. after
    `--set run_tasks.X.limit=200`."""
    confidence: float = Field(default=0.95, ge=0.5, lt=1)
    """Confidence level of the two-sided intervals that the gate compares with the margins."""
    identical: Literal["pass", "judge"] = "judge"
    """How to judge a metric if no sample's score differs: `judge` looks at the number of documents, as in any
    other check; `pass` passes it. With `pass` the error limit of 2.5 % does not hold, and the verdict says
    so; see docs/gate.md."""
    on_inconclusive: Literal["inconclusive", "no-go"] = "inconclusive"
    """Verdict if a critical check is inconclusive and no other critical check fails."""
    on_advisory: Literal["go", "inconclusive"] = "go"
    """Verdict if all critical checks pass and an advisory check does not."""
    confirm: int = Field(default=0, ge=0, le=10)
    """How many times `hpcbench regress` repeats run tasks that fail before it says NO-GO; it judges all
    answers together."""
