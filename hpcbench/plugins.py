"""The interfaces that a plugin author implements, and the loader of plugins.

Each kind is a Protocol of one or two methods and an entry-point group `hpcbench.<kind>`; our own plugins
are declared in our pyproject in the same way. `load` finds a plugin by metadata and imports only the
requested one.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import re
import site
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from hpcbench import secret
from hpcbench.errors import EnvironmentFault, Problem, UserError, unknown
from hpcbench.schema.field_map import FieldMap
from hpcbench.schema.forms import complaint
from hpcbench.schema.records import Message, PromptEntry, PromptExample, Sample

if TYPE_CHECKING:
    from hpcbench.schema.ml_task import MLTask

_DOTTED_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*[.:][^\W\d]\w*")

API = 1
"""Version of these Protocols; a plugin's `api` states the version it was written for."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Parameters of an engine that serves a model."""

    model_path: str
    """Folder of the weights, as seen where the engine runs."""
    model_name: str
    """The model's name in requests."""
    socket: str
    """Unix socket to serve on, at most 107 bytes."""
    dtype: str = "auto"
    """auto, float32, float16 or bfloat16."""
    context_length: int | None = None
    """Maximum number of tokens of prompt and answer together."""
    gpus: int = 0
    """GPUs it may use; 0 is CPU."""
    chat_template: str | None = None
    """Text of the Jinja2 chat template to use instead of the model's own."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The model definition's `engine_options`."""
    media_root: str | None = None
    """Folder whose images requests may name as `file://`; None: no file may be named."""
    cpus: int = 0
    """CPUs of the job; 0: unknown."""
    images: int = 0
    """Maximum number of images in one request; 0: unknown."""
    reuse: bool = False
    """Whether images occur more than once, as with several questions about a page: then caches help."""
    parallel: Split | None = None
    """How the model is split; None: over the GPUs of this node, as the engine likes."""
    rank: Rank | None = None
    """This process's place among the nodes of the engine; None: the engine has one node."""


def with_share(engine: object, options: Mapping[str, Any], share: float | None) -> dict[str, Any]:
    """An engine's options with its share of a GPU's memory among them; None: it has its GPUs to itself.

    Raises:
        UserError: the engine has no such option.
    """
    if share is None:
        return dict(options)
    option = getattr(engine, "memory_share_option", None)
    if option is None:
        what = "`gpu_memory_share`: the engine has no option for a share of a GPU's whole memory"
        raise UserError(what, remedy="remove it, or use another engine")
    return {**options, option: share}


@dataclass(frozen=True, slots=True)
class Split:
    """How a model is split over the GPUs of all nodes of an engine; a definition's `parallel` explains it."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: bool = False


@dataclass(frozen=True, slots=True)
class Rank:
    """One node of an engine that runs on several."""

    number: int
    """From 0; rank 0 serves requests."""
    nodes: int
    """Number of nodes."""
    address: str
    """IP address of the first node."""
    port: int
    """TCP port of the first node, which nothing listens on yet."""
    own_address: str
    """IP address of this node, in the same network."""
    interface: str | None = None
    """Network interface for the nodes' traffic; None: not known."""


@dataclass(frozen=True, slots=True)
class Command:
    """A child process to start."""

    argv: Sequence[str]
    """Program and arguments, no shell."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Certain limits of an engine for a request; None: unknown."""

    tokens: int | None = None
    """Maximum number of tokens of prompt and answer together."""
    images: int | None = None
    """Maximum number of images."""


class Engine(Protocol):
    """Serves OpenAI's API on a Unix socket as a child process of the wrapper. Constructed without arguments.

    `/health` answers 200 once requests can be sent. `launch_command` refuses options it does not know
    with a UserError. A class may also have:

    - `generation: frozenset[str]`: the settings it knows beyond OpenAI's; other settings are refused before
      the run;
    - `generation_needs: Mapping[str, str]`: setting → option of the engine without which it refuses every
      request that has the setting;
    - `packages: tuple[str, ...]`: distributions whose versions are recorded;
    - `needs: tuple[str, ...]` and `extra: str`: distributions without which it cannot start, and the extra of
      hpcbench that brings them into hpcbench's own Python;
    - `request_fields(spec) -> mapping`: default fields of the body for every request that does not set them;
    - `reads_files = True`: it reads images below `media_root` that a request names as `file://`;
    - `checks_media = False`: its server opens any path in a request, so the wrapper has to check each path;
    - `renamed: Mapping[str, str]`: setting of older versions → its present name, for the remedy;
    - `limits(spec) -> Limits`: its limits for every request with these parameters, so that a plan beyond them
      is refused before the run;
    - `tuned_options: Mapping[str, tuple[default, values]]`: option → its default (None: the engine chooses)
      and the values that `hpcbench tune` tries, in order;
    - `memory_share_option: str`: its option for the share of a GPU's whole memory that it may use, so that
      several of it can share a GPU by `gpu_memory_share`;
    - `several_nodes = True`: it starts one process a node, by `spec.rank`; only that of rank 0 serves;
    - `weights = False`: it serves no folder of weights (an endpoint elsewhere);
    - `at_once(options, gpus) -> int`: requests that `concurrency: auto` keeps in flight, by the model's
      `engine_options` and GPUs; without this method, one at a time.
    """

    api: ClassVar[int]

    def launch_command(self, spec: EngineSpec) -> Command: ...


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """Parameters of an iterator: the dataset that it reads."""

    folder: Path
    """The dataset's folder on this machine."""
    annotations: str
    """File inside the folder that lists the samples."""
    split: str | None = None
    """The only split to read; None: all."""
    mapping: FieldMap = FieldMap.model_construct()
    """Fields of a record that a sample is built from."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The dataset definition's `options`, checked against `Options`."""
    on_bad: Literal["fail", "skip"] = "fail"
    """Whether a row that cannot be a sample is an error, or is left out and counted."""
    cache: Path | None = None
    """Folder for files derived from the dataset's files, e.g. rendered pages."""
    origin: Path | None = None
    """Folder that the dataset was copied from: its absolute paths may start with it; None: not copied."""


class DatasetIterator(Protocol):
    """Gives the samples of a dataset, in a fixed order. Constructed with a `DatasetSpec`.

    A class may also have:

    - `packs = True`: it reads through `hpcbench.data.tree.Tree`, so small files may be in one pack;
    - `iter(start, stop, images=True)`: with `images=False` it need not read images, as for evaluation;
    - `at(places, images=True)`: samples at some places, in rising order, with few reads;
    - `bad() -> problems`: rows left out under `on_bad: skip`, which lower the coverage;
    - `bad_before(index) -> problems`: such rows before sample `index`, where `place` does not give them;
    - `place(index) -> (file, row)`: place of sample `index`, for messages; no row where a file is a sample.
    """

    api: ClassVar[int]

    def count(self) -> int: ...
    def iter(self, start: int, stop: int) -> Iterator[Sample]: ...
    def files(self) -> Iterable[Path]: ...


@dataclass(frozen=True, slots=True)
class PromptSpec:
    """Parameters of a prompt strategy: the prompt's definition, dataset and ML task."""

    user: str | None = None
    """User message of samples without an entry of the collection."""
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
    """The prompt definition's `options`, checked against `Options`."""


class PromptStrategy(Protocol):
    """Turns a sample into messages. Constructed with a `PromptSpec`.

    With a method `placeholders() -> names`, fields that no dataset has are found before the run; a method
    `name(sample) -> str` gives the name of a sample's prompt if there are several.
    """

    api: ClassVar[int]

    def build(self, sample: Sample) -> tuple[Message, ...]: ...


class Task(Protocol):
    """Reads an answer of one kind of work: text, label, key-value pairs. Constructed without arguments.

    `parse` returns the value that metrics compare, None if the answer cannot be read, or a `Reading`, which
    says how it was read or why not; if `parse` raises, that sample is lost with the reason. Thoughts before
    the answer are removed already (the ML task's `reasoning`), and the value is checked against the ML task's
    schema. `parse` of a class with `wants` (text, label, object) is never called:
    `hpcbench.parsers.DataParser` reads for it, by the schema and the policies of the definition; with
    `transcribes`, texts are transcriptions of pages. A `version` increases when any answer may be read
    differently than before: scores name it.
    """

    api: ClassVar[int]

    def parse(self, text: str, sample: Sample) -> object | None: ...


class Parser(Protocol):
    """Reads an answer without the sample; otherwise as `Task`. Constructed without arguments."""

    api: ClassVar[int]

    def parse(self, text: str) -> object | None: ...


class Metric(Protocol):
    """Scores predictions; a dataclass whose fields are its options (hpcbench.metrics).

    A class with `accepts: tuple[str, ...]` (text, label, object) is only used for ML tasks with such output.
    """

    api: ClassVar[int]
    name: ClassVar[str]
    higher_is_better: ClassVar[bool]

    def score(self, prediction: object, references: Sequence[Any]) -> Any: ...
    def aggregate(self, parts: Sequence[Any]) -> float: ...
    @property
    def signature(self) -> str: ...


class Report(Protocol):
    """Renders an experiment's tables. Constructed with its options.

    `tables` is plain data, described in docs/plugins.md; `render` returns file names and their contents.
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
    """A mark that changes whenever the content may have changed: an ETag, a time; empty: unknown."""
    sha256: str | None = None
    """Hash of the content, if the storage knows it: the received bytes are compared with it."""


class Storage(Protocol):
    """Files under a URL of its scheme. Constructed with its options; used by several threads at once.

    `read` yields the bytes `start` to `stop` (exclusive) of a file from `list`, in pieces of any size. `put`
    writes one file whole or not at all. All raise OSError; FileNotFoundError and PermissionError are final,
    other errors are retried. A class attribute `parallel: int` gives the best number of concurrent reads. If
    a class has `many(url, files)`, which yields pairs of file and bytes in any order, hundreds of small files
    are read with one call.
    """

    api: ClassVar[int]

    def list(self, url: str) -> Iterable[StoredFile]: ...
    def read(self, url: str, file: StoredFile, start: int, stop: int) -> Iterable[bytes]: ...
    def put(self, source: Path, url: str, path: str) -> None: ...


class Tracker(Protocol):
    """Logs an experiment's scores elsewhere. Constructed with its options; receives the reports' tables.

    `hpcbench track` uses a class that also has `track(path, live, limit, tell)`: this method sends the
    missing data of an experiment, during the run or later; see `tracking/tracker_process.py`.
    """

    api: ClassVar[int]

    def log(self, tables: Mapping[str, Any]) -> None: ...


class Notifier(Protocol):
    """Notifies people how an experiment ended. Constructed with its options."""

    api: ClassVar[int]

    def send(self, event: Mapping[str, Any]) -> None: ...


class ToolError(Exception):
    """A tool cannot do what its arguments ask; its text is for the model."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Everything that a call of a tool may use besides its arguments."""

    images: tuple[Path, ...] = ()
    """Files of the images that the model has seen so far. The model counts them from 1."""
    folder: Path = Path()
    """An empty folder for files of this call; it is also the current folder."""
    seconds: float = 30.0
    """Time for this call; then its process is killed."""
    memory_gb: float = 2.0
    """Memory for this call, GiB."""

    def image(self, number: int) -> Path:
        """The file of an image by the model's number.

        Raises:
            ToolError: there is no such image.
        """
        if not 1 <= number <= len(self.images):
            count = len(self.images)
            there = f"1 to {count}" if count > 1 else "only 1" if count else "none"
            raise ToolError(f"there is no image {number}; there are: {there}")
        return self.images[number - 1]


ToolReturn = str | bytes | Sequence[str | bytes]
"""Return value of a tool, for the model: text, the file of an image as bytes, or several of them."""


class Tool(Protocol):
    """A tool that a model may call. Constructed with its options, before the first call.

    The docstring of the class tells the model what the tool does. `Arguments` is a pydantic model: its JSON
    Schema is shown to the model, with the descriptions of its fields, and `call` gets valid ones.
    `call` raises `ToolError` if it cannot do what is asked. `idempotent` says whether a call whose result was
    lost may be repeated. Each call runs in a process of its own, without network, with limits of memory and
    time (docs/agents.md). A class may also have:

    - `stateless = True`: a call leaves nothing behind in its process, so that a process may run several;
    - `untrusted = True`: it runs code that a model wrote, so it only runs where it is fully isolated;
    - `of_pages = True`: its `context.images` are the sample's own, without those that tools made;
    - `needs: tuple[str, ...]` and `extra: str`: modules that it imports, and the extra of hpcbench that
      brings them.
    """

    api: ClassVar[int]
    idempotent: ClassVar[bool]
    Arguments: ClassVar[Any]

    def call(self, arguments: Any, context: ToolContext) -> ToolReturn: ...


@dataclass(frozen=True, slots=True)
class Environment:
    """Environment of an engine, prepared on the login node, started on the compute node."""

    kind: str
    """Name in the group `hpcbench.environments`."""
    path: str
    """SIF file, or the Python interpreter."""
    digest: str | None
    """Identity of the source image, `sha256:…`."""
    packages: str | None = None
    """Folder of the packages mounted just in time."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Details for the manifest: source reference, versions."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of all its Python distributions by normalised name, of `python` and, if present, of `cuda`."""
    start_seconds: float = 120.0
    """Longest wait for the start of a command in it: a cold container on a slow file system is slow."""


class EnvManager(Protocol):
    """Prepares an image once and wraps commands so that they run in it. Constructed without arguments.

    An image reference `KIND:…` is for the manager of that name. `requirements` are lines in pip's format:
    packages that must be importable with the engine, without shadowing packages of the image. `say` receives
    progress, a line at a time.
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
    "tools": {"Arguments": None, "idempotent": None, "call": 2},
    "trackers": {"log": 1},
}
"""Kind → required members of its plugins besides `api`: methods with their argument counts, attributes."""


RUNS: Mapping[str, Literal["host", "image", "host or image"]] = {
    "datasets": "host",
    "engines": "image",
    "environments": "host",
    "metrics": "host or image",
    "notifiers": "host",
    "parsers": "host",
    "prompts": "host",
    "reports": "host",
    "storage": "host",
    "tasks": "host",
    "tools": "host or image",
    "trackers": "host",
}
"""Kind → where its plugins run: in hpcbench's own Python, or in the image that a definition names."""


@cache
def _installed() -> Any:  # a class of its own in Python 3.10
    """Entry points of all installed distributions; this reads each distribution."""
    return entry_points()


@cache
def available(kind: str) -> Mapping[str, EntryPoint]:
    """All plugins of a kind by name, without importing any.

    Raises:
        EnvironmentFault: two distributions have a plugin of the same name.
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
                remedy="give yours another name"
                if any(one.module.startswith("hpcbench.") for one in (other, point))
                else "uninstall one of them",
            )
        found[point.name] = point
    return found


def find(kind: str, name: str) -> EntryPoint | None:
    """The plugin of that name or dotted path, not imported; None: no plugin has that name.

    A dotted path, `package.module.Class` or `package.module:Class`, is not checked.
    """
    point = available(kind).get(name)
    if point is None and _DOTTED_PATH.fullmatch(name):
        module, colon, attribute = name.partition(":")
        if not colon:
            module, _, attribute = name.rpartition(".")
        return EntryPoint(name, f"{module}:{attribute}", f"hpcbench.{kind}")
    return point


def ships(kind: str, name: str) -> bool:
    """Whether a plugin, by its name or dotted path, is one of hpcbench's own."""
    point = find(kind, name)
    return point is not None and point.module.startswith("hpcbench.")


def called(kind: str) -> str:
    """Name of a plugin of this kind in messages."""
    return f"{kind.removesuffix('s')} plugin"


@cache
def load(kind: str, name: str) -> Any:
    """Import one plugin class and check that it fits its Protocol.

    Raises:
        UserError: no plugin has that name; lists the available plugins.
        EnvironmentFault: the plugin cannot be imported, or does not fit.
    """
    point = find(kind, name)
    if point is None:
        raise UserError(Problem(unknown(called(kind), name, available(kind))))
    try:
        plugin = point.load()
    except Exception as error:
        # Foreign code runs on import: any exception is reported as the plugin's fault.
        raise EnvironmentFault(
            f"plugin '{name}' of kind {kind} cannot be imported: {type(error).__name__}: {error}",
            remedy=_import_remedy(error, point),
        ) from error
    if wrong := mismatch(kind, plugin):
        raise EnvironmentFault(f"plugin '{name}' of kind {kind} ({origin(point)}) {wrong}")
    return plugin


def _import_remedy(error: Exception, point: EntryPoint) -> str:
    """Remedy for a plugin that cannot be imported."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        install = f"install the package of '{error.name}'"
        if point.dist is None or point.module.startswith("hpcbench."):
            return install
        project = point.dist.metadata["Name"]
        return f"{install}, or name it under `dependencies` in the pyproject.toml of {project}"
    place = place_in(error, {point.module.partition(".")[0]})
    return f"correct {origin(point)}{f', at {place}' if place else ''}"


def place_in(error: BaseException, modules: Collection[str]) -> str | None:
    """FILE:LINE of the code of these top-level modules in which an error began; None: it was elsewhere.

    FILE is the user's own file where the code is an unchanged copy of it, see `add_folder`.
    """
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] in modules:
            return f"{_original(frame.f_code.co_filename)}:{line}"
    return None


_sources: dict[Path, frozenset[Path]] = {}
"""Folder of packages → the folders that they were built from."""


def _original(file: str) -> str:
    """The file that an installed file was copied from, if that is known and unchanged."""
    for folder, sources in _sources.items():
        if not Path(file).is_relative_to(folder):
            continue
        below = Path(file).relative_to(folder)
        for source in sorted(sources):
            for original in (source / below, source / "src" / below):
                with contextlib.suppress(OSError):
                    if original.read_bytes() == Path(file).read_bytes():
                        return str(original)
    return file


def mismatch(kind: str, plugin: Any) -> str | None:
    """Why a class does not fit the Protocol of its kind; None if it fits."""
    if not isinstance(plugin, type):
        return "is not a class"
    if getattr(plugin, "api", None) != API:
        return f"does not support api {API}: its `api` is {getattr(plugin, 'api', None)!r}"
    lacks = [name for name in REQUIRED[kind] if not hasattr(plugin, name)]
    if lacks:
        return f"lacks {', '.join(lacks)}"
    for name, count in REQUIRED[kind].items():
        if count is not None and not _takes(getattr(plugin, name), count):
            return f"has a method {name} that does not take {count} arguments after self"
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
        # Foreign code runs on import: any exception is reported as that module's fault.
        raise EnvironmentFault(
            f"output_model {path} cannot be imported: {type(error).__name__}: {error}",
            remedy="name its package in required_packages, or fix it",
        ) from error
    if not (isinstance(found, type) and hasattr(found, "model_json_schema")):
        raise UserError(
            Problem(
                f"output_model {path} is not a pydantic model",
                remedy="write PACKAGE.MODULE.CLASS",
            )
        )
    return found


def answer_schema(ml_task: MLTask) -> dict[str, Any] | None:
    """The JSON Schema of an ML task's answers, from its definition or its model; None: it has no schema.

    Raises:
        UserError, EnvironmentFault: see `answer_model`.
    """
    if ml_task.output_schema is not None or ml_task.output_model is None:
        return None if ml_task.output_schema is None else dict(ml_task.output_schema)
    found: dict[str, Any] = answer_model(ml_task.output_model).model_json_schema()
    return found


def revealed(plugin: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with their secrets; those that a plugin names in `keeps_references` keep their references.

    Raises:
        EnvironmentFault: a secret is missing.
    """
    kept = getattr(plugin, "keeps_references", ())
    return {
        name: value if name in kept else secret.reveal_all(value) for name, value in options.items()
    }


def check_options(plugin: Any, options: Mapping[str, Any]) -> list[tuple[tuple[str, ...], str]]:
    """Problems of a plugin's options: place and message.

    A plugin declares its options as a class `Options`, a pydantic model or a dataclass; a metric is a
    dataclass whose fields are its options. Options of any other plugin are not checked.
    """
    declared = getattr(plugin, "Options", None)
    if declared is not None and hasattr(declared, "model_validate"):
        from hpcbench.schema.forms import checked  # a slow import

        _, details = checked(declared, dict(options))
        return [_option_problem(one, _options_at(declared, one["loc"])) for one in details]
    fielded = declared if is_dataclass(declared) else plugin if _is_metric(plugin) else None
    if not (isinstance(fielded, type) and is_dataclass(fielded)):
        return []
    known = [one.name for one in fields(fielded) if one.init]
    wrong: list[tuple[tuple[str, ...], str]] = [
        ((name,), unknown("option", name, known)) for name in options if name not in known
    ]
    if wrong:
        return wrong
    from hpcbench.schema.option_types import misfits  # a slow import

    if found := misfits(fielded, options):
        defaults = {one.name: one.default for one in fields(fielded)}
        return [
            ((name,), f"option '{name}' {what}{_remedy(defaults[name])}")
            for name, what in found.items()
        ]
    try:
        with_options(fielded, options)
    except Exception as error:  # noqa: BLE001 - foreign code: its failure is the finding
        return [((), str(error) or type(error).__name__)]
    return []


def with_options(declared: Any, options: Mapping[str, Any]) -> Any:
    """A metric, or another dataclass of options, with a definition's options; they must be checked.

    A value of an enumeration becomes its member.
    """
    if not options:
        return declared()
    from hpcbench.schema.option_types import members  # a slow import

    return declared(**members(declared, options))


def _remedy(default: Any) -> str:
    """How an option gets its default, where that can be written in YAML."""
    value = default.value if isinstance(default, Enum) else default
    if not isinstance(value, str | int | float):
        return ""
    return f"; without it, it is {json.dumps(value, ensure_ascii=False)}"


def _is_metric(plugin: Any) -> bool:
    """Whether a plugin is a metric: only its own fields are options."""
    return all(hasattr(plugin, name) for name in REQUIRED["metrics"])


def add_folder(folder: Path, sources: Iterable[Path] = ()) -> None:
    """Make the packages of a folder importable, after all installed packages.

    Args:
        folder: the installed packages.
        sources: folders of users that some of them were built from; messages name files of these.
    """
    _sources[folder] = _sources.get(folder, frozenset()).union(sources)
    if str(folder) not in sys.path:
        site.addsitedir(str(folder))  # reads .pth files, which editable packages use
        forget()


def forget() -> None:
    """Search for plugins again, after packages were added or removed."""
    _installed.cache_clear()
    available.cache_clear()
    load.cache_clear()


def origin(point: EntryPoint) -> str:
    """`module:Class of DISTRIBUTION VERSION`."""
    if point.dist is None:
        return point.value
    return f"{point.value} of {point.dist.metadata['Name']} {point.dist.version}"


def _takes(method: Any, count: int) -> bool:
    """Whether a method can be called with `count` arguments besides `self`."""
    try:
        inspect.signature(method).bind(None, *range(count))
    except TypeError:
        return False
    except ValueError:  # written in C: no signature
        return True
    return True


def _options_at(declared: Any, where: Sequence[int | str]) -> list[str]:
    """Names of the options beside the one at a place."""
    for part in where[:-1]:
        declared = declared.model_fields.get(str(part))
        inner = [one for one in _classes(getattr(declared, "annotation", None))]
        if not inner:
            return []
        declared = inner[0]
    return list(declared.model_fields)


def _classes(annotation: Any) -> Iterator[Any]:
    """The pydantic models in an annotation, such as the one of `Model | None`."""
    if hasattr(annotation, "model_fields"):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _classes(inner)


def _option_problem(detail: dict[str, Any], known: list[str]) -> tuple[tuple[str, ...], str]:
    where = tuple(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return where, unknown("option", where[-1], known)
    if detail["type"] == "missing":
        return where[:-1], f"option '{where[-1]}' is missing"
    return where, f"option '{'.'.join(where)}': {complaint(detail)}"
