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
from hpcbench.comparison.gate.verdict import Check, CheckKind
from hpcbench.comparison.speed import incomparable
from hpcbench.schema.documents import MEMORY_FIGURES, SPEED_FIGURES, Gate, RatioRule
from hpcbench.schema.rules import rule_for
from hpcbench.statistics import log_widths
from hpcbench.statistics.clusters import t_quantile


@dataclass(frozen=True, slots=True)
class Figure:
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
    sides = [[_read(run) for run in runs] for runs in (baseline, candidate)]
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


def measured(run: Run) -> tuple[str | None, Mapping[str, Figure]]:
    """What a run's times depend on, in words, and every figure of speed and memory that it has, by name.

    It is its GPUs' types, else the CPU; None: nobody knows.
    """
    found = _read(run)
    return _hardware(found.told), found.figures


@dataclass(frozen=True, slots=True)
class _Read:
    """What `performance.json` says of one run."""

    told: Mapping[str, Any]
    figures: Mapping[str, Figure]


def _read(run: Run) -> _Read:
    told = (run.told.performance or {}).get(run.run_task.name) or {}
    found = {name: _figure(told, run, name) for name in (*SPEED_FIGURES, *MEMORY_FIGURES)}
    whole = {name: one for name, one in found.items() if one is not None and one.value > 0}
    return _Read(told, whole)


def _checked(
    name: str,
    figure: str,
    kind: CheckKind,
    rule: RatioRule,
    sides: Sequence[Sequence[_Read]],
    confidence: float,
) -> Check | None:
    """One figure; None where neither side can have it, as GPU memory without a GPU."""
    values = [[run.figures[figure] for run in runs if figure in run.figures] for runs in sides]
    if not any(values) and not _expected(figure, sides):
        return None
    names = ("baseline", "candidate")
    lacking = [
        side for side, runs, some in zip(names, sides, values, strict=True) if len(some) < len(runs)
    ]
    shown: dict[str, Any] = {
        side: some[0].value if len(some) == 1 else geometric_mean(one.value for one in some)
        for side, some in zip(names, values, strict=True)
        if some
    }
    why = _why_not(kind, figure, sides)
    if lacking:
        why = f"the {' and the '.join(lacking)} cannot tell it: {_why_lacking(figure, sides)}"
    if why:
        return Check(name, figure, kind, rule.level, "inconclusive", why, **shown)
    return _judged(name, figure, kind, rule, values, shown, confidence)


def _expected(figure: str, sides: Sequence[Sequence[_Read]]) -> bool:
    """Whether one would look for a figure that neither side has: it was measured, but not long enough."""
    told = [run.told for runs in sides for run in runs]
    if figure in MEMORY_FIGURES:
        return False
    if figure.endswith("_per_s"):
        return figure != "good_per_s" or any(one.get("attainment") for one in told)
    return any(one.get(f"{figure.rpartition('_')[0]}_ms") for one in told)


def _why_lacking(figure: str, sides: Sequence[Sequence[_Read]]) -> str:
    """What a figure would have needed."""
    latency, _, at = figure.rpartition("_")
    for run in (run for runs in sides for run in runs if figure not in run.figures):
        entry = (run.told.get(f"{latency}_ms") or {}).get(at)
        if isinstance(entry, Mapping) and entry.get("needs"):
            return f"it needs {entry['needs']} answers"
    return "see the notes in performance.json"


def _judged(
    name: str,
    figure: str,
    kind: CheckKind,
    rule: RatioRule,
    values: Sequence[Sequence[Figure]],
    shown: Mapping[str, Any],
    confidence: float,
) -> Check:
    """The ratio's interval against the margin."""
    middle, low, high = ratio(values[0], values[1], confidence)
    told = f"{middle:.3g} × the baseline"
    if low is not None and high is not None:
        told += f" ({low:.3g} to {high:.3g})"
    # A latency may grow to 1 + margin, a rate fall to 1 / (1 + margin): the same step on logarithms.
    higher = figure.endswith("_per_s")
    allowed = 1 / (1 + rule.relative) if higher else 1 + rule.relative
    # Memory has one value a run, and no chance that it would tell of.
    least, most = (low, high) if low is not None and high is not None else (middle, middle)
    verdict, why = "inconclusive", f"{told}: whether it passes {allowed:.3g} cannot be told"
    if kind == "speed" and low is None:
        why = f"{told}: a value without an interval"
    elif (least >= allowed) if higher else (most <= allowed):
        verdict, why = "pass", f"{told}, {allowed:.3g} is allowed"
    elif (most < allowed) if higher else (least > allowed):
        verdict, why = "fail", f"{told}, {allowed:.3g} is allowed"
    return Check(
        name, figure, kind, rule.level, verdict, why,  # type: ignore[arg-type]
        **shown,
        difference=middle - 1,
        low=None if low is None else low - 1,
        high=None if high is None else high - 1,
        margin=rule.relative,
    )  # fmt: skip


def ratio(
    baseline: Sequence[Figure], candidate: Sequence[Figure], level: float = 0.95
) -> tuple[float, float | None, float | None]:
    """Candidate ÷ baseline with its interval, from the runs of either side; see the module's top.

    Args:
        baseline: one or more, above 0; intervals of the confidence `level`, or none.
        candidate: the same.
        level: confidence of the interval between runs.

    Returns:
        Ratio of geometric means, lower and upper end; None where nothing tells of chance.
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
    if not ends:
        return math.exp(middle), None, None
    low, high = min(one for one, _ in ends), max(one for _, one in ends)
    return math.exp(middle), math.exp(low), math.exp(high)


def _why_not(kind: CheckKind, figure: str, sides: Sequence[Sequence[_Read]]) -> str:
    """Why two sides cannot be compared; empty: they can."""
    memory = figure if kind == "memory" else None
    first = sides[0][0].told
    others = [run.told for runs in sides for run in runs][1:]
    texts = (text for other in others for text in incomparable(first, other, memory))
    return "; ".join(dict.fromkeys(texts))


def _hardware(told: Mapping[str, Any]) -> str | None:
    kinds = told.get("hardware")
    if not kinds:
        return None
    return " + ".join(
        sorted({", ".join(one.get("gpus") or ()) or str(one.get("cpu")) for one in kinds})
    )


def _figure(told: Mapping[str, Any], run: Run, name: str) -> Figure | None:
    """One figure out of what `performance.json` says of a run task."""
    if name in MEMORY_FIGURES:
        value = (told.get("memory") or {}).get(name)
        return None if value is None else Figure(float(value))
    if name == "documents_per_s":
        each = _documents_per_answer(run)
        rate = _entry(told.get("answers_per_s"))
        return None if rate is None or each is None else _times(rate, each)
    if name.endswith("_per_s"):
        return _entry(told.get(name))
    latency, _, at = name.rpartition("_")
    return _entry((told.get(f"{latency}_ms") or {}).get(at))


def _entry(entry: Mapping[str, Any] | None) -> Figure | None:
    if entry is None or entry.get("value") is None:
        return None
    return Figure(float(entry["value"]), entry.get("low"), entry.get("high"))


def _times(one: Figure, factor: float) -> Figure:
    low, high = (None if end is None else end * factor for end in (one.low, one.high))
    return Figure(one.value * factor, low, high)


def _documents_per_answer(run: Run) -> float | None:
    table = (run.told.metrics or {}).get(run.run_task.name) or {}
    answered, documents = table.get("answered"), table.get("documents")
    return documents / answered if answered and documents else None
