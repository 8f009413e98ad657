"""Scores of a candidate against those of its baseline: non-inferior by a margin, or not, or not to be told.

Samples are paired, documents are the unit of chance (`statistics.compare`), and the two-sided interval
of the difference is held against the margin M, in the direction in which the metric is better:

- pass: the whole interval lies above -M; this is the test for non-inferiority at half the usual error
  (Piaggio et al. 2012, JAMA 308:2594, figure 1);
- fail: the whole interval lies below -M: worse by more than is allowed, and not by chance;
- inconclusive: else, with the number of documents that would tell.

So a candidate that is no worse than the margin is called failing in at most 2.5 % of cases (at 95 %),
and one that is worse passes in at most 2.5 %. Answers that are all the same are judged like others: few
documents without a difference prove little. Of several runs of a run task each sample counts with its
mean over them, so the model's own chance is in the interval, and shrinks with every repeat (Miller 2024,
arXiv 2411.00640, section 3.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcbench import statistics
from hpcbench.comparison.gate.sides import Run, not_same
from hpcbench.comparison.gate.verdict import Check
from hpcbench.evaluation import load_metrics, pooling
from hpcbench.evaluation.aggregate import Scored, read_parts
from hpcbench.evaluation.scores import Place, rows_of
from hpcbench.evaluation.scoring import is_corpus
from hpcbench.evaluation.versions import made_by, other_reading
from hpcbench.experiment.ending import is_scored, why_nothing
from hpcbench.schema.documents import Gate, QualityRule
from hpcbench.schema.rules import rule_for

if TYPE_CHECKING:
    from numpy.typing import NDArray


def quality_checks(
    name: str, baseline: Sequence[Run], candidate: Sequence[Run], policy: Gate
) -> Iterator[Check]:
    """Every metric of the baseline for which the policy has a margin.

    Args:
        name: the run task.
        baseline: its runs there.
        candidate: its runs here, one or more.
        policy: the gate's.
    """
    ours = [_scored(run) for run in baseline]
    theirs = [_scored(run) for run in candidate]
    known = [one for one in ours if one is not None]
    found = [one for one in theirs if one is not None]
    differs = list(
        dict.fromkeys(what for run in candidate for what in not_same(baseline[0], run, policy.same))
    )
    differs += _read_otherwise((*baseline, *candidate), (*ours, *theirs))
    if "samples" in policy.same:
        differs += _other_samples(known, found)
    for metric in load_metrics(baseline[0].run_task):
        rule = rule_for(policy.metrics, name, metric)
        if rule is None:
            continue
        verdict, why = "inconclusive", ""
        nothing = [next(_unscored(runs, metric), "") for runs in (baseline, candidate)]
        scored = [one for one in found if metric in one.metrics]
        if len(known) < len(ours):
            why = "the baseline has no scores of it: `hpcbench score` makes them from its answers"
        elif len(scored) < len(theirs):
            yield Check(name, metric, "quality", "critical", "fail", "the candidate has none")
            continue
        elif nothing[0]:
            why = f"in the baseline {nothing[0]}"
        elif nothing[1]:
            yield Check(name, metric, "quality", rule.level, "fail", nothing[1])
            continue
        elif other := _other_signature(metric, known, found):
            why = f"another metric of that name: {' there, '.join(other)} here"
            why += _scored_before(metric, (*baseline, *candidate), (*known, *found))
        elif differs:
            why = "; ".join(differs)
        if why:
            yield Check(name, metric, "quality", rule.level, verdict, why)  # type: ignore[arg-type]
        else:
            yield _judged(name, metric, rule, known, found, policy)


def coverage_check(
    name: str, baseline: Sequence[Run], candidate: Sequence[Run], policy: Gate
) -> Check:
    """Whether enough samples are ok, over all runs."""
    here, there = (_coverage(runs) for runs in (candidate, baseline))
    rule = policy.coverage
    told: dict[str, Any] = {
        "baseline": there,
        "candidate": here,
        "difference": None if None in (here, there) else here - there,  # type: ignore[operator]
    }
    if here is None:
        why = "the candidate does not tell how many samples are ok"
        return Check(name, "coverage", "coverage", rule.level, "inconclusive", why, **told)
    enough = here >= rule.least
    why = f"{here:.1%} of samples are ok, {rule.least:.1%} are asked for"
    return Check(
        name, "coverage", "coverage", rule.level, "pass" if enough else "fail", why, **told
    )


def _unscored(runs: Sequence[Run], metric: str) -> Iterator[str]:
    """Why runs have no value of a metric; nothing where one of them has a value."""
    tables = [(run.told.metrics or {}).get(run.run_task.name) for run in runs]
    known = [table for table in tables if table is not None and metric in table["metrics"]]
    if len(known) == len(runs) and all(table["metrics"][metric] is None for table in known):
        for table in known:
            yield f"{metric} scored no sample" if is_scored(table) else why_nothing(table)


def _coverage(runs: Sequence[Run]) -> float | None:
    found = []
    for run in runs:
        tables = run.told.metrics
        if tables is None:
            return None
        found.append(tables.get(run.run_task.name, {}).get("coverage"))
    known = [one for one in found if one is not None]
    return sum(known) / len(known) if known and len(known) == len(found) else None


def _scored(run: Run) -> Scored | None:
    place = Place(run.experiment.scores_dir, run.run_task.name)
    if not place.scores.exists():
        return None
    run.experiment.use_packages()
    metrics = load_metrics(run.run_task)
    made = made_by(run.experiment, place, run.run_task.name)
    seed = run.experiment.resolved.plan.seed
    return Scored(run.run_task, metrics, place, seed, made.reading, made.signatures)


def _read_otherwise(runs: Sequence[Run], scored: Sequence[Scored | None]) -> Iterator[str]:
    """Which runs' answers were read by another version of the parser than the first's."""
    known = [(run, one) for run, one in zip(runs, scored, strict=True) if one is not None]
    for run, one in known[1:]:
        ids = known[0][0].experiment.id, run.experiment.id
        other = other_reading((known[0][1].reading, one.reading), ids)
        if other is not None:
            yield ": ".join(other)
            return


def _other_signature(
    metric: str, baseline: Sequence[Scored], candidate: Sequence[Scored]
) -> tuple[str, str] | None:
    """Two signatures of a metric, as it is now or as it was scored by; None: there is one."""
    first = baseline[0]
    for one in (*baseline, *candidate):
        for other in (
            (first.metrics[metric].signature, one.metrics[metric].signature),
            (first.signature(metric), one.signature(metric)),
        ):
            if other[0] != other[1]:
                return other
    return None


def _scored_before(metric: str, runs: Sequence[Run], scored: Sequence[Scored]) -> str:
    """What to do where scores are of an earlier version of a metric than there is now; else nothing."""
    for run, one in zip(runs, scored, strict=False):
        if one.signature(metric) != one.metrics[metric].signature:
            return f": run `hpcbench score {run.experiment.id}`"
    return ""


def _other_samples(baseline: Sequence[Scored], candidate: Sequence[Scored]) -> Iterator[str]:
    """How many samples only one side has asked."""
    asked = [
        {sample for one in runs for sample in rows_of(one.place.scores, ["sample"])["sample"]}
        for runs in (baseline, candidate)
    ]
    alone = len(asked[0] - asked[1]), len(asked[1] - asked[0])
    if any(alone):
        yield "{} samples were asked by the baseline alone, {} by the candidate".format(*alone)


def _judged(
    name: str,
    metric: str,
    rule: QualityRule,
    baseline: Sequence[Scored],
    candidate: Sequence[Scored],
    policy: Gate,
) -> Check:
    """One metric over the samples that both sides have."""
    import numpy

    kind = baseline[0].metrics[metric]
    sides = [_pooled(runs, metric) for runs in (baseline, candidate)]
    both = statistics.pair(sides[0].samples, sides[1].samples)
    if not len(both.baseline):
        why = "no sample is scored in both"
        return Check(name, metric, "quality", rule.level, "inconclusive", why)
    names = sorted({*sides[0].parts, *sides[1].parts})
    parts = [
        side.table(names, rows)
        for side, rows in zip(sides, (both.baseline, both.candidate), strict=True)
    ]
    if kind.aggregation == "mean" and all((one[:, 0] == 1).all() for one in parts):
        parts = [one[:, 1:] for one in parts]  # the denominators go
        names = names[1:]
    elif not is_corpus(kind):
        parts = [one[:, ::-1] for one in parts]  # numerators first
    found = statistics.compare(
        parts[0],
        parts[1],
        [sides[0].documents[row] for row in both.baseline],
        combine=statistics.combine_of(kind, names) if is_corpus(kind) else None,
        values=(sides[0].values[both.baseline], sides[1].values[both.candidate]),
        higher_is_better=kind.higher_is_better,
        level=policy.confidence,
        bounds=kind.bounds,
        seed=baseline[0].seed,
        only_baseline=len(both.only_baseline),
        only_candidate=len(both.only_candidate),
    )
    same = bool(numpy.array_equal(parts[0], parts[1]))
    return _check(name, metric, rule, found, policy, same=same)


@dataclass(frozen=True, slots=True)
class _Pooled:
    """Samples of one side, each with its mean over all runs in which it counts."""

    samples: Sequence[str]
    documents: Sequence[str]
    values: NDArray[Any]
    """Of each sample; NaN without one."""
    parts: Mapping[str, NDArray[Any]]
    """What samples bring to the metric, by name."""

    def table(self, names: Sequence[str], rows: NDArray[Any]) -> NDArray[Any]:
        """Parts of some samples, (n, K)."""
        import numpy

        none = numpy.zeros(len(self.samples))
        return numpy.stack([self.parts.get(name, none)[rows] for name in names], axis=1)


def _pooled(runs: Sequence[Scored], metric: str) -> _Pooled:
    import numpy
    import polars

    frames = [
        read_parts(one, metric)
        .filter(polars.col("counted_zero"))
        .with_columns(polars.lit(number).alias("#run"))
        for number, one in enumerate(runs)
    ]
    frame = polars.concat(frames, how="vertical_relaxed")
    if is_corpus(runs[0].metrics[metric]):
        addends = pooling.of_counts(frame["counts"].fill_null("{}"), frame.height)
    else:
        numbers = (frame[part].fill_null(0.0).to_numpy() for part in ("numerator", "denominator"))
        addends = pooling.of_parts(*numbers)
    first = frame.group_by("sample", maintain_order=True).agg(
        polars.col("document").first(), polars.col("value").mean()
    )
    places = {sample: place for place, sample in enumerate(first["sample"].to_list())}
    codes = numpy.array([places[sample] for sample in frame["sample"].to_list()], dtype=numpy.int64)
    counts = numpy.bincount(codes, minlength=len(places))
    parts = {
        name: numpy.bincount(codes, weights=addends.column(name), minlength=len(places)) / counts
        for name in addends.names
    }
    values = first["value"].fill_null(float("nan")).to_numpy()
    return _Pooled([*places], first["document"].to_list(), values, parts)


def _check(
    name: str,
    metric: str,
    rule: QualityRule,
    found: statistics.Comparison,
    policy: Gate,
    *,
    same: bool,
) -> Check:
    """The comparison against the margin."""
    margin = max(rule.absolute or 0.0, (rule.relative or 0.0) * abs(found.baseline))
    low, high = found.interval.low, found.interval.high
    taken = same and policy.identical == "pass"
    told: dict[str, Any] = {
        "baseline": found.baseline,
        "candidate": found.candidate,
        "difference": found.candidate - found.baseline,
        "low": None if taken else low,
        "high": None if taken else high,
        "margin": margin,
        "identical": same,
    }
    verdict, why = "inconclusive", ""
    if taken:
        verdict, why = (
            "pass",
            f"none of {found.n} samples differs, which the policy takes for proof",
        )
    elif not margin:
        why = "a margin of a share of 0 is none: give an absolute one, too"
    elif low is None or high is None:
        why = f"{found.clusters} documents tell no chance from a difference"
    elif same and max(-low, high) >= margin:
        why = (
            f"no sample differs, but {found.clusters} documents cannot exclude a drop of {margin:.3g}: "
            f"that takes {_needed(found, margin)} documents without a difference"
        )
    else:
        better, worse = (high, low) if found.higher_is_better else (-low, -high)
        shown = f"{_signed(low)} to {_signed(high)} on {found.clusters} documents"
        if worse > -margin:
            verdict, why = "pass", f"{shown}: no worse than {margin:.3g}"
        elif better < -margin:
            verdict, why = "fail", f"{shown}: worse by more than {margin:.3g}"
        else:
            why = (
                f"{shown}: whether it is worse by more than {margin:.3g} cannot be told; "
                f"if it is not worse at all, about {_needed(found, margin)} documents would tell"
            )
    if found.only_baseline or found.only_candidate:
        why += f" ({found.n} samples in common, {found.only_baseline} only in the baseline)"
    return Check(name, metric, "quality", rule.level, verdict, why, **told)  # type: ignore[arg-type]


def _needed(found: statistics.Comparison, margin: float) -> str:
    needed = statistics.documents_needed(found, margin)
    return "more" if needed is None else f"{needed:,}"


def _signed(value: float) -> str:
    return f"{value:+.3g}"
