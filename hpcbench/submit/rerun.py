"""An experiment's plan once more, as it was: from what the experiment holds, wherever it is run now.

No registry is asked: `resolved.json` has every document, with the overlays and settings of then.
Taken from today are the site profile that is the machine's own, and where data and models are.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench.comparison.differences import ConfigDifference, config_differences
from hpcbench.errors import Problem, UserError, unknown
from hpcbench.experiment.layout import Experiment, find, home
from hpcbench.files.atomic import read_json
from hpcbench.registry.resolve import load_site
from hpcbench.schema.documents import Site
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.submit.kept_files import today
from hpcbench.submit.prepare import Packages, build

Say = Callable[[str], None]


def load(
    experiment: Experiment, sources: Sequence[str] = (), say: Say = lambda line: None
) -> ResolvedPlan:
    """The plan of an experiment as it was then.

    Args:
        experiment: the experiment; its folder may be a copy.
        sources: `NAME=PLACE`, where a dataset or model is now.
        say: told what is not as it was.

    Raises:
        UserError: it was imported; data is not where it was.
    """
    if "imported" in experiment.manifest:
        remedy = "`hpcbench submit` a plan of your own"
        raise UserError(Problem(f"{experiment.id} was imported: no plan asks it", remedy=remedy))
    kept = today(experiment)
    data = read_json(experiment.resolved_file)
    _place(data, _moved(experiment, sources))
    replaced = {path: str(copy) for path, copy in kept.items()}
    for part in ("run_tasks", "site"):
        data[part] = _replaced(data[part], replaced)
    resolved = ResolvedPlan.model_validate_json(json.dumps(data))
    resolved = resolved.model_copy(update={"site": _site(experiment, resolved, say)})
    _require_data(resolved)
    return _without_lost_baseline(resolved, say)


def build_packages(experiment: Experiment, resolved: ResolvedPlan, say: Say) -> Packages:
    """Build the packages of such a plan, from the files that the experiment keeps.

    Raises:
        UserError: a package is not what it says it is.
        EnvironmentFault: a package cannot be fetched or built.
    """
    if not resolved.packages:
        return Packages(None, {})
    return build(resolved, say, today(experiment))


def not_as_it_was(then: Experiment, now: Experiment) -> list[ConfigDifference]:
    """What results depend on and is not as it was then; the nodes show only when they have answered."""
    return [one for one in config_differences(then, now) if ".hardware" not in one.path]


def _moved(experiment: Experiment, given: Sequence[str]) -> dict[str, str]:
    """`KIND/NAME` → its source: what was fetched then has its URL again, the rest of `given` is said now."""
    recorded: Any = experiment.manifest.get("sources") or {}
    documents = {
        f"{kind}/{document.name}": document
        for run_task in experiment.resolved.run_tasks
        for kind, document in (("datasets", run_task.dataset), ("models", run_task.model))
    }
    found = {
        name: str(recorded.get(name) or recorded.get(name.partition("/")[2]))
        for name in documents
        if recorded.get(name) or recorded.get(name.partition("/")[2])
    }
    problems: list[Problem] = []
    for text in given:
        name, equals, place = text.partition("=")
        fits = [one for one in documents if name in (one, one.partition("/")[2])]
        if not equals or not place:
            problems.append(Problem(f"--source {text}", remedy="NAME=FOLDER, or NAME=URL"))
        elif len(fits) != 1:
            what = unknown("dataset or model", name, documents)
            problems.append(Problem(f"--source {text}: {what}"))
        else:
            found[fits[0]] = place if "://" in place else str(Path(place).expanduser().resolve())
    if problems:
        raise UserError(*problems)
    return found


def _place(data: dict[str, Any], sources: Mapping[str, str]) -> None:
    for run_task in data["run_tasks"]:
        for kind, part in (("datasets", "dataset"), ("models", "model")):
            document = run_task[part]
            document["source"] = sources.get(f"{kind}/{document['name']}", document["source"])


def _replaced(value: Any, paths: Mapping[str, str]) -> Any:
    """Plain data with some of its texts replaced as a whole."""
    if isinstance(value, dict):
        return {key: _replaced(one, paths) for key, one in value.items()}
    if isinstance(value, list):
        return [_replaced(one, paths) for one in value]
    return paths.get(value, value) if isinstance(value, str) else value


def _site(experiment: Experiment, resolved: ResolvedPlan, say: Say) -> Site:
    """The machine's own profile where the plan ran by such a one; else the one that came with the plan."""
    then = resolved.site
    if not experiment.manifest.get("site_of_machine", True):
        return then
    settings = [text for text in resolved.settings if text.startswith("sites/")]
    own = load_site(resolved.plan.site or "default", resolved.mode, settings)
    if own is not None:
        return own
    if then.executor == "slurm" and resolved.plan.site is None and shutil.which("sbatch") is None:
        say("no site profile and no Slurm here: it runs on this machine (`hpcbench init`)")
        return Site(name="default", description="built in: no `hpcbench init` was run")
    return then


def _require_data(resolved: ResolvedPlan) -> None:
    """Look whether what lay in folders is there."""
    problems = [
        Problem(
            f"{what} '{document.name}' was in {document.source}, which is not here",
            remedy=f"--source {document.name}=FOLDER says where it is",
        )
        for run_task in resolved.run_tasks
        for what, document in (("dataset", run_task.dataset), ("model", run_task.model))
        if document.source and "://" not in document.source and not Path(document.source).exists()
    ]
    if problems:
        raise UserError(*dict.fromkeys(problems))


def _without_lost_baseline(resolved: ResolvedPlan, say: Say) -> ResolvedPlan:
    """Without a baseline that this home does not have; the same plan is measured, and nothing judges it."""
    if resolved.plan.baseline is None:
        return resolved
    try:
        find(home(resolved.site), resolved.plan.baseline)
    except UserError as error:
        say(f"not judged against its baseline: {error}")
        plan = resolved.plan.model_copy(update={"baseline": None, "gate": None})
        return resolved.model_copy(update={"plan": plan, "gate": None})
    return resolved
