"""What a plugin author implements, and the one loader that finds it.

Each kind is a Protocol of one or two methods and an entry-point group `hpcbench.<kind>`; our own plugins
are declared in our pyproject through the same door. `load` finds a plugin by metadata and imports only the
one asked for.
"""

from __future__ import annotations

import importlib
import inspect
import re
import site
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from hpcbench.errors import EnvironmentFault, Problem, UserError, unknown
from hpcbench.schema.forms import complaint
from hpcbench.schema.records import FieldMap, Message, PromptEntry, PromptExample, Sample

if TYPE_CHECKING:
    from hpcbench.schema.documents import MLTask

_DOTTED_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*[.:][^\W\d]\w*")

API = 1
"""Version of these Protocols; a plugin states the one it was written for as `api`."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What an engine is told when it is to serve a model."""

    model_path: str
    """Folder of the weights, as seen where the engine runs."""
    model_name: str
    """Name under which requests ask for it."""
    socket: str
    """Unix socket to serve on, at most 107 bytes."""
    dtype: str = "auto"
    """auto, float32, float16 or bfloat16."""
    context_length: int | None = None
    """Most tokens of prompt and answer together."""
    gpus: int = 0
    """GPUs it may use; 0 is CPU."""
    chat_template: str | None = None
    """Text of the Jinja2 chat template to use instead of the model's own."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The model document's `engine_options`."""
    media_root: str | None = None
    """Folder whose images requests may name as `file://`; None: no file may be named."""
    cpus: int = 0
    """CPUs of the job; 0: not said."""
    images: int = 0
    """Most images of one request; 0: not said."""
    reuse: bool = False
    """Whether images come more than once, as with several questions about a page: caches of them pay."""


@dataclass(frozen=True, slots=True)
class Command:
    """A child process to start."""

    argv: Sequence[str]
    """Program and arguments, no shell."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine refuses in a request, where that is certain; None: it is not known."""

    tokens: int | None = None
    """Most tokens of prompt and answer together."""
    images: int | None = None
    """Most images."""


class Engine(Protocol):
    """Serves OpenAI's API on a Unix socket as a child process of the wrapper. Constructed with nothing.

    `/health` answers 200 once requests can be sent. `launch_command` refuses options it does not know
    with a UserError. What a class may have besides:

    - `generation: frozenset[str]`: the settings it knows beyond OpenAI's; others are refused before anything
      runs;
    - `generation_needs: Mapping[str, str]`: setting → option of the engine without which it refuses every
      request that has the setting;
    - `packages: tuple[str, ...]`: distributions whose versions are recorded;
    - `needs: tuple[str, ...]` and `extra: str`: distributions without which it cannot start, and the extra of
      hpcbench that brings them into hpcbench's own Python;
    - `request_fields(spec) -> mapping`: fields of the body that every request gets which does not set them;
    - `checks_media = False`: its server opens any path a request names, so the wrapper has to look at each;
    - `renamed: Mapping[str, str]`: setting of older versions → its name now, for the remedy;
    - `limits(spec) -> Limits`: what it refuses in every request as it would be started, so that a plan that
      asks for more is refused before anything runs;
    - `weights = False`: it serves no folder of weights (an endpoint elsewhere);
    - `at_once(options, gpus) -> int`: requests that `concurrency: auto` keeps in flight, by the model's
      `engine_options` and GPUs; without it one at a time.
    """

    api: ClassVar[int]

    def launch_command(self, spec: EngineSpec) -> Command: ...


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """What an iterator is told of the dataset it is to read."""

    folder: Path
    """Where it lies on this machine."""
    annotations: str
    """File inside the folder that lists the samples."""
    split: str | None = None
    """Only samples of this split; none: all."""
    mapping: FieldMap = FieldMap()
    """Where a record keeps what a sample needs."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The dataset document's `options`, checked against `Options`."""
    on_bad: Literal["fail", "skip"] = "fail"
    """Whether a row that cannot be a sample is an error, or left out and counted."""
    cache: Path | None = None
    """Folder for what is made of the dataset's files, e.g. rendered pages."""
    origin: Path | None = None
    """Folder that it was copied from: absolute paths in it may begin so; none: it was not copied."""


class DatasetIterator(Protocol):
    """Gives the samples of a dataset, in a fixed order. Constructed with a `DatasetSpec`.

    What a class may have besides:

    - `packs = True`: it reads through `hpcbench.data.tree.Tree`, so small files may lie in one pack;
    - `iter(start, stop, images=True)`: without images it need not read them, as evaluation does not;
    - `at(places, images=True)`: samples at some places, in rising order, in as few reads as it can;
    - `bad() -> problems`: rows left out under `on_bad: skip`, which count against coverage;
    - `bad_before(index) -> problems`: those that stand before sample `index`, where `place` does not tell;
    - `place(index) -> (file, row)`: where sample `index` stands, for messages; no row where a file is one.
    """

    api: ClassVar[int]

    def count(self) -> int: ...
    def iter(self, start: int, stop: int) -> Iterator[Sample]: ...
    def files(self) -> Iterable[Path]: ...


@dataclass(frozen=True, slots=True)
class PromptSpec:
    """What a prompt strategy is told: the prompt's document and what it is used for."""

    user: str | None = None
    """User message of samples that no entry of the collection is for."""
    system: str | None = None
    """System message."""
    entries: tuple[PromptEntry, ...] = ()
    """The collection."""
    examples: tuple[PromptExample, ...] = ()
    """Few-shot examples; their images are absolute paths."""
    dataset: str = ""
    """Name of the dataset."""
    task: str = ""
    """Name of the ML task."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The prompt document's `options`, checked against `Options`."""


class PromptStrategy(Protocol):
    """Turns a sample into messages. Constructed with a `PromptSpec`.

    A class that has `placeholders() -> names` lets a field that no dataset has be found before anything runs;
    one that has `name(sample) -> str` says which prompt of several a sample gets.
    """

    api: ClassVar[int]

    def build(self, sample: Sample) -> tuple[Message, ...]: ...


class Task(Protocol):
    """Reads an answer of one kind of work: text, label, key-value pairs. Constructed with nothing.

    `parse` gives what metrics compare, None if it cannot be read, or a `Reading`, which says how it was read
    or why not; if it raises, that sample is lost with the reason. Thoughts before the answer are off already
    (the ML task's `reasoning`), and what it gives is held to the ML task's schema. A class with `wants`
    (text, label, object) is never asked: `hpcbench.parsers.DataParser` reads for it, by the schema and the
    policies of the document; with `transcribes`, texts are those of pages. A `version` goes up when any
    answer may be read otherwise than before: scores name it.
    """

    api: ClassVar[int]

    def parse(self, text: str, sample: Sample) -> object | None: ...


class Parser(Protocol):
    """Reads an answer without looking at the sample; otherwise as `Task`. Constructed with nothing."""

    api: ClassVar[int]

    def parse(self, text: str) -> object | None: ...


class Metric(Protocol):
    """Scores predictions; a dataclass whose fields are its options (hpcbench.metrics).

    A class with `accepts: tuple[str, ...]` (text, label, object) is only used for ML tasks of such output.
    """

    api: ClassVar[int]
    name: ClassVar[str]
    higher_is_better: ClassVar[bool]

    def score(self, prediction: object, references: Sequence[Any]) -> Any: ...
    def aggregate(self, parts: Sequence[Any]) -> float: ...
    @property
    def signature(self) -> str: ...


class Report(Protocol):
    """Shows an experiment's tables. Constructed with its options.

    `tables` is plain data, described in docs/plugins.md; the answer is file names and what to write there.
    """

    api: ClassVar[int]

    def render(self, tables: Mapping[str, Any]) -> Mapping[str, str | bytes]: ...


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as a storage lists it."""

    path: str
    """Below the URL, parts joined by `/`."""
    size: int
    """Bytes."""
    mark: str = ""
    """Another one whenever the content may be another: an ETag, a time of change; empty: not known."""
    sha256: str | None = None
    """Hash of the content, where the storage knows it: what comes is held against it."""


class Storage(Protocol):
    """Files under a URL of its scheme. Constructed with its options; used by several threads at once.

    `read` gives the bytes `start` to `stop` (exclusive) of a file that `list` gave, in pieces of any size.
    `put` writes one file whole or not at all. All raise OSError; FileNotFoundError and PermissionError are
    final, anything else is tried again. A class that has `parallel: int` says how many reads at once
    serve it best; one that has `many(url, files)`, which gives pairs of file and bytes in any order, is
    asked for small files by the hundred.
    """

    api: ClassVar[int]

    def list(self, url: str) -> Iterable[StoredFile]: ...
    def read(self, url: str, file: StoredFile, start: int, stop: int) -> Iterable[bytes]: ...
    def put(self, source: Path, url: str, path: str) -> None: ...


class Tracker(Protocol):
    """Logs an experiment's scores elsewhere. Constructed with its options; gets the reports' tables.

    A class that has `track(path, live, limit, tell)` besides is served by `hpcbench track`: it sends what of
    an experiment is not there yet, while that runs or later; see `tracking/tracker_process.py`.
    """

    api: ClassVar[int]

    def log(self, tables: Mapping[str, Any]) -> None: ...


class Notifier(Protocol):
    """Tells somebody how an experiment ended. Constructed with its options."""

    api: ClassVar[int]

    def send(self, event: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Environment:
    """Where an engine runs, prepared on the login node, started on the compute node."""

    kind: str
    """Name in the group `hpcbench.environments`."""
    path: str
    """SIF file, or the Python interpreter."""
    digest: str | None
    """Identity of the source image, `sha256:…`."""
    packages: str | None = None
    """Folder of the packages mounted just in time."""
    details: Mapping[str, str] = field(default_factory=dict)
    """What the manifest keeps: source reference, versions."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """All Python distributions in it by normalised name, `python` and, where it has one, `cuda`."""
    start_seconds: float = 120.0
    """Longest wait for a command in it to be up; a cold container on a slow file system takes its time."""


class EnvManager(Protocol):
    """Prepares an image once and wraps commands so that they run in it. Constructed with nothing.

    An image reference `KIND:…` is for the manager of that name. `requirements` are lines as pip reads them:
    packages that must be importable beside the engine, without shadowing what is there. `say` is told what is
    going on, a line at a time.
    """

    api: ClassVar[int]

    def prepare(
        self,
        reference: str,
        cache: Path,
        container: Any,
        requirements: Sequence[str],
        say: Callable[[str], None],
    ) -> Environment: ...
    def wrap(
        self,
        environment: Environment,
        argv: Sequence[str],
        mounts: Sequence[str],
        env: Mapping[str, str],
        gpus: int,
        container: Any,
    ) -> Command: ...


REQUIRED: Mapping[str, Mapping[str, int | None]] = {
    "datasets": {"count": 0, "iter": 2, "files": 0},
    "engines": {"launch_command": 1},
    "environments": {"prepare": 5, "wrap": 6},
    "metrics": {"score": 2, "aggregate": 1, "signature": None},
    "notifiers": {"send": 1},
    "parsers": {"parse": 1},
    "prompts": {"build": 1},
    "reports": {"render": 1},
    "storage": {"list": 1, "read": 4, "put": 3},
    "tasks": {"parse": 2},
    "trackers": {"log": 1},
}
"""Kind → what a plugin of it must have beside `api`: methods with their number of arguments, attributes."""


@cache
def _installed() -> Any:  # a class of its own in Python 3.10
    """Entry points of every distribution there is, which takes a look into each."""
    return entry_points()


@cache
def available(kind: str) -> Mapping[str, EntryPoint]:
    """All plugins of a kind by name, without importing any.

    Raises:
        EnvironmentFault: two distributions bring a plugin of the same name.
    """
    found: dict[str, EntryPoint] = {}
    for point in _installed().select(group=f"hpcbench.{kind}"):
        other = found.get(point.name)
        if other is not None and other.value != point.value:
            from hpcbench.installed import is_superseded

            if is_superseded(point.dist):
                continue
            if is_superseded(other.dist):
                found[point.name] = point
                continue
            raise EnvironmentFault(
                f"two plugins of kind {kind} are called '{point.name}': "
                f"{origin(other)} and {origin(point)}",
                remedy="uninstall one of them",
            )
        found[point.name] = point
    return found


def find(kind: str, name: str) -> EntryPoint | None:
    """The plugin of that name or dotted path, not imported; None if there is none of that name.

    A dotted path, `package.module.Class` or `package.module:Class`, is taken at its word.
    """
    point = available(kind).get(name)
    if point is None and _DOTTED_PATH.fullmatch(name):
        module, colon, attribute = name.partition(":")
        if not colon:
            module, _, attribute = name.rpartition(".")
        return EntryPoint(name, f"{module}:{attribute}", f"hpcbench.{kind}")
    return point


@cache
def load(kind: str, name: str) -> Any:
    """Import one plugin class and check that it fits its Protocol.

    Raises:
        UserError: no plugin of that name; says which there are.
        EnvironmentFault: it cannot be imported, or does not fit.
    """
    point = find(kind, name)
    if point is None:
        raise UserError(Problem(unknown(f"{kind} plugin", name, available(kind))))
    try:
        plugin = point.load()
    except Exception as error:
        # Foreign code runs on import: whatever it raises is the plugin's fault, and told as such.
        raise EnvironmentFault(
            f"plugin '{name}' of kind {kind} cannot be imported: {type(error).__name__}: {error}",
            remedy=f"install what {origin(point)} needs, or mend it",
        ) from error
    if wrong := mismatch(kind, plugin):
        raise EnvironmentFault(f"plugin '{name}' of kind {kind} ({origin(point)}) {wrong}")
    return plugin


def mismatch(kind: str, plugin: Any) -> str | None:
    """In what a class does not fit the Protocol of its kind; None if it fits."""
    if not isinstance(plugin, type):
        return "is not a class"
    if getattr(plugin, "api", None) != API:
        return f"is not written for api {API}: it says api = {getattr(plugin, 'api', None)!r}"
    lacks = [name for name in REQUIRED[kind] if not hasattr(plugin, name)]
    if lacks:
        return f"lacks {', '.join(lacks)}"
    for name, count in REQUIRED[kind].items():
        if count is not None and not _takes(getattr(plugin, name), count):
            return f"has a method {name} that does not take {count} arguments beside self"
    return None


def answer_model(path: str) -> Any:
    """The pydantic model class of that dotted path.

    Raises:
        UserError: the path leads to something else, or nowhere.
        EnvironmentFault: its module cannot be imported.
    """
    module, colon, name = path.partition(":")
    if not colon:
        module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name, None) if module else None
    except Exception as error:
        # Foreign code runs on import: whatever it raises is its own fault, and told as such.
        raise EnvironmentFault(
            f"output_model {path} cannot be imported: {type(error).__name__}: {error}",
            remedy="name its package in required_packages, or mend it",
        ) from error
    if not (isinstance(found, type) and hasattr(found, "model_json_schema")):
        raise UserError(
            Problem(
                f"output_model {path} is no pydantic model", remedy="write PACKAGE.MODULE.CLASS"
            )
        )
    return found


def answer_schema(ml_task: MLTask) -> dict[str, Any] | None:
    """The JSON Schema of an ML task's answers, as it is written or of its model; None: it has none.

    Raises:
        UserError, EnvironmentFault: as `answer_model`.
    """
    if ml_task.output_schema is not None or ml_task.output_model is None:
        return None if ml_task.output_schema is None else dict(ml_task.output_schema)
    found: dict[str, Any] = answer_model(ml_task.output_model).model_json_schema()
    return found


def check_options(plugin: Any, options: Mapping[str, Any]) -> list[tuple[tuple[str, ...], str]]:
    """What is wrong with a plugin's options: where in them, and what.

    A plugin declares its options as a pydantic model `Options`, or is a dataclass whose fields they are
    (metrics). One that does neither takes what it is given.
    """
    declared = getattr(plugin, "Options", None)
    if declared is not None and hasattr(declared, "model_validate"):
        from pydantic import ValidationError

        try:
            declared.model_validate(dict(options))
        except ValidationError as error:
            known = list(declared.model_fields)
            return [_option_problem(dict(one), known) for one in error.errors()]
        return []
    if not is_dataclass(plugin):
        return []
    known = [one.name for one in fields(plugin) if one.init]
    wrong: list[tuple[tuple[str, ...], str]] = [
        ((name,), unknown("option", name, known)) for name in options if name not in known
    ]
    if wrong:
        return wrong
    try:
        plugin(**options)  # type: ignore[operator]
    except Exception as error:  # noqa: BLE001 - foreign code: its failure is the finding
        return [((), str(error) or type(error).__name__)]
    return []


def add_folder(folder: Path) -> None:
    """Make the packages of a folder importable, behind all that is installed already."""
    if str(folder) not in sys.path:
        site.addsitedir(str(folder))  # knows .pth files, which editable packages are
        forget()


def forget() -> None:
    """Look for plugins anew: packages came or went."""
    _installed.cache_clear()
    available.cache_clear()
    load.cache_clear()


def origin(point: EntryPoint) -> str:
    """`module:Class of DISTRIBUTION VERSION`."""
    if point.dist is None:
        return point.value
    return f"{point.value} of {point.dist.metadata['Name']} {point.dist.version}"


def _takes(method: Any, count: int) -> bool:
    """Whether a method can be called with so many arguments beside `self`."""
    try:
        inspect.signature(method).bind(None, *range(count))
    except TypeError:
        return False
    except ValueError:  # written in C: no signature to look at
        return True
    return True


def _option_problem(detail: dict[str, Any], known: list[str]) -> tuple[tuple[str, ...], str]:
    where = tuple(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return where, unknown("option", where[-1], known)
    if detail["type"] == "missing":
        return where[:-1], f"option '{where[-1]}' is missing"
    return where, f"option '{'.'.join(where)}': {complaint(detail)}"
