"""Finds definitions by kind and name in the registries; later registries override earlier ones.

Order: the shipped registry, the site's (`HPCBENCH_SITE`, else /etc/hpcbench), the user's own
(`~/.config/hpcbench`), the project's (`./registries`), then each `--registry DIR`. The last registry with
`KIND/NAME.yaml` provides the definition. With RUN_MODE=dev every `NAME.dev.yaml` in the same or a later
registry is an overlay on it, in that order; `--set` comes last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar, cast

from hpcbench.errors import Problem, UserError, unknown
from hpcbench.registry.registry_dirs import share_dir as share_dir
from hpcbench.registry.registry_dirs import site_dir as site_dir
from hpcbench.registry.registry_dirs import user_dir as user_dir
from hpcbench.registry.settings import Setting
from hpcbench.registry.source import Loc, Source, overlay, parse, read, validate
from hpcbench.registry.upgrade import FOLDERS as OLD_FOLDERS
from hpcbench.registry.upgrade import upgrade
from hpcbench.schema.definitions import KINDS, Definition, ExperimentPlan, Site

DefinitionT = TypeVar("DefinitionT", bound=Definition)

RunMode = Literal["prod", "dev"]

FOLDERS = {model: kind for kind, model in KINDS.items()}
"""Kind of definition → its folder in a registry."""


def run_mode() -> RunMode:
    """RUN_MODE of the environment; `prod` where it is not set.

    Raises:
        UserError: it is neither prod nor dev.
    """
    mode = os.environ.get("RUN_MODE") or "prod"
    if mode not in ("prod", "dev"):
        raise UserError(f"RUN_MODE is '{mode}'", remedy="set it to prod or dev")
    return cast("RunMode", mode)


def user_site() -> Site | None:
    """The site profile that applies without a plan; None: there is none.

    Raises:
        UserError: it is wrong.
    """
    catalog = Catalog(project=False)
    return catalog.get(Site, "default") if catalog.files("sites", "default") else None


@dataclass(frozen=True, slots=True)
class Registry:
    """One folder of the search path."""

    label: str
    """`shipped`, `site`, `user`, `project` or `--registry`."""
    folder: Path
    """Its folder."""


class Catalog:
    """All definitions by kind and name; each file is read once, on the first request.

    Args:
        registries: further registries; the last one wins.
        mode: prod or dev; none: RUN_MODE of the environment.
        settings: the last overlay.
        project: whether `./registries` counts.
        texts: file → text to use instead of its content: an editor's unsaved text.
    """

    def __init__(
        self,
        registries: Sequence[Path] = (),
        *,
        mode: RunMode | None = None,
        settings: Sequence[Setting] = (),
        project: bool = True,
        texts: Mapping[Path, str] | None = None,
    ) -> None:
        for folder in registries:
            if not folder.is_dir():
                raise UserError(
                    Problem("no such folder", str(folder), remedy="check --registry DIR")
                )
        self.mode: RunMode = mode or run_mode()
        self.settings = settings
        self._texts = {path.resolve(): text for path, text in (texts or {}).items()}
        path = [
            Registry("shipped", share_dir() / "registries"),
            Registry("site", site_dir()),
            Registry("user", user_dir()),
            *([Registry("project", Path("registries"))] if project else []),
            *(Registry("--registry", folder) for folder in registries),
        ]
        # A checkout's ./registries is the shipped registry: one folder counts once, at its lowest place.
        once: dict[Path, Registry] = {}
        for one in path:
            once.setdefault(one.folder.resolve(), one)
        self.registries = list(once.values())
        self._loaded: dict[tuple[str, str], tuple[Definition, Source]] = {}
        self._failed: dict[tuple[str, str], UserError] = {}
        self._files: dict[str, dict[str, list[Path]]] = {}

    def names(self, kind: str) -> list[str]:
        """Names of all definitions of a kind."""
        return sorted(name for name, files in self._index(kind).items() if _base(files) is not None)

    def files(self, kind: str, name: str) -> list[Path]:
        """The files of a definition: the base that counts, then its overlays."""
        files = self._index(kind).get(name, [])
        base = _base(files)
        if base is None:
            return []
        above = files[files.index(base) + 1 :]
        return [base, *(path for path in above if _is_overlay(path) and self.mode == "dev")]

    def hidden(self, kind: str, name: str) -> list[Path]:
        """Files of that name that do not count: replaced by a later registry, or overlays outside dev."""
        counting = self.files(kind, name)
        return [path for path in self._index(kind).get(name, []) if path not in counting]

    def name(self, kind: str, path: Path) -> str | None:
        """Name of the definition that a file has by its path; None: the file is in no registry."""
        whole = path.resolve()
        for registry in self.registries:
            for folder in (kind, *OLD_FOLDERS.get(kind, ())):
                top = registry.folder.resolve() / folder
                if top in whole.parents:
                    return _named(whole.relative_to(top).as_posix())
        return None

    def label(self, path: Path) -> str:
        """The registry of the search path that contains a file."""
        for registry in reversed(self.registries):
            if registry.folder in path.parents:
                return registry.label
        return "plan"

    def get(
        self, model: type[DefinitionT], name: str, asked: tuple[Source, Loc] | None = None
    ) -> DefinitionT:
        """The definition of that kind and name.

        Args:
            model: kind of definition.
            name: its name.
            asked: where the name is written, for the error.

        Raises:
            UserError: there is none, or it is wrong.
        """
        return self.get_with_source(model, name, asked)[0]

    def get_with_source(
        self, model: type[DefinitionT], name: str, asked: tuple[Source, Loc] | None = None
    ) -> tuple[DefinitionT, Source]:
        """The definition and its source; see `get`."""
        key = (FOLDERS[model], name)
        if key in self._failed:
            raise self._failed[key]
        if key not in self._loaded:
            files = self.files(*key)
            if not files:
                what = key[0].removesuffix("s").replace("_", " ").replace("ml ", "ML ")
                message = unknown(what, name, self.names(key[0]))
                raise UserError(asked[0].problem(asked[1], message) if asked else Problem(message))
            try:
                self._loaded[key] = self._load(model, files, name)
            except UserError as error:
                self._failed[key] = error
                raise
        return cast("tuple[DefinitionT, Source]", self._loaded[key])

    def plan(self, path: Path) -> tuple[ExperimentPlan, Source]:
        """A plan by its file, with its own overlay and all settings that name no definition."""
        beside = path.parent / f"{path.stem}.dev.yaml"
        laid = self.mode == "dev" and (beside.resolve() in self._texts or beside.is_file())
        files = [path, *([beside] if laid else [])]
        return self._load(ExperimentPlan, files)

    def _load(
        self, model: type[DefinitionT], files: Sequence[Path], name: str | None = None
    ) -> tuple[DefinitionT, Source]:
        kind = FOLDERS[model]
        source = upgrade(kind, self._read(files[0]))
        for path in files[1:]:
            source = overlay(source, upgrade(kind, self._read(path)))
        for setting in self.settings:
            if setting.definition == (None if name is None else f"{kind}/{name}"):
                source = setting.applied(source)
        definition = validate(model, source)
        if name is not None and definition.name != name:
            raise UserError(
                source.problem(
                    ("name",),
                    f"the definition's name is '{definition.name}', but its file's name is '{name}'",
                    "rename one of them",
                )
            )
        return definition, source

    def _read(self, path: Path) -> Source:
        text = self._texts.get(path.resolve()) if self._texts else None
        return read(path) if text is None else parse(path, text)

    def _index(self, kind: str) -> dict[str, list[Path]]:
        """Name → its files and overlays, from the lowest registry to the highest."""
        if kind not in self._files:
            found: dict[str, list[Path]] = {}
            for registry in self.registries:
                for path, name in _definitions(registry.folder, (kind, *OLD_FOLDERS.get(kind, ()))):
                    found.setdefault(name, []).append(path)
            for path in self._texts:
                stands_for = self.name(kind, path)
                known = {one.resolve() for one in found.get(stands_for or "", ())}
                if stands_for is not None and path not in known:
                    found.setdefault(stands_for, []).append(path)
            self._files[kind] = found
        return self._files[kind]


def load_definition(
    model: type[DefinitionT], path: Path, name: str | None = None
) -> tuple[DefinitionT, Source]:
    """Read one definition from a file without overlays; with `name`, the definition must have this name.

    Raises:
        UserError: every mistake in it.
    """
    return Catalog(mode="prod", project=False)._load(model, [path], name)


def _definitions(registry: Path, folders: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Files of a kind in a registry with their definitions' names; an overlay comes after its base."""
    for folder in folders:
        top = str(registry / folder)
        found = [
            os.path.join(parent, file)  # noqa: PTH118 - thousands of files: Path would be most of the time
            for parent, _, files in os.walk(top)
            for file in files
            if file.endswith(".yaml")
        ]
        named = ((_named(path[len(top) + 1 :]), path) for path in found)
        for name, path in sorted(named, key=lambda one: (one[0], one[1].endswith(".dev.yaml"))):
            yield Path(path), name


def _named(file: str) -> str:
    """Name of the definition that a file below its kind's folder belongs to."""
    return file.removesuffix(".yaml").removesuffix(".dev")


def _is_overlay(path: Path) -> bool:
    return path.name.endswith(".dev.yaml")


def _base(files: Sequence[Path]) -> Path | None:
    """The file that counts: the highest that is no overlay."""
    return next((path for path in reversed(files) if not _is_overlay(path)), None)
