"""Two to eight runs side by side: what `hpcbench compare` says, kept, with samples by what became of them.

A run is an experiment, or a run task of one: `EXPERIMENT` or `EXPERIMENT:RUN_TASK`, so that models within one
experiment can be compared, too. All that is computed is computed beside the requests, and kept until scores
change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hpcbench.comparison.compare import compare_candidate, with_holm
from hpcbench.comparison.flips import Change, SampleChanges, changes_of, shortened
from hpcbench.comparison.pairing import match_run_tasks, pair_name, pair_run_tasks, question_of
from hpcbench.comparison.results import CandidateResult, MetricDifference
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

MOST_RUNS = 8

KEPT_BYTES = 16 << 20
"""Of whole comparisons: one of a hundred run tasks of 1,000 samples takes 6 MB, and seconds to make."""

CHANGES_BYTES = 4 << 20
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
        """What the others are compared with."""
        return self.runs[0].experiment


@dataclass(frozen=True, slots=True)
class Whole:
    """A comparison, and what its parts can be asked for."""

    told: comparisons.Comparison
    """As clients get it."""
    results: tuple[CandidateResult | None, ...]
    """Of each candidate; None: nothing of it could be compared."""

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        known = [one for one in self.results if one is not None]
        pairs = [some for one in known for some in one.samples.values()]
        return 50_000 + sum(PAIR + rows.nbytes for some in pairs for rows in some.rows)


@dataclass
class Comparisons:
    """Compares for all requests of one portal."""

    _wholes: Kept[Whole] = field(default_factory=lambda: Kept(KEPT_BYTES, lambda one: one.nbytes))
    _changes: Kept[SampleChanges] = field(
        default_factory=lambda: Kept(CHANGES_BYTES, lambda one: 2 * PAIR + one.nbytes)
    )
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

    def changes(self, asked: Asked) -> SampleChanges:
        """What became of samples of the first pair of the first candidate, by the metric asked for.

        Raises:
            NotYet: it is being looked at.
            PortalFault: it cannot be compared, or too much waits to be made.
        """
        key, stamp = asked.key, asked.stamp
        named = asked.run_task or asked.runs[0].run_task
        if named and all(_is_small(run, asked.run_task, asked.other) for run in asked.runs):
            return self._changes.of(key, stamp, lambda: _changes(asked))
        return self.slow.of(self._changes, key, stamp, lambda: _changes(asked))

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
    """Run tasks of baseline and candidate that belong together; none: as `match_run_tasks` finds them.

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
            name for name, here in known.items() if question_of(here) == question_of(task)
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
    baseline, candidates = asked.baseline, asked.runs[1:]
    metrics = [asked.metric] if asked.metric else []
    found: list[CandidateResult | HpcbenchError] = []
    for number, run in enumerate(candidates):

        def tell(share: float, before: int = number) -> None:
            progress.share = (before + share) / len(candidates)

        try:
            pairs = pairs_of(asked, run)
            one = compare_candidate(
                baseline, run.experiment, pairs, metrics, common=asked.common, progress=tell
            )
        except HpcbenchError as error:
            found.append(error)
        else:
            found.append(one)
    corrected = iter(with_holm([one for one in found if isinstance(one, CandidateResult)]))
    results = [next(corrected) if isinstance(one, CandidateResult) else one for one in found]
    told = [_candidate(baseline, run, one) for run, one in zip(candidates, results, strict=True)]
    comparison = comparisons.Comparison(baseline=_side(asked.runs[0]), candidates=tuple(told))
    # What is kept is what samples and figures need, not the whole plans.
    kept = (
        replace(one, candidate=Experiment(one.candidate.path))
        if isinstance(one, CandidateResult)
        else None
        for one in results
    )
    return Whole(comparison, tuple(kept))


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
    baseline: Experiment, run: Run, result: CandidateResult | HpcbenchError
) -> comparisons.Candidate:
    from hpcbench.comparison.differences import config_differences
    from hpcbench.comparison.speed import not_comparable, speed

    if not isinstance(result, CandidateResult):
        return comparisons.Candidate(
            side=_side(run), metrics=(), refused=tuple(_refusal(result)), careful=(), speed=(),
            speed_careful=(), speed_notes=(), differences=(),
        )  # fmt: skip
    speeds = speed(baseline, result.candidate, result.pairs, result.other_samples)
    figures = [one.to_json() for one in speeds.figures]
    differences = config_differences(baseline, result.candidate, result.pairs)
    return comparisons.Candidate(
        side=_side(run),
        metrics=tuple(_compared(result, one) for one in result.compared),
        refused=tuple(sound(one.to_json()) for one in result.refused),
        careful=tuple(result.caveats),
        speed=tuple(map(sound, figures)),
        speed_careful=tuple(not_comparable(figures)),
        speed_notes=speeds.notes,
        differences=tuple(sound(one.to_json()) for one in differences),
    )


def _refusal(error: HpcbenchError) -> Iterator[dict[str, Any]]:
    """Why nothing of a candidate could be compared, in the form of a `Refusal`."""
    names = {"baseline": None, "candidate": None, "metric": None}
    for problem in getattr(error, "problems", None) or [None]:
        why = problem.message if problem is not None else str(error).splitlines()[0]
        remedy = (problem.remedy if problem is not None else None) or ""
        yield sound({**names, "why": why, "remedy": remedy})


def _compared(result: CandidateResult, one: MetricDifference) -> comparisons.MetricCompared:
    what = one.comparison
    counts = changes_of(result.samples[one.baseline, one.candidate], one.metric).counts
    return comparisons.MetricCompared(
        baseline=one.baseline,
        candidate=one.candidate,
        metric=one.metric,
        signature=one.signature,
        higher_is_better=what.higher_is_better,
        values=(sound(what.baseline), sound(what.candidate)),
        difference=sound(one.difference),
        low=sound(what.interval.low),
        high=sound(what.interval.high),
        p=sound(one.p_value),
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


def _changes(asked: Asked) -> SampleChanges:
    """See `Comparisons.changes`."""
    baseline, candidate = asked.baseline, asked.runs[1]
    try:
        pairs = pairs_of(asked, candidate)
        one, other = next(match_run_tasks(baseline, candidate.experiment, pairs))
        samples = pair_run_tasks(baseline, candidate.experiment, one, other)
    except HpcbenchError as error:
        (refused, *_) = _refusal(error)
        raise PortalFault(409, "conflict", refused["why"], refused["remedy"]) from error
    why = samples.why_other_samples
    if why and not (asked.common and len(samples.rows[0])):
        raise PortalFault(409, "conflict", why, "compare what both have asked (`common`)")
    both = [name for name in samples.baseline.metrics if name in samples.candidate.metrics]
    if asked.metric and asked.metric not in both:
        raise PortalFault(404, "not_found", f"not both have a metric '{asked.metric[:100]}'")
    if not both:
        raise PortalFault(404, "not_found", "they have no metric in common")
    return changes_of(samples, asked.metric or both[0])


def flip_page(
    changes: SampleChanges, change: Change | None, after: int, limit: int
) -> comparisons.FlipPage:
    """A page of samples, the greatest change first.

    Args:
        changes: what became of all samples.
        change: which; None: won and lost.
        after: samples before it.
        limit: rows.
    """
    chosen = changes.chosen(change)
    items = tuple(flip_rows(changes, chosen[after : after + limit]))
    end = after + len(items)
    return comparisons.FlipPage(
        baseline=changes.samples.names[0],
        candidate=changes.samples.names[1],
        metric=changes.metric,
        items=items,
        next=str(end) if end < len(chosen) else None,
        total=len(chosen),
        counts={str(name): count for name, count in changes.counts.items()},
    )


def flip_rows(changes: SampleChanges, places: NDArray[Any]) -> Iterator[comparisons.FlipRow]:
    """Rows of the list of samples, in the order of `places`."""
    samples = changes.samples
    rows = [side[places].tolist() for side in samples.rows]
    # References are the same in both, and take most of the time.
    tables = [
        rows_of_file(scored.place.scores, None, own, names)
        for scored, own, names in zip(
            (samples.baseline, samples.candidate), rows, (_TEXTS, _TEXTS[:-1]), strict=True
        )
    ]
    up = samples.baseline.metrics[changes.metric].higher_is_better
    right = frozenset(changes.places["both_right"].tolist())
    for number, place in enumerate(places.tolist()):
        one, other = tables[0][number], tables[1][number]
        values = float(changes.values[0][place]), float(changes.values[1][place])
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
    found: dict[str, tuple[str, str, Callable[[], Any]]] = {}
    for number, (run, result) in enumerate(zip(asked.runs[1:], whole.results, strict=True)):
        if result is None:
            continue
        for one in result.first_metrics:
            if len(found) >= MOST_FLOWS:
                break
            name = pair_name(one.baseline, one.candidate)
            title = f"What became of samples in {run.name}: {name} by {one.metric}"
            make = _flow(asked, run, result, one)
            found[f"flow-{number}-{len(found)}"] = (title, "quality", make)
    for number, figure in enumerate(_tradeoffs(asked, portal)):
        found[f"tradeoff-{number}"] = (figure.title, "speed", lambda figure=figure: figure)  # type: ignore[misc]
    return found


def _flow(
    asked: Asked, run: Run, result: CandidateResult, one: MetricDifference
) -> Callable[[], Any]:
    def make() -> Any:
        from hpcbench.comparison.flips import moves
        from hpcbench.reporting.charts import flow

        counts = {(source, target): count for source, target, count in moves(result, one)}
        name = pair_name(one.baseline, one.candidate)
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
