"""Files that a plan needs of this machine to run on another one: its definitions, and the files they name.

Definitions that hpcbench ships exist there as well. The bundle contains the other definitions that the
plan names, directly or through another definition, and, without their data, those in conditions of its
prompts. An absolute path that exists there stays unchanged; otherwise its file is sent, and the sent
definition contains the file's path there (`exchange.py` keeps it by content).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hpcbench.data.storage import FileStorage
from hpcbench.errors import Problem, UserError
from hpcbench.files.hashing import file_hashes
from hpcbench.registry.catalog import Catalog, RunMode
from hpcbench.registry.collections import read_collection
from hpcbench.registry.paths import is_dockerfile, is_reference, with_absolute_paths
from hpcbench.registry.settings import read_settings
from hpcbench.registry.source import Loc, Source
from hpcbench.remote.pipe_transfer import Content, Parcel, ParcelFile
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.definition import Definition
from hpcbench.schema.kinds import KINDS
from hpcbench.schema.model import Model
from hpcbench.schema.package import Package
from hpcbench.schema.prompt import Prompt

NAMES: Mapping[str, str] = {
    "run_tasks": "run_tasks", "ml_task": "ml_tasks", "model": "models", "models": "models",
    "dataset": "datasets", "datasets": "datasets", "prompt": "prompts", "prompts": "prompts",
    "metrics": "metrics", "default_metrics": "metrics", "reports": "reports", "image": "images",
    "package": "packages", "packages": "packages", "required_packages": "packages",
}  # fmt: skip
"""Key in a definition → kind of the definitions that it names."""

CONTEXT = re.compile(r"^\s*(COPY|ADD|%files)\b", re.MULTILINE | re.IGNORECASE)
"""Instructions of a recipe that copy files from beside it."""


@dataclass(frozen=True, slots=True)
class LocalPath:
    """A path in a definition."""

    definition: Source
    """The definition's source."""
    loc: Loc
    """Its location in the definition."""
    written: str
    """Its text in the definition; the end of the value at `loc`."""
    absolute: str
    """The absolute path on this machine."""

    @property
    def place(self) -> tuple[Path, int, int]:
        """File, line and column."""
        return self.definition.place(self.loc)

    @property
    def value(self) -> str:
        """The whole value that it ends, such as `oci:FOLDER:TAG`."""
        found: Any = self.definition.data
        for part in self.loc:
            found = found[part]
        return str(found)

    def problem(self, message: str, remedy: str | None = None) -> Problem:
        """A problem at its place."""
        return self.definition.problem(self.loc, message, remedy)


@dataclass(slots=True)
class Bundle:
    """The files and settings of a plan for another machine."""

    plan: str
    """The plan's file there."""
    registries: list[str]
    """Registries there, in their order."""
    settings: list[str]
    """`--set`, with paths of the other machine."""
    parcels: list[Parcel] = field(default_factory=list)
    """All files."""
    contents: dict[str, Content] = field(default_factory=dict)
    """SHA-256 → source of the bytes."""
    here: dict[str, str] = field(default_factory=dict)
    """Path there → path here, for messages."""
    stay: list[str] = field(default_factory=list)
    """Paths that exist there already."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for parcel in self.parcels for file in parcel.files)


def bundle(
    plan: Path,
    registries: Sequence[Path],
    settings: Sequence[str],
    mode: RunMode,
    *,
    root: str,
    present: Callable[[Sequence[str]], Collection[str]],
    cache: Path | None = None,
) -> Bundle:
    """Gather what a plan needs.

    Args:
        plan: its file.
        registries: further registries, as of `--registry`.
        settings: as of `--set`.
        mode: with `dev`, overlays are included.
        root: folder of the parcels there.
        present: returns which of some absolute paths exist there.
        cache: file with the hashes of large files.

    Raises:
        UserError: every mistake in definitions of this machine; a path that is neither here nor there.
    """
    parsed = read_settings(settings)
    catalog = Catalog(registries, mode=mode, settings=parsed, plan=plan)
    definition, source = catalog.plan(plan)
    found = [("", definition, source), *_definitions(catalog, source)]
    paths = [path for _, one, read in found for path in local_paths(one, read, catalog)]
    made = _Bundler(root, cache)
    moved = made.carry(paths, present)
    meant = _meant(catalog, [(one, read) for _, one, read in found if isinstance(one, Prompt)])
    files = _files(catalog, plan, [*(name for name, *_ in found if name), *meant])
    made.write(files, moved)
    return made.finish(plan.name, files, [setting.text for setting in parsed], moved)


def local_paths(definition: Definition, source: Source, catalog: Catalog) -> Iterator[LocalPath]:
    """Every path in a definition and in definitions written out inside it; without paths of shipped files."""
    noted: list[LocalPath] = []
    with_absolute_paths(
        definition,
        source,
        lambda loc, written, absolute: noted.append(LocalPath(source, loc, written, absolute)),
    )
    noted += _inside(source.data, source, ())
    yield from (path for path in noted if catalog.label(path.place[0]) != "shipped")


def _inside(data: Any, source: Source, loc: Loc) -> Iterator[LocalPath]:
    """Paths of packages and prompts that are written out, and of images that a run task selects."""
    if isinstance(data, list):
        for index, one in enumerate(data):
            yield from _inside(one, source, (*loc, index))
    if not isinstance(data, dict):
        return
    part: Definition | None = None
    if loc[-1:] == ("model",) and is_reference(str(data.get("image") or "docker://")):
        part = Model(name="chosen", engine="none", image=data["image"])
    elif loc[-2:-1] in (("packages",), ("required_packages",)):
        part = Package.model_validate(data)
    elif loc[-1:] == ("prompt",):
        part = Prompt.model_validate(data)
    noted: list[LocalPath] = []
    if part is not None:  # relative to the file, wherever they are in it
        own = Source(source.path, data)
        with_absolute_paths(
            part,
            own,
            lambda below, written, absolute: noted.append(
                LocalPath(source, (*loc, *below), written, absolute)
            ),
        )
    yield from noted
    for key, value in data.items():
        yield from _inside(value, source, (*loc, key))


# --- which definitions ---------------------------------------------------------------------------------


def _definitions(catalog: Catalog, plan: Source) -> Iterator[tuple[str, Definition, Source]]:
    """`KIND/NAME`, definition and source of all definitions that a plan names, where they exist here."""
    seen: set[tuple[str, str]] = set()
    words: set[str] = set(_words(plan.data))
    waiting = list(_named(plan.data))
    problems: list[Problem] = []
    while waiting or (waiting := [one for one in _providers(catalog, words) if one not in seen]):
        kind, name = waiting.pop()
        if (kind, name) in seen or not catalog.files(kind, name):
            seen.add((kind, name))
            continue  # it may exist there; if not, the error comes there
        seen.add((kind, name))
        try:
            definition, source = catalog.get_with_source(KINDS[kind], name)
        except UserError as error:
            problems.extend(error.problems)
            continue
        yield f"{kind}/{name}", definition, source
        words |= set(_words(source.data))
        waiting += _named(source.data)
    if problems:
        raise UserError(*dict.fromkeys(problems))


def _named(data: Any) -> Iterator[tuple[str, str]]:
    """Kind and name of every possible reference to a definition."""
    if isinstance(data, list):
        for one in data:
            yield from _named(one)
    if not isinstance(data, dict):
        return
    for key, value in data.items():
        if key == "when":
            continue  # it requires no definition: see `_meant`
        if key in NAMES:
            by_language = isinstance(value, dict) and key == "prompts"
            for one in (
                value if isinstance(value, list) else value.values() if by_language else [value]
            ):
                name = one.get("name") if isinstance(one, dict) else one
                if isinstance(name, str) and name:
                    yield NAMES[key], name
        yield from _named(value)


def _meant(catalog: Catalog, prompts: Sequence[tuple[Prompt, Source]]) -> Iterator[str]:
    """`KIND/NAME` of definitions in conditions of prompts: these are checked there, too, without data."""
    columns: set[str] = set()
    for prompt, source in prompts:
        file = with_absolute_paths(prompt, source).collection
        try:
            more = () if file is None else read_collection(Path(file))
        except UserError:
            more = ()  # the error comes there
        for entry in (*prompt.prompts, *more):
            columns.update(entry.when)
            for key, kind in (("dataset", "datasets"), ("task", "ml_tasks")):
                if key in entry.when:
                    yield f"{kind}/{str(entry.when[key]).strip()}"
    for name in catalog.names("datasets") if columns else ():
        try:
            dataset = catalog.get(Dataset, name)
        except UserError:
            continue  # no definition names it
        if columns & {*dataset.fields, *dataset.group_by}:
            yield f"datasets/{name}"


def _words(data: Any) -> Iterator[str]:
    """Every text in a definition; of addresses also the scheme."""
    if isinstance(data, dict):
        for value in data.values():
            yield from _words(value)
    elif isinstance(data, list):
        for value in data:
            yield from _words(value)
    elif isinstance(data, str):
        yield data
        yield data.partition("://")[0]


def _providers(catalog: Catalog, words: Collection[str]) -> Iterator[tuple[str, str]]:
    """Packages that provide a plugin whose name occurs in the plan."""
    for name in catalog.names("packages"):
        try:
            package = catalog.get(Package, name)
        except UserError:
            continue  # no definition names it
        if any(plugin in words for plugins in package.provides.values() for plugin in plugins):
            yield "packages", name


def _files(catalog: Catalog, plan: Path, names: Sequence[str]) -> dict[str, Path]:
    """Path in the bundle → file, of the plan and all definitions that are not shipped."""
    files = {plan.name: plan}
    beside = plan.with_name(f"{plan.stem}.dev.yaml")
    if catalog.mode == "dev" and beside.is_file():
        files[beside.name] = beside
    for name in names:
        kind, _, definition = name.partition("/")
        for path in catalog.files(kind, definition):
            for number, registry in enumerate(catalog.registries):
                if registry.folder in path.parents and registry.label != "shipped":
                    place = f"registry-{number:02}/{path.relative_to(registry.folder).as_posix()}"
                    files[place] = path
    return files


# --- what they name ------------------------------------------------------------------------------------


class _Bundler:
    """Hashes files and assigns their paths there."""

    def __init__(self, root: str, cache: Path | None) -> None:
        self.root, self.cache = root.rstrip("/"), cache
        self.bundle = Bundle("", [], [])

    def carry(
        self, paths: Sequence[LocalPath], present: Callable[[Sequence[str]], Collection[str]]
    ) -> list[tuple[LocalPath, str]]:
        """The paths that change there, each with its whole new value."""
        absolute = sorted({path.absolute for path in paths if path.written.startswith("/")})
        there = set(present(absolute)) if absolute else set()
        self.bundle.stay = sorted(there)
        places: dict[str, str] = {}
        moved: list[tuple[LocalPath, str]] = []
        problems: list[Problem] = []
        for path in paths:
            if path.written.startswith("/") and path.absolute in there:
                continue
            if path.value.startswith("venv:"):
                what = "hpcbench cannot send an environment: its path must be a path of the cluster"
                problems.append(path.problem(what, "create it on the cluster"))
                continue
            file, tag = _without_tag(path)
            if not file.exists():
                problems.append(
                    path.problem(f"{file} exists neither on this machine nor on the cluster")
                )
                continue
            if str(file) not in places:
                places[str(file)] = self._parcel(file)
            start = path.value[: len(path.value) - len(path.written)]
            moved.append((path, f"{start}{places[str(file)]}{tag}"))
        if problems:
            raise UserError(*dict.fromkeys(problems))
        return moved

    def _parcel(self, file: Path) -> str:
        """Add a file or folder to the bundle; returns its path there."""
        top = file
        if file.is_file() and (is_dockerfile(file.name) or file.suffix == ".def"):
            text = file.read_text(encoding="utf-8", errors="replace")
            top = file.parent if CONTEXT.search(text) else file
        try:
            listed = list(FileStorage({}).list(str(top)))
        except OSError as error:
            raise UserError(Problem(f"cannot be read: {error}", str(top))) from error
        base = top.name or "root"
        sources = {
            f"{base}/{one.path}" if top.is_dir() else base: top / one.path if top.is_dir() else top
            for one in listed
        }
        hashes = file_hashes(sources.values(), self.cache)
        sent = []
        for path, source in sources.items():
            status = source.stat()
            sent.append(
                ParcelFile(path, status.st_size, hashes[source], bool(status.st_mode & 0o100))
            )
            self.bundle.contents[hashes[source]] = source
        place = f"{self._add(sent)}/{base}"
        self.bundle.here[place] = str(top)
        return place if top == file else f"{place}/{file.name}"

    def write(self, files: Mapping[str, Path], moved: Sequence[tuple[LocalPath, str]]) -> None:
        """Add definitions to the bundle, with the paths of the other machine."""
        edits: dict[Path, dict[tuple[int, int], tuple[str, str]]] = {}
        for path, value in moved:
            file, line, column = path.place
            edits.setdefault(file, {})[line, column] = (path.value, value)
        problems: list[Problem] = []
        sent = []
        for place, file in files.items():
            text = file.read_text(encoding="utf-8-sig")
            try:
                data = rewritten(text, edits.get(file, {}), file).encode()
            except UserError as error:
                problems.extend(error.problems)
                continue
            digest = hashlib.sha256(data).hexdigest()
            sent.append(ParcelFile(place, len(data), digest))
            self.bundle.contents[digest] = data
        if problems:
            raise UserError(*problems)
        self.folder = self._add(sent)

    def finish(
        self,
        plan: str,
        files: Mapping[str, Path],
        settings: Sequence[str],
        moved: Sequence[tuple[LocalPath, str]],
    ) -> Bundle:
        """The bundle, with the arguments of the hpcbench there."""
        made = self.bundle
        made.plan = f"{self.folder}/{plan}"
        made.here.update({f"{self.folder}/{place}": str(file) for place, file in files.items()})
        registries = {place.partition("/")[0] for place in files if "/" in place}
        made.registries = [f"{self.folder}/{registry}" for registry in sorted(registries)]
        changed = {path.place[0]: json.dumps(value) for path, value in moved}
        for text in settings:
            value = changed.get(Path(f"--set {text}"))  # the name of such a setting's source
            made.settings.append(f"{text.partition('=')[0]}={value}" if value else text)
        return made

    def _add(self, sent: Sequence[ParcelFile]) -> str:
        parcel = Parcel(tuple(sorted(sent, key=lambda file: file.path)))
        self.bundle.parcels.append(parcel)
        return f"{self.root}/{parcel.name}"


def _without_tag(path: LocalPath) -> tuple[Path, str]:
    """The file or folder itself, and the `:TAG` after it in `oci:FOLDER:TAG`."""
    whole = Path(path.absolute)
    scheme = path.value.partition(":")[0]
    if scheme in ("oci", "oci-archive", "docker-archive") and not whole.exists():
        file, colon, tag = path.absolute.rpartition(":")
        if colon and "/" not in tag:
            return Path(file), f":{tag}"
    return whole, ""


def rewritten(
    text: str, edits: Mapping[tuple[int, int], tuple[str, str]], file: Path | None = None
) -> str:
    """A YAML text with some of its values replaced, and the rest unchanged.

    Args:
        text: the definition.
        edits: line and column of a value, from 1 → its old and its new text.
        file: the file's name in problems.

    Raises:
        UserError: a value is not at its position, for example one from an alias or a merge.
    """
    if not edits:
        return text
    spans: list[tuple[int, int, str]] = []
    left = dict(edits)
    for node in _scalars(yaml.compose(text, yaml.SafeLoader), set()):
        mark = node.start_mark
        old, new = left.get((mark.line + 1, mark.column + 1), (None, ""))
        if old == node.value:
            del left[mark.line + 1, mark.column + 1]
            span = text[mark.index : node.end_mark.index]
            first = re.match(r"((?:[&!]\S*\s+)*)", span)
            last = "\n" if span.endswith("\n") else ""
            word = (first[1] if first else "") + json.dumps(new, ensure_ascii=False) + last
            spans.append((mark.index, node.end_mark.index, word))
    if left:
        raise UserError(
            *(
                Problem(
                    f"hpcbench cannot replace the path '{old}' here",
                    str(file) if file else None, line, column, "write it in full, without << or *",
                )
                for (line, column), (old, _) in left.items()
            )
        )  # fmt: skip
    for start, stop, word in sorted(spans, reverse=True):
        text = text[:start] + word + text[stop:]
    return text


def _scalars(node: yaml.Node | None, seen: set[int]) -> Iterator[yaml.ScalarNode]:
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.MappingNode):
        for _, value in node.value:
            yield from _scalars(value, seen)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _scalars(value, seen)
