"""What a comparison finds: one type for a metric's difference, one for a ratio of speeds or memory.

Compare, the gate, A/B looks, leaderboards and the portal all make these; each file format is a method here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hpcbench import statistics
from hpcbench.comparison.pairing import SamplePairs, pair_name
from hpcbench.errors import Problem
from hpcbench.experiment.layout import Experiment


@dataclass(frozen=True, slots=True)
class MetricDifference:
    """One metric of a pair of run tasks: both values, the difference, and how sure it is."""

    baseline: str
    """Run task of the baseline."""
    candidate: str
    """Run task of the candidate."""
    metric: str
    """Name of the metric's document."""
    signature: str
    """The metric with all its options; both have the same."""
    comparison: statistics.Comparison
    """Values, interval, p-value, verdict."""
    differs: tuple[str, ...] = ()
    """What else is not the same in both, in words."""
    worst: statistics.Comparison | None = None
    """The same if samples that only one of them has scored counted as the worst; None: there are none."""

    @property
    def difference(self) -> float:
        """Candidate minus baseline."""
        return self.comparison.candidate - self.comparison.baseline

    @property
    def p_value(self) -> float:
        """After Holm's correction, where there was one."""
        adjusted = self.comparison.p_adjusted
        return self.comparison.p_value if adjusted is None else adjusted

    @property
    def if_worst(self) -> statistics.Verdict | None:
        """The verdict with samples left out as the worst; None: nothing was left out."""
        return None if self.worst is None else self.worst.verdict

    @property
    def documents_needed(self) -> int | None:
        """Documents that show an equal candidate to be no worse; None: without margin, or decided."""
        found = self.comparison
        if found.margin is None or found.verdict != "inconclusive":
            return None
        return statistics.documents_needed(found, found.margin)

    @property
    def holds_zero(self) -> bool:
        """Whether the verdict is `better` or `worse` and the interval holds 0."""
        low, high = self.comparison.interval.low, self.comparison.interval.high
        sure = self.comparison.verdict in ("better", "worse")
        return sure and low is not None and high is not None and low <= 0 <= high

    def to_json(self) -> dict[str, Any]:
        """As `compare --json` has it."""
        return {
            "baseline": self.baseline,
            "candidate": self.candidate,
            "metric": self.metric,
            "signature": self.signature,
            "comparison": asdict(self.comparison),
            "differs": list(self.differs),
            "if_worst": self.if_worst,
            "documents_needed": self.documents_needed,
            "holds_zero": self.holds_zero,
        }

    def to_look(self) -> dict[str, Any]:
        """As a look at two arms has it."""
        return {"metric": self.metric, **asdict(self.comparison), "signature": self.signature}


@dataclass(frozen=True, slots=True)
class SpeedRatio:
    """One figure of speed or memory: both values, candidate ÷ baseline, and how sure that is."""

    figure: str
    """Its name: `ttft_ms.p95` in `performance.json`, `e2e_p95` of a gate, `e2e_ms` of two arms."""
    unit: str
    """ms, 1/s or bytes."""
    higher_is_better: bool
    """Rates; of latencies and memory less is better."""
    baseline: float
    """The baseline's value, or arm a's."""
    candidate: float
    """The candidate's, or arm b's."""
    ratio: float | None
    """Candidate ÷ baseline; None over 0."""
    low: float | None
    """Lower end of the ratio's interval; None where nothing tells of chance."""
    high: float | None
    """Upper end."""
    level: float = 0.95
    """Confidence of the interval."""
    kind: Literal["speed", "memory"] = "speed"
    """What it is of."""
    label: str = ""
    """For people, `TTFT p95`."""
    run_tasks: tuple[str, str] = ("", "")
    """Run task of the baseline and of the candidate."""
    why_not: tuple[str, ...] = ()
    """Why both cannot be compared: machines and load were not of one kind. None: they can."""
    pairs: int = 0
    """Of two arms, pairs of blocks."""
    method: str = ""
    """Of two arms, how the interval was found, or why not."""
    verdict: statistics.Verdict = "inconclusive"
    """Of two arms, whether arm b is better; equivalent: the interval lies within the margin."""

    @property
    def comparable(self) -> bool:
        """Whether machines and load were of one kind."""
        return not self.why_not

    def to_json(self) -> dict[str, Any]:
        """As `compare --json` has it."""
        names = ("kind", "figure", "label", "unit", "baseline", "candidate", "ratio")
        return {
            "baseline_task": self.run_tasks[0],
            "candidate_task": self.run_tasks[1],
            **{name: getattr(self, name) for name in names},
            "interval": None if self.low is None else [self.low, self.high],
            "higher_is_better": self.higher_is_better,
            "comparable": self.comparable,
            "why_not": "; ".join(self.why_not),
        }

    def to_look(self) -> dict[str, Any]:
        """As a look at two arms has it."""
        names = ("ratio", "low", "high", "level", "pairs", "method", "higher_is_better", "verdict")
        return {
            "figure": self.figure,
            "unit": self.unit,
            "a": self.baseline,
            "b": self.candidate,
            **{name: getattr(self, name) for name in names},
        }


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was not compared, because it cannot be."""

    baseline: str
    """Run task of the baseline."""
    candidate: str
    """Run task of the candidate."""
    metric: str | None
    """Name of the metric's document; None: all of the pair."""
    why: str
    """In one sentence."""
    remedy: str
    """What to do about it."""

    def problem(self) -> Problem:
        """As a line for people."""
        return Problem(
            f"{pair_name(self.baseline, self.candidate)}: {self.why}", remedy=self.remedy
        )

    def to_json(self) -> dict[str, Any]:
        """As `compare --json` has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """A candidate compared with the baseline."""

    candidate: Experiment
    """The candidate."""
    compared: tuple[MetricDifference, ...]
    """Every metric that could be compared."""
    refused: tuple[Refusal, ...]
    """What could not."""
    samples: Mapping[tuple[str, str], SamplePairs]
    """Run tasks of baseline and candidate that belong together → their samples."""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Run tasks of baseline and candidate that belong together."""
        return tuple(self.samples)

    @property
    def other_samples(self) -> frozenset[tuple[str, str]]:
        """Those of `pairs` that have not asked the same samples."""
        return frozenset(pair for pair, some in self.samples.items() if some.why_other_samples)

    @property
    def first_metrics(self) -> Iterator[MetricDifference]:
        """The first metric of each pair of run tasks."""
        seen = set[tuple[str, str]]()
        for one in self.compared:
            if (one.baseline, one.candidate) not in seen:
                seen.add((one.baseline, one.candidate))
                yield one

    @property
    def caveats(self) -> Iterator[str]:
        """What is not the same beside the candidate's own work, in words."""
        for one in self.first_metrics:
            for text in one.differs:
                yield f"{pair_name(one.baseline, one.candidate)}: {text}"
