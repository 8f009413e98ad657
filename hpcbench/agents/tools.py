"""Tools as the loop sees them: their specifications, and results of calls.

A toolbox runs calls: `tool_host` in child processes, `mcp_server` at a server of the Model Context Protocol.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic_core import from_json

from hpcbench.agents import frames

ResultKind = Literal[
    "ok", "error", "arguments", "unknown", "raised", "time", "memory", "exited", "size", "result", "gone"
]  # fmt: skip
"""How a call ended.

- `ok`: the tool's result;
- `error`: the tool says that it cannot do this, and why;
- `arguments`: they do not fit the schema, or are no JSON object;
- `unknown`: no tool has that name;
- `raised`: an exception of the tool;
- `time`: it took too long, and was ended;
- `memory`: it took too much memory;
- `exited`: its process ended;
- `size`: its result is too large;
- `result`: its result is of a wrong type;
- `gone`: its server, or the process that runs tools, does not exist any more.
"""


_FOR_THE_SERVER = (
    *("pattern", "patternProperties", "$ref", "$dynamicRef", "$recursiveRef", "uniqueItems"),
    *("unevaluatedProperties", "unevaluatedItems"),
)
"""Keywords of a schema whose check a server may make endless; the server checks them itself."""


@dataclass(frozen=True)
class ToolSpec:
    """A tool as a model sees it, and facts for the loop."""

    name: str
    """Its name in calls: letters, digits, `_` and `-`, at most 64."""
    description: str
    """Its purpose and use, for the model."""
    schema: Mapping[str, Any]
    """JSON Schema of its arguments, an object."""
    idempotent: bool = True
    """Whether a call may be repeated whose result was lost."""
    origin: str = ""
    """Its source, for the manifest: `module:Class of DISTRIBUTION VERSION`, or the server's name and
    version."""
    of_pages: bool = False
    """Whether it gets the sample's own images alone, without those that tools made."""

    @cached_property
    def sha256(self) -> str:
        """Hash of all that a model sees of it: name, description, schema."""
        seen = {"name": self.name, "description": self.description, "parameters": self.schema}
        text = json.dumps(seen, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def length(self) -> int:
        """Characters of its schema."""
        return len(json.dumps(self.schema))

    def misfit(self, arguments: Mapping[str, Any]) -> str:
        """Why arguments do not fit its schema, in one line for the model; empty: they fit."""
        try:
            wrong = next(iter(self._validator.iter_errors(dict(arguments))), None)
        except Exception:  # noqa: BLE001 - a server's own schema is broken: the server may judge
            return ""
        if wrong is None:
            return ""
        where = ".".join(map(str, wrong.absolute_path))
        return f"argument '{where}': {wrong.message}"[:1000] if where else wrong.message[:1000]

    @cached_property
    def _validator(self) -> Any:
        # Imported late: processes of tools have no need of it.
        from jsonschema import Draft202012Validator, validators

        schema = dict(self.schema)
        kind = validators.validator_for(schema, Draft202012Validator)
        return validators.extend(kind, dict.fromkeys(_FOR_THE_SERVER))(schema)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call."""

    kind: ResultKind
    """How it ended."""
    text: str = ""
    """Text for the model: the result, or in one line why there is none."""
    images: tuple[bytes, ...] = field(default=(), repr=False)
    """Images for the model: files of PNG, JPEG or another format that the engine reads."""
    seconds: float = 0.0
    """Time that the tool took, without waiting for a free process."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """Tokens of a model that the tool asked: prompt_tokens, completion_tokens."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", writable(self.text))


_IMAGES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"RIFF", b"GIF8", b"BM", b"II*\0", b"MM\0*")
"""First bytes of files of images."""


def fitted(
    kind: ResultKind, text: str, images: Sequence[bytes] = ()
) -> tuple[ResultKind, str, tuple[bytes, ...]]:
    """Kind, text and images of a result that a loop can take: these, or what is wrong with them."""
    if not all(image.startswith(_IMAGES) for image in images):
        return "result", "it returned bytes that are no image", ()
    for what, found, most in (
        ("text", len(text), frames.MOST_TEXT),
        ("images", sum(map(len, images)), frames.MOST_FILES),
    ):
        if found > most:
            size, limit = f"{found / 2**20:.1f} MiB", f"{most >> 20} MiB"
            return "size", f"its result has {size} of {what}; at most {limit}", ()
    if len(images) > frames.MOST_IMAGES:
        return "size", f"its result has {len(images)} images; at most {frames.MOST_IMAGES}", ()
    return kind, writable(text), tuple(images)


def writable(text: str) -> str:
    """A text that every program can write: half a surrogate pair becomes a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def callable_name(name: str) -> str:
    """A name of a tool as models' interfaces allow it."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unnamed"


def arguments_of(written: str) -> dict[str, Any]:
    """The arguments of a call from what a model wrote.

    Raises:
        ValueError: it is longer than a result may be, or no object of JSON, or one that not every program
            reads: with NaN, half a character as an escape, or more than 200 levels. For the model to read.
    """
    if len(written) > frames.MOST_TEXT:
        raise ValueError(
            f"the arguments have {len(written)} characters; at most {frames.MOST_TEXT}"
        )
    try:
        found = from_json(writable(written) or "{}", allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"the arguments are not valid JSON: {error}"[:1000]) from None
    if not isinstance(found, dict):
        raise ValueError("the arguments must be a JSON object")
    return found


def unknown_tool(name: str, names: Iterable[str]) -> ToolResult:
    """The result of a call of a tool that is not there; `names`: the tools that are."""
    known = ", ".join(names) or "none"
    return ToolResult("unknown", f"there is no tool '{name[:64]}'; there are: {known}")


class Toolbox(Protocol):
    """Runs calls of some tools. Several calls may run at once."""

    specs: Sequence[ToolSpec]

    def names(self, entry: str) -> Sequence[str]:
        """Names of the tools of an entry in the definition: a server may have several."""

    async def call(
        self, name: str, arguments: Mapping[str, Any], images: Sequence[Path], seconds: float
    ) -> ToolResult:
        """Run one call to its end; no fault of a tool raises.

        Args:
            name: a tool of `specs`.
            arguments: its arguments; they are checked against its schema here.
            images: files of the trajectory's images in order: the sample's pages, then those that tools made.
                A model counts them from 1.
            seconds: the longest time that it may take.
        """

    async def close(self) -> None:
        """End all processes."""
