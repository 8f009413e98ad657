"""Resource metrics of a candidate compared with its baseline's: margins of `metrics`, in the metric's unit.

The interval of the difference (`comparison/resources.py`) is compared with the margin as for scores. Several
runs on either side (repeats, confirmations) show what differs from job to job; one run on each does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from hpcbench.comparison.gate.sides import Run
from hpcbench.comparison.gate.verdict import NO_MARGIN, Check, CheckKind, Found, held_to, margin_of
from hpcbench.comparison.resources import ResourceValue, difference, resource_of, why_not
from hpcbench.schema.gate import Gate, QualityRule
from hpcbench.schema.rules import by_name, rule_for

KINDS: dict[str, CheckKind] = {"answers": "quality", "memory": "memory"}
"""Basis of a metric → what its check is about; else speed."""


def resource_checks(
    name: str, baseline: Sequence[Run], candidate: Sequence[Run], policy: Gate
) -> Iterator[Check]:
    """Every resource metric of the baseline for which the policy has a margin.

    Args:
        name: the run task.
        baseline: the run task's runs in the baseline.
        candidate: its runs in the candidate, one or more.
        policy: the gate's policy.
    """
    rules = by_name(policy.metrics)
    first = baseline[0].scores
    for metric, measured in first.measured.items() if first is not None else ():
        rule = rule_for(rules, name, metric)
        if rule is None:
            continue
        kind = KINDS.get(measured.basis, "speed")
        sides = [
            [resource_of(metric, run.scores, run.speed) for run in runs]
            for runs in (baseline, candidate)
        ]
        if None in sides[0]:
            why = "not every run of the baseline has this metric in its plan"
            yield Check(name, metric, kind, rule.level, "inconclusive", why)
            continue
        if None in sides[1]:
            why = "the candidate has no scores of this metric"
            yield Check(name, metric, kind, "critical", "fail", why)
            continue
        ours, theirs = (cast(list[ResourceValue], some) for some in sides)
        if why := why_not(metric, ours, theirs):
            yield Check(name, metric, kind, rule.level, "inconclusive", why)
            continue
        yield _judged(name, metric, kind, rule, (ours, theirs), policy.confidence)


def _judged(
    name: str,
    metric: str,
    kind: CheckKind,
    rule: QualityRule,
    sides: tuple[Sequence[ResourceValue], Sequence[ResourceValue]],
    level: float,
) -> Check:
    """The difference's interval compared with the margin."""
    found = difference(*sides, level=level)
    low, high, by = found.interval.low, found.interval.high, found.interval.estimate
    margin = margin_of(rule, found.baseline)
    unit = sides[0][0].measured.unit
    values: dict[str, Any] = {
        "baseline": found.baseline,
        "candidate": found.candidate,
        "difference": by,
        "low": low,
        "high": high,
        "margin": margin,
    }
    # Memory has one value for each run, and no random variation.
    ends = (by, by) if kind == "memory" and low is None else (low, high)
    verdict: Found = "inconclusive"
    if not margin:
        why = NO_MARGIN
    elif ends[0] is None or ends[1] is None:
        why = f"{by:+.3g} {unit}: the difference has no interval, so the check cannot decide: repeat the run"
    else:
        shown = (
            f"{ends[0]:+.3g} to {ends[1]:+.3g} {unit}" if low is not None else f"{by:+.3g} {unit}"
        )
        verdict, said = held_to(margin, ends[0], ends[1], higher_is_better=found.higher_is_better)
        why = f"{shown}: {said}"
    return Check(name, metric, kind, rule.level, verdict, why, **values)
