"""`hpcbench ab`: one plan resolved twice with different settings, and both combined into one plan.

Settings are those of `--set`, and shorter ones that apply to every run task of the plan:

    model.engine_options.max_num_seqs=8   in every model of a run task (or in its changes to a model)
    prompt.user="…", dataset.options.dpi=100
    model=org/large, prompt=short         another definition for every run task
    generation.temperature=0              in every run task, or cell of a matrix
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from hpcbench.errors import Problem, UserError
from hpcbench.registry.auto_concurrency import measures_latency
from hpcbench.registry.settings import Setting, read_settings
from hpcbench.schema.definitions import ExperimentPlan, ModelChoice, RunTask
from hpcbench.schema.plan import Arms, ResolvedPlan, ResolvedRunTask

LONGEST_NAME = 78
"""Length of a run task's name that still has space for `.a` or `.b`."""

ROOM = 118
"""Letters of a definition's name that leave space for `.a`."""

DEFINITIONS = {"model": "models", "prompt": "prompts", "dataset": "datasets"}
"""Definitions of a run task that short settings can name → their kind."""

OF_CHOICE = ("engine", "image", "engine_options", "env")
"""Fields that a run task may change where it names its model."""

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
        a: the plan with the settings of arm a.
        b: the plan with the settings of arm b.
        arms: how they are compared.
        settings: settings of both arms.
        say: receives a line about run tasks that are left out because their arms do not differ.

    Raises:
        UserError: the arms do not differ, or differ in a value that both must share.
    """
    _check_alike(a, b)
    both = list(zip(a.run_tasks, b.run_tasks, strict=True))
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
    return a.model_copy(
        update={
            "run_tasks": tuple(found),
            "settings": tuple(settings),
            "packages": dict(sorted({**a.packages, **b.packages}.items())),
            "images": {**b.images, **a.images},
            "origins": dict(sorted({**_of_models(found, a), **b.origins, **a.origins}.items())),
            "arms": arms,
        }
    )


def _measured_by(run_task: ResolvedRunTask, figures: Sequence[str]) -> ResolvedRunTask:
    """The run task, with one request at a time for `concurrency: auto` if a latency compares the arms."""
    if run_task.at_once is None or not measures_latency(run_task, figures=figures):
        return run_task
    return run_task.model_copy(update={"at_once": 1})


def _of_models(found: Sequence[ResolvedRunTask], plan: ResolvedPlan) -> dict[str, str]:
    """Files of the arms' models, by the models' own names."""
    named = {f"models/{one.model.name}": f"models/{one.model.name[:-2]}" for one in found}
    return {name: plan.origins[base] for name, base in named.items() if base in plan.origins}


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
    if a.site != b.site:
        problems.append(
            Problem("both arms must have the same site profile", remedy="set it with --set")
        )
    names = [[one.name for one in arm.run_tasks] for arm in (a, b)]
    if names[0] != names[1]:
        what = f"the arms have different run tasks: {', '.join(names[0])}; {', '.join(names[1])}"
        problems.append(Problem(what, remedy="write the run tasks out instead of a matrix"))
    for name, package in a.packages.items():
        if b.packages.get(name, package) != package:
            what = f"the arms have different versions of package '{name}'"
            problems.append(Problem(what, remedy="use one version in both arms"))
    if any(one.sweep is not None for one in a.run_tasks):
        what = "one worker measures a point of a sweep alone, so arms cannot take turns in it"
        problems.append(Problem(what, remedy="--set load=null, and one number as `concurrency`"))
    if problems:
        raise UserError(*problems)


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
