"""ML tasks with modules of the user's own: whether one can run where its model's engine runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from hpcbench import environments
from hpcbench.environments.orphans import held_folder, scratch
from hpcbench.environments.packages import last_words
from hpcbench.errors import Problem, UserError
from hpcbench.plugins import Environment
from hpcbench.registry.source import read
from hpcbench.schema.plan import ResolvedPlan, ResolvedRunTask
from hpcbench.schema.site import Site
from hpcbench.subprocesses import run

SECONDS = 300.0
"""Longest time in which an environment's Python says whether it finds a module."""

_FIND = """
import importlib.util, sys
def find(name):
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
found = find(sys.argv[1])
if found is not None and found.submodule_search_locations is not None:
    found = find(sys.argv[1] + ".__main__")
print("found" if found is not None else "missing")
"""
"""Finds a module as `python -m` does. It imports the packages that the module is in."""


def refuse(resolved: ResolvedPlan) -> None:
    """Refuse modules that could not reach their model, before anything is fetched.

    Raises:
        UserError: all of them, each at its ML task's definition.
    """
    problems = [
        problem for run_task in resolved.run_tasks for problem in _unreachable(resolved, run_task)
    ]
    if problems:
        raise UserError(*dict.fromkeys(problems))


def check(resolved: ResolvedPlan, prepared: Mapping[str, Environment]) -> None:
    """Look for each module in the environment in which it will run.

    Args:
        resolved: the plan.
        prepared: `ResolvedRunTask.environment` → the prepared environment.

    Raises:
        UserError: modules that are not there, each at its ML task's definition.
        EnvironmentFault: a container does not start.
    """
    problems, known = list[Problem](), dict[tuple[str, str], str | None]()
    for run_task in resolved.run_tasks:
        if (module := run_task.ml_task.module) is None:
            continue
        key = module, run_task.environment
        if key not in known:
            known[key] = _why_missing(module, prepared[run_task.environment], resolved.site)
        if known[key] is not None:
            where = run_task.model.image or "hpcbench's own Python"
            what = f"module '{module}' is not in {where}{known[key]}"
            remedy = "name the package that has it in `required_packages`"
            problems.append(_problem(resolved, run_task, what, remedy))
    if problems:
        raise UserError(*dict.fromkeys(problems))


def _unreachable(resolved: ResolvedPlan, run_task: ResolvedRunTask) -> Iterator[Problem]:
    if (module := run_task.ml_task.module) is None:
        return
    container, image = resolved.site.container, run_task.model.image
    kind = environments.kind_of(image, container.manager)
    if kind in environments.ELSEWHERE:
        what = f"module '{module}' cannot run with model '{run_task.model.name}': {kind} runs it elsewhere"
        yield _problem(resolved, run_task, what, "name an image that this cluster runs")
    elif container.network == "none" and (image or "").partition(":")[0] not in ("", "venv"):
        site = resolved.site.name
        what = (
            f"module '{module}' cannot ask its model: containers of site '{site}' have no network"
        )
        yield _problem(
            resolved, run_task, what, "set `container.network: host`, or name a `venv:` folder"
        )


def _why_missing(module: str, environment: Environment, site: Site) -> str | None:
    """Why the environment's Python does not find a module, `: …`, or nothing; None: it finds it."""
    with held_folder(scratch(site.scratch)) as folder:
        own = folder / "module"
        own.mkdir()
        argv = ["python", "-c", _FIND, module]
        command = environments.wrap(environment, argv, [str(own)], {}, 0, site.container)
        ended = run(command.argv, SECONDS, env={**os.environ, **command.env}, cwd=own)
    if ended.late:
        return f": Python gave no answer in {SECONDS:.0f} s"
    said = ended.text.strip().splitlines()[-1:]
    if said == ["found"]:
        return None
    return "" if said == ["missing"] else f": {last_words(ended.messages)}"


def _problem(resolved: ResolvedPlan, run_task: ResolvedRunTask, what: str, remedy: str) -> Problem:
    """A problem at the module's place in its ML task's definition."""
    file = resolved.origins.get(f"ml_tasks/{run_task.ml_task.name}", "").partition(" + ")[0]
    try:
        source = read(Path(file))
    except UserError:
        return Problem(what, remedy=remedy)
    for loc in (("module",), ("entry_point",), ("environment", "entry_point")):
        if loc in source.marks:
            return source.problem(loc, what, remedy)
    return source.problem((), what, remedy)
