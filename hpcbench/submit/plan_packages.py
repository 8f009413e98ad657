"""A plan with its packages built, so that their plugins can be loaded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench import environments, plugins
from hpcbench.data.copies import Cache
from hpcbench.environments.plugin_packages import Locked, check_provides, host_folder, lock
from hpcbench.errors import Problem, UserError
from hpcbench.experiment.layout import (
    home,
)
from hpcbench.registry.catalog import Catalog, RunMode, user_site
from hpcbench.registry.resolve import Needed, load_plan, packages_of
from hpcbench.schema.package import LocalSource, Package
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


def load_with_packages(
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
    from hpcbench.monitor.devices import handles  # a slow import that Slurm's plans do not need

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
    dev = resolved.mode == "dev"
    copied = resolved.copied_packages
    locked = _locked(resolved.packages, cache, say, dev=dev, kept=kept, copied=copied)
    on_host = {name: resolved.packages[name] for name in resolved.host_packages}
    return Packages(_on_host(on_host, resolved.origins, locked, cache, say), locked)


def load_visible(read: Callable[[], ResolvedPlan], say: Say = lambda line: None) -> ResolvedPlan:
    """A plan for a verb of the login node, with the plugins of its packages importable in this process.

    Args:
        read: reads the plan; it is read again once the packages are built, and checked with their plugins.
        say: receives lines about slow steps.

    Raises:
        UserError: every mistake found; a package does not match its definition.
        EnvironmentFault: a package cannot be fetched or built.
    """
    resolved = read()
    if not resolved.host_packages:
        return resolved
    packages = {name: resolved.packages[name] for name in resolved.host_packages}
    needed = Needed(packages, resolved.origins)
    make_visible(needed, home(resolved.site) / "cache", say, dev=resolved.mode == "dev")
    return read()


def use(
    catalog: Catalog,
    say: Say,
    definitions: Iterable[tuple[str, str]] = (),
    named: Iterable[tuple[str, str]] = (),
) -> Path | None:
    """Make the plugins of definitions importable in this process: every verb finds what `submit` finds.

    Args:
        catalog: where names are looked up.
        say: receives lines about slow steps.
        definitions: kind and name of each definition.
        named: kind and name of plugins that no definition names.

    Returns:
        The folder of the packages; None: no package is needed.

    Raises:
        UserError: a package does not match its definition.
        EnvironmentFault: a package cannot be fetched or built.
    """
    needed = packages_of(catalog, definitions, named)
    return make_visible(needed, home(user_site()) / "cache", say, dev=catalog.mode == "dev")


def make_visible(needed: Needed, cache: Path, say: Say, *, dev: bool) -> Path | None:
    """Build packages, and make their plugins importable in this process.

    Args:
        needed: the packages; those of engines alone run inside images, and are left out.
        cache: for wheels and folders.
        say: receives lines about slow steps.
        dev: whether local folders may be editable, and branches may move.

    Returns:
        Their folder; None: there is none.

    Raises:
        UserError: a package does not match its definition.
        EnvironmentFault: a package cannot be fetched or built.
    """
    packages = {name: one for name, one in needed.packages.items() if one.on_host}
    locked = _locked(packages, cache, say, dev=dev)
    return _on_host(packages, needed.origins, locked, cache, say)


def _locked(
    packages: Mapping[str, Package],
    cache: Path,
    say: Say,
    *,
    dev: bool,
    kept: Mapping[str, Path] | None = None,
    copied: Collection[str] = (),
) -> dict[str, Locked]:
    problems: list[Problem] = []
    locked: dict[str, Locked] = {}
    for name, package in packages.items():
        try:
            path = package.source.path if package.source.type == "local" else ""
            folder = (kept or {}).get(path)
            locked[name] = lock(
                package, cache, dev=dev, say=say, kept=folder, copied=name in copied
            )
        except UserError as error:
            problems.extend(error.problems)
    if problems:
        raise UserError(*problems)
    return locked


def _on_host(
    packages: Mapping[str, Package],
    origins: Mapping[str, str],
    locked: Mapping[str, Locked],
    cache: Path,
    say: Say,
) -> Path | None:
    if not packages:
        return None
    folder = host_folder([locked[name] for name in packages], cache, say)
    check_provides(folder, packages, origins, locked)
    sources = [one.source for one in packages.values()]
    plugins.add_folder(folder, [Path(one.path) for one in sources if isinstance(one, LocalSource)])
    return folder
