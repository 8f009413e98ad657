"""`hpcbench regress PLAN --baseline NAME`: one command, called as often as one likes, by cron or by hand.

It goes as far as it can and says by its exit code how that went: it submits the plan; while that runs,
it says so; once it has ended, it is held against the baseline, who wants to know is told, and the
verdict is written down. The next call begins anew. Where it stands is in files of
`HOME/regress/PLAN-HASH/`, and each step may be done twice:

    NNNNN.jsonl           a run, as `site/cron.py` records it: claimed, experiment, collected
    NNNNN.confirm.json    run tasks that failed, and are asked again before NO-GO is said
    NNNNN.again/          those runs, recorded in the same way
    NNNNN.verdict.json    how it ended

Killed anywhere, the next call finds what there is to go on from; of two at once one does it and the
other waits or says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hpcbench.comparison import history
from hpcbench.comparison.gate import EXIT_CODES, judge, verdict_of
from hpcbench.comparison.gate.sides import base_of
from hpcbench.errors import Problem, UserError
from hpcbench.experiment import baselines
from hpcbench.experiment.layout import Experiment, find, home, named_by
from hpcbench.experiment.outcome import outcome, state_of
from hpcbench.files.atomic import read_json, write_json
from hpcbench.files.lease import beating, make_once, remove
from hpcbench.notify import dispatch
from hpcbench.schema.documents import Gate
from hpcbench.schema.plan import ResolvedPlan, ResolvedRunTask
from hpcbench.site.cron import Run, Runs, looked_after
from hpcbench.status import status

SEEDS_APART = 1000
"""Between the seeds of a run task that is asked again: no repeat of the plan itself has them."""


@dataclass(frozen=True, slots=True)
class Regression:
    """What is asked for."""

    plan: Path
    """The plan's file."""
    resolved: ResolvedPlan
    """The plan."""
    baseline: str
    """Name of a baseline, or an experiment."""
    policy: Gate
    """By which it is judged."""
    set_if_none: bool = False
    """Where there is no baseline of that name, the first run that ends well becomes it."""
    promote: bool = False
    """After GO the candidate becomes the baseline."""
    go_on: bool = False
    """After a run has been judged, the next one is submitted by the same call."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What `regress` asks of its caller."""

    prepare: Callable[[ResolvedPlan], Experiment]
    """Makes an experiment of a plan, ready to be submitted; goes on with one whose submission was cut
    off."""
    submit: Callable[[Experiment], Any]
    """Submits it, or what is missing of it."""
    say: Callable[[str], None]
    """Prints a line."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far it is."""

    state: Literal["submitted", "running", "judged", "baseline", "failed"]
    """`baseline`: the run became the baseline, there was none. `failed`: it left nothing to judge."""
    experiments: tuple[Experiment, ...]
    """The run's experiment, and those that confirm it; while it runs, those that run: none while another
    call prepares one."""
    verdict: Mapping[str, Any] | None = None
    """What `verdict.json` says, once it was judged."""

    @property
    def exit_code(self) -> int:
        """0 while nothing is wrong, 1 failed, 4 NO-GO, 5 INCONCLUSIVE."""
        if self.verdict is not None:
            return EXIT_CODES[str(self.verdict["verdict"])]
        return 1 if self.state == "failed" else 0


def regress(wanted: Regression, ask: Ask) -> Standing:
    """Do what is due for a plan's regression run, and say how far it is.

    Raises:
        UserError: there is no such baseline; nothing was submitted.
        HpcbenchError: what preparing or submitting raises; the next call tries again.
    """
    root = home(wanted.resolved.site)
    if wanted.promote and not baselines.NAME.fullmatch(wanted.baseline):
        raise UserError(f"--promote needs the name of a baseline, not '{wanted.baseline}'")
    baseline_of(root, wanted.baseline, set_if_none=wanted.set_if_none)
    runs = Runs(root, wanted.plan, wanted.resolved.plan.name, root / "regress")
    newest = runs.newest
    if newest is not None and newest.busy:
        ask.say(f"{wanted.plan.name} is being submitted by {newest.holder}")
        return Standing("running", ())
    last = runs.last_with_experiment()
    if last is None or last.collected:
        return _begin(wanted, runs, wanted.resolved, ask)
    standing = _collected(wanted, root, last, ask)
    if standing.state == "running":
        return standing
    # Only now: killed before, the next call says the same again, and its exit code is not lost.
    last.note("collected")
    if wanted.go_on:
        _begin(wanted, runs, wanted.resolved, ask)
    return standing


def baseline_of(root: Path, name: str, *, set_if_none: bool = False) -> Experiment | None:
    """The experiment to compare with; None: there is none yet, and the first run is to become it.

    Raises:
        UserError: there is none.
    """
    named = baselines.current(root, name)
    if named is not None:
        return named_by(root, named)
    if set_if_none and baselines.NAME.fullmatch(name):
        return None
    try:
        return find(root, name)
    except UserError:
        remedy = (
            f"`hpcbench baseline set EXPERIMENT --name {name}`, or let the first run be it: "
            "--set-baseline-if-none"
        )
        raise UserError(Problem(f"no baseline '{name}'", remedy=remedy)) from None


def again(resolved: ResolvedPlan, names: Collection[str], number: int) -> ResolvedPlan:
    """The plan that asks some of its run tasks again, with other seeds where answers depend on them.

    Args:
        resolved: the plan.
        names: run tasks, without the marks of repeats.
        number: 1 for the first time.
    """
    kept = [one for one in resolved.run_tasks if base_of(one.name) in names]
    left = {one.name for one in kept}

    def changed(one: ResolvedRunTask) -> ResolvedRunTask:
        generation = one.task.generation
        if generation.temperature > 0 or generation.seed is not None:
            seed = (generation.seed or 0) + SEEDS_APART * number
            generation = generation.model_copy(update={"seed": seed})
        after = tuple(name for name in one.task.after if name in left)
        task = one.task.model_copy(update={"generation": generation, "after": after})
        return one.model_copy(update={"task": task})

    # Its own name, so that trends do not count a bad night several times; and nobody is told of it.
    name = f"{resolved.plan.name[:74]}-again"
    quiet = {"name": name, "notifications": (), "trackers": (), "gate": None}
    return resolved.model_copy(
        update={
            "plan": resolved.plan.model_copy(update=quiet),
            "run_tasks": tuple(map(changed, kept)),
            "gate": None,
        }
    )


# --- a run begins --------------------------------------------------------------------------------------


def _begin(wanted: Regression, runs: Runs, resolved: ResolvedPlan, ask: Ask) -> Standing:
    """Submit a further run, unless another call is at it."""
    newest = runs.newest
    mine = runs.claim(newest.number + 1 if newest is not None else 1)
    if mine is None:
        ask.say(f"{wanted.plan.name} is being submitted by another call")
        return Standing("running", ())
    with beating(mine.path):
        try:
            experiment = ask.prepare(resolved)
        except BaseException:
            mine.path.unlink(missing_ok=True)  # the next call need not wait for us
            raise
        now = runs.newest
        if now is None or now.number != mine.number:  # we slept for so long that we were given up
            ask.say(f"{wanted.plan.name} was taken over by another call")
            return Standing("running", ())
        mine.note("experiment", experiment=experiment.id)
    _forget_old(runs, mine.number)
    ask.submit(experiment)
    ask.say(f"submitted {experiment.id}")
    return Standing("submitted", (experiment,))


def _forget_old(runs: Runs, number: int) -> None:
    """Remove records of long ago, with what lies beside them."""
    runs.forget_old(number)
    kept = {f"{run.number:05d}" for run in runs.with_experiments} | {f"{number:05d}"}
    for path in runs.folder.glob("[0-9]*.*"):
        if path.name.partition(".")[0] not in kept:
            remove(path)


# --- a run has ended, or not ---------------------------------------------------------------------------


def _collected(wanted: Regression, root: Path, run: Run, ask: Ask) -> Standing:
    """Judge a run that has ended, once."""
    experiment = run.experiment
    assert experiment is not None
    ended = looked_after(experiment, ask.submit, lambda line: None)
    if ended is None:
        ask.say(f"still running: {experiment.id} is {status(experiment).state}")
        return Standing("running", (experiment,))
    whole = ended.state in ("done", "incomplete") and experiment.metrics_file.exists()
    confirmations: Sequence[Experiment] = ()
    baseline = baseline_of(root, wanted.baseline, set_if_none=wanted.set_if_none)
    if whole and baseline is not None and baseline.path != experiment.path:
        confirmations, waiting = _confirmed(wanted, run, baseline, experiment, ask)
        if waiting is not None:
            return Standing("running", waiting)

    def end(path: Path) -> None:
        told = _end(wanted, root, run, experiment, ended.state, confirmations, ask)
        write_json(path, {"version": 1, "experiment": experiment.id, **told})

    make_once(_verdict_file(run), end)
    told = read_json(_verdict_file(run))
    return Standing(told["state"], (experiment, *confirmations), told["verdict"])


def _end(
    wanted: Regression,
    root: Path,
    run: Run,
    experiment: Experiment,
    state: str,
    confirmations: Sequence[Experiment],
    ask: Ask,
) -> dict[str, Any]:
    """Judge, write it down, tell whom it concerns; one process at a time comes here."""
    baseline = baseline_of(root, wanted.baseline, set_if_none=wanted.set_if_none)
    known = outcome(experiment)
    why = known.why if known else ""
    if state not in ("done", "incomplete") or not experiment.metrics_file.exists():
        ask.say(f"{experiment.id} is {state} and left nothing to judge{why}")
        # Its own jobs may not have come so far; what they told is not told again.
        for failure in dispatch.tell(
            experiment, "failed" if state == "failed" else "incomplete", None
        ):
            ask.say(f"could not tell: {failure}")
        return {"state": "failed", "verdict": None}
    if baseline is None:
        if state != "done":
            ask.say(f"{experiment.id} is {state}: no baseline can be made of it{why}")
            return {"state": "failed", "verdict": None}
        baselines.name_it(root, wanted.baseline, experiment.id, "the first run of hpcbench regress")
        ask.say(f"{experiment.id} is the baseline '{wanted.baseline}' from now on")
        return {"state": "baseline", "verdict": None}
    if baseline.path == experiment.path:  # a call that was killed had come so far
        told = verdict_of(experiment)
        return {"state": "baseline" if told is None else "judged", "verdict": told}
    if state != "done":
        ask.say(f"{experiment.id} is {state}{why}")
    told = judge(baseline, experiment, wanted.policy, confirmations, state=state).write(experiment)
    history.record(experiment)
    for failure in dispatch.tell_verdict(experiment, told):  # the same verdict is told once
        ask.say(f"could not tell: {failure}")
    if wanted.promote and told["verdict"] == "GO":
        baselines.name_it(root, wanted.baseline, experiment.id, "GO of hpcbench regress")
        ask.say(f"{experiment.id} is the baseline '{wanted.baseline}' from now on")
    return {"state": "judged", "verdict": told}


# --- a failure is confirmed ----------------------------------------------------------------------------


def _confirmed(
    wanted: Regression, run: Run, baseline: Experiment, experiment: Experiment, ask: Ask
) -> tuple[Sequence[Experiment], tuple[Experiment, ...] | None]:
    """Experiments that asked failing run tasks again, and those of them that still run.

    Nothing needs to be confirmed: none, None. It is being confirmed: none, and what runs, which is empty
    where another call prepares it. All has ended: those with scores, None.
    """
    names = _to_confirm(wanted, run, baseline, experiment)
    if not names:
        return (), None
    runs = Runs(home(wanted.resolved.site), wanted.plan, "again", run.path.with_suffix(".again"))
    while True:
        asked = list(_experiments(runs))
        # What another call has prepared and not submitted looks cut off; nobody may prepare it once more.
        running = [one for one in asked if looked_after(one, ask.submit, lambda line: None) is None]
        if len(asked) >= wanted.policy.confirm:
            break
        newest = runs.newest
        if newest is not None and newest.busy:
            return (), tuple(running)
        standing = _begin(wanted, runs, again(wanted.resolved, names, len(asked) + 1), ask)
        if not standing.experiments:
            return (), tuple(running)
    if running:
        word = "is" if len(names) == 1 else "are"
        ids = ", ".join(one.id for one in running)
        ask.say(
            f"still running: {experiment.id} fails, so {', '.join(names)} {word} asked again: {ids}"
        )
        return (), tuple(running)
    scored = (one for one in asked if one.metrics_file.exists())
    return [one for one in scored if state_of(one) != "failed"], None


def _to_confirm(
    wanted: Regression, run: Run, baseline: Experiment, experiment: Experiment
) -> list[str]:
    """Run tasks that fail and are to be asked again; decided once, since baselines move."""
    if not wanted.policy.confirm:
        return []
    noted = run.path.with_suffix(".confirm.json")
    if not noted.exists():
        failing = judge(baseline, experiment, wanted.policy).failing
        known = {base_of(one.name) for one in wanted.resolved.run_tasks}
        write_json(noted, {"run_tasks": [name for name in failing if name in known]})
    names: list[str] = read_json(noted)["run_tasks"]
    return names


def _experiments(runs: Runs) -> Iterator[Experiment]:
    """Experiments of runs, each once."""
    seen: set[str] = set()
    for run in runs.with_experiments:
        if run.experiment is not None and run.experiment.id not in seen:
            seen.add(run.experiment.id)
            yield run.experiment


def _verdict_file(run: Run) -> Path:
    return run.path.with_suffix(".verdict.json")
