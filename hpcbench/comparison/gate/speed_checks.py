"""Speed and memory of a candidate compared with its baseline, where the two can be compared.

Figures come from `performance.json`. The ratio candidate ÷ baseline is computed on logarithms. With one run
on each side, MOVER combines the figures' own intervals (Zou & Donner 2008, Statistics in Medicine 27:1693,
formula for a difference of two estimates with separate intervals). With several runs, the interval is
Student's t over the runs' logarithms with pooled variance, unless the first is wider. Only several runs show
how runs on one machine affect each other, so one run on each side may find a difference where there is
none: repeat, or let the policy `confirm`.

Nothing passes silently: another GPU type or driver, another load, a client that was the bottleneck, and a
figure that only one side has are inconclusive, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpcbench.comparison.gate.sides import Run
from hpcbench.comparison.gate.verdict import Check, CheckKind, Found
from hpcbench.comparison.results import SpeedRatio
from hpcbench.comparison.speed import (
    MeasuredFigure,
    incomparable,
    middle_of,
    ratio_of_runs,
)
from hpcbench.experiment.view.performance_json import Figure, Speed
from hpcbench.schema.gate import MEMORY_FIGURES, SPEED_FIGURES, Gate, RatioRule
from hpcbench.schema.rules import rule_for


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
    """The hardware that a run's times depend on, in words, and every figure of speed and memory, by name.

    The hardware is the types of its GPUs, else the CPU; None: unknown.
    """
    names = (*SPEED_FIGURES, *MEMORY_FIGURES)
    return _hardware(run), {
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
    """One figure; None where neither side can have it, such as GPU memory without a GPU."""
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
        side: middle_of(some) for side, some in zip(names, values, strict=True) if some
    }
    why = _why_not(kind, figure, sides)
    if lacking:
        why = f"no value in the {' and the '.join(lacking)}: {_why_lacking(figure, sides)}"
    if why:
        return Check(name, figure, kind, rule.level, "inconclusive", why, **shown)
    return _judged(name, kind, rule, ratio(figure, values[0], values[1], confidence))


def _expected(figure: str, sides: Sequence[Sequence[Run]]) -> bool:
    """Whether a figure that neither side has should exist: it was measured, but not long enough."""
    speeds = [run.speed for runs in sides for run in runs if run.speed is not None]
    if figure in MEMORY_FIGURES:
        return False
    if figure.endswith("_per_s"):
        return figure != "good_per_s" or any(one.attainment for one in speeds)
    return any(one.latency(f"{figure.rpartition('_')[0]}_ms") for one in speeds)


def _why_lacking(figure: str, sides: Sequence[Sequence[Run]]) -> str:
    """Condition of a figure."""
    for run in (run for runs in sides for run in runs if _figure(run, figure) is None):
        entry = _percentile(run, figure)
        if entry is not None and entry.needs:
            return f"the figure needs {entry.needs} answers"
    return "see the notes in performance.json"


def _judged(name: str, kind: CheckKind, rule: RatioRule, found: SpeedRatio) -> Check:
    """The ratio's interval compared with the margin."""
    middle, low, high = found.ratio, found.low, found.high
    assert middle is not None  # figures are above 0
    shown = f"{middle:.3g} × the baseline"
    if low is not None and high is not None:
        shown += f" ({low:.3g} to {high:.3g})"
    # A latency may grow to 1 + margin, a rate fall to 1 / (1 + margin): the same step on logarithms.
    higher = found.higher_is_better
    allowed = 1 / (1 + rule.relative) if higher else 1 + rule.relative
    # Memory has one value for each run, and no random variation.
    least, most = (low, high) if low is not None and high is not None else (middle, middle)
    verdict: Found = "inconclusive"
    why = f"{shown}: the interval contains the limit of {allowed:.3g}"
    if kind == "speed" and low is None:
        why = f"{shown}: the ratio has no interval, so the check cannot decide"
    elif (least >= allowed) if higher else (most <= allowed):
        verdict, why = "pass", f"{shown}, {allowed:.3g} is allowed"
    elif (most < allowed) if higher else (least > allowed):
        verdict, why = "fail", f"{shown}, {allowed:.3g} is allowed"
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
    """Candidate ÷ baseline with its interval, from the runs of either side; see the module's docstring.

    Args:
        figure: its name.
        baseline: one or more, above 0; intervals of the confidence `level`, or none.
        candidate: the same.
        level: confidence of the interval between runs.

    Returns:
        The ratio of geometric means; without an interval where no data shows random variation.
    """
    middle, low, high = ratio_of_runs(baseline, candidate, level)
    rate = figure.endswith("_per_s")
    return SpeedRatio(
        figure=figure,
        unit="bytes" if figure in MEMORY_FIGURES else "1/s" if rate else "ms",
        higher_is_better=rate,
        baseline=middle_of(baseline),
        candidate=middle_of(candidate),
        ratio=middle,
        low=low,
        high=high,
        level=level,
    )


def _why_not(kind: CheckKind, figure: str, sides: Sequence[Sequence[Run]]) -> str:
    """Why two sides cannot be compared; empty: they can."""
    memory = figure if kind == "memory" else None
    first, *others = [run.speed or Speed() for runs in sides for run in runs]
    texts = (text for other in others for text in incomparable(first, other, memory))
    return "; ".join(dict.fromkeys(texts))


def _hardware(run: Run) -> str | None:
    kinds = run.speed.hardware if run.speed is not None else None
    if not kinds:
        return None
    return " + ".join(sorted({", ".join(one.gpus or ()) or str(one.cpu) for one in kinds}))


def _figure(run: Run, name: str) -> MeasuredFigure | None:
    """One figure of a run; None: it has none above 0."""
    if run.speed is None:
        return None
    if name in MEMORY_FIGURES:
        size = run.speed.memory.figure(name) if run.speed.memory is not None else None
        found = None if size is None else MeasuredFigure(float(size))
    elif name == "documents_per_s":
        each = _documents_per_answer(run)
        rate = _entry(run.speed.answers_per_s)
        found = None if rate is None or each is None else _times(rate, each)
    elif name.endswith("_per_s"):
        found = _entry(run.speed.rate(name))
    else:
        found = _entry(_percentile(run, name))
    return found if found is not None and found.value > 0 else None


def _percentile(run: Run, name: str) -> Figure | None:
    """A figure such as `ttft_p95` of a run; None: it has no such latency."""
    latency, _, at = name.rpartition("_")
    found = run.speed.latency(f"{latency}_ms") if run.speed is not None else None
    return None if found is None else found.figure(at)


def _entry(entry: Figure | None) -> MeasuredFigure | None:
    if entry is None or entry.value is None:
        return None
    return MeasuredFigure(float(entry.value), entry.low, entry.high)


def _times(one: MeasuredFigure, factor: float) -> MeasuredFigure:
    low, high = (None if end is None else end * factor for end in (one.low, one.high))
    return MeasuredFigure(one.value * factor, low, high)


def _documents_per_answer(run: Run) -> float | None:
    scores = run.scores
    return (
        scores.documents / scores.answered
        if scores and scores.answered and scores.documents
        else None
    )
