"""Runs over the same samples, each held against a baseline sample by sample.

    compare(baseline, candidate)         one candidate, its metrics
    hold(baseline, [candidate, …])       several, with what was refused and why; p-values after Holm over all

What a comparison rests on is checked first. Another prompt, or another way to read and count, is told. Other
samples (another version of the dataset, other choices, samples that one run has not asked yet) are refused
unless the part that both share is asked for. Another metric under the same name is always refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from hpcbench import statistics
from hpcbench.comparison.differences import same_prompt
from hpcbench.errors import Problem, RunFailed, UserError
from hpcbench.evaluation import load_metrics, pooling
from hpcbench.evaluation import number_format as form
from hpcbench.evaluation.aggregate import Scored, read_parts, scored_any
from hpcbench.evaluation.scores import Place, rows_of, scan
from hpcbench.evaluation.scoring import is_corpus
from hpcbench.evaluation.versions import made_by, other_reading
from hpcbench.experiment.counts import Counts
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.answer import MISSING
from hpcbench.metrics.base import Parts, value_of
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.speed import ANSWERED

if TYPE_CHECKING:
    from numpy.typing import NDArray

Counting = Literal["zero", "exclude"]
"""What an answer without a value counts: the worst, or nothing, so that its sample is in no pair."""

COMMON = "--common compares {n} samples that both have asked"


@dataclass(frozen=True, slots=True)
class Compared:
    """One metric of a pair of run tasks."""

    baseline: str
    """Run task of the baseline."""
    candidate: str
    """Run task of the candidate."""
    metric: str
    """Name of the metric's document."""
    signature: str
    """The metric with all its options; both have the same."""
    comparison: statistics.Comparison
    """What was found."""
    differs: tuple[str, ...]
    """What else is not the same in both, in words."""
    if_worst: statistics.Verdict | None = None
    """The verdict if what only one of them has scored counted as the worst; None: nothing was left out so."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        found, needed = self.comparison, None
        if found.margin is not None and found.verdict == "inconclusive":
            needed = statistics.documents_needed(found, found.margin)
        return {
            **asdict(self),
            "differs": list(self.differs),
            "documents_needed": needed,
            "holds_zero": self.holds_zero,
        }

    @property
    def holds_zero(self) -> bool:
        """Whether the verdict is `better` or `worse` and the interval holds 0."""
        found = self.comparison.interval
        return (
            self.comparison.verdict in ("better", "worse")
            and found.low is not None
            and found.high is not None
            and found.low <= 0 <= found.high
        )


@dataclass(frozen=True, slots=True)
class Refused:
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
            f"{_pair_name(self.baseline, self.candidate)}: {self.why}", remedy=self.remedy
        )

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """A candidate held against the baseline."""

    candidate: Experiment
    """The candidate."""
    pairs: tuple[tuple[str, str], ...]
    """Run tasks of baseline and candidate that belong together."""
    compared: tuple[Compared, ...]
    """Every metric that could be compared."""
    refused: tuple[Refused, ...]
    """What could not."""
    sides: Mapping[tuple[str, str], SamplePairs]
    """Of each pair, its samples."""

    @property
    def other_samples(self) -> frozenset[tuple[str, str]]:
        """Those of `pairs` that have not asked the same samples."""
        return frozenset(pair for pair, sides in self.sides.items() if sides.other_samples())


def compare(
    baseline: Experiment,
    candidate: Experiment,
    pairs: Sequence[tuple[str, str]] = (),
    metrics: Sequence[str] = (),
    margins: Mapping[str, float] | None = None,
    counting: Counting = "zero",
    *,
    common: bool = False,
) -> list[Compared]:
    """Hold a candidate against a baseline, every metric that both have; p-values after Holm over all.

    What had to be refused is not among them; `hold` tells it.

    Args:
        baseline: what is compared with.
        candidate: what is compared.
        pairs: run tasks of the baseline and of the candidate; none: those of one name, else those that ask
            the same of the same dataset.
        metrics: only these; none: all.
        margins: metric → difference that does not matter; `*` is for all others.
        counting: what answers without a value count, in both.
        common: compare the samples that both have asked where they have not asked the same.

    Raises:
        UserError: no such run task or metric, nothing to pair, or nothing that may be compared.
        RunFailed: one of them has no scores.
    """
    held = compare_many(baseline, [candidate], pairs, metrics, margins, counting, common=common)
    return list(held[0].compared)


def compare_many(
    baseline: Experiment,
    candidates: Sequence[Experiment],
    pairs: Sequence[tuple[str, str]] = (),
    metrics: Sequence[str] = (),
    margins: Mapping[str, float] | None = None,
    counting: Counting = "zero",
    *,
    common: bool = False,
) -> list[CandidateResult]:
    """Hold candidates against one baseline; p-values after Holm over all metrics of all of them.

    Args and errors as of `compare`; it raises only where nothing of any candidate can be compared.
    """
    found = hold_each(
        baseline, [(one, pairs) for one in candidates], metrics, margins, counting, common=common
    )
    if not any(held.compared for held in found):
        refused = [one.problem() for held in found for one in held.refused]
        if refused:
            raise UserError(*dict.fromkeys(refused))
        asked = f" of {', '.join(metrics)}" if metrics else ""
        raise UserError(
            f"nothing{asked} that both have scored",
            remedy=f"`hpcbench report {candidates[0].id}` says what it has",
        )
    return found


def hold_each(
    baseline: Experiment,
    candidates: Sequence[tuple[Experiment, Sequence[tuple[str, str]]]],
    metrics: Sequence[str] = (),
    margins: Mapping[str, float] | None = None,
    counting: Counting = "zero",
    *,
    common: bool = False,
    tell: Callable[[float], object] = lambda _: None,
) -> list[CandidateResult]:
    """As `hold`, of candidates each with pairs of its own; one with which nothing can be compared is told.

    Args:
        baseline, candidates, metrics, margins, counting, common: as of `compare`.
        tell: is told, after each pair of run tasks, which share is done.

    Raises:
        UserError, RunFailed: as `compare`, but for what may not be compared.
    """
    found = []
    for number, (one, pairs) in enumerate(candidates):

        def part(share: float, before: int = number) -> None:
            tell((before + share) / len(candidates))

        found.append(_held(baseline, one, pairs, metrics, margins or {}, counting, common, part))
    return _judged(found)


def _judged(
    found: Sequence[tuple[CandidateResult, Sequence[statistics.Comparison | None]]],
) -> list[CandidateResult]:
    """With verdicts that hold among all; of what is left out, both ways."""
    judged = iter(
        statistics.with_holm([one.comparison for held, _ in found for one in held.compared])
    )
    worst = iter(
        statistics.with_holm(
            [
                other or one.comparison
                for held, others in found
                for one, other in zip(held.compared, others, strict=True)
            ]
        )
    )
    whole = []
    for held, others in found:
        compared = [
            Compared(
                one.baseline, one.candidate, one.metric, one.signature, comparison, one.differs,
                None if other is None else if_worst.verdict,
            )
            for one, comparison, if_worst, other in zip(
                held.compared, judged, worst, others, strict=False
            )
        ]  # fmt: skip
        whole.append(replace(held, compared=tuple(compared)))
    return whole


def _held(
    baseline: Experiment,
    candidate: Experiment,
    pairs: Sequence[tuple[str, str]],
    metrics: Sequence[str],
    margins: Mapping[str, float],
    counting: Counting,
    common: bool,
    tell: Callable[[float], object],
) -> tuple[CandidateResult, list[statistics.Comparison | None]]:
    """A candidate, before Holm; and each comparison again with what was left out as the worst."""
    compared: list[Compared] = []
    others: list[statistics.Comparison | None] = []
    refused: list[Refused] = []
    paired: dict[tuple[str, str], SamplePairs] = {}
    both_have = list(matched(baseline, candidate, pairs))
    for number, (one, other) in enumerate(both_have):
        tell(number / len(both_have))
        sides = paired[one.name, other.name] = SamplePairs.of(baseline, candidate, one, other)
        readings = sides.first.reading, sides.second.reading
        if (read := other_reading(readings, (baseline.id, candidate.id))) is not None:
            refused.append(Refused(one.name, other.name, None, *read))
            continue
        why = sides.other_samples()
        if why and not (common and len(sides.rows[0])):
            remedy = COMMON.format(n=len(sides.rows[0])) if len(sides.rows[0]) else _NOTHING_SHARED
            refused.append(Refused(one.name, other.name, None, why, remedy))
            continue
        differs = (*((f"only what both have asked: {why}",) if why else ()), *sides.differs)
        for name in sides.first.metrics:
            if name not in sides.second.metrics or (metrics and name not in metrics):
                continue
            if (wrong := _other_metric(sides, name, (baseline.id, candidate.id))) is not None:
                refused.append(wrong)
                continue
            margin = margins.get(name, margins.get("*"))
            both = _compare(sides, name, margin, counting)
            if both is None:
                what = f"no sample has '{name}' in both"
                for which, side in (("baseline", sides.first), ("candidate", sides.second)):
                    if not scored_any(side, name):
                        what = f"'{name}' scored no sample of the {which}"
                remedy = f"`hpcbench report {candidate.id}` says what it has"
                refused.append(Refused(one.name, other.name, name, what, remedy))
                continue
            signature = sides.first.signature(name)
            compared.append(Compared(one.name, other.name, name, signature, both[0], differs))
            others.append(both[1])
    names = tuple((one.name, other.name) for one, other in both_have)
    return CandidateResult(candidate, names, tuple(compared), tuple(refused), paired), others


_NOTHING_SHARED = "compare with an experiment that asked the same"


# --- which run tasks, and which samples of them --------------------------------------------------------


def matched(
    baseline: Experiment, candidate: Experiment, pairs: Sequence[tuple[str, str]]
) -> Iterator[tuple[ResolvedRunTask, ResolvedRunTask]]:
    """Run tasks that belong together."""
    if pairs:
        for one, other in pairs:
            yield baseline.run_task(one), candidate.run_task(other)
        return
    ours = {one.name: one for one in baseline.resolved.run_tasks}
    theirs = {one.name: one for one in candidate.resolved.run_tasks}
    same = [(ours[name], theirs[name]) for name in ours if name in theirs]
    if not same:
        same = [
            (one, other)
            for one in ours.values()
            for other in theirs.values()
            if _question(one) == _question(other)
        ]
        questions = [_question(one) for one, _ in same]
        if len(set(questions)) < len(questions):
            raise UserError(
                "several run tasks ask the same of one dataset", remedy="--run-task ONE=OTHER"
            )
    if not same:
        raise UserError(
            f"{baseline.id} and {candidate.id} have no run task in common",
            remedy="--run-task ONE=OTHER",
        )
    yield from same


def _question(one: ResolvedRunTask) -> tuple[str | None, ...]:
    return one.ml_task.name, one.dataset.name, one.dataset.split


def _pair_name(one: str, other: str) -> str:
    return " → ".join(dict.fromkeys((one, other)))


@dataclass(frozen=True)
class SamplePairs:
    """A pair of run tasks, and the samples that both have asked."""

    first: Scored
    """Of the baseline."""
    second: Scored
    """Of the candidate."""
    rows: tuple[NDArray[Any], NDArray[Any]]
    """Rows of the scores files, of samples that both have asked with the same references; in one order."""
    asked_alone: tuple[int, int]
    """Samples that only the baseline has asked, and only the candidate."""
    other_references: int
    """Samples that both have asked, and whose right answers differ."""
    hashes: tuple[str | None, str | None]
    """Of the datasets; None: not known."""
    differs: tuple[str, ...]
    """What of question and counting is not the same, in words."""

    @classmethod
    def of(
        cls,
        baseline: Experiment,
        candidate: Experiment,
        one: ResolvedRunTask,
        other: ResolvedRunTask,
    ) -> SamplePairs:
        """Pair the samples.

        Raises:
            RunFailed: one has no scores.
            UserError: a sample stands twice in one of them.
        """
        scored = _scored(baseline, one), _scored(candidate, other)
        hashes = _hash_of(baseline, one), _hash_of(candidate, other)
        known = hashes[0] is not None and hashes[0] == hashes[1]
        columns = ["sample", "outcome", "invalid", *(() if known else ("references",))]
        frames = [rows_of(side.place.scores, columns) for side in scored]
        rows, alone = _paired(frames)
        unlike = 0
        if not known and len(rows[0]):
            references = [
                frame["references"][places] for frame, places in zip(frames, rows, strict=True)
            ]
            same = references[0].eq_missing(references[1]).to_numpy()
            unlike = int((~same).sum())
            rows = rows[0][same], rows[1][same]
        alike = same_prompt(baseline, one, candidate, other)
        differs = (*_differences(one, other, alike), *_coverage(scored, frames))
        return cls(*scored, rows, alone, unlike, hashes, differs)

    def other_samples(self) -> str:
        """Why they did not ask the same samples; empty: they did."""
        found = []
        one, other = self.hashes
        if one is not None and other is not None and one != other:
            found.append("the datasets' files differ")
        if any(self.asked_alone):
            ours, theirs = self.asked_alone
            found.append(
                f"{ours} samples were asked by the baseline alone, {theirs} by the candidate"
            )
        if self.other_references:
            found.append(f"{self.other_references} samples have other right answers")
        return "; ".join(found)


def _scored(experiment: Experiment, run_task: ResolvedRunTask) -> Scored:
    """A run task's scores, with the metrics that they have."""
    import polars

    place = Place(experiment.scores_dir, run_task.name)
    again = f"`hpcbench score {experiment.id}` makes them"
    try:
        there = set(scan(place.scores).collect_schema().names())
    except FileNotFoundError:
        raise RunFailed(f"{experiment.id} has no scores of {run_task.name}: {again}") from None
    except (OSError, polars.exceptions.PolarsError):
        raise RunFailed(f"{place.scores} cannot be read: {again} anew") from None
    if _NEEDED - there:
        what = f"scores of {run_task.name} are of another version of hpcbench"
        raise RunFailed(f"{experiment.id}: {what}: {again} anew")
    experiment.use_packages()
    metrics = {name: one for name, one in load_metrics(run_task).items() if name in there}
    made = made_by(experiment, place, run_task.name)
    seed = experiment.alone(run_task.name).plan.seed
    return Scored(run_task, metrics, place, seed, made.reading, made.signatures)


_NEEDED = {"sample", "document", "outcome", "answer", "reason", "invalid", "references"}
"""Columns of scores that a comparison reads."""


def _hash_of(experiment: Experiment, run_task: ResolvedRunTask) -> str | None:
    measured: Any = experiment.manifest.get("measured") or {}
    found = (measured.get("dataset_hashes") or {}).get(run_task.name)
    return str(found) if found else None


def _paired(
    frames: Sequence[Any],
) -> tuple[tuple[NDArray[Any], NDArray[Any]], tuple[int, int]]:
    """Rows of samples that both have asked, and how many only one has."""
    import numpy

    asked = [numpy.flatnonzero((frame["outcome"] != MISSING).to_numpy()) for frame in frames]
    ids = [frame["sample"][rows] for frame, rows in zip(frames, asked, strict=True)]
    if ids[0].equals(ids[1]) and ids[0].n_unique() == len(ids[0]):
        return (asked[0], asked[1]), (0, 0)
    try:
        both = statistics.pair(ids[0].to_list(), ids[1].to_list())
    except ValueError as error:
        raise UserError(str(error)) from error
    rows = asked[0][both.baseline], asked[1][both.candidate]
    return rows, (len(both.only_baseline), len(both.only_candidate))


def _differences(
    one: ResolvedRunTask, other: ResolvedRunTask, prompts_alike: bool
) -> Iterator[str]:
    """What would make the question or the counting another one."""
    if not prompts_alike:
        names = dict.fromkeys((one.prompt.name, other.prompt.name))
        told = ", ".join(names) if len(names) > 1 else f"{one.prompt.name} was changed"
        yield f"prompts differ: {told}"
    if one.ml_task != other.ml_task:
        yield f"answers are read otherwise: {one.ml_task.name}, {other.ml_task.name}"
    if one.task.on_failed != other.task.on_failed:
        yield f"samples without an answer: {one.task.on_failed}, {other.task.on_failed}"


def _coverage(scored: Sequence[Scored], frames: Sequence[Any]) -> Iterator[str]:
    """Coverage of both, where it differs."""
    shares = [
        Counts(
            asked=frame.height,
            responded=int(frame["outcome"].is_in(list(ANSWERED)).sum()),
            unreadable=int(frame["invalid"].sum()),
            skipped=side.skipped,
        ).coverage
        for side, frame in zip(scored, frames, strict=True)
    ]
    if shares[0] != shares[1]:
        ours, theirs = map(form.share, shares)
        yield f"coverage differs: {ours} and {theirs} of the samples are ok"


def _other_metric(sides: SamplePairs, name: str, ids: tuple[str, str]) -> Refused | None:
    both = sides.first, sides.second
    one, other = (side.metrics[name].signature for side in both)
    remedy = "score both by one of them: `hpcbench score EXPERIMENT --metrics …`"
    if one == other:
        one, other = (side.signature(name) for side in both)
        stale = [side.signature(name) != side.metrics[name].signature for side in both]
        remedy = f"run `hpcbench score {ids[stale.index(True)] if any(stale) else ids[0]}`"
    if one == other:
        return None
    return Refused(
        sides.first.run_task.name,
        sides.second.run_task.name,
        name,
        f"'{name}' is {one} in the baseline and {other} in the candidate",
        remedy,
    )


# --- one metric ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """One metric over the samples that both have asked."""

    kind: Any
    """The metric."""
    frames: tuple[Any, Any]
    """Of `read_parts`, one row a sample, in one order."""
    values: tuple[NDArray[Any], NDArray[Any]]
    """Each sample's own value, also of one that does not count; NaN: the metric could not score it."""
    counts: tuple[NDArray[Any], NDArray[Any]]
    """Whether each counts."""
    lost: NDArray[Any]
    """Samples that the metric could not score in one of them."""

    @property
    def both(self) -> NDArray[Any]:
        """Samples that count in both."""
        found: NDArray[Any] = self.counts[0] & self.counts[1]
        return found


def column(sides: SamplePairs, metric: str, counting: Counting = "zero") -> Column:
    """What a metric says of the samples that both have asked."""
    frames, values, counts, lost = [], [], [], []
    for scored, rows in zip((sides.first, sides.second), sides.rows, strict=True):
        frame = read_parts(scored, metric)
        if len(rows) < frame.height or (rows[1:] < rows[:-1]).any():
            frame = frame[rows]
        frames.append(frame)
        counts.append(frame[f"counted_{counting}"].to_numpy())
        lost.append(frame["fault"].is_not_null().to_numpy())
        values.append(_values(scored.metrics[metric], frame))
    return Column(
        sides.first.metrics[metric],
        (frames[0], frames[1]),
        (values[0], values[1]),
        (counts[0], counts[1]),
        lost[0] | lost[1],
    )


def _values(kind: Any, frame: Any) -> NDArray[Any]:
    """Values of samples. What a policy left out in its own run has none, and yet its parts of the worst."""
    import numpy

    found: NDArray[Any] = frame["value"].fill_null(float("nan")).to_numpy().copy()
    without = numpy.isnan(found) & frame["fault"].is_null().to_numpy()
    if kind.aggregation == "mean" and not hasattr(kind, "value"):
        found[without] = frame["numerator"].fill_null(0.0).to_numpy()[without]
        return found
    for row in numpy.flatnonzero(without).tolist():
        found[row] = value_of(kind, _parts_of(kind, frame, row))
    return found


def _parts_of(kind: Any, frame: Any, row: int) -> Any:
    if is_corpus(kind):
        import json

        return json.loads(frame["counts"][row] or "{}")
    return Parts(frame["numerator"][row] or 0.0, frame["denominator"][row] or 0.0)


def _compare(
    sides: SamplePairs, metric: str, margin: float | None, counting: Counting
) -> tuple[statistics.Comparison, statistics.Comparison | None] | None:
    """Both runs by one metric; and, where samples are left out of it, with these as the worst.

    None where no sample is scored by both.
    """
    found = column(sides, metric, counting)
    alone = [int((found.counts[one] & ~found.counts[1 - one]).sum()) for one in (0, 1)]
    if not found.both.any():
        return None
    total = [own + asked for own, asked in zip(alone, sides.asked_alone, strict=True)]
    whole = between(sides, found, found.both, margin, total)
    told_apart = (found.counts[0] ^ found.counts[1]) & ~found.lost
    if not told_apart.any():
        return whole, None
    return whole, between(sides, found, found.both | told_apart, margin, [0, 0])


def between(
    sides: SamplePairs,
    found: Column,
    chosen: NDArray[Any],
    margin: float | None,
    alone: Sequence[int],
    level: float = 0.95,
) -> statistics.Comparison:
    """Both runs over chosen samples."""
    kind = found.kind
    frames = [frame if chosen.all() else frame.filter(chosen) for frame in found.frames]
    parts, names = _parts(kind, frames)
    return statistics.compare(
        parts[0],
        parts[1],
        _codes(frames[0]["document"]),
        combine=statistics.combine_of(kind, names) if is_corpus(kind) else None,
        values=(found.values[0][chosen], found.values[1][chosen]),
        higher_is_better=kind.higher_is_better,
        margin=margin,
        level=level,
        bounds=kind.bounds,
        seed=sides.first.seed,
        only_baseline=alone[0],
        only_candidate=alone[1],
    )


def _codes(documents: Any) -> NDArray[Any]:
    """Documents as whole numbers, which are quicker to tell apart than texts."""
    found: NDArray[Any] = (documents.rank("dense") - 1).to_numpy().astype("int64")
    return found


def _parts(kind: Any, rows: Sequence[Any]) -> tuple[list[NDArray[Any]], tuple[str, ...]]:
    """Of both runs, (n, K) each, and what the K are called."""
    import numpy

    if is_corpus(kind):
        addends = [
            pooling.of_counts(frame["counts"].fill_null("{}"), frame.height) for frame in rows
        ]
        names = tuple(sorted({name for one in addends for name in one.names}))
        return [
            numpy.stack(
                [
                    one.column(name) if name in one.names else numpy.zeros(one.size)
                    for name in names
                ],
                axis=1,
            )
            for one in addends
        ], names
    pairs = [frame.select(["numerator", "denominator"]).fill_null(0.0).to_numpy() for frame in rows]
    if kind.aggregation == "mean" and all((one[:, 1] == 1).all() for one in pairs):
        return [one[:, :1] for one in pairs], ("numerator",)
    return pairs, ("numerator", "denominator")
