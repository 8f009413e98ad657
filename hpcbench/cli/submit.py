"""Verbs that start and end work: submit, resume, pause, cancel."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcbench.cli.cron import tell_outcome
from hpcbench.cli.due import tell_of_newest
from hpcbench.cli.output import (
    finish,
    print_json,
    say,
    transfer_bar,
)
from hpcbench.errors import Problem, UserError
from hpcbench.experiment.access import use_umask
from hpcbench.experiment.control import ControlState, control_request, control_state
from hpcbench.experiment.layout import Experiment, all_experiments, find, home
from hpcbench.experiment.outcome import ended, not_whole, outcome
from hpcbench.experiment.submission import SUPERVISE, rounds
from hpcbench.experiment.submission_lock import submitting
from hpcbench.number_format import many
from hpcbench.registry.budget_checks import mistakes
from hpcbench.registry.catalog import user_site
from hpcbench.registry.settings import typed
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.schema.spending import BudgetCaps
from hpcbench.site.cron import Idle, if_idle
from hpcbench.submit.fingerprint import accept
from hpcbench.submit.kept_files import today
from hpcbench.submit.local_data import localise, open_cache
from hpcbench.submit.manifest import plan_key
from hpcbench.submit.measure import measure
from hpcbench.submit.plan_packages import Packages, build, load_with_packages
from hpcbench.submit.prepare import prepare
from hpcbench.submit.preview import preview_of, read_only
from hpcbench.submit.reuse import Policy
from hpcbench.submit.rounds import cancel as cancel_jobs
from hpcbench.submit.rounds import submit_first

MOST_CHANGES = 20
"""Number of changes since the experiment that a rerun lists; it counts the others."""


def submit(arguments: argparse.Namespace) -> int:
    """`hpcbench submit PLAN`; the plan of an experiment runs with the definitions stored in it."""
    if (then := _experiment_of(arguments)) is not None:
        say(
            f"{arguments.plan} is the plan of {then.id}: using its stored definitions, not the registries"
        )
        return _again(
            then,
            arguments,
            estimate=arguments.estimate,
            copied=arguments.snapshot_env or None,
            reuse=arguments.reuse or "none",
        )
    if arguments.estimate or arguments.dry_run:
        return _look(arguments)
    resolved, packages = _loaded(arguments)
    reuse = _reuse(arguments, resolved)

    def prepared() -> Experiment:
        copied = arguments.snapshot_env
        return prepared_once(resolved, arguments.plan, packages, snapshot_env=copied, reuse=reuse)

    if arguments.if_idle:
        ask = Idle(prepared, submit_first, tell_outcome, print)
        experiment = if_idle(arguments.plan, resolved, ask)
        tell_of_newest(home(resolved.site))
        return _submitted(experiment, arguments) if experiment is not None else 0
    experiment = prepared()
    if twin := _twin(experiment):
        say(_of_twin(twin, experiment))
    submit_first(experiment, say)
    return _submitted(experiment, arguments)


def _look(arguments: argparse.Namespace) -> int:
    """`--estimate` and `--dry-run`: nothing is fetched, built, written or submitted."""
    from hpcbench.cli import dry_run

    plan = arguments.plan
    with _naming_rerun(plan):
        resolved, unlocked = read_only(plan, arguments.registry, _settings(arguments))
    preview = preview_of(resolved, unlocked, plan, say)
    if arguments.estimate:
        return dry_run.show_estimate(preview, arguments.json, _reuse(arguments, resolved))
    return dry_run.show(preview, arguments.json, _reuse(arguments, resolved))


def _loaded(arguments: argparse.Namespace) -> tuple[ResolvedPlan, Packages]:
    """The named plan, resolved."""
    with _naming_rerun(arguments.plan):
        return load_with_packages(arguments.plan, arguments.registry, _settings(arguments), say=say)


@contextlib.contextmanager
def _naming_rerun(plan: Path) -> Iterator[None]:
    """Add a hint at `hpcbench rerun` to the mistakes of a plan that is a copy in an experiment."""
    try:
        yield
    except UserError as error:
        there = plan.absolute().parent
        if not (there / "manifest.json").is_file():
            raise
        what = f"this plan is a copy in the experiment {there.name}"
        remedy = (
            f"`hpcbench rerun {shlex.quote(str(there))}` runs it with the definitions stored there"
        )
        raise UserError(*error.problems, Problem(what, str(plan), remedy=remedy)) from None


def _experiment_of(arguments: argparse.Namespace) -> Experiment | None:
    """The experiment of the named plan; None if registries or settings change the plan."""
    plan = arguments.plan.absolute()
    if arguments.registry or _settings(arguments) or arguments.if_idle:
        return None
    there = Experiment(plan.parent)
    is_kept = plan.name == there.plan_file.name and there.resolved_file.is_file()
    return there if is_kept and there.manifest_file.is_file() else None


def rerun(arguments: argparse.Namespace) -> int:
    """`hpcbench rerun EXPERIMENT`."""
    then = find(home(user_site()), arguments.experiment)
    return _again(then, arguments, arguments.source)


def _again(
    then: Experiment,
    arguments: argparse.Namespace,
    sources: Sequence[str] = (),
    *,
    estimate: bool = False,
    copied: bool | None = None,
    reuse: Policy = "none",
) -> int:
    """Run an experiment's plan once more, or print a preview.

    Args:
        then: the experiment.
        arguments: arguments of the verb.
        sources: `NAME=PLACE`, the present place of a dataset or model.
        estimate: print an estimate instead.
        copied: whether jobs run from a copy of this Python; None: as in the experiment.
        reuse: which answers of earlier experiments to take over; a rerun is there to be run.
    """
    from hpcbench.submit import rerun

    resolved = rerun.load(then, sources, say)
    if estimate or arguments.dry_run:
        from hpcbench.cli import dry_run

        preview = preview_of(resolved, plan_file=then.plan_file, say=say)
        if estimate:
            return dry_run.show_estimate(preview, arguments.json, reuse)
        return dry_run.show(preview, arguments.json, reuse)
    packages = build(resolved, say, today(then))
    if copied is None:
        copied = then.manifest.snapshot is not None
    experiment = prepared_once(resolved, then.plan_file, packages, snapshot_env=copied, reuse=reuse)
    changes = rerun.not_as_it_was(then, experiment)
    for one in changes[:MOST_CHANGES]:
        say(f"changed since {then.id}: {one.path}: {one.one} → {one.other}")
    if len(changes) > MOST_CHANGES:
        what = f"hpcbench compare {then.path} {experiment.path}"
        say(f"changed since {then.id}: {len(changes) - MOST_CHANGES} more, see `{what}`")
    submit_first(experiment, say)
    return _submitted(experiment, arguments)


def prepared_once(
    resolved: ResolvedPlan,
    plan: Path,
    packages: Packages,
    *,
    snapshot_env: bool = False,
    reuse: Policy = "none",
) -> Experiment:
    """The plan's experiment, ready to submit: a new one, or one with an interrupted submission."""
    found = _interrupted(resolved)
    if found is not None:
        say(f"continuing {found.id}, whose submission was interrupted")
        return found
    with transfer_bar() as progress:
        return prepare(
            resolved, plan, say, packages, progress, snapshot_env=snapshot_env, reuse=reuse
        )


def resume(arguments: argparse.Namespace) -> int:
    """`hpcbench resume EXPERIMENT [RUN_TASK …]`."""
    if arguments.pilot is not None and arguments.pilot < 0:
        what = f"--pilot {arguments.pilot} is negative"
        raise UserError(what, remedy="give 0 or more; 0 means no pilot")
    experiment, names = _chosen(arguments)
    if _outcome(experiment) == "done":
        say(f"{experiment.id} is done: nothing to resume")
        return 0
    budget = _budget(arguments, experiment)
    if control_state(experiment) != ControlState() or arguments.pilot is not None or budget:
        control_request(experiment, "resume", names, pilot=arguments.pilot, budget=budget)
    for change in accept(experiment):
        say(f"the environment has changed: {change}")
    from hpcbench.finalise import advance  # imports evaluation and reports

    found = advance(experiment, again=True, force=arguments.force)
    if found == "running":
        later = "; workers that start later have the new budget" if budget else ""
        say(f"{experiment.id} is running: nothing to resume{later}")
        return finish(experiment, as_json=arguments.json) if arguments.wait else 0
    if found == "concluded":
        short = not_whole(experiment)
        what = "no sample was left to ask" if short is None else "nothing more was asked"
        say(f"{experiment.id}: {what}; evaluated the answers and wrote the report")
        if arguments.wait:
            return finish(experiment, as_json=arguments.json)
        if short is not None:
            say(short)
        return 0
    return _submitted(experiment, arguments)


def _budget(arguments: argparse.Namespace, experiment: Experiment) -> dict[str, float]:
    """Parts of the budget that the user gave.

    Raises:
        UserError: one is not positive, or could not end the run.
    """
    given = {name: getattr(arguments, name) for name in ("max_requests", "max_tokens", "max_cost")}
    budget = {name: most for name, most in given.items() if most is not None}
    for name, most in budget.items():
        if not 0 < most < float("inf"):
            what = f"{typed(name, f'{most:g}')} is no budget"
            raise UserError(what, remedy="give a number above 0")
    wrong = mistakes(BudgetCaps(**given), experiment.resolved.run_tasks)
    if problems := [problem for _, problem in wrong]:
        raise UserError(*problems)
    return budget


def pause(arguments: argparse.Namespace) -> int:
    """`hpcbench pause EXPERIMENT [RUN_TASK …]`."""
    experiment, names = _chosen(arguments)
    if ended(experiment):
        say(f"{experiment.id} has ended: nothing to pause")
        return 0
    control_request(experiment, "pause", names)
    what = ", ".join(names) or experiment.id
    print(
        f"{what} pauses once the requests in flight are answered; "
        f"`hpcbench resume {experiment.id}` continues"
    )
    return 0


def cancel(arguments: argparse.Namespace) -> int:
    """`hpcbench cancel EXPERIMENT [RUN_TASK …]`."""
    experiment, names = _chosen(arguments)
    if ended(experiment):
        say(f"{experiment.id} has ended: nothing to cancel")
        return 0
    count = cancel_jobs(experiment, names)
    if names:
        print(f"{', '.join(names)}: workers stop it within seconds")
    else:
        print(
            f"{experiment.id}: requested the end of {many(count, 'job')}; "
            f"`hpcbench resume {experiment.id}` continues it"
        )
    return 0


def _chosen(arguments: argparse.Namespace) -> tuple[Experiment, list[str]]:
    """The experiment, and its named run tasks."""
    experiment = find(home(user_site()), arguments.experiment)
    use_umask(experiment.resolved.site)
    return experiment, _run_tasks(experiment, arguments.run_tasks)


def _reuse(arguments: argparse.Namespace, resolved: ResolvedPlan) -> Policy:
    """Which answers of earlier experiments to take over: by default greedy ones in `prod`, where images and
    packages are locked. A plan that cron submits again and again is there to be run."""
    if arguments.fresh:
        return "none"
    wanted: Policy | None = arguments.reuse
    if wanted is not None:
        return wanted
    return "greedy" if resolved.mode == "prod" and not arguments.if_idle else "none"


def _settings(arguments: argparse.Namespace) -> list[str]:
    """`--set`, and options that are short forms of settings."""
    short = {name: getattr(arguments, name) for name in ("limit", "pilot", "max_gpu_hours")}
    given = {
        f"{name}={value}": typed(name, value) for name, value in short.items() if value is not None
    }
    arguments.typed = {**getattr(arguments, "typed", {}), **given}
    return [*arguments.settings, *given]


def _run_tasks(experiment: Experiment, names: Sequence[str]) -> list[str]:
    """Run tasks by name, or by a common beginning.

    Raises:
        UserError: no run task has such a name.
    """
    known = [run_task.name for run_task in experiment.resolved.run_tasks]
    found: list[str] = []
    for name in names:
        fits = [one for one in known if one == name] or [
            one for one in known if one.startswith(name)
        ]
        if not fits:
            listed = ", ".join(known[:8])
            what = f"no run task '{name}' in {experiment.id}"
            raise UserError(what, remedy=f"its run tasks: {listed}")
        found += fits
    return list(dict.fromkeys(found))


def _outcome(experiment: Experiment) -> str | None:
    """State of an ended experiment; None: it has not ended."""
    known = outcome(experiment)
    return known.state if known is not None and ended(experiment) else None


def _job(step: str, job: str) -> str:
    """A job of a round for people; the only one of a local run is a process, `HOST:PID`."""
    host, _, pid = job.rpartition(":")
    return f"process {pid} on {host}" if step == SUPERVISE else f"{step} {job}"


def _submitted(experiment: Experiment, arguments: argparse.Namespace) -> int:
    last = rounds(experiment)[-1]
    if not arguments.wait:
        if arguments.json:
            print_json({"id": experiment.id, "path": str(experiment.path), "jobs": last.jobs})
        else:
            jobs = ", ".join(_job(step, job) for step, job in last.jobs.items())
            print(f"submitted {experiment.id} ({jobs})\n  hpcbench watch {experiment.id}")
        return 0
    if not arguments.json:
        print(f"submitted {experiment.id} in {experiment.path}")
    return finish(experiment, as_json=arguments.json)


def _interrupted(resolved: ResolvedPlan) -> Experiment | None:
    """An experiment of exactly the same plan and data whose submission was interrupted."""
    candidates = [
        experiment
        for experiment in all_experiments(home(resolved.site))
        if _unfinished_submission(experiment)
    ]
    if not candidates:
        return None
    try:
        here = localise(resolved, open_cache(resolved.site), fetch=False)
    except UserError:
        return None  # data that is missing here was not being submitted
    key = plan_key(here, measure(here))
    same = [experiment for experiment in candidates if experiment.manifest.plan_key == key]
    return same[-1] if same else None


def _twin(experiment: Experiment) -> Experiment | None:
    """The last experiment of exactly the same plan and data, if any."""
    name, key = experiment.resolved.plan.name, experiment.manifest.plan_key
    older = [
        one
        for one in all_experiments(home(experiment.resolved.site))
        if f"-{name}-" in one.id and one.id != experiment.id
    ]
    return next((one for one in reversed(older) if one.manifest.plan_key == key), None)


def _of_twin(twin: Experiment, experiment: Experiment) -> str:
    """Its state, and the command that may serve instead of a new run."""
    from hpcbench.number_format import duration

    age = duration(time.time() - twin.manifest_file.stat().st_mtime)
    state = _outcome(twin)
    if state == "done":
        instead = f"`hpcbench report {twin.id}` shows its scores"
    elif state is None:
        instead = f"`hpcbench status {twin.id}` shows its progress"
    else:
        instead = f"`hpcbench resume {twin.id}` continues it"
    return (
        f"{twin.id} has the same plan and data, is {age} old and "
        f"{state or 'has not ended'}: {instead}; `hpcbench cancel {experiment.id}` cancels this one"
    )


def _unfinished_submission(experiment: Experiment) -> bool:
    known = rounds(experiment)
    return (not known or not known[-1].handed) and not submitting(experiment)
