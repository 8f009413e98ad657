"""Scores of a candidate compared with its baseline's: non-inferior by a margin, inferior, or undecided.

Samples are paired, documents are the unit of chance (`statistics.compare`), and the two-sided interval
of the difference is compared with the margin M, in the direction in which the metric is better:

- pass: the whole interval is above -M; this is the test for non-inferiority at half the usual error
  (Piaggio et al. 2012, JAMA 308:2594, figure 1);
- fail: the whole interval is below -M: worse than the margin allows, and not by chance;
- inconclusive: else, with the number of documents that would decide.

So a candidate that is within the margin fails in at most 2.5 % of cases (at 95 %), and a candidate that is
worse passes in at most 2.5 %. Identical answers are judged like others: few documents without a difference
prove little. With several runs of a run task, each sample counts with its mean over them. So the interval
includes the model's own randomness, and shrinks with every repeat (Miller 2024, arXiv 2411.00640,
section 3.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hpcbench import statistics
from hpcbench.comparison.gate.sides import Run, not_same
from hpcbench.comparison.gate.verdict import NO_MARGIN, Check, Found, held_to, margin_of
from hpcbench.comparison.pairing import SamplePairs, load_scores
from hpcbench.comparison.results import MetricDifference
from hpcbench.evaluation.plan_metrics import load_metrics
from hpcbench.evaluation.score_tables import Scored
from hpcbench.evaluation.versions import other_reading
from hpcbench.experiment.ending import why_nothing
from hpcbench.number_format import percent, share
from hpcbench.schema.gate import Gate, QualityRule
from hpcbench.schema.rules import rule_for
from hpcbench.scorer.one import takes_measurement


def quality_checks(
    name: str, baseline: Sequence[Run], candidate: Sequence[Run], policy: Gate
) -> Iterator[Check]:
    """Every metric of the baseline for which the policy has a margin.

    Args:
        name: the run task.
        baseline: the run task's runs in the baseline.
        candidate: its runs in the candidate, one or more.
        policy: the gate's policy.
    """
    ours = [_scored(run) for run in baseline]
    theirs = [_scored(run) for run in candidate]
    sides = [[one for one in runs if one is not None] for runs in (ours, theirs)]
    # A sample without an answer counts as failed: the run task's policy says how failed samples count.
    samples = SamplePairs.of(sides[0], sides[1]) if all(sides) else None
    differs = list(
        dict.fromkeys(what for run in candidate for what in not_same(baseline[0], run, policy.same))
    )
    differs += _read_otherwise((*baseline, *candidate), (*ours, *theirs))
    if samples is not None and samples.why_other_samples and "samples" in policy.same:
        differs.append(samples.why_other_samples)
    for metric, loaded in load_metrics(baseline[0].run_task).items():
        if takes_measurement(loaded):
            continue  # `resource_checks`
        rule = rule_for(policy.metrics, name, metric)
        if rule is None:
            continue
        check = _missing(name, metric, rule, (baseline, candidate), sides)
        if check is None:
            assert samples is not None  # both sides have scores of this metric
            other = samples.other_signature(metric)
            why = "; ".join(differs)
            if other is not None:
                there, here = other
                why = f"the signatures differ: {there} in the baseline, {here} in the candidate"
                why += _scored_before(metric, (*baseline, *candidate), (*sides[0], *sides[1]))
            if why:
                check = Check(name, metric, "quality", rule.level, "inconclusive", why)
            else:
                check = _judged(name, metric, rule, samples, policy)
        yield check


def _missing(
    name: str,
    metric: str,
    rule: QualityRule,
    runs: tuple[Sequence[Run], Sequence[Run]],
    scored: Sequence[Sequence[Scored]],
) -> Check | None:
    """The check where a run of either side has no value of a metric; None: all runs have one."""
    lacking = [
        len(some) - sum(metric in one.metrics for one in known)
        for some, known in zip(runs, scored, strict=True)
    ]
    nothing = [next(_unscored(some, metric), "") for some in runs]
    verdict: Found = "inconclusive"
    level = rule.level
    if lacking[0]:
        why = "the baseline has no scores of this metric: `hpcbench score` computes them from its answers"
    elif lacking[1]:
        verdict, level, why = "fail", "critical", "the candidate has no scores of this metric"
    elif nothing[0]:
        why = f"the baseline: {nothing[0]}"
    elif nothing[1]:
        verdict, why = "fail", nothing[1]
    else:
        return None
    return Check(name, metric, "quality", level, verdict, why)


def coverage_check(
    name: str, baseline: Sequence[Run], candidate: Sequence[Run], policy: Gate
) -> Check:
    """Whether enough samples are ok, over all runs."""
    here, there = (_coverage(runs) for runs in (candidate, baseline))
    rule = policy.coverage
    values: dict[str, Any] = {
        "baseline": there,
        "candidate": here,
        "difference": None if None in (here, there) else here - there,  # type: ignore[operator]
    }
    if here is None:
        why = "the files of the candidate do not show how many samples are ok"
        return Check(name, "coverage", "coverage", rule.level, "inconclusive", why, **values)
    enough = here >= rule.least
    why = f"{share(here)} of samples are ok, the policy requires {percent(rule.least, 1)}"
    return Check(
        name, "coverage", "coverage", rule.level, "pass" if enough else "fail", why, **values
    )


def _unscored(runs: Sequence[Run], metric: str) -> Iterator[str]:
    """Why runs have no value of a metric; nothing where one run has a value."""
    tables = [run.scores for run in runs]
    known = [one for one in tables if one is not None and metric in one.metrics]
    if len(known) == len(runs) and all(table.metrics[metric] is None for table in known):
        for table in known:
            yield f"{metric} scored no sample" if table.is_scored else why_nothing(table)


def _coverage(runs: Sequence[Run]) -> float | None:
    """Mean over runs; None: a run has no coverage."""
    known = [run.scores.coverage for run in runs if run.scores is not None]
    return sum(known) / len(known) if known and len(known) == len(runs) else None


def _scored(run: Run) -> Scored | None:
    """A run's scores; None: there are none."""
    if not run.experiment.scores_file(run.run_task.name).exists():
        return None
    return load_scores(run.experiment, run.run_task)


def _read_otherwise(runs: Sequence[Run], scored: Sequence[Scored | None]) -> Iterator[str]:
    """The first run whose answers were read by another parser version than the first run's, as a text."""
    known = [(run, one) for run, one in zip(runs, scored, strict=True) if one is not None]
    for run, one in known[1:]:
        ids = known[0][0].experiment.id, run.experiment.id
        other = other_reading((known[0][1].reading, one.reading), ids)
        if other is not None:
            yield ": ".join(other)
            return


def _scored_before(metric: str, runs: Sequence[Run], scored: Sequence[Scored]) -> str:
    """The remedy where an earlier version of a metric wrote the scores; else empty."""
    for run, one in zip(runs, scored, strict=False):
        if one.signature(metric) != one.metrics[metric].signature:
            return f": run `hpcbench score {run.experiment.id}`"
    return ""


def _judged(name: str, metric: str, rule: QualityRule, samples: SamplePairs, policy: Gate) -> Check:
    """One metric over the samples that count on both sides."""
    pairs = samples.metric(metric)
    both = pairs.both
    if not both.any():
        why = "no sample has a score in both experiments"
        return Check(name, metric, "quality", rule.level, "inconclusive", why)
    alone = [count - int(both.sum()) for count in pairs.counted]
    found = MetricDifference(
        name,
        name,
        metric,
        samples.baseline.signature(metric),
        pairs.compare(both, alone, level=policy.confidence),
    )
    return _check(found, rule, policy, same=pairs.identical)


def _check(one: MetricDifference, rule: QualityRule, policy: Gate, *, same: bool) -> Check:
    """The difference compared with the margin."""
    found = one.comparison
    margin = margin_of(rule, found.baseline)
    low, high = found.interval.low, found.interval.high
    taken = same and policy.identical == "pass"
    values: dict[str, Any] = {
        "baseline": found.baseline,
        "candidate": found.candidate,
        "difference": one.difference,
        "low": None if taken else low,
        "high": None if taken else high,
        "margin": margin,
        "identical": same,
    }
    verdict: Found = "inconclusive"
    if taken:
        verdict = "pass"
        why = f"none of {found.n} samples differs: a pass by the policy (`identical: pass`)"
    elif not margin:
        why = NO_MARGIN
    elif low is None or high is None:
        why = f"{found.clusters} documents are too few for an interval"
    elif same and max(-low, high) >= margin:
        why = (
            f"no sample differs, but {found.clusters} documents cannot exclude that it is worse "
            f"by {margin:.3g}: that takes {_needed(found, margin)} documents without a difference"
        )
    else:
        verdict, said = held_to(margin, low, high, higher_is_better=found.higher_is_better)
        why = f"{_signed(low)} to {_signed(high)} on {found.clusters} documents: {said}"
        if verdict == "inconclusive":
            why += f"; if it is not worse, about {_needed(found, margin)} documents would decide"
    if found.only_baseline or found.only_candidate:
        why += f" ({found.n} samples in common, {found.only_baseline} only in the baseline)"
    return Check(one.baseline, one.metric, "quality", rule.level, verdict, why, **values)


def _needed(found: statistics.Comparison, margin: float) -> str:
    needed = statistics.documents_needed(found, margin)
    return "more" if needed is None else f"{needed:,}"


def _signed(value: float) -> str:
    return f"{value:+.3g}"
