"""`hpcbench ab`: one plan resolved twice with different settings, or two plans, combined into one plan.

Settings are those of `--set`, and shorter ones that apply to every run task of the plan:

    model.engine_options.max_num_seqs=8   in every model of a run task (or in its changes to a model)
    prompt.user="…", dataset.options.dpi=100
    model=org/large, prompt=short         another definition for every run task
    generation.temperature=0              in every run task, or cell of a matrix
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from hpcbench.errors import Problem, UserError
from hpcbench.registry.auto_concurrency import measures_latency
from hpcbench.registry.budget_checks import mistakes
from hpcbench.registry.settings import Setting, read_settings
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.model import ModelChoice
from hpcbench.schema.plan import Arms, ResolvedPlan, ResolvedRunTask
from hpcbench.schema.run_task import RunTask

LONGEST_NAME = 78
"""Length of a run task's name that still has space for `.a` or `.b`."""

LONGEST_HALF = 38
"""Most letters of each plan's name in the name of an experiment of two plans."""

ROOM = 118
"""Letters of a definition's name that leave space for `.a`."""

DEFINITIONS = {"model": "models", "prompt": "prompts", "dataset": "datasets"}
"""Definitions of a run task that short settings can name → their kind."""

OF_CHOICE = ("engine", "image", "engine_options", "env")
"""Fields that a run task may change where it names its model."""

SAME_SAMPLES = ("split", "where", "sample", "limit")
"""Fields of a run task that choose its samples."""

_OF_PLAN = frozenset(ExperimentPlan.model_fields)
_OF_RUN_TASK = frozenset(RunTask.model_fields) - _OF_PLAN | {"packages"}


def expanded(resolved: ResolvedPlan, texts: Sequence[str]) -> list[str]:
    """Settings in the form of `--set`.

    Args:
        resolved: the plan without the settings.
        texts: settings, including short ones.

    Raises:
        UserError: a setting does not have the right form.
    """
    return [text for setting in read_settings(texts) for text in _expanded(resolved, setting)]


def side_by_side(
    a: ResolvedPlan,
    b: ResolvedPlan,
    arms: Arms,
    settings: Sequence[str],
    say: Callable[[str], None] = lambda line: None,
) -> ResolvedPlan:
    """One plan with each run task of `a` and the same of `b` as two arms, `NAME.a` and `NAME.b`.

    Args:
        a: the plan with the settings of arm a, or arm a's own plan.
        b: the plan with the settings of arm b, or arm b's own plan.
        arms: how they are compared.
        settings: settings of both arms.
        say: receives a line about run tasks that are left out, and of two plans about values of the whole
            experiment that they do not share.

    Raises:
        UserError: the arms do not differ, or differ in a value that both must share; the budget does not fit
            both.
    """
    if arms.plans is None:
        _check_alike(a, b)
        both = list(zip(a.run_tasks, b.run_tasks, strict=True))
    else:
        if problems := [*_differences(a, b)]:
            raise UserError(*problems)
        both = _paired(a, b, arms.plans, say)
        a = _of_both(a, b, arms.plans, say)
    differing = [(one, other) for one, other in both if one != other]
    if not differing:
        raise UserError(
            "the arms do not differ in any run task",
            remedy="such as --a model.engine_options.x=1 --b model.engine_options.x=2",
        )
    left_out = [one.name for one, other in both if one == other]
    if left_out:
        say(f"run tasks left out, because their arms do not differ: {', '.join(left_out)}")
    known = {one.name for one, _ in differing}
    differing = [
        (_measured_by(one, arms.metrics), _measured_by(other, arms.metrics))
        for one, other in differing
    ]
    found = [
        _arm(run_task, letter, (one, other), known)
        for one, other in differing
        for run_task, letter in _lettered(one, other)
    ]
    if wrong := [problem for _, problem in mistakes(a.plan.budget, found)]:
        raise UserError(*wrong)
    origins = {**b.origins, **a.origins}
    return a.model_copy(
        update={
            "run_tasks": tuple(found),
            "settings": tuple(settings),
            "packages": dict(sorted({**a.packages, **b.packages}.items())),
            "images": {**b.images, **a.images},
            "origins": dict(sorted({**_of_models(found, origins), **origins}.items())),
            "arms": arms,
        }
    )


# --- two plans ----------------------------------------------------------------------------------------


def _paired(
    a: ResolvedPlan, b: ResolvedPlan, plans: tuple[str, str], say: Callable[[str], None]
) -> list[tuple[ResolvedRunTask, ResolvedRunTask]]:
    """Run tasks of two plans with one ML task and dataset; those of b with the names and metrics of both.

    Several of one kind are paired by their names, and the rest in the order of the plans.

    Raises:
        UserError: no run task of one plan has its counterpart in the other, or pairs choose other samples.
    """
    chosen = {one.name: other for one, other in _counterparts(a.run_tasks, b.run_tasks)}
    names = {other.name: name for name, other in chosen.items()}
    alone = (
        [one for one in a.run_tasks if one.name not in chosen],
        [one for one in b.run_tasks if one.name not in names],
    )
    for plan, others, left in zip(plans, reversed(plans), alone, strict=True):
        for one in left:
            kind = f"{one.ml_task.name} on {one.dataset.name}"
            say(
                f"{plan}: run task {one.name} is left out: {others} has no further run task of {kind}"
            )
    if not chosen:
        what = "the plans have no run task of the same ML task and dataset"
        raise UserError(what, remedy="use the same names of ml_task and dataset in both plans")
    both = [(one, chosen[one.name]) for one in a.run_tasks if one.name in chosen]
    if problems := [problem for pair in both if (problem := _other_samples(*pair))]:
        raise UserError(*problems)
    return [_with_metrics(one, _named(other, one.name, names)) for one, other in both]


def _counterparts(
    a: Sequence[ResolvedRunTask], b: Sequence[ResolvedRunTask]
) -> Iterator[tuple[ResolvedRunTask, ResolvedRunTask]]:
    for kind in dict.fromkeys(map(_kind, a)):
        own = {one.name: one for one in a if _kind(one) == kind}
        others = {one.name: one for one in b if _kind(one) == kind}
        for name in [name for name in own if name in others]:
            yield own.pop(name), others.pop(name)
        yield from zip(own.values(), others.values(), strict=False)


def _kind(run_task: ResolvedRunTask) -> tuple[str, str]:
    return run_task.ml_task.name, run_task.dataset.name


def _other_samples(one: ResolvedRunTask, other: ResolvedRunTask) -> Problem | None:
    """The problem of a pair that does not ask the same samples."""
    differs = {
        name: values
        for name in SAME_SAMPLES
        if (values := (getattr(one.task, name), getattr(other.task, name)))[0] != values[1]
    }
    if not differs:
        return None
    shown = ", ".join(f"{name} {first} and {second}" for name, (first, second) in differs.items())
    what = f"run tasks {one.name} and {other.name} choose different samples: {shown}"
    remedy = "--limit N" if [*differs] == ["limit"] else "write the same values in both plans"
    return Problem(what, remedy=remedy)


def _named(run_task: ResolvedRunTask, name: str, names: Mapping[str, str]) -> ResolvedRunTask:
    """The run task of plan b under its counterpart's name."""
    after = tuple(names[one] for one in run_task.task.after if one in names)
    task = run_task.task.model_copy(update={"name": name, "after": after})
    return run_task.model_copy(update={"task": task})


def _with_metrics(
    one: ResolvedRunTask, other: ResolvedRunTask
) -> tuple[ResolvedRunTask, ResolvedRunTask]:
    """Both with the metrics of either, so that every metric is of both; each keeps its own definitions."""
    found = []
    for own, more in ((one, other), (other, one)):
        known = {metric.name: metric for metric in (*more.metrics, *own.metrics)}
        order = dict.fromkeys(metric.name for metric in (*one.metrics, *other.metrics))
        metrics = tuple(known[name] for name in order)
        task = own.task.model_copy(update={"metrics": tuple(order)})
        found.append(own.model_copy(update={"metrics": metrics, "task": task}))
    return found[0], found[1]


def _of_both(
    a: ResolvedPlan, b: ResolvedPlan, plans: tuple[str, str], say: Callable[[str], None]
) -> ResolvedPlan:
    """Plan a under a name of both; values of the whole experiment are those of a."""
    differs = [
        name
        for name in sorted(_OF_PLAN - {"name", "description", "run_tasks", "matrix", "only"})
        if getattr(a.plan, name) != getattr(b.plan, name)
    ]
    if differs:
        say(f"for both arms {plans[0]} decides, where {plans[1]} differs: {', '.join(differs)}")
    name = f"{a.plan.name[:LONGEST_HALF]}-vs-{b.plan.name[:LONGEST_HALF]}"
    return a.model_copy(update={"plan": a.plan.model_copy(update={"name": name})})


# --- what both arms share -----------------------------------------------------------------------------


def _measured_by(run_task: ResolvedRunTask, figures: Sequence[str]) -> ResolvedRunTask:
    """The run task, with one request at a time for `concurrency: auto` if a latency compares the arms."""
    if run_task.at_once is None or not measures_latency(run_task, figures=figures):
        return run_task
    return run_task.model_copy(update={"at_once": 1})


def _of_models(found: Sequence[ResolvedRunTask], origins: Mapping[str, str]) -> dict[str, str]:
    """Files of the arms' models, by the models' own names."""
    named = {f"models/{one.model.name}": f"models/{one.model.name[:-2]}" for one in found}
    return {name: origins[base] for name, base in named.items() if base in origins}


def _lettered(
    one: ResolvedRunTask, other: ResolvedRunTask
) -> tuple[tuple[ResolvedRunTask, Literal["a"]], tuple[ResolvedRunTask, Literal["b"]]]:
    return (one, "a"), (other, "b")


def _expanded(resolved: ResolvedPlan, setting: Setting) -> Iterator[str]:
    first = setting.path[0]
    if setting.definition is not None or first not in _OF_RUN_TASK:
        yield setting.text
        return
    _, _, value = setting.text.partition("=")
    rest = ".".join(setting.path)
    if first in DEFINITIONS and len(setting.path) > 1:
        yield from _in_definitions(resolved, first, ".".join(setting.path[1:]), value)
        return
    for place, listed in _places(resolved.plan):
        if listed and first in DEFINITIONS:
            yield f"{place}{first}s=[{value}]"
        else:
            yield f"{place}{rest}={value}"


def _places(plan: ExperimentPlan) -> Iterator[tuple[str, bool]]:
    """Paths of the plan's run tasks, as prefixes of settings; and whether each is a matrix."""
    for index, entry in enumerate(plan.run_tasks):
        named = isinstance(entry, str)
        yield (f"run_tasks/{entry}:" if named else f"run_tasks.{index}."), False
    for index, matrix in enumerate(plan.matrix):
        yield f"matrix.{index}.", True
        for number in range(len(matrix.include)):
            yield f"matrix.{index}.include.{number}.", False


def _in_definitions(resolved: ResolvedPlan, kind: str, path: str, value: str) -> Iterator[str]:
    """The setting in every definition of a kind that the run tasks name."""
    found: dict[str, None] = {}
    for run_task in resolved.run_tasks:
        if kind != "model" or isinstance(run_task.task.model, str):
            definition = run_task.task.model if kind == "model" else getattr(run_task, kind).name
            found.setdefault(f"{DEFINITIONS[kind]}/{definition}:{path}={value}")
        elif path.partition(".")[0] not in OF_CHOICE:
            found.setdefault(f"models/{run_task.task.model.name}:{path}={value}")
    if kind == "model" and path.partition(".")[0] in OF_CHOICE:
        entries = enumerate(resolved.plan.run_tasks)
        for index, entry in entries:
            # The run task's own changes override the definition's.
            if isinstance(entry, RunTask) and isinstance(entry.model, ModelChoice):
                found.setdefault(f"run_tasks.{index}.model.{path}={value}")
    yield from found


def _check_alike(a: ResolvedPlan, b: ResolvedPlan) -> None:
    """Refuse arms that differ in a value of the whole experiment.

    Raises:
        UserError: all such differences.
    """
    problems: list[Problem] = []
    for name in sorted(_OF_PLAN - {"run_tasks", "matrix", "only"}):
        if getattr(a.plan, name) != getattr(b.plan, name):
            what = (
                f"'{name}' applies to the whole experiment, so both arms must have the same value"
            )
            problems.append(Problem(what, remedy="set it with --set"))
    names = [[one.name for one in arm.run_tasks] for arm in (a, b)]
    if names[0] != names[1]:
        what = f"the arms have different run tasks: {', '.join(names[0])}; {', '.join(names[1])}"
        problems.append(Problem(what, remedy="write the run tasks out instead of a matrix"))
    problems += _differences(a, b)
    if problems:
        raise UserError(*problems)


def _differences(a: ResolvedPlan, b: ResolvedPlan) -> Iterator[Problem]:
    """Reasons why two resolved plans cannot be one experiment."""
    if a.site != b.site:
        yield Problem("both arms must have the same site profile", remedy="set it with --set")
    for name, package in a.packages.items():
        if b.packages.get(name, package) != package:
            what = f"the arms have different versions of package '{name}'"
            yield Problem(what, remedy="use one version in both arms")
    if any(one.sweep is not None for one in (*a.run_tasks, *b.run_tasks)):
        what = "one worker measures a point of a sweep alone, so arms cannot take turns in it"
        yield Problem(what, remedy="--set load=null, and one number as `concurrency`")


def _arm(
    run_task: ResolvedRunTask,
    letter: Literal["a", "b"],
    both: tuple[ResolvedRunTask, ResolvedRunTask],
    known: set[str],
) -> ResolvedRunTask:
    """A run task as an arm. Its model has its own name if the other arm's model differs, and so has its
    prompt if the other arm's prompt of this name has another content: answers name their prompts."""
    pair = run_task.name
    if len(pair) > LONGEST_NAME:
        what = (
            f"the run task's name '{pair}' is too long for arms: at most {LONGEST_NAME} characters"
        )
        raise UserError(what, remedy="give it a shorter name")
    after = [f"{name}.{arm}" for name in run_task.task.after if name in known for arm in "ab"]
    update = {"name": f"{pair}.{letter}", "after": tuple(after)}
    changed: dict[str, object] = {
        "task": run_task.task.model_copy(update=update),
        "pair": pair,
        "arm": letter,
    }
    first, second = (one.prompt for one in both)
    if first != second and first.name == second.name:
        name = run_task.prompt.name[:ROOM]
        changed["prompt"] = run_task.prompt.model_copy(update={"name": f"{name}.{letter}"})
    if both[0].model != both[1].model:
        name = run_task.model.name[:ROOM]
        changed["model"] = run_task.model.model_copy(update={"name": f"{name}.{letter}"})
    return run_task.model_copy(update=changed)
