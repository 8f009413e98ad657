"""Samples of two sides, paired by id: for compare, the gate, A/B looks, flips and leaderboards.

    match_run_tasks(baseline, candidate)     run tasks that belong together
    pair_run_tasks(baseline, candidate, …)   their samples, and how they differ
    SamplePairs.of(runs, other_runs)         samples of scores alone, from any source
    pairs.metric("anls")                     one metric's values of each sample, in both
    MetricPairs.compare(chosen)              both sides over some of the samples, with an interval

A side is one run of a run task. Under a gate it may be several (repeats, confirmations): then a sample
counts with its mean over the runs in which it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hpcbench import number_format as form
from hpcbench import statistics
from hpcbench.comparison.differences import same_prompt
from hpcbench.errors import DamagedFile, RunFailed, UserError
from hpcbench.evaluation.plan_metrics import load_metrics
from hpcbench.evaluation.score_tables import Scored, addends_of, read_parts
from hpcbench.evaluation.versions import made_by
from hpcbench.experiment.counts import Counts
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.answer import MISSING
from hpcbench.experiment.view.scores import ScoresFiles, rows_of, scan
from hpcbench.metrics.base import Parts, value_of
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import ANSWERED
from hpcbench.scorer.one import is_corpus, takes_measurement

if TYPE_CHECKING:
    from numpy.typing import NDArray

Counting = Literal["zero", "exclude"]
"""How an answer without a value counts: as the worst, or not at all, so that no pair contains its sample."""

_NEEDED = {"sample", "document", "outcome", "answer", "reason", "invalid", "references"}
"""Columns of scores that a comparison reads."""


_OF_VALUES = (
    "value", "fault", "counted_zero", "counted_exclude", "numerator", "denominator", "counts",
)  # fmt: skip
"""Columns of `read_parts` that values and gains need."""


# --- run tasks -----------------------------------------------------------------------------------------


def match_run_tasks(
    baseline: Experiment, candidate: Experiment, pairs: Sequence[tuple[str, str]] = ()
) -> Iterator[tuple[ResolvedRunTask, ResolvedRunTask]]:
    """Run tasks that belong together.

    Args:
        baseline: the experiment to compare with.
        candidate: the experiment to compare.
        pairs: names of run tasks of either; none: run tasks with the same name, else run tasks that ask the
            same of the same dataset.

    Raises:
        UserError: there is no such run task, nothing to pair, or several run tasks that ask the same.
    """
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
            if question_of(one) == question_of(other)
        ]
        questions = [question_of(one) for one, _ in same]
        if len(set(questions)) < len(questions):
            raise UserError(
                "several run tasks ask the same questions on one dataset",
                remedy="pair them by name: --run-task ONE=OTHER",
            )
    if not same:
        raise UserError(
            f"{baseline.id} and {candidate.id} have no run task in common",
            remedy="pair them by name: --run-task ONE=OTHER",
        )
    yield from same


def question_of(one: ResolvedRunTask) -> tuple[str | None, ...]:
    """The question of a run task: run tasks with the same question can be compared."""
    return one.ml_task.name, one.dataset.name, one.dataset.split


def pair_name(one: str, other: str) -> str:
    """A label for a pair of run tasks: `vqa`, or `vqa → vqa-new`."""
    return " → ".join(dict.fromkeys((one, other)))


def load_scores(experiment: Experiment, run_task: ResolvedRunTask) -> Scored:
    """A run task's scores, with their metrics; without resource metrics, whose samples are not paired.

    Raises:
        RunFailed: there are none, or they cannot be read.
    """
    place = ScoresFiles(experiment.scores_dir, run_task.name)
    again = f"`hpcbench score {experiment.id}` computes them"
    try:
        there = set(scan(place.scores).collect_schema().names())
    except FileNotFoundError:
        raise RunFailed(f"{experiment.id} has no scores of {run_task.name}: {again}") from None
    except (OSError, DamagedFile):
        raise RunFailed(f"{place.scores} cannot be read: {again} again") from None
    if _NEEDED - there:
        what = f"another version of hpcbench wrote the scores of {run_task.name}"
        raise RunFailed(f"{experiment.id}: {what}: {again} again")
    experiment.use_packages()
    metrics = {
        name: one
        for name, one in load_metrics(run_task).items()
        if name in there and not takes_measurement(one)
    }
    made = made_by(experiment, place, run_task.name)
    seed = experiment.alone(run_task.name).plan.seed
    return Scored(run_task, metrics, place, seed, made.reading, made.signatures)


# --- samples -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SamplePairs:
    """Samples that both sides have asked."""

    sides: tuple[Sequence[Scored], Sequence[Scored]]
    """The runs of the baseline and of the candidate, one or more each."""
    rows: tuple[NDArray[Any], NDArray[Any]]
    """Where the samples are in either side, in one order: rows of the scores file. With several runs, numbers
    of samples in the order of their first appearance in the runs."""
    asked_alone: tuple[int, int]
    """Samples that only the baseline has asked, and samples that only the candidate has asked."""
    other_references: int = 0
    """Samples that both have asked with different right answers; `rows` leaves them out."""
    other_files: bool = False
    """Whether the datasets' files are known to differ."""
    differs: tuple[str, ...] = ()
    """Differences in question and counting, in words."""

    @classmethod
    def of(cls, baseline: Sequence[Scored], candidate: Sequence[Scored]) -> SamplePairs:
        """Pair samples of two run tasks' runs by id; a sample that no run has asked yet counts as failed.

        Raises:
            UserError: a run contains a sample twice.
        """
        sides = baseline, candidate
        rows, asked_alone = _paired([_samples_of(runs) for runs in sides], only_asked=False)
        return cls(sides, rows, asked_alone)

    @property
    def baseline(self) -> Scored:
        """The baseline's first run."""
        return self.sides[0][0]

    @property
    def candidate(self) -> Scored:
        """The candidate's first run."""
        return self.sides[1][0]

    @property
    def names(self) -> tuple[str, str]:
        """Names of both run tasks."""
        return self.baseline.run_task.name, self.candidate.run_task.name

    @property
    def why_other_samples(self) -> str:
        """Why the two sides did not ask the same samples; empty: they did."""
        found = []
        if self.other_files:
            found.append("the datasets' files differ")
        if any(self.asked_alone):
            ours, theirs = self.asked_alone
            found.append(f"only the baseline asked {ours} samples, only the candidate {theirs}")
        if self.other_references:
            found.append(f"{self.other_references} samples have different references")
        return "; ".join(found)

    def other_signature(self, metric: str) -> tuple[str, str] | None:
        """Two different signatures of a metric, current or scored by; None: all runs have the same."""
        for one in (*self.sides[0], *self.sides[1]):
            for both in (
                (self.baseline.metrics[metric].signature, one.metrics[metric].signature),
                (self.baseline.signature(metric), one.signature(metric)),
            ):
                if both[0] != both[1]:
                    return both
        return None

    def metric(
        self, name: str, counting: Counting = "zero", *, comparable: bool = True
    ) -> MetricPairs:
        """One metric's values of each sample, in both.

        Args:
            name: the metric.
            counting: how answers without a value count.
            comparable: False: only for values and gains; then its frames lack what `compare` and `identical`
                need.
        """
        kind = self.baseline.metrics[name]
        frames, counted, values, counts = [], [], [], []
        for runs, rows in zip(self.sides, self.rows, strict=True):
            frame = _parts_of_runs(runs, name, counting, _OF_VALUES if not comparable else None)
            counted.append(int(frame[f"counted_{counting}"].sum()))
            if len(rows) < frame.height or (rows[1:] < rows[:-1]).any():
                frame = frame[rows]
            frames.append(frame)
            counts.append(frame[f"counted_{counting}"].to_numpy())
            values.append(_values(kind, frame))
        return MetricPairs(
            kind,
            self.baseline.seed,
            (frames[0], frames[1]),
            (values[0], values[1]),
            (counts[0], counts[1]),
            (counted[0], counted[1]),
        )


def pair_run_tasks(
    baseline: Experiment, candidate: Experiment, one: ResolvedRunTask, other: ResolvedRunTask
) -> SamplePairs:
    """Pair the samples of two run tasks, and say how they differ.

    Raises:
        RunFailed: a run task has no scores.
        UserError: a run task contains a sample twice.
    """
    scored = load_scores(baseline, one), load_scores(candidate, other)
    hashes = (
        baseline.measured.dataset_hashes.get(one.name),
        candidate.measured.dataset_hashes.get(other.name),
    )
    known = None not in hashes and hashes[0] == hashes[1]
    frames = [_samples_of([side], () if known else ("references",)) for side in scored]
    rows, asked_alone = _paired(frames, only_asked=True)
    unlike = 0
    if not known and len(rows[0]):
        references = [frame["references"][some] for frame, some in zip(frames, rows, strict=True)]
        same = references[0].eq_missing(references[1]).to_numpy()
        unlike = int((~same).sum())
        rows = rows[0][same], rows[1][same]
    return SamplePairs(
        ([scored[0]], [scored[1]]),
        rows,
        asked_alone,
        unlike,
        other_files=None not in hashes and not known,
        differs=(
            *_other_question(one, other, same_prompt(baseline, one, candidate, other)),
            *_other_coverage(scored, frames),
        ),
    )


def _samples_of(runs: Sequence[Scored], more: Sequence[str] = ()) -> Any:
    """Samples of a side, as a frame; with several runs each sample once."""
    import polars

    columns = ["sample", "outcome", "invalid", *more]
    frames = [rows_of(one.place.scores, columns) for one in runs]
    if len(frames) == 1:
        return frames[0]
    whole = polars.concat(frames, how="vertical_relaxed")
    return whole.unique("sample", keep="first", maintain_order=True)


def _paired(
    frames: Sequence[Any], *, only_asked: bool
) -> tuple[tuple[NDArray[Any], NDArray[Any]], tuple[int, int]]:
    """Rows of samples that both sides have, and how many samples only one side has."""
    import numpy

    asked = [
        numpy.flatnonzero((frame["outcome"] != MISSING).to_numpy())
        if only_asked
        else numpy.arange(frame.height)
        for frame in frames
    ]
    ids = [frame["sample"][rows] for frame, rows in zip(frames, asked, strict=True)]
    if ids[0].equals(ids[1]) and ids[0].n_unique() == len(ids[0]):
        return (asked[0], asked[1]), (0, 0)
    try:
        both = statistics.pair(ids[0].to_list(), ids[1].to_list())
    except ValueError as error:
        raise UserError(str(error)) from error
    rows = asked[0][both.baseline], asked[1][both.candidate]
    return rows, (len(both.only_baseline), len(both.only_candidate))


def _other_question(
    one: ResolvedRunTask, other: ResolvedRunTask, prompts_alike: bool
) -> Iterator[str]:
    """Differences in the question or in the counting."""
    if not prompts_alike:
        names = dict.fromkeys((one.prompt.name, other.prompt.name))
        which = ", ".join(names) if len(names) > 1 else f"two versions of {one.prompt.name}"
        yield f"prompts differ: {which}"
    if one.ml_task != other.ml_task:
        yield f"answers are read differently: {one.ml_task.name}, {other.ml_task.name}"
    if one.task.on_failed != other.task.on_failed:
        yield f"samples without an answer count differently: {one.task.on_failed}, {other.task.on_failed}"


def _other_coverage(scored: Sequence[Scored], frames: Sequence[Any]) -> Iterator[str]:
    """Coverage of both, where it differs."""
    shares = [
        Counts(
            asked=frame.height,
            responded=sum(int((frame["outcome"] == one).sum()) for one in ANSWERED),
            unreadable=int(frame["invalid"].sum()),
            skipped=side.skipped,
        ).coverage
        for side, frame in zip(scored, frames, strict=True)
    ]
    if shares[0] != shares[1]:
        ours, theirs = map(form.share, shares)
        yield f"coverage differs: {ours} and {theirs} of the samples are ok"


# --- one metric ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MetricPairs:
    """One metric's values of the samples that both sides have asked."""

    kind: Any
    """The metric."""
    seed: int
    """Seed of the random swaps of a comparison."""
    frames: tuple[Any, Any]
    """As `read_parts` gives them, one row for each sample, in one order; with several runs only the columns
    that a comparison needs."""
    values: tuple[NDArray[Any], NDArray[Any]]
    """Each sample's own value, also if the sample does not count; NaN: the metric could not score it."""
    counts: tuple[NDArray[Any], NDArray[Any]]
    """Whether each sample counts."""
    counted: tuple[int, int]
    """How many samples of either side count, also samples that the other side has not asked."""

    @property
    def both(self) -> NDArray[Any]:
        """Samples that count in both."""
        found: NDArray[Any] = self.counts[0] & self.counts[1]
        return found

    @property
    def lost(self) -> NDArray[Any]:
        """Samples that the metric could not score in one of the sides."""
        faults = [frame["fault"].is_not_null().to_numpy() for frame in self.frames]
        found: NDArray[Any] = faults[0] | faults[1]
        return found

    @property
    def gains(self) -> NDArray[Any]:
        """How much better the candidate is at each sample; NaN where a sample does not count in both."""
        import numpy

        with numpy.errstate(invalid="ignore"):
            found = self.values[1] - self.values[0]
        found[~(self.both & numpy.isfinite(found))] = numpy.nan
        gains: NDArray[Any] = found if self.kind.higher_is_better else -found
        return gains

    @property
    def identical(self) -> bool:
        """Whether every sample that counts in both contributes the same to the metric."""
        import numpy

        parts, _ = self._parts(self.both)
        return bool(numpy.array_equal(parts[0], parts[1]))

    def compare(
        self,
        chosen: NDArray[Any],
        alone: Sequence[int] = (0, 0),
        *,
        margin: float | None = None,
        level: float = 0.95,
    ) -> statistics.Comparison:
        """Both sides over chosen samples.

        Args:
            chosen: for each sample whether it takes part.
            alone: samples that only the baseline has, and samples that only the candidate has; only reported.
            margin: difference that does not matter.
            level: confidence of the interval.
        """
        parts, names = self._parts(chosen)
        documents = self.frames[0]["document"].filter(chosen)
        return statistics.compare(
            parts[0],
            parts[1],
            # Whole numbers are quicker to compare than texts.
            (documents.rank("dense") - 1).to_numpy().astype("int64"),
            combine=statistics.combine_of(self.kind, names) if is_corpus(self.kind) else None,
            values=(self.values[0][chosen], self.values[1][chosen]),
            higher_is_better=self.kind.higher_is_better,
            margin=margin,
            level=level,
            bounds=self.kind.bounds,
            seed=self.seed,
            only_baseline=alone[0],
            only_candidate=alone[1],
        )

    def _parts(self, chosen: NDArray[Any]) -> tuple[list[NDArray[Any]], Sequence[str]]:
        """Parts that chosen samples contribute to the metric, (n, K) per side, and the names of the K."""
        import numpy

        sides = [addends_of(self.kind, frame.filter(chosen)) for frame in self.frames]
        names = sorted({name for one in sides for name in one.names})
        if not is_corpus(self.kind):
            ones = all((one.column("denominator") == 1).all() for one in sides)
            plain = self.kind.aggregation == "mean" and ones
            names = ["numerator"] if plain else ["numerator", "denominator"]
        none = numpy.zeros(int(chosen.sum()))
        return [
            numpy.stack([one.column(name) if name in one.names else none for name in names], axis=1)
            for one in sides
        ], names


def _values(kind: Any, frame: Any) -> NDArray[Any]:
    """Values of samples. A sample that its run's policy left out has no value, but the worst parts."""
    import numpy
    import polars

    # Of numbers, a missing value becomes none (NaN).
    found: NDArray[Any] = frame["value"].cast(polars.Float64).to_numpy().copy()
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


def _parts_of_runs(
    runs: Sequence[Scored], metric: str, counting: Counting, only: Sequence[str] | None
) -> Any:
    """As `read_parts`; with several runs each sample once, with its mean over the runs in which it counts."""
    import numpy
    import polars

    if len(runs) == 1:
        return read_parts(runs[0], metric, only=only)
    frames = [read_parts(one, metric) for one in runs]
    kind, counted = runs[0].metrics[metric], f"counted_{counting}"
    whole = polars.concat(
        [frame.with_columns(value=polars.Series(_values(kind, frame))) for frame in frames],
        how="vertical_relaxed",
    )
    samples = whole.unique("sample", keep="first", maintain_order=True).select("sample", "document")
    numbers = {sample: number for number, sample in enumerate(samples["sample"].to_list())}
    count = len(numbers)
    rows = whole.filter(polars.col(counted))
    codes = numpy.array([numbers[one] for one in rows["sample"].to_list()], dtype=numpy.int64)
    times = numpy.bincount(codes, minlength=count)

    def mean(values: NDArray[Any]) -> NDArray[Any]:
        with numpy.errstate(invalid="ignore"):
            found: NDArray[Any] = numpy.bincount(codes, weights=values, minlength=count) / times
        return found

    addends = addends_of(kind, rows)
    means = {name: mean(addends.column(name)) for name in addends.names}
    there = polars.Series(counted, times > 0)
    return samples.with_columns(
        there,
        value=polars.Series(mean(rows["value"].to_numpy())),
        fault=polars.select(
            polars.when(there).then(None).otherwise(polars.lit("lost"))
        ).to_series(),
        **(
            {"counts": polars.Series(_as_counts(means, times))}
            if is_corpus(kind)
            else {name: polars.Series(column) for name, column in means.items()}
        ),
    )


def _as_counts(means: dict[str, NDArray[Any]], times: NDArray[Any]) -> list[str]:
    """A corpus metric's counts of each sample, as JSON."""
    import json

    return [
        json.dumps({name: column[row] for name, column in means.items() if times[row]})
        for row in range(len(times))
    ]
