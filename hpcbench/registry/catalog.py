"""Finds definitions by kind and name in the registries; later registries override earlier ones.

Order: the shipped registry, the site's (`HPCBENCH_SITE`, else /etc/hpcbench), the user's own
(`~/.config/hpcbench`), the project's (`./registries`), the plan's (`registries` beside it, or FOLDER of
`FOLDER/experiments/plan.yaml`), then each `--registry DIR`. A definition answers to the path of its file
below its kind, without `.yaml`, and to its `name`. The last registry with a definition that answers
provides it; where none answers, case does not count. With RUN_MODE=dev every `PATH.dev.yaml` in the same or
a later registry is an overlay on it, in that order; `--set` comes last.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeVar, cast

from hpcbench.errors import Problem, UserError, unknown
from hpcbench.files.user import read_text
from hpcbench.registry.registry_dirs import share_dir as share_dir
from hpcbench.registry.registry_dirs import site_dir as site_dir
from hpcbench.registry.registry_dirs import user_dir as user_dir
from hpcbench.registry.settings import Setting
from hpcbench.registry.source import (
    MAX_BYTES,
    Loc,
    Source,
    other_ending,
    overlay,
    parse,
    read,
    validate,
)
from hpcbench.registry.upgrade import FOLDERS as OLD_FOLDERS
from hpcbench.registry.upgrade import upgrade
from hpcbench.schema.definition import Definition
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.kinds import KINDS
from hpcbench.schema.names import case_blind, spelling
from hpcbench.schema.site import Site

DefinitionT = TypeVar("DefinitionT", bound=Definition)

RunMode = Literal["prod", "dev"]

FOLDERS = {model: kind for kind, model in KINDS.items()}
"""Kind of definition → its folder in a registry."""

_NAME = re.compile(
    r"""^name:[ \t]+(?:"([^"\\\n]*)"|([^\W_][\w ./-]*?))[ \t]*\r?$(?!\s+^[ \t])""", re.MULTILINE
)
"""The name in a usual definition, without reading all of it."""


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
    """`shipped`, `site`, `user`, `project`, `plan` or `--registry`."""
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
        plan: a plan; the registry that it brings counts.
    """

    def __init__(
        self,
        registries: Sequence[Path] = (),
        *,
        mode: RunMode | None = None,
        settings: Sequence[Setting] = (),
        project: bool = True,
        texts: Mapping[Path, str] | None = None,
        plan: Path | None = None,
    ) -> None:
        for folder in registries:
            if not folder.is_dir():
                raise UserError("no such folder", file=folder, remedy="check --registry DIR")
        self.mode: RunMode = mode or run_mode()
        self.settings = settings
        self._texts = {path.resolve(): text for path, text in (texts or {}).items()}
        path = [
            Registry("shipped", share_dir() / "registries"),
            Registry("site", site_dir()),
            Registry("user", user_dir()),
            *([Registry("project", Path("registries"))] if project else []),
            *([Registry("plan", _registry_of(plan))] if plan is not None else []),
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
        self._ranks: dict[Path, int] = {}
        self._titles: dict[str, dict[str, str]] = {}
        self._unread: dict[str, list[Problem]] = {}
        self._answers: dict[tuple[str, Callable[[str], str]], dict[str, list[str]]] = {}
        self._keys: dict[tuple[str, str], str | None] = {}

    def names(self, kind: str) -> list[str]:
        """Names of all definitions of a kind, as they are written in them."""
        return sorted({*self._named(kind).values()})

    def unread(self) -> list[Problem]:
        """Why files have no definition: no YAML, another ending; of the kinds that were named so far."""
        return [problem for problems in self._unread.values() for problem in problems]

    def key(self, kind: str, name: str) -> str | None:
        """Path below its kind of the definition that answers to a name; None: none does.

        Raises:
            UserError: two answer to it; names both files.
        """
        return self._key(kind, name, None)

    def files(self, kind: str, name: str) -> list[Path]:
        """The files of a definition: the base that counts, then its overlays.

        Raises:
            UserError: two definitions answer to the name.
        """
        return self._files_at(kind, self._key(kind, name, None))

    def _files_at(self, kind: str, key: str | None) -> list[Path]:
        files = self._index(kind).get(key, []) if key is not None else []
        base = _base(files)
        if base is None:
            return []
        above = files[files.index(base) + 1 :]
        return [base, *(path for path in above if _is_overlay(path) and self.mode == "dev")]

    def hidden(self, kind: str, name: str) -> list[Path]:
        """Files of that name that do not count: replaced by a later registry, or overlays outside dev."""
        key = self._key(kind, name, None)
        counting = self._files_at(kind, key)
        return [path for path in self._index(kind).get(key or name, []) if path not in counting]

    def name(self, kind: str, path: Path) -> str | None:
        """Path below its kind that a file's definition has; None: the file is in no registry."""
        whole = path.resolve()
        for registry in self.registries:
            for folder in (kind, *OLD_FOLDERS.get(kind, ())):
                top = registry.folder.resolve() / folder
                if top in whole.parents:
                    return _key_of(whole.relative_to(top).as_posix())
        return None

    def label(self, path: Path) -> str:
        """The registry of the search path that contains a file."""
        for registry in reversed(self.registries):
            if registry.folder in path.parents:
                return registry.label
        return "plan"

    def get(self, model: type[DefinitionT], name: str) -> DefinitionT:
        """The definition of that kind and name.

        Raises:
            UserError: there is none, or it is wrong.
        """
        return self.get_with_source(model, name)[0]

    def get_with_source(
        self, model: type[DefinitionT], name: str, asked: tuple[Source, Loc] | None = None
    ) -> tuple[DefinitionT, Source]:
        """The definition and its source, see `get`; `asked`: where the name is written, for the error."""
        kind = FOLDERS[model]
        found = self._key(kind, name, asked)
        if found is None:
            message = unknown(_called(kind), name, self.names(kind))
            problem = asked[0].problem(asked[1], message) if asked else Problem(message)
            # A file that is no YAML says no name: it may be the one.
            raise UserError(problem, *self._unread.get(kind, ()))
        key = (kind, found)
        if key in self._failed:
            raise self._failed[key]
        if key not in self._loaded:
            try:
                self._loaded[key] = self._load(model, self._files_at(*key), found)
            except UserError as error:
                self._failed[key] = error
                raise
        return cast("tuple[DefinitionT, Source]", self._loaded[key])

    def plan_called(self, name: str) -> Path | None:
        """The file of the plan that answers to a name; None: none does.

        Raises:
            UserError: two answer to it; names both files.
        """
        files = self.files(FOLDERS[ExperimentPlan], name)
        return files[0] if files else None

    def plan(self, path: Path) -> tuple[ExperimentPlan, Source]:
        """A plan by its file, with its own overlay and all settings that name no definition."""
        beside = path.parent / f"{path.stem}.dev.yaml"
        laid = self.mode == "dev" and (beside.resolve() in self._texts or beside.is_file())
        files = [path, *([beside] if laid else [])]
        return self._load(ExperimentPlan, files)

    def _load(
        self, model: type[DefinitionT], files: Sequence[Path], key: str | None = None
    ) -> tuple[DefinitionT, Source]:
        kind = FOLDERS[model]
        source = upgrade(kind, self._read(files[0]))
        for path in files[1:]:
            source = overlay(source, upgrade(kind, self._read(path)))
        for setting in self.settings:
            if self._meant(setting, kind) == key:
                source = setting.applied(source)
        return validate(model, source), source

    def _meant(self, setting: Setting, kind: str) -> str | None:
        """Key of the definition of that kind that a setting changes; None: the plan; empty: another one."""
        if setting.definition is None:
            return None
        of_kind, _, name = setting.definition.partition("/")
        return (self._key(kind, name, None) or "") if of_kind == kind else ""

    def _read(self, path: Path) -> Source:
        text = self._texts.get(path.resolve()) if self._texts else None
        if text is None and self._ranks.get(path) == 0:
            return _shipped(path, read_text(path, MAX_BYTES))
        return read(path) if text is None else parse(path, text)

    def _key(self, kind: str, name: str, asked: tuple[Source, Loc] | None) -> str | None:
        """See `key`."""
        if (kind, name) not in self._keys:  # a check of a plan asks for each name hundreds of times
            self._keys[kind, name] = self._searched(kind, name, asked)
        return self._keys[kind, name]

    def _searched(self, kind: str, name: str, asked: tuple[Source, Loc] | None) -> str | None:
        """See `key`."""
        for form in (spelling, case_blind):
            found = self._answering(kind, form).get(form(name), [])
            files = {file: key for key in found for file in self._bases(kind, key)}
            if form is spelling and files:
                highest = max(map(self._rank, files))
                files = {file: key for file, key in files.items() if self._rank(file) == highest}
            if len(files) > 1:
                others = " and ".join(map(str, files))
                what = f"{len(files)} definitions of {kind}/ answer to the name '{name}': {others}"
                remedy = "rename one of them"
                if form is case_blind:
                    remedy = "write the name of one of them in its own case"
                if asked is not None:
                    raise UserError(asked[0].problem(asked[1], what, remedy))
                raise UserError(Problem(what, str([*files][-1]), 1, 1, remedy))
            for key in files.values():
                return key
        return None

    def _answering(self, kind: str, form: Callable[[str], str]) -> dict[str, list[str]]:
        """Name or key, in a form → keys of the definitions that answer to it."""
        if (kind, form) not in self._answers:
            found = self._answers[kind, form] = {}
            for key, title in self._named(kind).items():
                for answer in dict.fromkeys((form(key), form(title))):
                    found.setdefault(answer, []).append(key)
        return self._answers[kind, form]

    def _bases(self, kind: str, key: str) -> list[Path]:
        """The file that counts, and others of the same key in the same registry: old folders, too."""
        files = [file for file in self._index(kind)[key] if not _is_overlay(file)]
        return [file for file in files if self._rank(file) == self._rank(files[-1])]

    def _rank(self, file: Path) -> int:
        """Number of the registry that contains a file; an unsaved text counts as the highest."""
        return self._ranks.get(file, len(self.registries))

    def _named(self, kind: str) -> dict[str, str]:
        """Key of each definition → its name; the key where its file says none that can be read."""
        if kind not in self._titles:
            found = self._titles[kind] = {}
            for key, files in self._index(kind).items():
                if (base := _base(files)) is not None:
                    shipped = self._rank(base) == 0
                    title = None if shipped else self._title(kind, base)
                    found[key] = title or key
        return self._titles[kind]

    def _title(self, kind: str, path: Path) -> str | None:
        """The `name` in a file; None: it has none, or cannot be read, which is noted."""
        try:
            text = self._texts.get(path.resolve()) if self._texts else None
            text = read_text(path, MAX_BYTES) if text is None else text
            if (quick := _NAME.search(text)) is not None:
                return quick[1] or quick[2]
            title = parse(path, text).data.get("name")
            return title if isinstance(title, str) else None
        except UserError as error:
            self._unread.setdefault(kind, []).extend(error.problems)
            return None

    def _index(self, kind: str) -> dict[str, list[Path]]:
        """Key of each definition → its files and overlays, from the lowest registry to the highest."""
        if kind not in self._files:
            found: dict[str, list[Path]] = {}
            for rank, registry in enumerate(self.registries):
                for path, name in _definitions(registry.folder, (kind, *OLD_FOLDERS.get(kind, ()))):
                    if path.suffix == ".yml":
                        self._unread.setdefault(kind, []).append(other_ending(path))
                        continue
                    found.setdefault(name, []).append(path)
                    self._ranks[path] = rank
            for path in self._texts:
                stands_for = self.name(kind, path)
                known = {one.resolve() for one in found.get(stands_for or "", ())}
                if stands_for is not None and path not in known:
                    found.setdefault(stands_for, []).append(path)
            self._files[kind] = found
        return self._files[kind]


def load_definition(model: type[DefinitionT], path: Path) -> tuple[DefinitionT, Source]:
    """Read one definition from a file without overlays.

    Raises:
        UserError: every mistake in it.
    """
    return Catalog(mode="prod", project=False)._load(model, [path])


@lru_cache(maxsize=512)
def _shipped(path: Path, text: str) -> Source:
    """A shipped definition: a command asks for hundreds of them, several times."""
    return parse(path, text)


def _called(kind: str) -> str:
    """Name of a definition of a kind in messages."""
    return kind.removesuffix("s").replace("_", " ").replace("ml ", "ML ")


def _definitions(registry: Path, folders: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Files of a kind in a registry with their definitions' keys; an overlay comes after its base."""
    for folder in folders:
        top = str(registry / folder)
        found = [
            os.path.join(parent, file)  # noqa: PTH118 - thousands of files: Path would be most of the time
            for parent, _, files in os.walk(top)
            for file in files
            if file.endswith((".yaml", ".yml"))
        ]
        named = ((_key_of(path[len(top) + 1 :]), path) for path in found)
        for name, path in sorted(named, key=lambda one: (one[0], one[1].endswith(".dev.yaml"))):
            yield Path(path), name


def _key_of(file: str) -> str:
    """Key of the definition that a file below its kind's folder belongs to: its path without ending."""
    return file.removesuffix(".yaml").removesuffix(".dev")


def _is_overlay(path: Path) -> bool:
    return path.name.endswith(".dev.yaml")


def _registry_of(plan: Path) -> Path:
    """The registry that a plan brings with it; it need not exist."""
    folder = plan.absolute().parent
    return folder.parent if folder.name == FOLDERS[ExperimentPlan] else folder / "registries"


def _base(files: Sequence[Path]) -> Path | None:
    """The file that counts: the highest that is no overlay."""
    return next((path for path in reversed(files) if not _is_overlay(path)), None)
