"""Candidates compared with a baseline, sample by sample.

    compare(baseline, candidate)               one candidate, its metrics
    compare_many(baseline, [candidate, …])     several, with what was refused and why

What a comparison rests on is checked first. Another prompt, or another way to read and count, is reported.
Other samples (another version of the dataset, other choices, samples that one run has not asked yet) are
refused unless the part that both share is asked for. Another metric under the same name is always refused.
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
from hpcbench.comparison.results import CandidateResult, MetricDifference, Refusal
from hpcbench.errors import UserError
from hpcbench.evaluation.aggregate import scored_any
from hpcbench.evaluation.versions import other_reading
from hpcbench.experiment.layout import Experiment

Margins = Mapping[str, float]
"""Metric → difference that does not matter; `*` is for all others."""


def compare(
    baseline: Experiment,
    candidate: Experiment,
    pairs: Sequence[tuple[str, str]] = (),
    metrics: Sequence[str] = (),
) -> list[MetricDifference]:
    """Every metric of one candidate that can be compared; args and errors as of `compare_many`."""
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
    """Compare candidates with one baseline, by every metric that both have.

    Args:
        baseline: what is compared with.
        candidates: what is compared.
        pairs: run tasks of the baseline and of a candidate, see `match_run_tasks`.
        metrics: only these; none: all.
        margins: differences that do not matter.
        counting: what answers without a value count, in both.
        common: compare the samples that both have asked where they have not asked the same.

    Raises:
        UserError: no such run task or metric, nothing to pair, or nothing that may be compared.
        RunFailed: one of them has no scores.
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
        asked = f" of {', '.join(metrics)}" if metrics else ""
        raise UserError(
            f"nothing{asked} that both have scored",
            remedy=f"`hpcbench report {candidates[0].id}` says what it has",
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
    """Compare one candidate, p-values as they are; `with_holm` corrects those of several.

    Args:
        baseline, candidate, pairs, metrics, margins, counting, common: as of `compare_many`.
        progress: gets, before each pair of run tasks, the share that is done.

    Raises:
        UserError, RunFailed: as `compare_many`, but for what may not be compared.
    """
    samples: dict[tuple[str, str], SamplePairs] = {}
    found: list[MetricDifference | Refusal] = []
    matched = list(match_run_tasks(baseline, candidate, pairs))
    ids = baseline.id, candidate.id
    for number, (one, other) in enumerate(matched):
        progress(number / len(matched))
        some = samples[one.name, other.name] = pair_run_tasks(baseline, candidate, one, other)
        found += _compared(some, ids, metrics, margins or {}, counting, common=common)
    return CandidateResult(
        candidate,
        tuple(one for one in found if isinstance(one, MetricDifference)),
        tuple(one for one in found if isinstance(one, Refusal)),
        samples,
    )


def with_holm(found: Sequence[CandidateResult]) -> list[CandidateResult]:
    """Candidates with p-values and verdicts that hold among all; those of what is left out, too."""
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
    """Each metric of a pair of run tasks, before Holm, or why it is not compared."""
    first, second = samples.baseline, samples.candidate
    if (read := other_reading((first.reading, second.reading), ids)) is not None:
        yield Refusal(*samples.names, None, *read)
        return
    why, shared = samples.why_other_samples, len(samples.rows[0])
    if why and not (common and shared):
        remedy = "compare with an experiment that asked the same"
        if shared:
            remedy = f"--common compares {shared} samples that both have asked"
        yield Refusal(*samples.names, None, why, remedy)
        return
    differs = (*((f"only what both have asked: {why}",) if why else ()), *samples.differs)
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
        yield MetricDifference(
            *samples.names, name, first.signature(name), both[0], differs, worst=both[1]
        )


def _both_ways(
    samples: SamplePairs, metric: str, margin: float | None, counting: Counting
) -> tuple[statistics.Comparison, statistics.Comparison | None] | None:
    """Both runs by one metric; and, where samples are left out of it, with these as the worst.

    None where no sample is scored by both.
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
    """Why a metric is not the same in both; None: it is."""
    both = samples.other_signature(name)
    if both is None:
        return None
    now = [side.metrics[name].signature for side in (samples.baseline, samples.candidate)]
    remedy = "score both by one of them: `hpcbench score EXPERIMENT --metrics …`"
    if now[0] == now[1]:
        second_is_stale = samples.baseline.signature(name) == now[0]
        remedy = f"run `hpcbench score {ids[second_is_stale]}`"
    why = f"'{name}' is {both[0]} in the baseline and {both[1]} in the candidate"
    return Refusal(*samples.names, name, why, remedy)


def _nothing_scored(samples: SamplePairs, name: str, ids: tuple[str, str]) -> Refusal:
    why = f"no sample has '{name}' in both"
    for which, side in (("baseline", samples.baseline), ("candidate", samples.candidate)):
        if not scored_any(side, name):
            why = f"'{name}' scored no sample of the {which}"
    return Refusal(*samples.names, name, why, f"`hpcbench report {ids[1]}` says what it has")
