"""JSON Schemas and reference pages, made from the definitions' own models and their field docstrings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from hpcbench.schema import agent, definitions, judge, records, shared_types
from hpcbench.schema.definitions import KINDS


def json_schema(kind: str) -> dict[str, Any]:
    """JSON Schema of a kind of definition, as editors read it.

    Raises:
        KeyError: no such kind.
    """
    schema = KINDS[kind].model_json_schema()
    _describe(schema, KINDS[kind].__name__)
    for name, definition in schema.get("$defs", {}).items():
        _describe(definition, name)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"hpcbench {kind}",
        **{key: value for key, value in schema.items() if key != "title"},
    }


def reference() -> str:
    """The page of all kinds of definitions with every field, in Markdown."""
    lines = [
        "# Definitions",
        "",
        "`hpcbench schema --markdown` makes this page from the models; do not edit it.",
        "",
    ]
    for kind, model in KINDS.items():
        lines += [f"## {kind}/", "", (inspect.getdoc(model) or "").splitlines()[0], ""]
        lines += _table(model)
    lines += ["# Parts of definitions", ""]
    for part in _parts():
        lines += [f"## {part.__name__}", "", (inspect.getdoc(part) or "").splitlines()[0], ""]
        lines += _table(part)
    return "\n".join(lines)


def _table(model: type) -> list[str]:
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, (annotation, default) in _members(model).items():
        doc = " ".join(field_docs(model.__name__).get(name, "").split()).replace("|", "\\|")
        lines.append(f"| `{name}` | {_type(annotation)} | {default} | {doc} |")
    return [*lines, ""]


def _members(model: type) -> dict[str, tuple[Any, str]]:
    if issubclass(model, BaseModel):
        return {
            name: (field.annotation, "" if field.is_required() else _default(field.default))
            for name, field in model.model_fields.items()
        }
    return {one.name: (one.type, _default(one.default)) for one in dataclasses.fields(model)}  # type: ignore[arg-type]


def _default(value: Any) -> str:
    if value is None or value == () or type(value).__name__ == "PydanticUndefinedType":
        return "–"
    if isinstance(value, BaseModel) or dataclasses.is_dataclass(value):
        return "–"
    text = ", ".join(value) if isinstance(value, tuple) else str(value)
    return f"`{text}`" if text else "–"


def _parts() -> Iterator[type]:
    """Nested blocks, each once, in the order in which they are met."""
    seen: dict[type, None] = {}

    def meet(annotation: Any) -> None:
        is_part = isinstance(annotation, type) and (
            issubclass(annotation, definitions.Part) or annotation is records.FieldMap
        )
        if is_part and annotation not in seen:
            seen[annotation] = None
            for inner, _ in _members(annotation).values():
                meet(inner)
        for argument in get_args(annotation):
            meet(argument)

    for model in KINDS.values():
        for annotation, _ in _members(model).values():
            meet(annotation)
    yield from seen


def _type(annotation: Any) -> str:
    """A type in the user's words."""
    if isinstance(annotation, str):
        words = annotation.replace("Mapping[str, str]", "map of text").replace("str", "text")
        return words.replace(" | None", "").replace("|", "or")
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is UnionType:
        return _either(arguments)
    name = getattr(annotation, "__name__", str(annotation))
    simple = {
        "str": "text",
        "int": "integer",
        "float": "number",
        "bool": "true or false",
        "NoneType": "",
    }
    if name == "Literal":
        return " or ".join(f"`{one}`" for one in arguments)
    if origin is not None and issubclass(_class(origin), Mapping):
        return f"map of {_type(arguments[1])}"
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if arguments and name in ("Annotated", "Union", "Optional"):
        return _either(arguments[:1] if name == "Annotated" else arguments)
    if name in ("JsonValue", "TypeAliasType") or "JsonValue" in name:
        return "any"
    return simple.get(name, name)


def _either(types: Sequence[Any]) -> str:
    return " or ".join(dict.fromkeys(word for word in map(_type, types) if word))


def _class(origin: Any) -> type:
    return origin if isinstance(origin, type) else object


def _describe(schema: dict[str, Any], name: str) -> None:
    """Put field docstrings into a schema; titles, which only repeat the keys, go."""
    schema.pop("title", None)
    docs = field_docs(name)
    for key, field in schema.get("properties", {}).items():
        field.pop("title", None)
        if key in docs:
            field["description"] = " ".join(docs[key].split())


@cache
def field_docs(name: str) -> Mapping[str, str]:
    """Field → the text below it, of a class of the definitions, its bases included."""
    trees = _classes()
    found: dict[str, str] = {}
    if name not in trees:
        return found
    for base in trees[name].bases:
        if isinstance(base, ast.Name):
            found.update(field_docs(base.id))
    body = trees[name].body
    for field, text in zip(body, body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            found[field.target.id] = str(text.value.value)
    return found


@cache
def _classes() -> Mapping[str, ast.ClassDef]:
    return {
        node.name: node
        for module in (agent, definitions, judge, records, shared_types)
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef)
    }
