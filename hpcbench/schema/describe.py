"""JSON Schemas and reference pages, made from the definitions' own models and their field docstrings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from hpcbench.schema.definition import Definition
from hpcbench.schema.kinds import KINDS


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
    common = _table(Definition)
    lines = [
        "# Definitions",
        "",
        "All kinds of YAML files with all their keys. A file's folder says its kind: `models/NAME.yaml` "
        "describes a model. The type of a key leads to [the part](#parts-of-definitions) that is written "
        "there. *required*: the definition is refused without the key. –: without the key there is no value. "
        "[How definitions are found](registries.md), and "
        "[what may change in them](versions.md#files-that-you-write).",
        "",
        "<!-- `hpcbench schema --markdown` makes this page from the models; do not edit it. -->",
        "",
        "## Every definition",
        "",
        "These keys are in definitions of every kind.",
        "",
        *common,
    ]
    for kind, model in KINDS.items():
        lines += [f"## {kind}/", "", (inspect.getdoc(model) or "").splitlines()[0], ""]
        lines += _table(model, known=common[2:])
    lines += ["## Parts of definitions", ""]
    for part in _parts():
        lines += [f"### {part.__name__}", "", (inspect.getdoc(part) or "").splitlines()[0], ""]
        lines += _table(part)
    return "\n".join(lines)


def _table(model: type, known: Sequence[str] = ()) -> list[str]:
    """A table of a model's fields, without the known rows."""
    rows = []
    for name, (annotation, default) in _members(model).items():
        doc = " ".join(field_docs(model.__name__).get(name, "").split()).replace("|", "\\|")
        doc = re.sub(r"docs/([\w-]+)\.md", r"[\1](\1.md)", doc)
        rows.append(f"| `{name}` | {_type(annotation)} | {default} | {doc} |")
    head = ["| key | type | default | meaning |", "|---|---|---|---|"]
    return [*head, *(row for row in rows if row not in known), ""]


def _members(model: type) -> dict[str, tuple[Any, str]]:
    if issubclass(model, BaseModel):
        return {
            name: (
                field.annotation,
                "*required*" if field.is_required() else _default(field.default),
            )
            for name, field in model.model_fields.items()
        }
    types = get_type_hints(model)
    return {one.name: (types[one.name], _default_of(one)) for one in dataclasses.fields(model)}  # type: ignore[arg-type]


def _default_of(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return _default(field.default)
    return "*required*" if field.default_factory is dataclasses.MISSING else "–"


def _default(value: Any) -> str:
    if value is None or value == () or type(value).__name__ == "PydanticUndefinedType":
        return "–"
    if isinstance(value, BaseModel) or dataclasses.is_dataclass(value):
        return "–"
    if isinstance(value, bool):
        value = str(value).lower()
    text = ", ".join(value) if isinstance(value, tuple) else str(value)
    return f"`{text}`" if text else "–"


def _parts() -> Iterator[type]:
    """Nested blocks, each once, in the order in which they are met."""
    seen: dict[type, None] = {}

    def meet(annotation: Any) -> None:
        if _is_part(annotation) and annotation not in seen:
            seen[annotation] = None
            for inner, _ in _members(annotation).values():
                meet(inner)
        for argument in get_args(annotation):
            meet(argument)

    for model in KINDS.values():
        for annotation, _ in _members(model).values():
            meet(annotation)
    yield from seen


def _is_part(annotation: Any) -> bool:
    """Whether a type is a map with keys of its own, and no kind."""
    return (
        isinstance(annotation, type)
        and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation))
        and annotation not in KINDS.values()
    )


def _type(annotation: Any) -> str:
    """A type in the user's words; a part, or a kind that may be written out, leads to its table."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is UnionType:
        return _either(arguments)
    name = getattr(annotation, "__name__", str(annotation))
    simple = {
        "str": "text",
        "int": "integer",
        "float": "number",
        "bool": "true or false",
        "Any": "any",
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
    if _is_part(annotation):
        return f"[{name}](#{name.lower()})"
    if annotation in KINDS.values():
        kind = next(kind for kind, model in KINDS.items() if model is annotation)
        return f"[{name}](#{kind})"
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
    return found | docs_below(trees[name])


def docs_below(node: ast.ClassDef) -> dict[str, str]:
    """Field → the text below it, which only the source of a class has."""
    return {
        field.target.id: text.value.value
        for field, text in zip(node.body, node.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


@cache
def _classes() -> Mapping[str, ast.ClassDef]:
    return {
        node.name: node
        for module in sorted(Path(__file__).parent.glob("*.py"))
        for node in ast.parse(module.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }
