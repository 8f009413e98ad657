"""YAML with positions: every value knows its line and column, every mistake is told at its place.

Useful alone: `read(path)` gives plain data beside positions; `validate(model, source)` turns pydantic's
complaints into `file.yaml:12:5: unknown key 'modle' (did you mean 'model'?)`.
"""

from __future__ import annotations

import codecs
import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from yaml.constructor import ConstructorError
from yaml.reader import ReaderError

from hpcbench.errors import Problem, UserError

MAX_BYTES = 1 << 20
"""No document is larger; guards against a path that points at data."""

MAX_NODES = 100_000
"""No document says more, aliases written out; guards against aliases that multiply or contain themselves."""

Loc = tuple[str | int, ...]
ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Source:
    """A YAML file as data and as places."""

    path: Path
    """The file."""
    data: Any
    """What it says, as plain Python values."""
    marks: dict[Loc, tuple[int, int]] = field(default_factory=dict)
    """Path of keys and indexes → 1-based line and column of the value."""
    key_marks: dict[Loc, tuple[int, int]] = field(default_factory=dict)
    """The same for the keys themselves."""

    def problem(
        self, loc: Loc, message: str, remedy: str | None = None, *, at_key: bool = False
    ) -> Problem:
        """A problem at a place; a place the file does not have falls back to its parent."""
        if at_key and loc in self.key_marks:
            line, column = self.key_marks[loc]
        else:
            while loc and loc not in self.marks:
                loc = loc[:-1]
            line, column = self.marks.get(loc, (1, 1))
        return Problem(message, str(self.path), line, column, remedy)


def read(path: Path) -> Source:
    """Read one YAML document.

    Raises:
        UserError: no such file, too large, not UTF-8, not YAML, a key twice, or not a mapping.
    """
    text = _read_text(path)
    try:
        loader = _Loader(text)
    except ReaderError as error:
        what = f"character U+{ord(text[error.position]):04X} is not allowed in YAML"
        raise UserError(_at(path, text[: error.position], what)) from error
    try:
        node = loader.get_single_node()
        source = Source(path, None)
        if isinstance(node, yaml.MappingNode):
            problems = list(_walk(node, (), source, depth=0))
            if problems:
                raise UserError(*problems)
            return Source(
                path,
                loader.construct_document(node),
                source.marks,
                source.key_marks,
            )
    except yaml.MarkedYAMLError as error:
        raise UserError(_yaml_problem(path, error)) from error
    except yaml.YAMLError as error:
        raise UserError(Problem(f"not YAML: {str(error).splitlines()[0]}", str(path))) from error
    except RecursionError:
        mark = loader.get_mark()
        deep = Problem("nested too deeply", str(path), mark.line + 1, mark.column + 1)
        raise UserError(deep) from None
    finally:
        loader.dispose()
    raise UserError(Problem("not a mapping of keys to values", str(path), 1, 1))


def validate(model: type[ModelT], source: Source) -> ModelT:
    """Make a document of the data.

    Raises:
        UserError: every mistake in it, each at its line and column.
    """
    try:
        return model.model_validate(source.data)
    except ValidationError as error:
        details: list[dict[str, Any]] = [dict(detail) for detail in error.errors()]
        typos = {
            (*detail["loc"][:-1], _meant(model, source, detail))
            for detail in details
            if detail["type"] == "extra_forbidden"
        }
        problems = [
            _problem(model, source, detail) for detail in details if not _echo(detail, typos)
        ]
        raise UserError(*problems) from error


class _Loader(yaml.SafeLoader):
    """A loader that tells a value it cannot read, `2024-13-45` or `!!int x`, at its place."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, OverflowError, TypeError) as error:
            kind = node.tag.rpartition(":")[2]
            what = f"{str(node.value)[:60]!r} cannot be read as a {kind}"
            raise ConstructorError(None, None, what, node.start_mark) from error


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(Problem(f"cannot be read: {error.strerror}", str(path))) from error
    if len(raw) > MAX_BYTES:
        raise UserError(Problem(f"larger than {MAX_BYTES} bytes: not a document", str(path)))
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8")
        raise UserError(_at(path, before, "not UTF-8")) from error


def _at(path: Path, before: str, message: str) -> Problem:
    """A problem right behind a piece of the file."""
    lines = before.split("\n")
    return Problem(message, str(path), len(lines), len(lines[-1]) + 1)


def _walk(node: yaml.Node, loc: Loc, source: Source, depth: int) -> Iterator[Problem]:
    """Record where every value stands; yield duplicate keys."""
    source.marks[loc] = (node.start_mark.line + 1, node.start_mark.column + 1)
    if len(source.marks) > MAX_NODES:
        raise UserError(source.problem(loc, "aliases make this document endless"))
    if depth > 64:
        yield source.problem(loc, "nested more than 64 levels deep")
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key_node, value_node in node.value:
            key = str(key_node.value)
            place = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            if key in seen and key != "<<":
                yield Problem(f"key '{key}' stands twice", str(source.path), place[0], place[1])
            seen.add(key)
            child = (*loc, key)
            source.key_marks[child] = place
            yield from _walk(value_node, child, source, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            yield from _walk(child, (*loc, index), source, depth + 1)


def _yaml_problem(path: Path, error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    what = error.problem or error.context or "not YAML"
    if "\\t" in what:
        what = "a tab; YAML is indented with spaces"
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return Problem(what, str(path), line, column)


def _problem(model: type[BaseModel], source: Source, detail: dict[str, Any]) -> Problem:
    loc = _known_loc(source, detail["loc"])
    kind, last = detail["type"], str(detail["loc"][-1])
    if kind == "extra_forbidden":
        meant = _meant(model, source, detail)
        remedy = f"did you mean '{meant}'?" if meant else None
        at_key = loc[-1:] == detail["loc"][-1:]  # it is not if a merge brought the key
        return source.problem(loc, f"unknown key '{last}'", remedy, at_key=at_key)
    if kind == "missing":
        return source.problem(loc, f"key '{last}' is missing")
    message = detail["msg"][0].lower() + detail["msg"][1:]
    return source.problem(loc, f"{_dotted(loc)}: {message}, not {_shown(detail['input'])}")


def _meant(model: type[BaseModel], source: Source, detail: dict[str, Any]) -> str | None:
    """The field whose name is nearest to an unknown key."""
    fields = _fields(model, _known_loc(source, detail["loc"][:-1]))
    close = difflib.get_close_matches(str(detail["loc"][-1]), fields, n=1, cutoff=0.6)
    return close[0] if close else None


def _echo(detail: dict[str, Any], typos: Collection[Loc]) -> bool:
    """Whether a complaint only follows from another that is told.

    A key that is missing because it is misspelt; a list called too short because its entries are wrong.
    """
    if detail["type"] == "missing":
        return detail["loc"] in typos
    if detail["type"] != "too_short":
        return False
    return bool(len(detail["input"]) >= detail["ctx"]["min_length"])


def _known_loc(source: Source, loc: Loc) -> Loc:
    """Drop what pydantic adds to a location (tags of unions) and the file does not have."""
    known: Loc = ()
    for part in loc:
        if (*known, part) in source.marks:
            known = (*known, part)
    return known


def _fields(model: type[BaseModel], loc: Loc) -> list[str]:
    """Field names of the model at a place inside `model`."""
    current: type[BaseModel] | None = model
    for part in loc:
        if current is None:
            return []
        if isinstance(part, str) and part in current.model_fields:
            current = _model_in(current.model_fields[part].annotation)
    return list(current.model_fields) if current else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(argument) for argument in get_args(annotation))
    return next((model for model in found if model is not None), None)


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.60}"
    except ValueError:  # an integer of more digits than Python writes
        return "a number too long to show"


def _dotted(loc: Loc) -> str:
    return ".".join(str(part) for part in loc) or "document"
