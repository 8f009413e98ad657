"""The JSON Schema or pydantic model of an ML task, and the places where an answer departs from it.

Fields are counted at all levels. `required` counts the fields that the schema demands, including those of an
absent object: so the share of missing fields is the same whether an answer leaves out a part of the object or
all of it. Fields that the schema does not name count as `extra`, and are a fault only where the schema
forbids them (`additionalProperties: false`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hpcbench.schema.records import Fault

Node = Mapping[str, Any]

_BRANCHES = ("allOf", "anyOf", "oneOf")


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of comparing an object with a schema."""

    faults: tuple[Fault, ...] = ()
    """Places where it departs from the schema."""
    required: int = 0
    """Demanded fields."""
    found: int = 0
    """Existing fields."""
    extra: int = 0
    """Fields that the schema does not name."""


class Schema:
    """A JSON Schema, with the pydantic model it was derived from, if any."""

    def __init__(self, schema: Node | None, model: Any = None) -> None:
        """Prepare a schema.

        Args:
            schema: JSON Schema, draft 2020-12; None with a model: the model's own; None without: anything.
            model: a pydantic model class; its validators run when a value meets the schema.
        """
        self.model = model
        given = schema if schema is not None or model is None else model.model_json_schema()
        self.definition: dict[str, Any] = dict(given or {})
        self._made_of: dict[int, list[Node]] = {}

    @cached_property
    def wants(self) -> frozenset[str]:
        """Types that the whole value may have; empty: any."""
        return frozenset().union(*(_types(node) for node in self._nodes(self.definition)))

    @cached_property
    def properties(self) -> Mapping[str, frozenset[str]]:
        """Fields of the object, or of the objects in the list, with their allowed types."""
        nodes = self._nodes(self.definition)
        if "array" in self.wants:
            nodes = [inner for node in nodes for inner in self._nodes(node.get("items"))]
        return {
            name: frozenset().union(*(_types(inner) for inner in self._nodes(one)))
            for node in nodes
            for name, one in _fields(node).items()
        }

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Texts of its `enum`; empty: it has none."""
        return tuple(
            one for node in self._nodes(self.definition) for one in node.get("enum", ())
            if isinstance(one, str)
        )  # fmt: skip

    @cached_property
    def demanded(self) -> int:
        """Number of fields that it demands of an unreadable answer."""
        return len(list(self._demanded(self.definition, "", frozenset())))

    def judge(self, value: object) -> Judgement:
        """Compare a value with the schema; never raises."""
        required, found, extra, absent = self._count(value)
        if not isinstance(value, dict) and not required:
            absent = list(self._demanded(self.definition, "", frozenset()))
            required = len(absent)
        faults = [Fault("missing", path, "is missing") for path in absent]
        if self.definition:
            faults += self._faults(value, {fault.path for fault in faults})
        if not faults and self.model is not None:
            faults = _model_faults(self.model, value)
        return Judgement(tuple(faults), required, found, extra)

    # --- validation -----------------------------------------------------------------------------------

    @cached_property
    def _validator(self) -> Any:
        from jsonschema import Draft202012Validator
        from referencing import Registry

        return Draft202012Validator(self.definition, registry=Registry())  # fetch nothing

    def _faults(self, value: object, absent: set[str]) -> list[Fault]:
        try:
            errors = list(self._validator.iter_errors(value))
        except Exception as error:  # noqa: BLE001 - of a schema that refers to nothing, and of its regexes
            return [Fault("value", "", f"cannot be checked: {type(error).__name__}")]
        return list({
            (fault.kind, fault.path): fault
            for error in errors
            for fault in _faults_of(error)
            if not (fault.kind == "missing" and fault.path in absent)
        }.values())  # fmt: skip

    # --- counting -------------------------------------------------------------------------------------

    def _nodes(self, node: object) -> list[Node]:
        """A schema with its references and parts, each once."""
        if id(node) in self._made_of:
            return self._made_of[id(node)]
        found: list[Node] = []
        waiting, seen = [node], set[int]()
        while waiting:
            one = waiting.pop()
            if not isinstance(one, Mapping) or id(one) in seen:
                continue
            seen.add(id(one))
            found.append(one)
            if isinstance(one.get("$ref"), str):
                waiting.append(self._referred(one["$ref"]))
            for key in _BRANCHES:
                branches = one.get(key)
                waiting.extend(branches if isinstance(branches, Sequence) else ())
        self._made_of[id(node)] = found  # nodes are parts of the document, so their ids stay valid
        return found

    def _referred(self, reference: str) -> object:
        node: Any = self.definition
        if not reference.startswith("#"):
            return None
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            node = node.get(name) if isinstance(node, Mapping) else None
        return node

    def _count(self, value: object) -> tuple[int, int, int, list[str]]:
        """Numbers of demanded, existing and unnamed fields; paths of the missing ones."""
        required = found = extra = 0
        absent: list[str] = []
        waiting: list[tuple[object, list[Node], str]] = [(value, self._nodes(self.definition), "")]
        while waiting:
            one, nodes, path = waiting.pop()
            if isinstance(one, dict):
                found += len(one)
                known = _known(nodes)
                for name in _demands(nodes):
                    below = _join(path, name)
                    demanded = [below]
                    if name not in one:
                        demanded += self._demanded(known.get(name), below, frozenset())
                        absent += demanded
                    required += len(demanded)
                for name, inner in one.items():
                    extra += bool(known) and name not in known and not _open(nodes, name)
                    if isinstance(inner, (dict, list)):
                        given = [node for which in _of(nodes, name) for node in self._nodes(which)]
                        waiting.append((inner, given, _join(path, name)))
            elif isinstance(one, list):
                items = [inner for node in nodes for inner in self._nodes(node.get("items"))]
                waiting.extend(
                    (inner, items, f"{path}[{at}]")
                    for at, inner in enumerate(one)
                    if isinstance(inner, (dict, list))
                )
        return required, found, extra, absent

    def _demanded(self, node: object, path: str, above: frozenset[int]) -> Iterator[str]:
        """Paths of all fields that an absent object would need; an object within itself counts once."""
        if id(node) in above:
            return
        nodes = self._nodes(node)
        known = _known(nodes)
        for name in _demands(nodes):
            below = _join(path, name)
            yield below
            yield from self._demanded(known.get(name), below, above | {id(one) for one in nodes})


def _types(node: Node) -> frozenset[str]:
    given = node.get("type", ())
    if isinstance(given, str):
        return frozenset({given})
    if given:
        return frozenset(given)
    return frozenset({"object"}) if "properties" in node else frozenset()


def _fields(node: Node) -> Mapping[str, Any]:
    given = node.get("properties")
    return given if isinstance(given, Mapping) else {}


def _known(nodes: Iterable[Node]) -> dict[str, Any]:
    return {name: one for node in nodes for name, one in _fields(node).items()}


def _of(nodes: Iterable[Node], name: str) -> list[Any]:
    """Schemas of a field: by its name, or for all unnamed fields."""
    nodes = list(nodes)
    named = [_fields(node)[name] for node in nodes if name in _fields(node)]
    return named or [node.get("additionalProperties") for node in nodes]


def _demands(nodes: Sequence[Node]) -> list[str]:
    """Names that an object must have, without names that all of several alternatives demand."""
    alternatives = {
        id(one)
        for node in nodes
        for key in ("anyOf", "oneOf")
        for one in (node.get(key) or ())
        if isinstance(one, Mapping) and len(node[key]) > 1 and not _or_nothing(node[key])
    }
    return list(dict.fromkeys(
        name
        for node in nodes
        if id(node) not in alternatives
        for name in (node.get("required") or ())
        if isinstance(name, str)
    ))  # fmt: skip


def _or_nothing(branches: Sequence[Any]) -> bool:
    """Whether the branches are one type or null, as pydantic writes an optional value."""
    others = [
        one for one in branches if not (isinstance(one, Mapping) and one.get("type") == "null")
    ]
    return len(others) < 2


def _open(nodes: Iterable[Node], name: str) -> bool:
    """Whether a schema allows any names, or names like this one."""
    for node in nodes:
        patterns = node.get("patternProperties")
        if isinstance(patterns, Mapping) and any(re.search(one, name) for one in patterns):
            return True
        if isinstance(node.get("additionalProperties"), Mapping):
            return True
    return False


def _join(path: str, name: object) -> str:
    if isinstance(name, int):
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else str(name)


# --- faults ---------------------------------------------------------------------------------------------


def _faults_of(error: Any) -> list[Fault]:
    """The faults in an error of jsonschema."""
    path = ""
    for part in error.absolute_path:
        path = _join(path, part)
    if error.validator == "required":
        return [
            Fault("missing", _join(path, name), "is missing")
            for name in error.validator_value
            if name not in error.instance
        ]
    if error.validator in ("additionalProperties", "unevaluatedProperties"):
        if not isinstance(error.instance, Mapping):
            return []
        given = error.schema.get("properties", {})
        patterns = error.schema.get("patternProperties", {})
        return [
            Fault("extra", _join(path, name), "does not belong")
            for name in error.instance
            if name not in given and not any(re.search(one, name) for one in patterns)
        ]
    if error.validator == "type":
        return [Fault("mistyped", path, _wrong_type(error.validator_value, error.instance))]
    if error.validator in ("anyOf", "oneOf") and error.context:
        return _of_branches(error, path)
    return [Fault("value", path, str(error.message)[:200])]


def _of_branches(error: Any, path: str) -> list[Fault]:
    """The faults against the intended branch: the branch of the right type with the best match."""
    branches: dict[Any, list[Any]] = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    meant = [
        inner
        for inner in branches.values()
        if not any(one.validator == "type" and not one.path for one in inner)
    ]
    if not meant:
        wanted = sorted({
            name
            for inner in error.context
            if inner.validator == "type"
            for name in ([inner.validator_value] if isinstance(inner.validator_value, str)
                         else inner.validator_value)
        })  # fmt: skip
        return [Fault("mistyped", path, _wrong_type(wanted, error.instance))]
    return [fault for one in min(meant, key=len) for fault in _faults_of(one)]


def _wrong_type(wanted: str | Sequence[str], value: object) -> str:
    names = wanted if isinstance(wanted, str) else " or ".join(wanted)
    return f"is {_type_of(value)}, not {names}"


def _type_of(value: object) -> str:
    known = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer",
             float: "number", type(None): "null"}  # fmt: skip
    return known.get(type(value), type(value).__name__)


def _model_faults(model: Any, value: object) -> list[Fault]:
    """The faults that the validators of a pydantic model find in a value that meets its schema."""
    from pydantic import ValidationError

    try:
        model.model_validate(value)
    except ValidationError as error:
        faults = []
        for one in error.errors(include_url=False, include_context=False):
            path = ""
            for part in one["loc"]:
                path = _join(path, part)
            faults.append(Fault("value", path, str(one["msg"])[:200]))
        return faults
    except Exception as error:  # noqa: BLE001 - validators are foreign code
        return [
            Fault("value", "", f"cannot be checked: {type(error).__name__}: {str(error)[:100]}")
        ]
    return []
