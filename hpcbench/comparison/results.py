"""Results of a comparison: one type for a metric's difference, one for a ratio of speeds or memory.

Compare, the gate, A/B looks, leaderboards and the portal all use these types; each file format is a method.
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
    """One metric of a pair of run tasks: both values, the difference, and its uncertainty."""

    baseline: str
    """Run task of the baseline."""
    candidate: str
    """Run task of the candidate."""
    metric: str
    """Name of the metric's definition."""
    signature: str
    """The metric with all its options; both have the same."""
    comparison: statistics.Comparison
    """Values, interval, p-value, verdict."""
    differs: tuple[str, ...] = ()
    """Other differences of the two, in words."""
    worst: statistics.Comparison | None = None
    """The comparison if samples that only one side has scored count as the worst; None: no such sample."""
    paired: bool = True
    """Whether samples are paired: not for resource metrics, of which each side has a value alone."""
    unit: str = ""
    """Unit of a resource metric."""

    @property
    def difference(self) -> float:
        """Candidate minus baseline."""
        return self.comparison.candidate - self.comparison.baseline

    @property
    def p_value(self) -> float:
        """After Holm's correction, if it was applied."""
        adjusted = self.comparison.p_adjusted
        return self.comparison.p_value if adjusted is None else adjusted

    @property
    def if_worst(self) -> statistics.Verdict | None:
        """The verdict with samples left out as the worst; None: nothing was left out."""
        return None if self.worst is None else self.worst.verdict

    @property
    def documents_needed(self) -> int | None:
        """Documents that show an equal candidate to be no worse; None: no margin, or already decided."""
        found = self.comparison
        if found.margin is None or found.verdict != "inconclusive":
            return None
        return statistics.documents_needed(found, found.margin)

    @property
    def holds_zero(self) -> bool:
        """Whether the verdict is `better` or `worse` although the interval contains 0."""
        low, high = self.comparison.interval.low, self.comparison.interval.high
        sure = self.comparison.verdict in ("better", "worse")
        return sure and low is not None and high is not None and low <= 0 <= high

    def to_json(self) -> dict[str, Any]:
        """As in `compare --json`."""
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
            "paired": self.paired,
            "unit": self.unit,
        }

    def to_look(self) -> dict[str, Any]:
        """As in a look at two arms."""
        return {"metric": self.metric, **asdict(self.comparison), "signature": self.signature}


@dataclass(frozen=True, slots=True)
class SpeedRatio:
    """One figure of speed or memory: both values, candidate ÷ baseline, and its uncertainty."""

    figure: str
    """Its name: `ttft_ms.p95` in `performance.json`, `e2e_p95` of a gate, `e2e_ms` of two arms."""
    unit: str
    """ms, 1/s or bytes."""
    higher_is_better: bool
    """True for rates; latencies and memory are better when lower."""
    baseline: float
    """The baseline's value, or arm a's."""
    candidate: float
    """The candidate's, or arm b's."""
    ratio: float | None
    """Candidate ÷ baseline; None where the baseline is 0."""
    low: float | None
    """Lower end of the ratio's interval; None where no data shows random variation."""
    high: float | None
    """Upper end."""
    level: float = 0.95
    """Confidence of the interval."""
    kind: Literal["speed", "memory"] = "speed"
    """Subject of the figure."""
    label: str = ""
    """Label for people, `TTFT p95`."""
    run_tasks: tuple[str, str] = ("", "")
    """Run task of the baseline and of the candidate."""
    why_not: tuple[str, ...] = ()
    """Why the two cannot be compared: machines and load were not of one kind. Empty: they can."""
    pairs: int = 0
    """For two arms, pairs of blocks."""
    method: str = ""
    """For two arms, how the interval was found, or why there is none."""
    verdict: statistics.Verdict = "inconclusive"
    """For two arms, whether arm b is better; equivalent: the interval is within the margin."""

    @property
    def comparable(self) -> bool:
        """Whether machines and load were of one kind."""
        return not self.why_not

    def to_json(self) -> dict[str, Any]:
        """As in `compare --json`."""
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
        """As in a look at two arms."""
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
    """A metric or a pair of run tasks that cannot be compared."""

    baseline: str
    """Run task of the baseline."""
    candidate: str
    """Run task of the candidate."""
    metric: str | None
    """Name of the metric's definition; None: all metrics of the pair."""
    why: str
    """The reason, in one sentence."""
    remedy: str
    """The remedy."""

    def problem(self) -> Problem:
        """As a problem for people."""
        return Problem(
            f"{pair_name(self.baseline, self.candidate)}: {self.why}", remedy=self.remedy
        )

    def to_json(self) -> dict[str, Any]:
        """As in `compare --json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """A candidate compared with the baseline."""

    candidate: Experiment
    """The candidate."""
    compared: tuple[MetricDifference, ...]
    """Every metric that could be compared."""
    refused: tuple[Refusal, ...]
    """Comparisons that were refused."""
    samples: Mapping[tuple[str, str], SamplePairs]
    """Run tasks of baseline and candidate that belong together → their samples."""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Run tasks of baseline and candidate that belong together."""
        return tuple(self.samples)

    @property
    def other_samples(self) -> frozenset[tuple[str, str]]:
        """The `pairs` that have not asked the same samples."""
        return frozenset(pair for pair, some in self.samples.items() if some.why_other_samples)

    @property
    def first_metrics(self) -> Iterator[MetricDifference]:
        """The first metric of each pair of run tasks whose samples are paired."""
        seen = set[tuple[str, str]]()
        for one in self.compared:
            if one.paired and (one.baseline, one.candidate) not in seen:
                seen.add((one.baseline, one.candidate))
                yield one

    @property
    def caveats(self) -> Iterator[str]:
        """Differences other than the candidate's own work, in words."""
        texts = {
            f"{pair_name(one.baseline, one.candidate)}: {text}": None
            for one in self.compared
            for text in one.differs
        }
        yield from texts
