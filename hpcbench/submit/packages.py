"""A plan with its packages built, so that their plugins can be loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench import environments, plugins
from hpcbench.data.cache import Cache
from hpcbench.environments.plugin_packages import Locked, check_provides, host_folder, lock
from hpcbench.errors import Problem, UserError
from hpcbench.experiment.layout import (
    home,
)
from hpcbench.registry.catalog import Catalog, RunMode
from hpcbench.registry.paths import with_absolute_paths
from hpcbench.registry.resolve import load_plan
from hpcbench.schema.definitions import Package
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.submit import Say
from hpcbench.submit.image_check import judge, refuse
from hpcbench.submit.plan_facts import look


@dataclass(frozen=True, slots=True)
class Packages:
    """The built packages of a plan."""

    host: Path | None
    """Folder of packages for hpcbench's own Python; None: it needs no package."""
    locked: Mapping[str, Locked]
    """Package → its locked sources."""


NO_PACKAGES = Packages(None, {})


def load(
    plan: Path,
    registries: Sequence[Path] = (),
    settings: Sequence[str] = (),
    *,
    mode: RunMode | None = None,
    say: Say = lambda line: None,
) -> tuple[ResolvedPlan, Packages]:
    """Read a plan, build its packages, and check the plan again with their plugins.

    Raises:
        UserError: every mistake found; a package does not match its definition.
        EnvironmentFault: a package cannot be fetched or built.
    """
    resolved = load_plan(plan, registries, settings, mode)
    if not resolved.packages:
        return on_all_gpus(resolved), Packages(None, {})
    cache = Cache(home(resolved.site) / "cache", resolved.site)
    refuse(judge(resolved, look(resolved, cache), plan))
    packages = build(resolved, say)
    return on_all_gpus(load_plan(plan, registries, settings, mode)), packages


def on_all_gpus(resolved: ResolvedPlan) -> ResolvedPlan:
    """A local plan without `parallelism`, with as many workers as this machine's GPUs allow."""
    if resolved.executor != "local" or "parallelism" in resolved.plan.model_fields_set:
        return resolved
    manager = resolved.site.container.manager
    needs = [
        run_task.model.gpus
        for run_task in resolved.run_tasks
        if environments.kind_of(run_task.model.image, manager) not in environments.ELSEWHERE
    ]
    if not any(needs):
        return resolved
    from hpcbench.monitor import handles  # a slow import that Slurm's plans do not need

    workers = len(handles()) // min(filter(None, needs))
    plan = resolved.plan.model_copy(update={"parallelism": max(1, workers)})
    return resolved.model_copy(update={"plan": plan})


def build(resolved: ResolvedPlan, say: Say, kept: Mapping[str, Path] | None = None) -> Packages:
    """Build the packages of a plan, and make the host's packages importable.

    Args:
        resolved: the plan.
        say: receives lines about slow steps.
        kept: folder of a local package → present folder of its files.

    Raises:
        UserError: a package does not match its definition.
        EnvironmentFault: a package cannot be fetched or built.
    """
    cache = home(resolved.site) / "cache"
    problems: list[Problem] = []
    locked: dict[str, Locked] = {}
    for name, package in resolved.packages.items():
        try:
            path = package.source.path if package.source.type == "local" else ""
            folder = (kept or {}).get(path)
            dev = resolved.mode == "dev"
            locked[name] = lock(package, cache, dev=dev, say=say, kept=folder)
        except UserError as error:
            problems.extend(error.problems)
    if problems:
        raise UserError(*problems)
    names = resolved.host_packages
    if not names:
        return Packages(None, locked)
    say(f"installing {', '.join(names)} and their dependencies")
    folder = host_folder([locked[name] for name in names], cache)
    on_host = {name: resolved.packages[name] for name in names}
    check_provides(folder, on_host, resolved.origins)
    plugins.add_folder(folder)
    return Packages(folder, locked)


def use(names: Sequence[str], catalog: Catalog, cache: Path, say: Say) -> None:
    """Build packages that definitions name, and make their plugins importable in this process.

    Raises:
        UserError: a package is unknown or does not match its definition.
        EnvironmentFault: a package cannot be fetched or built.
    """
    if not names:
        return
    found = {name: catalog.get_with_source(Package, name) for name in names}
    packages = {name: with_absolute_paths(*one) for name, one in found.items()}
    dev = catalog.mode == "dev"
    locked = [lock(package, cache, dev=dev, say=say) for package in packages.values()]
    say(f"installing {', '.join(packages)} and what they need")
    folder = host_folder(locked, cache)
    origins = {f"packages/{name}": str(source.path) for name, (_, source) in found.items()}
    check_provides(folder, packages, origins)
    plugins.add_folder(folder)
