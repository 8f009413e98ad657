"""May a candidate take its baseline's place? Checks by a policy, one verdict: GO, NO-GO or INCONCLUSIVE.

    judge(baseline, candidate, policy)      every check of the policy, and the verdict that follows

A verdict is a file of the candidate, `report/verdict.json`. A check that could not be judged never passes
silently.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hpcbench.comparison.gate.quality_checks import coverage_check, quality_checks
from hpcbench.comparison.gate.resource_checks import resource_checks
from hpcbench.comparison.gate.sides import Run, Side, side_of
from hpcbench.comparison.gate.speed_checks import speed_checks
from hpcbench.comparison.gate.verdict import (
    EXIT_CODES,
    Check,
    Found,
    Verdict,
    decide,
    verdict_of,
)
from hpcbench.errors import RunFailed, UserError
from hpcbench.experiment.control import control_state
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.outcome import outcome
from hpcbench.experiment.view.metrics_json import metrics_of
from hpcbench.schema.gate import Gate


def judge(
    baseline: Experiment,
    candidate: Experiment,
    policy: Gate,
    confirmations: Sequence[Experiment] = (),
    *,
    state: str | None = None,
) -> Verdict:
    """Compare a candidate with its baseline by a policy. Writes nothing.

    Args:
        baseline: the experiment to compare with; it has scores.
        candidate: the experiment to judge.
        policy: margins, and how much each check counts.
        confirmations: experiments that asked run tasks of the candidate again; judged together with it.
        state: the candidate's final state; None: the state in its `outcome.json`.

    Raises:
        UserError: candidate and baseline are the same experiment.
        RunFailed: one of them has no scores at all, or no sample of the baseline was scored.
    """
    if baseline.path.resolve() == candidate.path.resolve():
        raise UserError(
            f"{candidate.id} is the baseline itself", remedy="name two different experiments"
        )
    for one in (baseline, candidate, *confirmations):
        if not one.metrics_file.exists():
            raise RunFailed(f"{one.id} has no scores: run `hpcbench score {one.id}`")
    if not any(table.is_scored for table in metrics_of(baseline).run_tasks.values()):
        raise RunFailed(f"{baseline.id} cannot be the baseline: none of its samples has a score")
    checks = list(_checks(side_of([baseline]), side_of([candidate, *confirmations]), policy))
    checks[:0] = [*_ended(candidate, state), *_whole(baseline)]
    return decide(baseline.id, candidate.id, policy, checks, [one.id for one in confirmations])


def _checks(baseline: Side, candidate: Side, policy: Gate) -> Iterator[Check]:
    for name, ours in baseline.items():
        theirs = candidate.get(name, ())
        if not theirs:
            why = "the candidate has no such run task"
            yield Check(name, "run task", "coverage", "critical", "fail", why)
            continue
        of_answers = (
            coverage_check(name, ours, theirs, policy),
            *quality_checks(name, ours, theirs, policy),
        )
        yield from _of_asked(of_answers, theirs)
        yield from resource_checks(name, ours, theirs, policy)
        yield from speed_checks(name, ours, theirs, policy)


def _of_asked(checks: Sequence[Check], runs: Sequence[Run]) -> Iterator[Check]:
    """The same checks, without failures where a used-up budget left samples unasked: they count as failed."""
    stopped = (control_state(run.experiment).stopped_tasks.get(run.run_task.name) for run in runs)
    why = next(filter(None, stopped), None)
    for one in checks:
        unknown = why is not None and one.verdict == "fail"
        yield replace(one, verdict="inconclusive", why=f"{why}; {one.why}") if unknown else one


def _ended(candidate: Experiment, state: str | None) -> Iterator[Check]:
    """An experiment that did not end well is no complete candidate; a failed experiment fails."""
    known = outcome(candidate)
    found = state or (known.state if known else None)
    if found != "done":
        why = f"the candidate is {found}" if found else "the candidate has not ended"
        if known is not None and known.state == found:
            why += known.why
        verdict: Found = "fail" if found == "failed" else "inconclusive"
        yield Check("", "experiment", "coverage", "critical", verdict, why)


def _whole(baseline: Experiment) -> Iterator[Check]:
    """A user named an incomplete baseline: the verdict mentions this, and does not depend on it."""
    known = outcome(baseline)
    if known is not None and known.state == "incomplete":
        why = f"the baseline is incomplete{known.why}"
        yield Check("", "baseline", "coverage", "advisory", "inconclusive", why)


__all__ = ["EXIT_CODES", "Check", "Verdict", "decide", "judge", "verdict_of"]
