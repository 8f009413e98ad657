"""`hpcbench regress PLAN --baseline NAME`: one command, called any number of times, by cron or by hand.

Each call does the next steps and reports the result by its exit code: it submits the plan; while the run is
at work, it reports that; once the run has ended, it compares the run with the baseline, notifies, and writes
the verdict. The next call starts a new run. The state is in files of `HOME/regress/PLAN-HASH/`, and each step
may be repeated:

    NNNNN.jsonl           a run, as `site/cron.py` records it: claimed, experiment, collected
    NNNNN.confirm.json    failing run tasks, which are asked again before a NO-GO
    NNNNN.again/          the runs that ask them again, recorded in the same way
    NNNNN.verdict.json    how the run ended

After a kill at any point, the next call continues from these files; of two concurrent calls, one does a step
and the other waits or reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hpcbench.comparison import history
from hpcbench.comparison.gate import EXIT_CODES, judge, verdict_of
from hpcbench.errors import Problem, UserError
from hpcbench.evaluation.repeats import base_of
from hpcbench.experiment import baselines
from hpcbench.experiment.layout import Experiment, decoding, find, home, named_by
from hpcbench.experiment.outcome import outcome, state_of
from hpcbench.files.atomic import derived, read_json, write_json
from hpcbench.files.lease import beating, make_once, remove
from hpcbench.notify import dispatch
from hpcbench.schema.gate import Gate
from hpcbench.schema.plan import ResolvedPlan, ResolvedRunTask
from hpcbench.site.cron import Run, Runs, looked_after
from hpcbench.status import status

SEEDS_APART = 1000
"""Distance between the seeds of a repeated run task: no repeat of the plan itself has these seeds."""


@dataclass(frozen=True, slots=True)
class Regression:
    """A requested regression run."""

    plan: Path
    """The plan's file."""
    resolved: ResolvedPlan
    """The plan."""
    baseline: str
    """Name of a baseline, or an experiment."""
    policy: Gate
    """The gate that judges it."""
    set_if_none: bool = False
    """If no baseline has that name, the first run that ends well becomes the baseline."""
    promote: bool = False
    """After GO the candidate becomes the baseline."""
    go_on: bool = False
    """After a run has been judged, the same call submits the next run."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Functions that the caller of `regress` provides."""

    prepare: Callable[[ResolvedPlan], Experiment]
    """Makes an experiment of a plan, ready to be submitted, or returns one with an interrupted
    submission."""
    submit: Callable[[Experiment], Any]
    """Submits the experiment, or its missing jobs."""
    say: Callable[[str], None]
    """Prints a line."""


@dataclass(frozen=True, slots=True)
class Standing:
    """State of a regression run."""

    state: Literal["submitted", "running", "judged", "baseline", "failed"]
    """`baseline`: there was no baseline, so the run became it. `failed`: the run has no results to judge."""
    experiments: tuple[Experiment, ...]
    """The run's experiment and its confirmations; during the run, only running experiments: empty while
    another call prepares one."""
    verdict: Mapping[str, Any] | None = None
    """Content of `verdict.json`, once the run was judged."""

    @property
    def exit_code(self) -> int:
        """0 no problem so far, 1 failed, 4 NO-GO, 5 INCONCLUSIVE."""
        if self.verdict is not None:
            return EXIT_CODES[str(self.verdict["verdict"])]
        return 1 if self.state == "failed" else 0


def regress(wanted: Regression, ask: Ask) -> Standing:
    """Do the next steps of a plan's regression run, and return its state.

    Raises:
        UserError: there is no such baseline; nothing was submitted.
        HpcbenchError: preparation or submission failed; the next call tries again.
    """
    root = home(wanted.resolved.site)
    if wanted.promote and not baselines.NAME.fullmatch(wanted.baseline):
        raise UserError(f"--promote needs the name of a baseline, not '{wanted.baseline}'")
    baseline_of(root, wanted.baseline, set_if_none=wanted.set_if_none)
    runs = Runs(root, wanted.plan, wanted.resolved.plan.name, root / "regress")
    newest = runs.newest
    if newest is not None and newest.busy:
        ask.say(f"{newest.holder} submits {wanted.plan.name} at the moment")
        return Standing("running", ())
    last = runs.last_with_experiment()
    if last is None or last.collected:
        return _begin(wanted, runs, newest, wanted.resolved, ask)
    standing = _collected(wanted, root, last, ask)
    if standing.state == "running":
        return standing
    # Only now: after an earlier kill, the next call repeats the result, and its exit code is not lost.
    last.note("collected")
    if wanted.go_on:
        _begin(wanted, runs, newest, wanted.resolved, ask)
    return standing


def baseline_of(root: Path, name: str, *, set_if_none: bool = False) -> Experiment | None:
    """The experiment to compare with; None: no baseline exists yet, and the first run shall become it.

    Raises:
        UserError: there is no such baseline.
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
            f"run `hpcbench baseline set EXPERIMENT --name {name}`, or let the first run become the "
            "baseline: --set-baseline-if-none"
        )
        raise UserError(Problem(f"no baseline '{name}'", remedy=remedy)) from None


def again(resolved: ResolvedPlan, names: Collection[str], number: int) -> ResolvedPlan:
    """A plan that asks some run tasks again, with other seeds where answers depend on seeds.

    Args:
        resolved: the plan.
        names: run tasks, without the marks of repeats.
        number: number of the repetition, from 1.
    """
    kept = [one for one in resolved.run_tasks if base_of(one.name) in names]
    rated = {name for one in kept if one.task.judge is not None for name in one.task.judge.judged}
    kept = [one for one in resolved.run_tasks if one in kept or one.name in rated]
    left = {one.name for one in kept}

    def changed(one: ResolvedRunTask) -> ResolvedRunTask:
        generation = one.task.generation
        if generation.temperature > 0 or generation.seed is not None:
            seed = (generation.seed or 0) + SEEDS_APART * number
            generation = generation.model_copy(update={"seed": seed})
        after = tuple(name for name in one.task.after if name in left)
        task = one.task.model_copy(update={"generation": generation, "after": after})
        return one.model_copy(update={"task": task})

    # Its own name, so that trends do not count a bad night several times; and no notifications.
    name = f"{resolved.plan.name[:74]}-again"
    quiet = {"name": name, "notifications": (), "trackers": (), "gate": None}
    return resolved.model_copy(
        update={
            "plan": resolved.plan.model_copy(update=quiet),
            "run_tasks": tuple(map(changed, kept)),
            "gate": None,
        }
    )


# --- start of a run ------------------------------------------------------------------------------------


def _begin(
    wanted: Regression, runs: Runs, newest: Run | None, resolved: ResolvedPlan, ask: Ask
) -> Standing:
    """Submit the run after the newest one, unless another call does it, or has done it.

    Args:
        wanted: the regression run.
        runs: the runs.
        newest: the newest one before the caller looked whether a further one is due.
        resolved: the plan.
        ask: functions of the caller.
    """
    mine = runs.claim(newest.number + 1 if newest is not None else 1)
    if mine is None:
        ask.say(f"another process submits {wanted.plan.name}")
        return Standing("running", ())
    with beating(mine.path):
        try:
            experiment = ask.prepare(resolved)
        except BaseException:
            mine.path.unlink(missing_ok=True)  # the next call need not wait for us
            raise
        now = runs.newest
        if now is None or now.number != mine.number:  # we slept too long, another call took over
            ask.say(f"another process took over {wanted.plan.name}")
            return Standing("running", ())
        mine.note("experiment", experiment=experiment.id)
    _forget_old(runs, mine.number)
    ask.submit(experiment)
    ask.say(f"submitted {experiment.id}")
    return Standing("submitted", (experiment,))


def _forget_old(runs: Runs, number: int) -> None:
    """Remove old records, with the files that belong to them."""
    runs.forget_old(number)
    kept = {f"{run.number:05d}" for run in runs.with_experiments} | {f"{number:05d}"}
    for path in runs.folder.glob("[0-9]*.*"):
        if path.name.partition(".")[0] not in kept:
            remove(path)


# --- end of a run --------------------------------------------------------------------------------------


def _collected(wanted: Regression, root: Path, run: Run, ask: Ask) -> Standing:
    """Judge a run once, if it has ended."""
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
        result = _end(wanted, root, run, experiment, ended.state, confirmations, ask)
        write_json(path, {"version": 1, "experiment": experiment.id, **result})

    make_once(_verdict_file(run), end)
    with decoding(_verdict_file(run)):
        record = read_json(_verdict_file(run))
        return Standing(record["state"], (experiment, *confirmations), record["verdict"])


def _end(
    wanted: Regression,
    root: Path,
    run: Run,
    experiment: Experiment,
    state: str,
    confirmations: Sequence[Experiment],
    ask: Ask,
) -> dict[str, Any]:
    """Judge, write the result, notify; only one process at a time calls this."""
    baseline = baseline_of(root, wanted.baseline, set_if_none=wanted.set_if_none)
    known = outcome(experiment)
    why = known.why if known else ""
    if state not in ("done", "incomplete") or not experiment.metrics_file.exists():
        ask.say(f"{experiment.id} is {state} and has no scores to judge{why}")
        # Its own jobs may not have sent notifications; a notification that was sent is not sent again.
        for failure in dispatch.tell(
            experiment, "failed" if state == "failed" else "incomplete", None
        ):
            ask.say(f"could not send a notification: {failure}")
        return {"state": "failed", "verdict": None}
    if baseline is None:
        if state != "done":
            ask.say(f"{experiment.id} is {state}: it cannot become a baseline{why}")
            return {"state": "failed", "verdict": None}
        baselines.name_it(root, wanted.baseline, experiment.id, "the first run of hpcbench regress")
        ask.say(f"{experiment.id} is the baseline '{wanted.baseline}' from now on")
        return {"state": "baseline", "verdict": None}
    if baseline.path == experiment.path:  # an earlier call was killed after this step
        verdict = verdict_of(experiment)
        return {"state": "baseline" if verdict is None else "judged", "verdict": verdict}
    if state != "done":
        ask.say(f"{experiment.id} is {state}{why}")
    verdict = judge(baseline, experiment, wanted.policy, confirmations, state=state).write(
        experiment
    )
    history.record(experiment)
    for failure in dispatch.tell_verdict(experiment, verdict):  # sends the same verdict only once
        ask.say(f"could not send a notification: {failure}")
    if wanted.promote and verdict["verdict"] == "GO":
        baselines.name_it(root, wanted.baseline, experiment.id, "GO of hpcbench regress")
        ask.say(f"{experiment.id} is the baseline '{wanted.baseline}' from now on")
    return {"state": "judged", "verdict": verdict}


# --- confirmation of a failure -------------------------------------------------------------------------


def _confirmed(
    wanted: Regression, run: Run, baseline: Experiment, experiment: Experiment, ask: Ask
) -> tuple[Sequence[Experiment], tuple[Experiment, ...] | None]:
    """Experiments that asked failing run tasks again, and running experiments among them.

    Returns:
        Without failures to confirm, an empty sequence and None. During confirmation, an empty sequence and
        the running experiments, which are empty while another call prepares one. After it, the experiments
        with scores and None.
    """
    names = _to_confirm(wanted, run, baseline, experiment)
    if not names:
        return (), None
    runs = Runs(home(wanted.resolved.site), wanted.plan, "again", run.path.with_suffix(".again"))
    while True:
        newest = runs.newest
        asked = _experiments(runs)
        # An experiment that another call prepared but did not submit looks interrupted: prepare no second.
        running = [one for one in asked if looked_after(one, ask.submit, lambda line: None) is None]
        if len(asked) >= wanted.policy.confirm:
            break
        if newest is not None and newest.busy:
            return (), tuple(running)
        standing = _begin(wanted, runs, newest, again(wanted.resolved, names, len(asked) + 1), ask)
        if not standing.experiments:
            return (), tuple(running)
    if running:
        ids = ", ".join(one.id for one in running)
        ask.say(f"still running: {experiment.id} fails; reruns of {', '.join(names)}: {ids}")
        return (), tuple(running)
    scored = (one for one in asked if one.metrics_file.exists())
    return [one for one in scored if state_of(one) != "failed"], None


def _to_confirm(
    wanted: Regression, run: Run, baseline: Experiment, experiment: Experiment
) -> list[str]:
    """Failing run tasks that shall be asked again; decided once, since baselines change."""
    if not wanted.policy.confirm:
        return []
    noted = run.path.with_suffix(".confirm.json")
    names = derived(noted, lambda data: list(map(str, data["run_tasks"])))
    if names is None:
        failing = judge(baseline, experiment, wanted.policy).failing
        known = {base_of(one.name) for one in wanted.resolved.run_tasks}
        names = [name for name in failing if name in known]
        write_json(noted, {"run_tasks": names})
    return names


def _experiments(runs: Runs) -> list[Experiment]:
    """Experiments of runs, each once."""
    found = [run.experiment for run in runs.with_experiments if run.experiment is not None]
    return list({one.id: one for one in found}.values())


def _verdict_file(run: Run) -> Path:
    return run.path.with_suffix(".verdict.json")
