"""An experiment's unchanged plan for a rerun, read from the experiment's files on any machine.

No registry is read: `resolved.json` has every definition, with the original overlays and settings. Only two
things are current: the machine's own site profile, and the places of data and models.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from hpcbench.comparison.differences import ConfigDifference, config_differences
from hpcbench.errors import Problem, UserError, unknown
from hpcbench.experiment.access import is_foreign
from hpcbench.experiment.control import ControlState, control_state
from hpcbench.experiment.layout import Experiment, find, home
from hpcbench.experiment.seal import check_seal
from hpcbench.experiment.view.as_written import plan_data
from hpcbench.registry.resolve import load_site
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.schema.site import Site
from hpcbench.submit import Say
from hpcbench.submit.kept_files import today


def load(
    experiment: Experiment, sources: Sequence[str] = (), say: Say = lambda line: None
) -> ResolvedPlan:
    """The original plan of an experiment.

    Args:
        experiment: the experiment; its folder may be a copy.
        sources: `NAME=PLACE`, the present place of a dataset or model.
        say: receives lines about differences from the original.

    Raises:
        UserError: the experiment was imported; data is not at its original place.
        EnvironmentFault: a colleague may have changed what the user's own experiment would execute.
    """
    if experiment.manifest.imported is not None:
        remedy = "write a plan and run `hpcbench submit`"
        raise UserError(f"{experiment.id} was imported: it has no plan to run again", remedy=remedy)
    if not is_foreign(experiment.path):
        check_seal(experiment)  # a colleague's experiment is run as it is
    kept = today(experiment)
    data = plan_data(experiment)
    _place(data, _moved(experiment, sources))
    as_locked(data.get("packages", {}), experiment.manifest.locks)
    _give_last_budget(data, control_state(experiment))
    replaced = {path: str(copy) for path, copy in kept.items()}
    for part in ("run_tasks", "site"):
        data[part] = _replaced(data[part], replaced)
    resolved = ResolvedPlan.model_validate_json(json.dumps(data))
    resolved = resolved.model_copy(update={"site": _site(experiment, resolved, say)})
    _require_data(resolved)
    return _without_lost_baseline(resolved, say)


def as_locked(packages: dict[str, Any], locks: Mapping[str, Sequence[str]]) -> None:
    """Replace requirements by the versions that were installed, where one version was.

    Args:
        packages: packages of a resolved plan, as plain data.
        locks: the manifest's `locks`.
    """
    installed: dict[str, set[str]] = {}
    for entry in (one for entries in locks.values() for one in entries):
        name, equal, version = entry.split(" ")[0].partition("==")
        if equal:
            installed.setdefault(canonicalize_name(name), set()).add(version)
    for package in packages.values():
        source = package["source"]
        if source["type"] != "requirement":
            continue
        requirement = Requirement(source["line"])
        versions = installed.get(canonicalize_name(requirement.name), set())
        if len(versions) == 1:  # none: the Python had it; several: images differ
            requirement.specifier = SpecifierSet(f"=={versions.pop()}")
            source["line"] = str(requirement)


def not_as_it_was(then: Experiment, now: Experiment) -> list[ConfigDifference]:
    """Changed settings that affect results; without those that only answers show: nodes, and the load."""
    measured = (".concurrency", ".route")
    return [
        one
        for one in config_differences(then, now)
        if ".hardware" not in one.path and not one.path.endswith(measured)
    ]


def _give_last_budget(data: dict[str, Any], then: ControlState) -> None:
    """Set the budget that a user gave to `resume` last: by the plan's the rerun would end elsewhere."""
    data["plan"] |= then.budget
    given = [f"{name}={most}" for name, most in then.budget.items()]
    data["settings"] = [*data.get("settings", ()), *given]


def _moved(experiment: Experiment, given: Sequence[str]) -> dict[str, str]:
    """`KIND/NAME` → its source: the original URL of fetched data, or its place in `given`."""
    recorded = experiment.manifest.sources
    definitions = {
        f"{kind}/{definition.name}": definition
        for run_task in experiment.resolved.run_tasks
        for kind, definition in (("datasets", run_task.dataset), ("models", run_task.model))
    }
    found = {
        name: str(recorded.get(name) or recorded.get(name.partition("/")[2]))
        for name in definitions
        if recorded.get(name) or recorded.get(name.partition("/")[2])
    }
    problems: list[Problem] = []
    for text in given:
        name, equals, place = text.partition("=")
        fits = [one for one in definitions if name in (one, one.partition("/")[2])]
        if not equals or not place:
            problems.append(
                Problem(
                    f"--source {text}: NAME or place is missing",
                    remedy="write NAME=FOLDER or NAME=URL",
                )
            )
        elif len(fits) != 1:
            what = unknown("dataset or model", name, definitions)
            problems.append(Problem(f"--source {text}: {what}"))
        else:
            found[fits[0]] = place if "://" in place else str(Path(place).expanduser().resolve())
    if problems:
        raise UserError(*problems)
    return found


def _place(data: dict[str, Any], sources: Mapping[str, str]) -> None:
    for run_task in data["run_tasks"]:
        for kind, part in (("datasets", "dataset"), ("models", "model")):
            definition = run_task[part]
            definition["source"] = sources.get(f"{kind}/{definition['name']}", definition["source"])


def _replaced(value: Any, paths: Mapping[str, str]) -> Any:
    """Plain data in which whole texts are replaced."""
    if isinstance(value, dict):
        return {key: _replaced(one, paths) for key, one in value.items()}
    if isinstance(value, list):
        return [_replaced(one, paths) for one in value]
    return paths.get(value, value) if isinstance(value, str) else value


def _site(experiment: Experiment, resolved: ResolvedPlan, say: Say) -> Site:
    """The machine's own profile if the original run used one; else the profile that came with the plan."""
    then = resolved.site
    if not experiment.manifest.site_of_machine:
        return then
    settings = [text for text in resolved.settings if text.startswith("sites/")]
    own = load_site(resolved.plan.site or "default", resolved.mode, settings)
    if own is not None:
        return own
    if then.executor == "slurm" and resolved.plan.site is None and shutil.which("sbatch") is None:
        say(
            "no site profile and no Slurm here: jobs run on this machine (`hpcbench init` makes a profile)"
        )
        return Site(name="default", description="built in: no `hpcbench init` was run")
    return then


def _require_data(resolved: ResolvedPlan) -> None:
    """Check that datasets and models in folders exist."""
    problems = [
        Problem(
            f"{what} '{definition.name}' was in {definition.source}, which this machine does not have",
            remedy=f"give its folder: --source {definition.name}=FOLDER",
        )
        for run_task in resolved.run_tasks
        for what, definition in (("dataset", run_task.dataset), ("model", run_task.model))
        if definition.source
        and "://" not in definition.source
        and not Path(definition.source).exists()
    ]
    if problems:
        raise UserError(*dict.fromkeys(problems))


def _without_lost_baseline(resolved: ResolvedPlan, say: Say) -> ResolvedPlan:
    """The plan without baseline and gate if this home lacks the baseline: it runs, but is not judged."""
    if resolved.plan.baseline is None:
        return resolved
    try:
        find(home(resolved.site), resolved.plan.baseline)
    except UserError as error:
        say(f"the rerun is not compared with its baseline: {error}")
        plan = resolved.plan.model_copy(update={"baseline": None, "gate": None})
        return resolved.model_copy(update={"plan": plan, "gate": None})
    return resolved
