"""Plugins and packages that definitions name: whether they are here, fit, and are locked for prod.

A packaged plugin is checked only by its definition; once the package is built and on the path, the same
checks load the plugin itself.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from hpcbench import plugins, secret
from hpcbench.errors import EnvironmentFault, Problem, UserError, unknown
from hpcbench.installed import install_hint, is_met, requirements
from hpcbench.registry.catalog import Catalog
from hpcbench.registry.paths import with_absolute_paths
from hpcbench.registry.source import Loc, Source
from hpcbench.schema.metric import Metric
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model
from hpcbench.schema.package import Package, PackageEntry, RequirementSource
from hpcbench.schema.run_task import RunTask


class Findings:
    """The mistakes found so far, and the keys checked so far."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        self.needs_secrets = True
        """Whether the secrets of a definition must be available here."""
        self._seen: set[Any] = set()

    def first(self, *key: Any) -> bool:
        """Whether this is the first call with this key."""
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def say(
        self,
        source: Source,
        loc: Loc,
        message: str,
        remedy: str | None = None,
        *,
        at_key: bool = False,
    ) -> None:
        """Add a mistake at its place in a definition."""
        self.problems.append(source.problem(loc, message, remedy, at_key=at_key))

    def references(self, value: Any, source: Source, loc: Loc) -> None:
        """Check that the secrets of a definition are available here, if they must be."""
        if not self.needs_secrets:
            return
        if isinstance(value, str):
            for message, remedy in secret.missing(value):
                self.say(source, loc, message, remedy)
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                self.references(inner, source, (*loc, key))

    def secrets(
        self, values: Mapping[str, Any], source: Source, loc: Loc, shown: str | None = None
    ) -> None:
        """Check that secrets among values by name are available here, and not in plain text.

        Args:
            values: name → value.
            source: the definition's file.
            loc: place of the values.
            shown: name of a variable in the remedy; None: that of the value.
        """
        for name, value in values.items():
            self.references(value, source, (*loc, name))
            if isinstance(value, str) and secret.written_out(name, value):
                what = f"{name} contains a secret in plain text"
                remedy = f"write ${{env:{shown or name}}} and export it, or ${{file:PATH}}"
                self.say(source, (*loc, name), what, remedy)


class PluginChecks:
    """Finds plugins and packages; each package is checked once."""

    def __init__(self, catalog: Catalog, found: Findings, *, prod: bool) -> None:
        self.catalog, self.found, self.prod = catalog, found, prod
        self.packages: dict[str, Package] = {}
        """Used packages."""
        self.origins: dict[str, str] = {}
        """`packages/NAME` → the file that contains it."""
        self._providers: dict[str, dict[str, str]] | None = None
        self._engine_of: dict[str, tuple[str, ...]] = {}

    def plugin(
        self,
        kind: str,
        name: str,
        source: Source,
        loc: Loc,
        package: str | None = None,
        *,
        elsewhere: bool = False,
    ) -> Any:
        """The plugin's class; None and perhaps a problem if it cannot be loaded here.

        A plugin that runs `elsewhere`, in an image, need not be here.
        """
        provider = package or self.provider(kind, name)
        if provider is not None:
            at = ("package",) if package else loc
            brought = self.package(provider, source, at)
            known = brought.provides.get(kind, ()) if brought is not None else ()  # type: ignore[call-overload]
            if brought is not None and brought.provides and name not in known and "." not in name:
                what = unknown(plugins.called(kind), name, known, of=f"package '{provider}'")
                remedy = (
                    f"if the package has it, add it to `provides` in {own}"
                    if (own := self.origins.get(f"packages/{provider}"))
                    else None
                )
                self.found.say(source, loc, what, remedy)
                return None
        if elsewhere and not plugins.ships(kind, name):
            return None  # the image says whether it has the plugin
        point = plugins.find(kind, name)
        if point is None:
            if provider is None:
                what = unknown(plugins.called(kind), name, plugins.available(kind))
                self.found.say(source, loc, what)
            return None
        if name not in plugins.available(kind) and absent(point.module):
            if provider is None:
                self.found.say(
                    source, loc,
                    f"{plugins.called(kind)} '{name}' needs module '{point.module}', which is not installed",
                    "name the package that provides it: `package: NAME`",
                )  # fmt: skip
            return None
        if provider is not None and kind == "engines":
            return None  # it is installed beside the engine; the copy here may be another version
        try:
            return plugins.load(kind, name)
        except EnvironmentFault as fault:
            self.found.say(source, loc, fault.message, fault.remedy)
            return None

    def known(self, kind: str, name: str) -> bool:
        """Whether a plugin of this name is installed, or a package definition provides it."""
        return name in plugins.available(kind) or self.provider(kind, name) is not None

    def loaded(self, kind: str, name: str) -> Any:
        """The plugin's class if it can be loaded; another check reports its absence."""
        if self.provider(kind, name) is not None and kind == "engines":
            return None
        try:
            return plugins.load(kind, name) if plugins.find(kind, name) is not None else None
        except (EnvironmentFault, UserError):
            return None

    def provider(self, kind: str, name: str) -> str | None:
        """The package definition whose `provides` names this plugin."""
        return self.provided(kind).get(name)

    def provided(self, kind: str) -> dict[str, str]:
        """Plugins of a kind that package definitions provide, each with the package's name."""
        if self._providers is None:
            self._providers = {}
            for package in self.catalog.names("packages"):
                try:
                    found = self.catalog.get(Package, package)
                except UserError:
                    continue  # reported when the package is used
                for provided, names in found.provides.items():
                    for one in names:
                        self._providers.setdefault(provided, {}).setdefault(one, package)
        return self._providers.get(kind, {})

    def package(self, entry: str | Package, source: Source, loc: Loc) -> Package | None:
        """A package of the plan, by name or inline."""
        if isinstance(entry, Package):
            package, own = with_absolute_paths(entry, source), source
            if self.found.first("inline", entry.name):
                self.locked(package, source, (*loc, "source"))
        elif not self.catalog.files("packages", entry):
            return self._requirement(entry, source, loc)
        else:
            try:
                found, own = self.catalog.get_with_source(Package, entry, (source, loc))
            except UserError as error:
                self.found.problems.extend(error.problems)
                return None
            package = with_absolute_paths(found, own)
            if self.found.first(Package, package.name):
                self.locked(package, own, ("source",))
        self.packages[package.name] = package
        self.origins[f"packages/{package.name}"] = str(own.path)
        return package

    def _requirement(self, line: str, source: Source, loc: Loc) -> Package | None:
        """The package of a plain requirement; a name that resembles a definition's is a mistake."""
        known = self.catalog.names("packages")
        what = unknown("package", line, known)
        if "did you mean" in what:
            self.found.say(source, loc, what)
            return None
        try:
            package = required(line)
        except UserError as error:
            self.found.say(source, loc, what, error.problems[0].remedy)
            return None
        self.packages[line] = package
        self.origins[f"packages/{line}"] = str(source.path)
        return package

    def locked(self, package: Package, source: Source, loc: Loc) -> None:
        """Check that a package with absolute paths is locked: `prod` accepts only fixed contents."""
        origin = package.source
        if origin.type == "local":
            if Path(origin.path).is_file():
                self.found.say(
                    source, (*loc, "path"), f"not a folder: {origin.path}",
                    f"a wheel is a requirement: {{type: requirement, line: \"NAME @ file://{origin.path}\"}}",
                )  # fmt: skip
            elif not Path(origin.path).is_dir():
                self.found.say(
                    source, (*loc, "path"), f"no such folder: {origin.path}",
                    f"a path is relative to the folder of this file, {source.path.parent}",
                )  # fmt: skip
            elif self.prod:
                self.found.say(
                    source, loc, f"package '{package.name}' is a local folder, which can change",
                    "name a git tag or a version, or set RUN_MODE=dev",
                )  # fmt: skip
            elif not (Path(origin.path) / "pyproject.toml").is_file():
                self.found.say(
                    source, (*loc, "path"), f"no package: {origin.path} has no pyproject.toml",
                    "name the folder that has it, or add it",
                )  # fmt: skip
        elif origin.type == "git":
            self.found.references(origin.url, source, (*loc, "url"))
            if origin.ref is None and self.prod:
                self.found.say(
                    source, loc, f"package '{package.name}' names no commit or tag",
                    "add `ref: TAG`, or set RUN_MODE=dev",
                )  # fmt: skip
        elif origin.type == "pypi":
            self.found.references(origin.index, source, (*loc, "index"))
            if origin.version is None and self.prod:
                self.found.say(
                    source, loc, f"package '{package.name}' names no version",
                    "add `version: X.Y.Z`, or set RUN_MODE=dev",
                )  # fmt: skip

    def options(self, plugin: Any, options: Mapping[str, Any], source: Source, loc: Loc) -> None:
        if plugin is None:
            return
        for where, message in plugins.check_options(plugin, options):
            self.found.say(source, (*loc, *where), message, at_key=True)

    def metric_packages(self, metric: Metric) -> tuple[str, ...]:
        """Packages that must be importable where a metric scores."""
        named = [metric.package, self.provider("metrics", metric.plugin)]
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def required_packages(self, ml_task: MLTask) -> tuple[str, ...]:
        """Packages that an ML task's definition requires where its metrics score."""
        return () if ml_task.module is not None else names_of(ml_task.required_packages)

    def packages_beside(self, model: Model, ml_task: MLTask, task: RunTask) -> tuple[str, ...]:
        """Packages that must be importable beside an engine: its own, and those of the ML task's module."""
        found = self.engine_packages(model)
        if ml_task.module is not None:
            found = (*found, *names_of((*ml_task.required_packages, *task.packages)))
        return tuple(dict.fromkeys(found))

    def engine_packages(self, model: Model) -> tuple[str, ...]:
        """Packages that must be importable beside a model's engine."""
        if model.name not in self._engine_of:
            named = [model.package, self.provider("engines", model.engine)]
            found = dict.fromkeys(name for name in named if name is not None)
            self._engine_of[model.name] = tuple(found)
        return self._engine_of[model.name]

    def protocol_packages(
        self, task: RunTask, model: Model, source: Source, loc: Loc
    ) -> tuple[str, ...]:
        """Requirements that must be importable beside a model's engine for a run task's protocol.

        The worker needs them in this Python, too; it is a mistake if they are missing.
        """
        if task.protocol != "grpc":
            return ()
        # The other packages of the extra are for clients of `serve`.
        lines = tuple(line for line in requirements("grpc") if line.startswith("protobuf"))
        if missing := [line for line in lines if not is_met(line)]:
            what = f"`protocol: grpc` needs {missing[0]}, which this Python does not have"
            self.found.say(source, loc, what, install_hint("grpc"))
        if model.image is None:
            return ()
        for line in lines:
            self._requirement(line, source, loc)
        return lines


def names_of(entries: Iterable[PackageEntry]) -> tuple[str, ...]:
    """Names of packages; one without a definition has its requirement as its name."""
    return tuple(one if isinstance(one, str) else one.name for one in entries)


def required(line: str) -> Package:
    """The package of a requirement as pip writes it.

    Raises:
        UserError: it is none.
    """
    try:
        name = Requirement(line).name
    except InvalidRequirement:
        remedy = "write the name of a definition, or a requirement such as `torch>=2.4`"
        raise UserError(f"'{line}' is not a requirement", remedy=remedy) from None
    return Package(name=name, source=RequirementSource(type="requirement", line=line))


def failed(plugin: str, error: Exception) -> str:
    """The message that foreign code failed, with its error."""
    return f"plugin '{plugin}' fails: {type(error).__name__}: {str(error)[:200]}"


def absent(module: str) -> bool:
    """Whether there is no such module here."""
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is None
    except (ImportError, ValueError):
        return True
