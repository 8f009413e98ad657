"""What a plugin author implements, and the one loader that finds it.

Each kind is a Protocol of one or two methods and an entry-point group `hpcbench.<kind>`; our own plugins
are declared in our pyproject through the same door. `load` finds a plugin by metadata and imports only the
one asked for.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, Protocol

from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.schema.records import Message, Sample

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
    options: Mapping[str, Any] = field(default_factory=dict)
    """The model document's `engine_options`."""


@dataclass(frozen=True, slots=True)
class Command:
    """A child process to start."""

    argv: Sequence[str]
    """Program and arguments, no shell."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment."""


class Engine(Protocol):
    """Serves OpenAI's API on a Unix socket as a child process of the wrapper.

    `/health` answers 200 once requests can be sent.
    """

    api: ClassVar[int]

    def launch_command(self, spec: EngineSpec) -> Command: ...


class DatasetIterator(Protocol):
    """Gives the samples of a dataset, in a fixed order.

    Constructed with `(folder, annotations, split, options)`.
    """

    api: ClassVar[int]

    def count(self) -> int: ...
    def iter(self, start: int, stop: int) -> Iterator[Sample]: ...
    def files(self) -> Iterable[Path]: ...


class PromptStrategy(Protocol):
    """Turns a sample into messages. Constructed with `(system, user)` templates."""

    api: ClassVar[int]

    def build(self, sample: Sample) -> tuple[Message, ...]: ...


class Task(Protocol):
    """Reads an answer of one kind of work: text, label, key-value pairs."""

    api: ClassVar[int]

    def parse(self, text: str, sample: Sample) -> object | None: ...


class Metric(Protocol):
    """Scores predictions; a dataclass whose fields are its options (hpcbench.metrics)."""

    api: ClassVar[int]
    name: ClassVar[str]
    higher_is_better: ClassVar[bool]

    def score(self, prediction: object, references: Sequence[Any]) -> Any: ...
    def aggregate(self, parts: Sequence[Any]) -> float: ...
    @property
    def signature(self) -> str: ...


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


class EnvManager(Protocol):
    """Prepares an image once and wraps commands so that they run in it."""

    api: ClassVar[int]

    def prepare(self, reference: str, cache: Path, container: Any) -> Environment: ...
    def wrap(
        self,
        environment: Environment,
        argv: Sequence[str],
        mounts: Sequence[str],
        env: Mapping[str, str],
        gpus: int,
        container: Any,
    ) -> Command: ...


REQUIRED: Mapping[str, tuple[str, ...]] = {
    "engines": ("launch_command",),
    "datasets": ("count", "iter", "files"),
    "prompts": ("build",),
    "tasks": ("parse",),
    "metrics": ("score", "aggregate", "signature"),
    "environments": ("prepare", "wrap"),
}
"""Kind → what a plugin of it must have beside `api`."""


@cache
def available(kind: str) -> Mapping[str, EntryPoint]:
    """All plugins of a kind by name, without importing any.

    Raises:
        EnvironmentFault: two distributions bring a plugin of the same name.
    """
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=f"hpcbench.{kind}"):
        other = found.get(point.name)
        if other is not None and other.value != point.value:
            raise EnvironmentFault(
                f"two plugins of kind {kind} are called '{point.name}': "
                f"{_origin(other)} and {_origin(point)}",
                remedy="uninstall one of them",
            )
        found[point.name] = point
    return found


def load(kind: str, name: str) -> Any:
    """Import one plugin class and check that it fits its Protocol.

    Raises:
        UserError: no plugin of that name; says which there are.
        EnvironmentFault: it cannot be imported, or does not fit.
    """
    points = available(kind)
    if name not in points:
        raise UserError(Problem(unknown(f"{kind} plugin", name, points)))
    point = points[name]
    try:
        plugin = point.load()
    except ImportError as error:
        raise EnvironmentFault(
            f"plugin '{name}' of kind {kind} cannot be imported: {error}",
            remedy=f"install what {_origin(point)} needs",
        ) from error
    missing = [attribute for attribute in REQUIRED[kind] if not hasattr(plugin, attribute)]
    if missing or getattr(plugin, "api", None) != API:
        why = f"lacks {', '.join(missing)}" if missing else f"is not written for api {API}"
        raise EnvironmentFault(f"plugin '{name}' of kind {kind} ({_origin(point)}) {why}")
    return plugin


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """`unknown WHAT 'NAME' (did you mean …)`, or the names there are."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"unknown {what} '{name}' (did you mean '{close[0]}'?)"
    listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"unknown {what} '{name}' (there are: {listed or 'none'})"


def _origin(point: EntryPoint) -> str:
    distribution = point.dist
    name = distribution.metadata["Name"] if distribution is not None else "an unknown distribution"
    return f"{point.value} of {name}"
