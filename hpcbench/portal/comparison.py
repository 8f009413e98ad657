"""Comparisons of two to eight runs: the results of `hpcbench compare`, cached, with samples by their change.

A run is an experiment or a run task of an experiment: `EXPERIMENT` or `EXPERIMENT:RUN_TASK`. So models within
one experiment can be compared, too. Computations run outside the requests; the cache keeps their results
until scores change. A comparison of many scores has a process of its own: it takes seconds of CPU, in which
other requests would wait, and the memory of its modules and data would stay.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hpcbench import secret
from hpcbench.comparison.compare import compare_candidate, with_holm
from hpcbench.comparison.flips import CHANGES, SampleChanges, changes_of
from hpcbench.comparison.pairing import match_run_tasks, pair_name, pair_run_tasks, question_of
from hpcbench.comparison.results import CandidateResult, MetricDifference
from hpcbench.errors import HpcbenchError, UserError, first_line
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import Scores
from hpcbench.experiment.view.performance_json import Speed
from hpcbench.portal.context import Portal, once
from hpcbench.portal.faults import PortalFault, bad_request, missing
from hpcbench.portal.json_safe import sound
from hpcbench.portal.lru import LruCache, stamp_of
from hpcbench.portal.models import comparisons
from hpcbench.portal.packed import packed
from hpcbench.portal.results_cache import PageExperiment, results_of, seen
from hpcbench.portal.slow_work import Progress, SlowWork
from hpcbench.subprocesses import kill_session, why_it_ended

MOST_RUNS = 8

KEPT_BYTES = 12 << 20
"""Bytes of whole comparisons in memory; a hundred run tasks of 1,000 samples take 6 MB and some seconds."""

FLIPS_BYTES = 1 << 20
"""Bytes of compressed pages of won and lost samples: fifty rows take 3 kB."""

CHANGES_BYTES = 4 << 20
"""Bytes of sample changes of pairs of run tasks in memory."""

PAIR = 20_000
"""Approximate bytes of a run task's definitions."""

SMALL = 4 << 20
"""Bytes of scores up to which the request itself compares samples of a pair, and no process is started."""

# With `-m`, Python would import modules from the working directory.
_START = "import sys; sys.path[:1] = []; from hpcbench.portal.comparison import main; main()"

_MADE = b"made\n"
"""The line before the comparison; lines before it are the share that is done."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a request."""

    experiment: PageExperiment
    """Its experiment."""
    run_task: str | None
    """Only this run task; None: all."""

    @property
    def name(self) -> str:
        """Its name in requests."""
        return (
            self.experiment.id if self.run_task is None else f"{self.experiment.id}:{self.run_task}"
        )


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """A requested comparison."""

    runs: tuple[Run, ...]
    """Runs to compare, the baseline first."""
    run_task: str = ""
    """Run task of the baseline in a manual pair; empty: names decide the pairs."""
    other: str = ""
    """Run task of the candidates in a manual pair; empty: the run task of the same name."""
    metric: str = ""
    """Only this metric; empty: all metrics."""
    common: bool = False
    """Compare the common samples where the runs have different samples."""

    @property
    def key(self) -> Hashable:
        """Identifies the requested comparison."""
        names = tuple(run.name for run in self.runs)
        return names, self.run_task, self.other, self.metric, self.common

    @property
    def stamp(self) -> Hashable:
        """A stamp of the experiments' results; it changes with the results."""
        return tuple(
            (stamp_of(run.experiment.scores_dir), stamp_of(run.experiment.performance_file))
            for run in self.runs
        )

    @property
    def baseline(self) -> Experiment:
        """The experiment with which the others are compared."""
        return self.runs[0].experiment


@dataclass(frozen=True, slots=True)
class FullComparison:
    """A comparison, and the results that its samples and figures need."""

    packed: bytes
    """The comparison for clients as JSON, compressed: objects would take a hundred times the memory."""
    results: tuple[CandidateResult | None, ...]
    """Result of each candidate; None: nothing could be compared."""

    @property
    def comparison(self) -> comparisons.Comparison:
        """The comparison for clients."""
        return comparisons.Comparison.model_validate_json(gzip.decompress(self.packed))

    @property
    def nbytes(self) -> int:
        """Approximate memory, bytes."""
        known = [one for one in self.results if one is not None]
        pairs = [some for one in known for some in one.samples.values()]
        return len(self.packed) + sum(PAIR + rows.nbytes for some in pairs for rows in some.rows)


@dataclass
class Comparisons:
    """Comparisons for all requests of one portal."""

    _wholes: LruCache[FullComparison] = field(
        default_factory=lambda: LruCache(KEPT_BYTES, lambda one: one.nbytes)
    )
    _changes: LruCache[SampleChanges] = field(
        default_factory=lambda: LruCache(CHANGES_BYTES, lambda one: 2 * PAIR + one.nbytes)
    )
    _figures: LruCache[Any] = field(default_factory=lambda: LruCache(200))
    flips: LruCache[bytes] = field(default_factory=lambda: LruCache(FLIPS_BYTES, len))
    """Pages of samples as they are sent; each has `ComparisonRequest.stamp`."""
    slow: SlowWork = field(default_factory=SlowWork)

    def whole(self, asked: ComparisonRequest) -> FullComparison:
        """The comparison.

        Raises:
            NotYet: the computation is not finished.
            PortalFault: too many computations wait.
        """
        progress = Progress(0.0)
        return self.slow.of(
            self._wholes, asked.key, asked.stamp, lambda: _made(asked, progress), progress
        )

    def changes(self, asked: ComparisonRequest) -> SampleChanges:
        """Sample changes of the first pair of the first candidate, by the requested metric.

        Raises:
            NotYet: the computation is not finished.
            PortalFault: the pair cannot be compared, or too many computations wait.
        """
        key, stamp = asked.key, asked.stamp
        named = asked.run_task or asked.runs[0].run_task
        if named and all(_is_small(run, asked.run_task, asked.other) for run in asked.runs):
            return self._changes.of(key, stamp, lambda: _changes(asked))
        return self.slow.of(self._changes, key, stamp, lambda: _changes(asked))

    def figure(self, asked: ComparisonRequest, name: str, make: Callable[[], Any]) -> Any:
        """A figure of a comparison.

        Raises:
            NotYet, PortalFault: as `whole`.
        """
        return self.slow.of(self._figures, (asked.key, name), asked.stamp, make)


def _is_small(run: Run, *names: str) -> bool:
    """Whether the scores of a run are small, under each of the run task's possible names."""
    for name in (run.run_task, *names):
        stamp = stamp_of(run.experiment.scores_file(name)) if name else None
        if stamp is not None and stamp[1] > SMALL:
            return False
    return True


comparisons_of = once(lambda _: Comparisons())
"""The portal's comparisons."""


def read_runs(portal: Portal, names: Sequence[str]) -> tuple[Run, ...]:
    """Runs by their names in a request.

    Raises:
        PortalFault: a run does not exist or is named twice, or there are too many or too few names.
    """
    if not 2 <= len(names) <= MOST_RUNS:
        raise bad_request(f"the request names {len(names)} runs", f"name 2 to {MOST_RUNS} runs")
    found = []
    for name in names:
        identity, colon, run_task = name.partition(":")
        experiment = results_of(portal).experiment(portal, identity)
        if colon and run_task not in experiment.run_tasks:
            raise missing(f"{experiment.id} has no run task '{run_task[:100]}'")
        found.append(Run(experiment, run_task if colon else None))
    if len({run.name for run in found}) < len(found):
        raise bad_request("the request names a run twice", "name each run once")
    return tuple(found)


def pairs_of(asked: ComparisonRequest, candidate: Run) -> tuple[tuple[str, str], ...]:
    """Pairs of run tasks of baseline and candidate; empty: `match_run_tasks` finds the pairs.

    Raises:
        UserError: no pair is clear; the request has to name both run tasks.
    """
    baseline = asked.runs[0]
    one, other = baseline.run_task or asked.run_task, candidate.run_task or asked.other
    if not one and not other:
        if baseline.experiment.path == candidate.experiment.path:
            raise UserError(
                "both runs are the same experiment",
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
            return ((wanted, wanted),)  # neither run has it: the comparison refuses the name
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


# --- computation ----------------------------------------------------------------------------------------


def _made(asked: ComparisonRequest, progress: Progress) -> FullComparison:
    """`compared`, by a process of its own where the scores are many.

    Raises:
        PortalFault: the process failed.
    """
    if sum(map(_scores_bytes, asked.runs)) <= SMALL:
        return compared(asked, lambda share: setattr(progress, "share", share))
    return _made_apart(asked, progress)


def _scores_bytes(run: Run) -> int:
    """Size of the scores of a run."""
    names = (run.run_task,) if run.run_task else run.experiment.run_tasks
    stamps = (stamp_of(run.experiment.scores_file(name)) for name in names)
    return sum(stamp[1] for stamp in stamps if stamp is not None)


def _made_apart(asked: ComparisonRequest, progress: Progress) -> FullComparison:
    runs = [[str(run.experiment.path), run.run_task] for run in asked.runs]
    more = {"run_task": asked.run_task, "other": asked.other, "metric": asked.metric}
    request = json.dumps({"runs": runs, "common": asked.common, **more}).encode()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", _START],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(OSError):  # it has ended already
                process.stdin.write(request)
                process.stdin.close()
            for line in process.stdout:
                if line == _MADE:
                    found = pickle.load(process.stdout)  # noqa: S301 - of our own process
                    assert isinstance(found, FullComparison)
                    return found
                progress.share = float(line)
            process.wait()
            errors.seek(0)
            what = f"the comparison {secret.mask(why_it_ended(process.returncode, errors.read()))}"
            raise PortalFault(500, "failed", what, "run `hpcbench compare`")
        finally:
            kill_session(process)


def main() -> None:
    """Read a request from standard input, write lines with progress and then the pickled comparison."""
    request, portal = json.load(sys.stdin), os.getppid()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # plugins may print

    def tell(share: float) -> None:
        if os.getppid() != portal:
            sys.exit("the portal has ended")
        answers.write(b"%f\n" % share)
        answers.flush()

    runs = tuple(Run(seen(Path(path)), run_task) for path, run_task in request.pop("runs"))
    found = compared(ComparisonRequest(runs, **request), tell)
    answers.write(_MADE + pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL))
    answers.close()


def compared(asked: ComparisonRequest, tell: Callable[[float], None]) -> FullComparison:
    """Compare all runs with the first; `tell` receives the share that is done."""
    baseline, candidates = asked.baseline, asked.runs[1:]
    metrics = [asked.metric] if asked.metric else []
    found: list[CandidateResult | HpcbenchError] = []
    for number, run in enumerate(candidates):

        def part(share: float, before: int = number) -> None:
            tell((before + share) / len(candidates))

        try:
            pairs = pairs_of(asked, run)
            one = compare_candidate(
                baseline, run.experiment, pairs, metrics, common=asked.common, progress=part
            )
        except HpcbenchError as error:
            found.append(error)
        else:
            found.append(one)
    corrected = iter(with_holm([one for one in found if isinstance(one, CandidateResult)]))
    results = [next(corrected) if isinstance(one, CandidateResult) else one for one in found]
    entries = [_candidate(baseline, run, one) for run, one in zip(candidates, results, strict=True)]
    comparison = comparisons.Comparison(baseline=_side(asked.runs[0]), candidates=tuple(entries))
    # The cache keeps the parts for samples and figures, not the whole plans.
    kept = (
        replace(one, candidate=Experiment(one.candidate.path))
        if isinstance(one, CandidateResult)
        else None
        for one in results
    )
    return FullComparison(packed(comparison.model_dump_json()), tuple(kept))


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
    """Why no part of a candidate could be compared, in the form of a `Refusal`."""
    names = {"baseline": None, "candidate": None, "metric": None}
    for problem in getattr(error, "problems", None) or [None]:
        why = problem.message if problem is not None else first_line(error)
        remedy = (problem.remedy if problem is not None else None) or ""
        yield sound({**names, "why": why, "remedy": remedy})


def _compared(result: CandidateResult, one: MetricDifference) -> comparisons.MetricCompared:
    what = one.comparison
    counts = dict.fromkeys(CHANGES, 0)
    if one.paired:
        counts = changes_of(result.samples[one.baseline, one.candidate], one.metric).counts
    return comparisons.MetricCompared(
        baseline=one.baseline,
        candidate=one.candidate,
        metric=one.metric,
        signature=one.signature,
        unit=sound(one.unit),
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
        both_partly=counts["both_partly"],
        both_wrong=counts["both_wrong"],
        only=(what.only_baseline, what.only_candidate),
        detectable=sound(what.detectable) if what.verdict == "inconclusive" else None,
        if_worst=one.if_worst,
        differs=one.differs,
    )


# --- samples --------------------------------------------------------------------------------------------


def _changes(asked: ComparisonRequest) -> SampleChanges:
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
        raise PortalFault(
            409, "conflict", why, "compare the samples that both runs asked (`common`)"
        )
    both = [name for name in samples.baseline.metrics if name in samples.candidate.metrics]
    if asked.metric and asked.metric not in both:
        raise missing(f"only one run has the metric '{asked.metric[:100]}', or none")
    if not both:
        raise missing("the runs have no metric in common")
    return changes_of(samples, asked.metric or both[0])


# --- figures --------------------------------------------------------------------------------------------

MOST_FLOWS = 40
"""Most pairs of run tasks with a figure of their samples' changes."""


def figures_of(
    whole: FullComparison, asked: ComparisonRequest, portal: Portal
) -> dict[str, tuple[str, str, Callable[[], Any]]]:
    """Available figures: name → title, group, and a function that draws the figure (or returns none)."""
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
    asked: ComparisonRequest, run: Run, result: CandidateResult, one: MetricDifference
) -> Callable[[], Any]:
    def make() -> Any:
        from hpcbench.comparison.flips import moves
        from hpcbench.reporting.charts import flow

        counts = {(source, target): count for source, target, count in moves(result, one)}
        name = pair_name(one.baseline, one.candidate)
        return flow(counts, asked.runs[0].name, run.name, f"{name} by {one.metric}")

    return make


def _tradeoffs(asked: ComparisonRequest, portal: Portal) -> Iterator[Any]:
    """Quality over speed of all runs together, if several of them answered the same questions."""
    from hpcbench.reporting.charts import tradeoffs

    metrics: dict[str, Scores] = {}
    performance: dict[str, Speed] = {}
    for run in asked.runs:
        results = results_of(portal)
        tables = results.metrics(run.experiment)
        speeds = results.performance(run.experiment)
        if tables is None or speeds is None:
            continue
        for name, table in tables.run_tasks.items():
            if run.run_task in (None, name) and name in speeds.run_tasks:
                called = f"{run.experiment.id}: {name}"
                metrics[called] = table
                performance[called] = speeds.run_tasks[name]
    yield from tradeoffs(metrics, performance)
