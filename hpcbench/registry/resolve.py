"""Resolves a plan: looks up every name, checks every cross-reference, reports all mistakes at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.errors import Problem, UserError
from hpcbench.registry.catalog import Catalog, RunMode
from hpcbench.registry.lookup import ForScores, ordered
from hpcbench.registry.plugin_checks import Findings, PluginChecks
from hpcbench.registry.resolver import Resolver
from hpcbench.registry.settings import read_settings
from hpcbench.registry.source import Source, parse, validate
from hpcbench.registry.upgrade import upgrade
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.gate import Gate
from hpcbench.schema.kinds import KINDS
from hpcbench.schema.model import Model
from hpcbench.schema.package import Package
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.schema.run_task import RunTask
from hpcbench.schema.site import Site


def load_plan(
    path: Path,
    registries: Sequence[Path] = (),
    settings: Sequence[str] = (),
    mode: RunMode | None = None,
    *,
    locks: bool = True,
) -> ResolvedPlan:
    """Read a plan and every definition it names.

    Args:
        path: the plan's YAML file.
        registries: further registries; the last one wins.
        settings: `[KIND/NAME:]path.to.key=value`, the last overlay.
        mode: prod or dev; none: RUN_MODE of the environment.
        locks: whether prod requires locks; callers that only look need none.

    Raises:
        UserError: every mistake found in the plan and the definitions it names.
    """
    catalog = Catalog(registries, mode=mode, settings=read_settings(settings), plan=path)
    resolver = Resolver(catalog, locks=locks)
    return resolver.plan(*resolver.read(lambda: catalog.plan(path)))


def load_model(given: str, registries: Sequence[Path] = (), *, needs_secrets: bool = True) -> Model:
    """A model alone, by the name of its definition or by its file, with all its names resolved.

    Locks are not required: the result is not stored.

    Args:
        given: the name or the file.
        registries: registries besides the user's.
        needs_secrets: whether its secrets must be available here.

    Raises:
        UserError: every mistake found in the definition and in definitions it names.
    """
    resolver = Resolver(Catalog(registries), locks=False)
    resolver.checks.found.needs_secrets = needs_secrets
    return resolver.model(given)


def models_that_say(word: str, registries: Sequence[Path] = ()) -> Iterator[str]:
    """Names of the models whose files contain a word: a quick choice before they are resolved."""
    catalog = Catalog(registries)
    for name in catalog.names("models"):
        with contextlib.suppress(OSError, UserError):
            if any(
                word in path.read_text(encoding="utf-8") for path in catalog.files("models", name)
            ):
                yield name


def load_for_scores(
    metrics: Sequence[str], ml_task: str | None = None, registries: Sequence[Path] = ()
) -> ForScores:
    """Metrics, and perhaps an ML task, alone, with all their names resolved; locks are not required.

    Raises:
        UserError: every mistake found in these definitions and in definitions they name.
    """
    return Resolver(Catalog(registries), locks=False).for_scores(metrics, ml_task)


def load_site(name: str, mode: RunMode | None = None, settings: Sequence[str] = ()) -> Site | None:
    """This machine's own site profile of that name; None: it has none.

    Args:
        name: its name.
        mode: prod or dev; none: RUN_MODE of the environment.
        settings: as for `load_plan`.

    Raises:
        UserError: it is wrong.
    """
    catalog = Catalog(mode=mode, settings=read_settings(settings), project=False)
    return Resolver(catalog, locks=False).site(name) if catalog.files("sites", name) else None


def load_gate(given: str, registries: Sequence[Path] = ()) -> Gate:
    """A gate's policy alone, by the name of its definition or by its file.

    Raises:
        UserError: every mistake found in the definition.
    """
    return Resolver(Catalog(registries), locks=False).gate(given)


@dataclass(frozen=True, slots=True)
class DefinitionFindings:
    """Findings in one definition, right or wrong."""

    problems: tuple[Problem, ...] = ()
    """All mistakes in it and in the definitions it names; empty: it is right."""
    run_tasks: tuple[RunTask, ...] = ()
    """A plan's run tasks, as far as it can be read."""
    resolved: ResolvedPlan | None = None
    """The resolved plan, if it is right."""


def look(kind: str, path: Path, catalog: Catalog) -> DefinitionFindings:
    """Check one definition by its file as far as possible; mistakes in it raise nothing.

    Args:
        kind: its kind, a folder of a registry; a plan may be anywhere.
        path: its file, named as in the catalog.
        catalog: where names are looked up.
    """
    if kind == "experiments":
        return _look_at_plan(Resolver(catalog), lambda: catalog.plan(path), path)
    resolver = Resolver(catalog, locks=False)
    try:
        if (name := catalog.name(kind, path)) is not None:
            resolver.one(KINDS[kind], name)
            resolver.checks.prompts.conditions()
        else:
            what = f"the file is in no registry's {kind}/"
            remedy = "move it there, or name its registry with --registry"
            resolver.problems.append(Problem(what, str(path), 1, 1, remedy))
    except UserError as error:
        resolver.problems.extend(error.problems)
    return DefinitionFindings(tuple(ordered(resolver.problems, path)))


def look_at_text(
    text: str, path: Path, catalog: Catalog, *, locks: bool = True
) -> DefinitionFindings:
    """Check an unsaved plan, as `look` checks a file.

    Args:
        text: its YAML.
        path: the file for the text: its paths are relative to it, and problems name it.
        catalog: where names are looked up.
        locks: whether prod requires locks.
    """

    def read_plan() -> tuple[ExperimentPlan, Source]:
        source = upgrade("experiments", parse(path, text))
        return validate(ExperimentPlan, source), source

    return _look_at_plan(Resolver(catalog, locks=locks), read_plan, path)


def _look_at_plan(
    resolver: Resolver, read_plan: Callable[[], tuple[ExperimentPlan, Source]], path: Path
) -> DefinitionFindings:
    resolved = None
    try:
        resolved = resolver.plan(*resolver.read(read_plan))
    except UserError as error:
        resolver.problems.extend(error.problems)
    found = tuple(ordered(resolver.problems, path))
    return DefinitionFindings(found, tuple(resolver.expanded), resolved)


@dataclass(frozen=True, slots=True)
class Needed:
    """Packages that definitions name, or that provide the plugins they name."""

    packages: Mapping[str, Package]
    """Name → its definition, paths absolute."""
    origins: Mapping[str, str]
    """`packages/NAME` → the file that contains it."""


def packages_of(
    catalog: Catalog,
    definitions: Iterable[tuple[str, str]] = (),
    plugins: Iterable[tuple[str, str]] = (),
) -> Needed:
    """The packages of definitions and plugins, by the rule that a plan's packages follow.

    Mistakes in these definitions raise nothing: their readers report them.

    Args:
        catalog: where names are looked up.
        definitions: kind and name of each definition.
        plugins: kind and name of plugins that no definition names.
    """
    resolver = Resolver(catalog, locks=False)
    checks = resolver.checks.plugins
    for kind, name in definitions:
        resolver.one(KINDS[kind], name)
    for kind, name in plugins:
        provider = checks.provider(kind, name)
        if provider is not None:
            checks.package(provider, Source(Path(f"{kind}/{name}"), None), ())
    return Needed(checks.packages, checks.origins)


def packaged(catalog: Catalog, kind: str) -> dict[str, str]:
    """Plugins of a kind that packages of the registries provide: name → name of the package."""
    return PluginChecks(catalog, Findings([]), prod=False).provided(kind)


def check_registries(
    registries: Sequence[Path] = (), mode: RunMode | None = None
) -> tuple[int, Needed]:
    """Read every definition of the search path and check its names.

    Locks are not required: a definition may lack its digest until a plan uses it.

    Returns:
        The number of definitions, and the packages that they need.

    Raises:
        UserError: every mistake found.
    """
    resolver = Resolver(Catalog(registries, mode=mode), locks=False)
    count = resolver.everything()
    return count, Needed(resolver.checks.plugins.packages, resolver.checks.plugins.origins)
