"""Speed and memory of a candidate against its baseline, where the two can be compared at all.

Figures are `performance.json`'s. The ratio candidate ÷ baseline is taken on logarithms: of one run a
side, the figures' own intervals are put together by MOVER (Zou & Donner 2008, Statistics in Medicine
27:1693, formula for a difference of two estimates with separate intervals); of several runs, Student's t
over the runs' logarithms with pooled variance, unless the first is wider. What runs of one machine do to
each other is only seen in several runs, so one run a side may find a difference where there is none:
repeat, or let the policy `confirm`.

Nothing passes in silence: another GPU type or driver, another load, a client that was the bottleneck, a
figure that only one side has are inconclusive, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

from hpcbench.comparison.gate.sides import Run
from hpcbench.comparison.gate.verdict import Check, CheckKind, Found
from hpcbench.comparison.results import SpeedRatio
from hpcbench.comparison.speed import incomparable
from hpcbench.schema.documents import MEMORY_FIGURES, SPEED_FIGURES, Gate, RatioRule
from hpcbench.schema.rules import rule_for
from hpcbench.statistics import log_widths
from hpcbench.statistics.clusters import t_quantile


@dataclass(frozen=True, slots=True)
class MeasuredFigure:
    """One figure of one run."""

    value: float
    """In its unit, above 0."""
    low: float | None = None
    """Lower end of its interval; None: it has none."""
    high: float | None = None
    """Upper end."""


def speed_checks(
    name: str, baseline: Sequence[Run], candidate: Sequence[Run], policy: Gate
) -> Iterator[Check]:
    """Every figure of speed and memory for which the policy has a margin."""
    sides = (baseline, candidate)
    kinds: tuple[tuple[CheckKind, Sequence[str], Mapping[str, RatioRule]], ...] = (
        ("speed", SPEED_FIGURES, policy.speed),
        ("memory", MEMORY_FIGURES, policy.memory),
    )
    for kind, figures, rules in kinds:
        for figure in figures:
            rule = rule_for(rules, name, figure)
            if rule is None:
                continue
            found = _checked(name, figure, kind, rule, sides, policy.confidence)
            if found is not None:
                yield found


def measured(run: Run) -> tuple[str | None, Mapping[str, MeasuredFigure]]:
    """What a run's times depend on, in words, and every figure of speed and memory that it has, by name.

    It is its GPUs' types, else the CPU; None: nobody knows.
    """
    names = (*SPEED_FIGURES, *MEMORY_FIGURES)
    return _hardware(run.speed), {
        name: found for name in names if (found := _figure(run, name)) is not None
    }


def _checked(
    name: str,
    figure: str,
    kind: CheckKind,
    rule: RatioRule,
    sides: Sequence[Sequence[Run]],
    confidence: float,
) -> Check | None:
    """One figure; None where neither side can have it, as GPU memory without a GPU."""
    values = [
        [found for run in runs if (found := _figure(run, figure)) is not None] for runs in sides
    ]
    if not any(values) and not _expected(figure, sides):
        return None
    names = ("baseline", "candidate")
    lacking = [
        side for side, runs, some in zip(names, sides, values, strict=True) if len(some) < len(runs)
    ]
    shown: dict[str, Any] = {
        side: _middle(some) for side, some in zip(names, values, strict=True) if some
    }
    why = _why_not(kind, figure, sides)
    if lacking:
        why = f"the {' and the '.join(lacking)} cannot tell it: {_why_lacking(figure, sides)}"
    if why:
        return Check(name, figure, kind, rule.level, "inconclusive", why, **shown)
    return _judged(name, kind, rule, ratio(figure, values[0], values[1], confidence))


def _expected(figure: str, sides: Sequence[Sequence[Run]]) -> bool:
    """Whether one would look for a figure that neither side has: it was measured, but not long enough."""
    told = [run.speed for runs in sides for run in runs]
    if figure in MEMORY_FIGURES:
        return False
    if figure.endswith("_per_s"):
        return figure != "good_per_s" or any(one.get("attainment") for one in told)
    return any(one.get(f"{figure.rpartition('_')[0]}_ms") for one in told)


def _why_lacking(figure: str, sides: Sequence[Sequence[Run]]) -> str:
    """What a figure would have needed."""
    latency, _, at = figure.rpartition("_")
    for run in (run for runs in sides for run in runs if _figure(run, figure) is None):
        entry = (run.speed.get(f"{latency}_ms") or {}).get(at)
        if isinstance(entry, Mapping) and entry.get("needs"):
            return f"it needs {entry['needs']} answers"
    return "see the notes in performance.json"


def _judged(name: str, kind: CheckKind, rule: RatioRule, found: SpeedRatio) -> Check:
    """The ratio's interval against the margin."""
    middle, low, high = found.ratio, found.low, found.high
    assert middle is not None  # figures are above 0
    told = f"{middle:.3g} × the baseline"
    if low is not None and high is not None:
        told += f" ({low:.3g} to {high:.3g})"
    # A latency may grow to 1 + margin, a rate fall to 1 / (1 + margin): the same step on logarithms.
    higher = found.higher_is_better
    allowed = 1 / (1 + rule.relative) if higher else 1 + rule.relative
    # Memory has one value a run, and no chance that it would tell of.
    least, most = (low, high) if low is not None and high is not None else (middle, middle)
    verdict: Found = "inconclusive"
    why = f"{told}: whether it passes {allowed:.3g} cannot be told"
    if kind == "speed" and low is None:
        why = f"{told}: a value without an interval"
    elif (least >= allowed) if higher else (most <= allowed):
        verdict, why = "pass", f"{told}, {allowed:.3g} is allowed"
    elif (most < allowed) if higher else (least > allowed):
        verdict, why = "fail", f"{told}, {allowed:.3g} is allowed"
    return Check(
        name, found.figure, kind, rule.level, verdict, why,
        baseline=found.baseline,
        candidate=found.candidate,
        difference=middle - 1,
        low=None if low is None else low - 1,
        high=None if high is None else high - 1,
        margin=rule.relative,
    )  # fmt: skip


def ratio(
    figure: str,
    baseline: Sequence[MeasuredFigure],
    candidate: Sequence[MeasuredFigure],
    level: float = 0.95,
) -> SpeedRatio:
    """Candidate ÷ baseline with its interval, from the runs of either side; see the module's top.

    Args:
        figure: its name.
        baseline: one or more, above 0; intervals of the confidence `level`, or none.
        candidate: the same.
        level: confidence of the interval between runs.

    Returns:
        The ratio of geometric means; without an interval where nothing tells of chance.
    """
    logs = [[math.log(one.value) for one in some] for some in (baseline, candidate)]
    means = [math.fsum(some) / len(some) for some in logs]
    middle = means[1] - means[0]
    sides = [[(one.low, one.value, one.high) for one in some] for some in (baseline, candidate)]
    ends: list[tuple[float, float]] = []
    if (within := log_widths(*sides)) is not None:
        ends.append((middle - within[0], middle + within[1]))
    degrees = len(baseline) + len(candidate) - 2
    if degrees:
        squares = math.fsum(
            (one - mean) ** 2 for some, mean in zip(logs, means, strict=True) for one in some
        )
        error = math.sqrt(squares / degrees * (1 / len(baseline) + 1 / len(candidate)))
        half = t_quantile((1 + level) / 2, degrees) * error
        ends.append((middle - half, middle + half))
    rate = figure.endswith("_per_s")
    return SpeedRatio(
        figure=figure,
        unit="bytes" if figure in MEMORY_FIGURES else "1/s" if rate else "ms",
        higher_is_better=rate,
        baseline=_middle(baseline),
        candidate=_middle(candidate),
        ratio=math.exp(middle),
        low=math.exp(min(low for low, _ in ends)) if ends else None,
        high=math.exp(max(high for _, high in ends)) if ends else None,
        level=level,
    )


def _middle(values: Sequence[MeasuredFigure]) -> float:
    """The geometric mean."""
    if len(values) == 1:
        return values[0].value
    return geometric_mean(one.value for one in values)


def _why_not(kind: CheckKind, figure: str, sides: Sequence[Sequence[Run]]) -> str:
    """Why two sides cannot be compared; empty: they can."""
    memory = figure if kind == "memory" else None
    first, *others = [run.speed for runs in sides for run in runs]
    texts = (text for other in others for text in incomparable(first, other, memory))
    return "; ".join(dict.fromkeys(texts))


def _hardware(told: Mapping[str, Any]) -> str | None:
    kinds = told.get("hardware")
    if not kinds:
        return None
    return " + ".join(
        sorted({", ".join(one.get("gpus") or ()) or str(one.get("cpu")) for one in kinds})
    )


def _figure(run: Run, name: str) -> MeasuredFigure | None:
    """One figure of a run; None: it has none above 0."""
    if name in MEMORY_FIGURES:
        found = _entry({"value": (run.speed.get("memory") or {}).get(name)})
    elif name == "documents_per_s":
        each = _documents_per_answer(run)
        rate = _entry(run.speed.get("answers_per_s"))
        found = None if rate is None or each is None else _times(rate, each)
    elif name.endswith("_per_s"):
        found = _entry(run.speed.get(name))
    else:
        latency, _, at = name.rpartition("_")
        found = _entry((run.speed.get(f"{latency}_ms") or {}).get(at))
    return found if found is not None and found.value > 0 else None


def _entry(entry: Mapping[str, Any] | None) -> MeasuredFigure | None:
    if entry is None or entry.get("value") is None:
        return None
    return MeasuredFigure(float(entry["value"]), entry.get("low"), entry.get("high"))


def _times(one: MeasuredFigure, factor: float) -> MeasuredFigure:
    low, high = (None if end is None else end * factor for end in (one.low, one.high))
    return MeasuredFigure(one.value * factor, low, high)


def _documents_per_answer(run: Run) -> float | None:
    answered, documents = run.scores.get("answered"), run.scores.get("documents")
    return documents / answered if answered and documents else None
