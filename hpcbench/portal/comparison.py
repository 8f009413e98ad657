"""Two to eight runs side by side: what `hpcbench compare` says, kept, with samples by what became of them.

A run is an experiment, or a run task of one: `EXPERIMENT` or `EXPERIMENT:RUN_TASK`, so that models within one
experiment can be compared, too. All that is computed is computed beside the requests, and kept until scores
change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from hpcbench.comparison.compare import (
    CandidateResult,
    Compared,
    SamplePairs,
    column,
    hold_each,
    matched,
)
from hpcbench.comparison.flips import shortened
from hpcbench.errors import HpcbenchError, UserError
from hpcbench.experiment.counts import OUTCOMES
from hpcbench.experiment.layout import Experiment
from hpcbench.portal.context import Portal
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.json_safe import sound
from hpcbench.portal.lru import Kept, stamp_of
from hpcbench.portal.models import comparisons
from hpcbench.portal.results_cache import Seen, results_of
from hpcbench.portal.sample_table import rows_of_file
from hpcbench.portal.slow_work import Progress, Slow

if TYPE_CHECKING:
    from numpy.typing import NDArray

Change = Literal["won", "lost", "both_right", "both_wrong"]

CHANGES: tuple[Change, ...] = ("won", "lost", "both_right", "both_wrong")

MOST_RUNS = 8

KEPT_BYTES = 16 << 20
"""Of whole comparisons: one of a hundred run tasks of 1,000 samples takes 6 MB, and seconds to make."""

FATES_BYTES = 4 << 20
"""Of what became of samples of pairs of run tasks."""

CUT = 300
"""Characters of an answer in a list."""

REFERENCES = 20
"""Acceptable answers in a list."""

PAIR = 20_000
"""Bytes of a run task's documents, about."""

SMALL = 4 << 20
"""Bytes of scores up to which samples of a pair are looked at within the request."""

_TEXTS = ("sample", "document", "outcome", "reason", "answer", "references")


@dataclass(frozen=True, slots=True)
class Run:
    """A run as a request names it."""

    experiment: Seen
    """Its experiment."""
    run_task: str | None
    """Only this run task; None: all."""

    @property
    def name(self) -> str:
        """As requests name it."""
        return (
            self.experiment.id if self.run_task is None else f"{self.experiment.id}:{self.run_task}"
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be compared."""

    runs: tuple[Run, ...]
    """The baseline first."""
    run_task: str = ""
    """Run task of the baseline that is paired by hand; empty: as their names say."""
    other: str = ""
    """That of the candidates it is paired with; empty: of the same name."""
    metric: str = ""
    """Only this one; empty: all."""
    common: bool = False
    """Compare what both have asked where they have not asked the same."""

    @property
    def key(self) -> Hashable:
        """What tells it from others."""
        names = tuple(run.name for run in self.runs)
        return names, self.run_task, self.other, self.metric, self.common

    @property
    def stamp(self) -> Hashable:
        """What tells the results of its experiments now from those of another time."""
        return tuple(
            (stamp_of(run.experiment.scores_dir), stamp_of(run.experiment.performance_file))
            for run in self.runs
        )

    @property
    def baseline(self) -> Experiment:
        """What the others are held against."""
        return self.runs[0].experiment


@dataclass(frozen=True, slots=True)
class Whole:
    """A comparison, and what its parts can be asked for."""

    told: comparisons.Comparison
    """As clients get it."""
    held: tuple[CandidateResult | None, ...]
    """Of each candidate; None: nothing of it could be compared."""

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        sides = [one for held in self.held if held is not None for one in held.sides.values()]
        return 50_000 + sum(PAIR + rows.nbytes for one in sides for rows in one.rows)


@dataclass(frozen=True, slots=True)
class Fates:
    """What became of the samples of a pair of run tasks by one metric."""

    sides: SamplePairs
    """The pair."""
    metric: str
    """The metric."""
    values: tuple[NDArray[Any], NDArray[Any]]
    """Values in either."""
    places: Mapping[Change, NDArray[Any]]
    """Change → numbers of samples, the greatest change first."""

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        arrays = [*self.sides.rows, *self.values, *self.places.values()]
        return 2 * PAIR + sum(one.nbytes for one in arrays)

    @property
    def counts(self) -> dict[Change, int]:
        """Change → samples."""
        return {change: len(places) for change, places in self.places.items()}

    def chosen(self, change: Change | None) -> NDArray[Any]:
        """Samples of one change; None: all that were won or lost, the greatest change first."""
        import numpy

        if change is not None:
            return self.places[change]
        both = numpy.concatenate([self.places["lost"], self.places["won"]])
        gains = numpy.abs(self.values[1][both] - self.values[0][both])
        found: NDArray[Any] = both[numpy.argsort(-gains, kind="stable")]
        return found


@dataclass
class Comparisons:
    """Compares for all requests of one portal."""

    _wholes: Kept[Whole] = field(default_factory=lambda: Kept(KEPT_BYTES, lambda one: one.nbytes))
    _fates: Kept[Fates] = field(default_factory=lambda: Kept(FATES_BYTES, lambda one: one.nbytes))
    _figures: Kept[Any] = field(default_factory=lambda: Kept(200))
    slow: Slow = field(default_factory=Slow)

    def whole(self, asked: Asked) -> Whole:
        """The comparison.

        Raises:
            NotYet: it is being made.
            PortalFault: too much waits to be made.
        """
        progress = Progress(0.0)
        return self.slow.of(
            self._wholes, asked.key, asked.stamp, lambda: _made(asked, progress), progress
        )

    def fates(self, asked: Asked) -> Fates:
        """What became of samples of the first pair of the first candidate, by the metric asked for.

        Raises:
            NotYet: it is being looked at.
            PortalFault: it cannot be compared, or too much waits to be made.
        """
        key, stamp = asked.key, asked.stamp
        named = asked.run_task or asked.runs[0].run_task
        if named and all(_is_small(run, asked.run_task, asked.other) for run in asked.runs):
            return self._fates.of(key, stamp, lambda: _fates(asked))
        return self.slow.of(self._fates, key, stamp, lambda: _fates(asked))

    def figure(self, asked: Asked, name: str, make: Callable[[], Any]) -> Any:
        """A figure of it.

        Raises:
            NotYet, PortalFault: as `whole`.
        """
        return self.slow.of(self._figures, (asked.key, name), asked.stamp, make)


def _is_small(run: Run, *names: str) -> bool:
    """Whether the scores of a run task are, whichever of the names it has."""
    for name in (run.run_task, *names):
        stamp = stamp_of(run.experiment.scores_file(name)) if name else None
        if stamp is not None and stamp[1] > SMALL:
            return False
    return True


def comparisons_of(portal: Portal) -> Comparisons:
    """The portal's."""
    found = portal.extra.setdefault("comparisons", Comparisons())
    assert isinstance(found, Comparisons)
    return found


def read_runs(portal: Portal, names: Sequence[str]) -> tuple[Run, ...]:
    """Runs by their names in a request.

    Raises:
        PortalFault: there is none of a name, one is named twice, or there are too many or too few.
    """
    if not 2 <= len(names) <= MOST_RUNS:
        raise PortalFault(
            400, "bad_request", f"{len(names)} runs", f"name 2 to {MOST_RUNS} of them"
        )
    found = []
    for name in names:
        identity, colon, run_task = name.partition(":")
        experiment = results_of(portal).experiment(portal, identity)
        if colon and run_task not in experiment.run_tasks:
            what = f"{experiment.id} has no run task '{run_task[:100]}'"
            raise PortalFault(404, "not_found", what)
        found.append(Run(experiment, run_task if colon else None))
    if len({run.name for run in found}) < len(found):
        raise PortalFault(400, "bad_request", "a run is named twice")
    return tuple(found)


def pairs_of(asked: Asked, candidate: Run) -> tuple[tuple[str, str], ...]:
    """Run tasks of baseline and candidate that belong together; none: as `evaluation.comparing` finds them.

    Raises:
        UserError: it takes names to tell.
    """
    baseline = asked.runs[0]
    one, other = baseline.run_task or asked.run_task, candidate.run_task or asked.other
    if not one and not other:
        if baseline.experiment.path == candidate.experiment.path:
            raise UserError(
                "that is one experiment: it takes two of its run tasks",
                remedy="EXPERIMENT:RUN_TASK names one",
            )
        return ()
    if one and other:
        return ((one, other),)
    there = baseline if not one else candidate
    wanted = one or other
    if wanted not in there.experiment.run_tasks:
        asker = candidate if there is baseline else baseline
        if wanted not in asker.experiment.run_tasks:
            return ((wanted, wanted),)  # which nobody has, and is refused in these words
        task = asker.experiment.run_task(wanted)
        known = {task.name: task for task in there.experiment.resolved.run_tasks}
        same = [
            name for name, here in known.items()
            if (here.ml_task.name, here.dataset.name, here.dataset.split)
            == (task.ml_task.name, task.dataset.name, task.dataset.split)
        ]  # fmt: skip
        if len(same) != 1:
            what = "no run task asks" if not same else "several run tasks ask"
            raise UserError(
                f"{there.experiment.id}: {what} the same as {wanted}",
                remedy="EXPERIMENT:RUN_TASK names one",
            )
        (found,) = same
    else:
        found = wanted
    return ((wanted, found),) if there is candidate else ((found, wanted),)


# --- making it ------------------------------------------------------------------------------------------


def _made(asked: Asked, progress: Progress) -> Whole:
    def tell(share: float) -> None:
        progress.share = share

    baseline, candidates = asked.baseline, asked.runs[1:]
    metrics = [asked.metric] if asked.metric else []
    pairs: list[Sequence[tuple[str, str]] | HpcbenchError] = []
    for run in candidates:
        try:
            pairs.append(pairs_of(asked, run))
        except UserError as error:
            pairs.append(error)
    able = [
        (run.experiment, some)
        for run, some in zip(candidates, pairs, strict=True)
        if not isinstance(some, HpcbenchError)
    ]
    found: list[CandidateResult | HpcbenchError] = []
    try:
        found = [*hold_each(baseline, able, metrics, common=asked.common, tell=tell)]
    except HpcbenchError:
        found = [_alone(baseline, one, metrics, common=asked.common) for one in able]
        good = [
            one for one, held in zip(able, found, strict=True) if isinstance(held, CandidateResult)
        ]
        again = iter(hold_each(baseline, good, metrics, common=asked.common, tell=tell))
        found = [next(again) if isinstance(held, CandidateResult) else held for held in found]
    ready = iter(found)
    held = [some if isinstance(some, HpcbenchError) else next(ready) for some in pairs]
    told = [
        _candidate(baseline, run, one) for run, one in zip(candidates, held, strict=True)
    ]  # fmt: skip
    comparison = comparisons.Comparison(baseline=_side(asked.runs[0]), candidates=tuple(told))
    # What is kept is what samples and figures need, not the whole plans.
    kept = (
        replace(one, candidate=Experiment(one.candidate.path))
        if isinstance(one, CandidateResult)
        else None
        for one in held
    )
    return Whole(comparison, tuple(kept))


def _alone(
    baseline: Experiment,
    candidate: tuple[Experiment, Sequence[tuple[str, str]]],
    metrics: Sequence[str],
    *,
    common: bool,
) -> CandidateResult | HpcbenchError:
    try:
        (held,) = hold_each(baseline, [candidate], metrics, common=common)
    except HpcbenchError as error:
        return error
    return held


def _side(run: Run) -> comparisons.CompareSide:
    experiment = run.experiment
    plan = experiment.alone(run.run_task) if run.run_task else experiment.resolved
    return comparisons.CompareSide(
        run=run.name,
        experiment=experiment.id,
        run_task=run.run_task,
        plan=plan.plan.name,
        models=tuple(dict.fromkeys(task.model.name for task in plan.run_tasks)),
        created=experiment.manifest_file.stat().st_mtime,
    )


def _candidate(
    baseline: Experiment, run: Run, held: CandidateResult | HpcbenchError
) -> comparisons.Candidate:
    from hpcbench.comparison.account import careful
    from hpcbench.comparison.differences import config_differences
    from hpcbench.comparison.speed import not_comparable, speed

    if not isinstance(held, CandidateResult):
        return comparisons.Candidate(
            side=_side(run), metrics=(), refused=tuple(_refusal(held)), careful=(), speed=(),
            speed_careful=(), speed_notes=(), differences=(),
        )  # fmt: skip
    speeds = speed(baseline, held.candidate, held.pairs, held.other_samples)
    figures = [one.to_json() for one in speeds.figures]
    differences = config_differences(baseline, held.candidate, held.pairs)
    return comparisons.Candidate(
        side=_side(run),
        metrics=tuple(_compared(held, one) for one in held.compared),
        refused=tuple(sound(one.to_json()) for one in held.refused),
        careful=tuple(careful(held)),
        speed=tuple(map(sound, figures)),
        speed_careful=tuple(not_comparable(figures)),
        speed_notes=speeds.notes,
        differences=tuple(sound(one.to_json()) for one in differences),
    )


def _refusal(error: HpcbenchError) -> Iterator[dict[str, Any]]:
    """Why nothing of a candidate could be compared, as what was refused is told."""
    names = {"baseline": None, "candidate": None, "metric": None}
    for problem in getattr(error, "problems", None) or [None]:
        why = problem.message if problem is not None else str(error).splitlines()[0]
        remedy = (problem.remedy if problem is not None else None) or ""
        yield sound({**names, "why": why, "remedy": remedy})


def _compared(held: CandidateResult, one: Compared) -> comparisons.MetricCompared:
    what = one.comparison
    counts = fates_of(held.sides[one.baseline, one.candidate], one.metric).counts
    return comparisons.MetricCompared(
        baseline=one.baseline,
        candidate=one.candidate,
        metric=one.metric,
        signature=one.signature,
        higher_is_better=what.higher_is_better,
        values=(sound(what.baseline), sound(what.candidate)),
        difference=sound(what.candidate - what.baseline),
        low=sound(what.interval.low),
        high=sound(what.interval.high),
        p=sound(what.p_value if what.p_adjusted is None else what.p_adjusted),
        verdict=what.verdict,
        n=what.n,
        documents=what.clusters,
        won=what.wins,
        lost=what.losses,
        tied=what.ties,
        both_right=counts["both_right"],
        both_wrong=counts["both_wrong"],
        only=(what.only_baseline, what.only_candidate),
        detectable=sound(what.detectable) if what.verdict == "inconclusive" else None,
        if_worst=one.if_worst,
        differs=one.differs,
    )


# --- samples --------------------------------------------------------------------------------------------


def _fates(asked: Asked) -> Fates:
    """See `Comparisons.fates`."""
    baseline, candidate = asked.baseline, asked.runs[1]
    try:
        one, other = next(matched(baseline, candidate.experiment, pairs_of(asked, candidate)))
        sides = SamplePairs.of(baseline, candidate.experiment, one, other)
    except HpcbenchError as error:
        (refused, *_) = _refusal(error)
        raise PortalFault(409, "conflict", refused["why"], refused["remedy"]) from error
    why = sides.other_samples()
    if why and not (asked.common and len(sides.rows[0])):
        raise PortalFault(409, "conflict", why, "compare what both have asked (`common`)")
    both = [name for name in sides.first.metrics if name in sides.second.metrics]
    if asked.metric and asked.metric not in both:
        raise PortalFault(404, "not_found", f"not both have a metric '{asked.metric[:100]}'")
    if not both:
        raise PortalFault(404, "not_found", "they have no metric in common")
    return fates_of(sides, asked.metric or both[0])


def fates_of(sides: SamplePairs, metric: str) -> Fates:
    """What became of the samples of a pair of run tasks by one metric; those that count in both."""
    import numpy

    found = column(sides, metric)
    one, other = found.values
    with numpy.errstate(invalid="ignore"):
        gains = other - one
    counts = found.both & numpy.isfinite(gains)
    gains = numpy.where(counts, gains, 0.0)
    if not found.kind.higher_is_better:
        gains = -gains
    best = found.kind.bounds[1 if found.kind.higher_is_better else 0]
    right = (one == best) if best is not None else numpy.zeros(len(one), dtype=bool)
    tied = counts & (gains == 0)
    places: dict[Change, NDArray[Any]] = {}
    for change, chosen in zip(
        CHANGES, (gains > 0, gains < 0, tied & right, tied & ~right), strict=True
    ):
        some = numpy.flatnonzero(chosen)
        order = numpy.argsort(-numpy.abs(gains[some]), kind="stable")
        places[change] = some[order].astype("uint32")
    return Fates(sides, metric, (one.astype("float64"), other.astype("float64")), places)


def flip_page(fates: Fates, change: Change | None, after: int, limit: int) -> comparisons.FlipPage:
    """A page of samples, the greatest change first.

    Args:
        fates: what became of all samples.
        change: which; None: won and lost.
        after: samples before it.
        limit: rows.
    """
    chosen = fates.chosen(change)
    items = tuple(flip_rows(fates, chosen[after : after + limit]))
    end = after + len(items)
    return comparisons.FlipPage(
        baseline=fates.sides.first.run_task.name,
        candidate=fates.sides.second.run_task.name,
        metric=fates.metric,
        items=items,
        next=str(end) if end < len(chosen) else None,
        total=len(chosen),
        counts={str(name): count for name, count in fates.counts.items()},
    )


def flip_rows(fates: Fates, places: NDArray[Any]) -> Iterator[comparisons.FlipRow]:
    """Rows of the list of samples, in the order of `places`."""
    sides = fates.sides
    rows = [side[places].tolist() for side in sides.rows]
    # References are the same in both, and take most of the time.
    tables = [
        rows_of_file(scored.place.scores, None, own, names)
        for scored, own, names in zip(
            (sides.first, sides.second), rows, (_TEXTS, _TEXTS[:-1]), strict=True
        )
    ]
    up = sides.first.metrics[fates.metric].higher_is_better
    right = frozenset(fates.places["both_right"].tolist())
    for number, place in enumerate(places.tolist()):
        one, other = tables[0][number], tables[1][number]
        values = float(fates.values[0][place]), float(fates.values[1][place])
        gain = values[1] - values[0] if up else values[0] - values[1]
        change: Change = "won" if gain > 0 else "lost"
        if gain == 0:
            change = "both_right" if place in right else "both_wrong"
        references = (one["references"] or ())[:REFERENCES]
        yield comparisons.FlipRow(
            sample=sound(one["sample"]),
            document=sound(one["document"] or ""),
            change=change,
            scores=values,
            answers=(_said(one), _said(other)),
            notes=(_noted(one), _noted(other)),
            references=tuple(sound(shortened(text or "", CUT)) for text in references),
            places=(rows[0][number], rows[1][number]),
        )


def _said(row: Mapping[str, Any]) -> str | None:
    return None if row["answer"] is None else sound(shortened(row["answer"], CUT))


def _noted(row: Mapping[str, Any]) -> str:
    outcome, reason = row["outcome"], row["reason"]
    return str(sound(OUTCOMES.get(outcome, outcome) if row["answer"] is None else reason or ""))


# --- figures --------------------------------------------------------------------------------------------

MOST_FLOWS = 40
"""Pairs of run tasks whose samples' moves are drawn."""


def figures_of(
    whole: Whole, asked: Asked, portal: Portal
) -> dict[str, tuple[str, str, Callable[[], Any]]]:
    """Figures there are: name → title, group, and what makes it (or gives none after all)."""
    from hpcbench.comparison.account import leading

    found: dict[str, tuple[str, str, Callable[[], Any]]] = {}
    for number, (run, held) in enumerate(zip(asked.runs[1:], whole.held, strict=True)):
        for one in leading(held) if held is not None else ():
            if len(found) >= MOST_FLOWS:
                break
            name = " → ".join(dict.fromkeys((one.baseline, one.candidate)))
            title = f"What became of samples in {run.name}: {name} by {one.metric}"
            found[f"flow-{number}-{len(found)}"] = (title, "quality", _flow(asked, run, held, one))
    for number, figure in enumerate(_tradeoffs(asked, portal)):
        found[f"tradeoff-{number}"] = (figure.title, "speed", lambda figure=figure: figure)  # type: ignore[misc]
    return found


def _flow(asked: Asked, run: Run, held: CandidateResult | None, one: Compared) -> Callable[[], Any]:
    def make() -> Any:
        from hpcbench.comparison.flips import moves
        from hpcbench.reporting.charts import flow

        assert held is not None
        counts = {(source, target): count for source, target, count in moves(held, one)}
        name = " → ".join(dict.fromkeys((one.baseline, one.candidate)))
        return flow(counts, asked.runs[0].name, run.name, f"{name} by {one.metric}")

    return make


def _tradeoffs(asked: Asked, portal: Portal) -> Iterator[Any]:
    """Quality over speed of all runs together, where several were asked the same."""
    from hpcbench.reporting.charts import tradeoffs

    metrics: dict[str, Any] = {}
    performance: dict[str, Any] = {}
    for run in asked.runs:
        results = results_of(portal)
        tables = results.metrics(run.experiment)
        speeds = results.performance(run.experiment)
        if tables is None or speeds is None:
            continue
        for name, table in tables["run_tasks"].items():
            if run.run_task in (None, name) and name in speeds["run_tasks"]:
                called = f"{run.experiment.id}: {name}"
                metrics[called], performance[called] = table, speeds["run_tasks"][name]
    yield from tradeoffs({"run_tasks": metrics}, {"run_tasks": performance})
