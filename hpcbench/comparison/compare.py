"""Candidates compared with a baseline, sample by sample.

    compare(baseline, candidate)               one candidate, its metrics
    compare_many(baseline, [candidate, …])     several, with refusals and their reasons

The basis of a comparison is checked first. Another prompt, or another way to read and count, is reported.
Other samples (another version of the dataset, another choice, samples that one run has not asked yet) are
refused unless the user requests the common part. Another metric under the same name is always refused.
p-values are after Holm's correction over all metrics of all candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from hpcbench import statistics
from hpcbench.comparison.pairing import (
    Counting,
    SamplePairs,
    match_run_tasks,
    pair_run_tasks,
)
from hpcbench.comparison.resources import ONE_JOB_EACH, difference, resource_of, why_not
from hpcbench.comparison.results import CandidateResult, MetricDifference, Refusal
from hpcbench.errors import UserError
from hpcbench.evaluation.score_tables import refused, scored_any
from hpcbench.evaluation.versions import other_reading
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import scores_of
from hpcbench.experiment.view.performance_json import speed_of
from hpcbench.metrics.base import outside

Margins = Mapping[str, float]
"""Metric → difference that does not matter; `*` stands for all other metrics."""


def compare(
    baseline: Experiment,
    candidate: Experiment,
    pairs: Sequence[tuple[str, str]] = (),
    metrics: Sequence[str] = (),
) -> list[MetricDifference]:
    """Every metric of one candidate that can be compared; arguments and errors as for `compare_many`."""
    return list(compare_many(baseline, [candidate], pairs, metrics)[0].compared)


def compare_many(
    baseline: Experiment,
    candidates: Sequence[Experiment],
    pairs: Sequence[tuple[str, str]] = (),
    metrics: Sequence[str] = (),
    margins: Margins | None = None,
    counting: Counting = "zero",
    *,
    common: bool = False,
) -> list[CandidateResult]:
    """Compare candidates with one baseline, by every metric that both sides have.

    Args:
        baseline: the experiment to compare with.
        candidates: the experiments to compare.
        pairs: run tasks of the baseline and of a candidate, see `match_run_tasks`.
        metrics: only these; none: all.
        margins: differences that do not matter.
        counting: how answers without a value count, in both.
        common: compare only the common samples where the two did not ask the same samples.

    Raises:
        UserError: no such run task or metric, nothing to pair, or nothing to compare.
        RunFailed: an experiment has no scores.
    """
    found = with_holm(
        [
            compare_candidate(baseline, one, pairs, metrics, margins, counting, common=common)
            for one in candidates
        ]
    )
    if not any(result.compared for result in found):
        refused = [one.problem() for result in found for one in result.refused]
        if refused:
            raise UserError(*dict.fromkeys(refused))
        asked = f" among {', '.join(metrics)}" if metrics else ""
        raise UserError(
            f"no metric{asked} has scores in both experiments",
            remedy=f"`hpcbench report {candidates[0].id}` lists its scores",
        )
    return found


def compare_candidate(
    baseline: Experiment,
    candidate: Experiment,
    pairs: Sequence[tuple[str, str]] = (),
    metrics: Sequence[str] = (),
    margins: Margins | None = None,
    counting: Counting = "zero",
    *,
    common: bool = False,
    progress: Callable[[float], object] = lambda _: None,
) -> CandidateResult:
    """Compare one candidate, with uncorrected p-values; `with_holm` corrects those of several candidates.

    Args:
        baseline, candidate, pairs, metrics, margins, counting, common: as for `compare_many`.
        progress: receives, before each pair of run tasks, the share that is done.

    Raises:
        UserError, RunFailed: as `compare_many`; refused comparisons raise nothing.
    """
    samples: dict[tuple[str, str], SamplePairs] = {}
    found: list[MetricDifference | Refusal] = []
    matched = list(match_run_tasks(baseline, candidate, pairs))
    ids = baseline.id, candidate.id
    for number, (one, other) in enumerate(matched):
        progress(number / len(matched))
        some = samples[one.name, other.name] = pair_run_tasks(baseline, candidate, one, other)
        found += _compared(some, ids, metrics, margins or {}, counting, common=common)
        if some.why_other_samples and not common:
            continue  # refused as a whole
        found += _resources(baseline, candidate, some, metrics, margins or {})
    return CandidateResult(
        candidate,
        tuple(one for one in found if isinstance(one, MetricDifference)),
        tuple(one for one in found if isinstance(one, Refusal)),
        samples,
    )


def with_holm(found: Sequence[CandidateResult]) -> list[CandidateResult]:
    """Candidates with p-values and verdicts corrected over all of them, also where samples are left out."""
    every = [one for result in found for one in result.compared]
    whole = statistics.with_holm([one.comparison for one in every])
    worst = statistics.with_holm([one.worst or one.comparison for one in every])
    judged = iter(
        [
            replace(one, comparison=comparison, worst=None if one.worst is None else other)
            for one, comparison, other in zip(every, whole, worst, strict=True)
        ]
    )
    return [
        replace(result, compared=tuple(next(judged) for _ in result.compared)) for result in found
    ]


def _compared(
    samples: SamplePairs,
    ids: tuple[str, str],
    metrics: Sequence[str],
    margins: Margins,
    counting: Counting,
    *,
    common: bool,
) -> Iterator[MetricDifference | Refusal]:
    """Each metric of a pair of run tasks before Holm's correction, or why it is not compared."""
    first, second = samples.baseline, samples.candidate
    if (read := other_reading((first.reading, second.reading), ids)) is not None:
        yield Refusal(*samples.names, None, *read)
        return
    why, shared = samples.why_other_samples, len(samples.rows[0])
    if why and not (common and shared):
        remedy = "compare with an experiment that asked the same samples"
        if shared:
            remedy = f"--common compares {shared} samples that both have asked"
        yield Refusal(*samples.names, None, why, remedy)
        return
    differs = (
        *((f"compared only over the samples that both have asked: {why}",) if why else ()),
        *samples.differs,
    )
    for name in first.metrics:
        if name not in second.metrics or (metrics and name not in metrics):
            continue
        if (refusal := _other_metric(samples, name, ids)) is not None:
            yield refusal
            continue
        margin = margins.get(name, margins.get("*"))
        both = _both_ways(samples, name, margin, counting)
        if both is None:
            yield _nothing_scored(samples, name, ids)
            continue
        if (refusal := _outside(samples, name, both[0], ids)) is not None:
            yield refusal
            continue
        yield MetricDifference(
            *samples.names, name, first.signature(name), both[0], differs, worst=both[1]
        )


def _resources(
    baseline: Experiment,
    candidate: Experiment,
    samples: SamplePairs,
    metrics: Sequence[str],
    margins: Margins,
) -> Iterator[MetricDifference | Refusal]:
    """Each resource metric that both run tasks have, or why it is not compared."""
    tables = [
        (scores_of(here, name), speed_of(here, name))
        for here, name in zip((baseline, candidate), samples.names, strict=True)
    ]
    for name in tables[0][0].measured if tables[0][0] is not None else ():
        one, other = (resource_of(name, *table) for table in tables)
        if one is None or other is None or (metrics and name not in metrics):
            continue
        why = why_not(name, [one], [other])
        if not why and samples.why_other_samples:
            why = f"'{name}' is of all samples of a run: {samples.why_other_samples}"
        if why or one.entry is None:
            yield Refusal(
                *samples.names,
                name,
                why,
                "compare runs that both have a value, under the same load",
            )
            continue
        # A margin for all metrics is meant for scores: their units differ from these.
        found = difference([one], [other], margins.get(name))
        signature = one.entry.signature
        careful = () if one.measured.basis == "answers" else (ONE_JOB_EACH,)
        yield MetricDifference(
            *samples.names,
            name,
            signature,
            found,
            careful,
            paired=False,
            unit=one.measured.unit,
        )


def _both_ways(
    samples: SamplePairs, metric: str, margin: float | None, counting: Counting
) -> tuple[statistics.Comparison, statistics.Comparison | None] | None:
    """Both runs by one metric; and, where samples are left out, the comparison that counts them as the worst.

    None where no sample has a score in both.
    """
    found = samples.metric(metric, counting)
    if not found.both.any():
        return None
    one, other = found.counts
    alone = [int((one & ~other).sum()), int((other & ~one).sum())]
    total = [own + asked for own, asked in zip(alone, samples.asked_alone, strict=True)]
    whole = found.compare(found.both, total, margin=margin)
    in_one = (one ^ other) & ~found.lost
    if not in_one.any():
        return whole, None
    return whole, found.compare(found.both | in_one, margin=margin)


def _other_metric(samples: SamplePairs, name: str, ids: tuple[str, str]) -> Refusal | None:
    """Why a metric is not the same in both; None: it is the same."""
    both = samples.other_signature(name)
    if both is None:
        return None
    now = [side.metrics[name].signature for side in (samples.baseline, samples.candidate)]
    remedy = (
        "score both alike: `hpcbench score EXPERIMENT` by this version; or by other options with "
        "--save NAME, and compare EXPERIMENT/rescored/NAME"
    )
    if now[0] == now[1]:
        second_is_stale = samples.baseline.signature(name) == now[0]
        remedy = f"run `hpcbench score {ids[second_is_stale]}`"
    why = f"'{name}' is {both[0]} in the baseline and {both[1]} in the candidate"
    return Refusal(*samples.names, name, why, remedy)


def _outside(
    samples: SamplePairs, name: str, found: statistics.Comparison, ids: tuple[str, str]
) -> Refusal | None:
    """Why a metric's value is none; None: both values are inside its bounds."""
    sides = ("baseline", found.baseline, ids[0]), ("candidate", found.candidate, ids[1])
    for which, value, experiment in sides:
        if wrong := outside(samples.baseline.metrics[name], value):
            why = f"the value of '{name}' in the {which}, {value:g}, is {wrong}"
            remedy = f"correct the metric or its bounds, then `hpcbench score {experiment}`"
            return Refusal(*samples.names, name, why, remedy)
    return None


def _nothing_scored(samples: SamplePairs, name: str, ids: tuple[str, str]) -> Refusal:
    for which, side, experiment in (
        ("baseline", samples.baseline, ids[0]), ("candidate", samples.candidate, ids[1]),
    ):  # fmt: skip
        if wrong := refused(side, name):
            why = f"'{name}' has no value in the {which}: {wrong}"
            remedy = f"correct the metric or its bounds, then `hpcbench score {experiment}`"
            return Refusal(*samples.names, name, why, remedy)
    why = f"no sample has a value of '{name}' in both experiments"
    for which, side in (("baseline", samples.baseline), ("candidate", samples.candidate)):
        if not scored_any(side, name):
            why = f"'{name}' scored no sample of the {which}"
    return Refusal(*samples.names, name, why, f"`hpcbench report {ids[1]}` lists its scores")
