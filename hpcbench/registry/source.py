"""YAML with positions: every value knows its file, line and column, every mistake is reported at its place.

Useful alone: `read(path)` gives plain data with positions; `overlay(base, over)` overlays one file on
another; `validate(model, source)` turns pydantic's errors into
`file.yaml:12:5: unknown key 'modle' (did you mean 'model'?)`.

Definitions contain only JSON's types: text, numbers, true and false, lists, maps with text as keys. What
YAML 1.1 and 1.2 read as two different values is the text that was written (`Loader`), and `yes` or `true` is
never the number 1.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

import yaml
from pydantic import BaseModel
from yaml.reader import ReaderError

from hpcbench.errors import Problem, UserError, nearest
from hpcbench.files.user import read_text
from hpcbench.schema.forms import NUMBERS, checked, complaint

MAX_BYTES = 1 << 20
"""Size limit of a definition; guards against a path to a data file."""

MAX_NODES = 100_000
"""Limit of nodes in a definition, aliases expanded; against aliases that multiply or contain themselves."""

MAX_DEPTH = 64
"""Limit of nesting in a definition."""

SHALLOW = 4096
"""A text of so few characters is never deep enough to exhaust libyaml's stack, which ends the process."""

Loc = tuple[str | int, ...]
ModelT = TypeVar("ModelT", bound=BaseModel)

_TAG = "tag:yaml.org,2002:"
_PLAIN = {"bool", "int", "float", "null"}
_SURPRISES = {"int", "float", "timestamp"}
_NUMBERS = {
    f"{_TAG}int": r"[-+]?(?:0|[1-9][0-9]*|0x[0-9a-fA-F]+)",
    f"{_TAG}float": r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
}
"""Tag → the numbers that YAML 1.1 and 1.2 read alike."""


class Loader(yaml.SafeLoader):
    """PyYAML's loader without the surprises of YAML 1.1: these scalars are text.

    A date; `12:30:00` (in YAML 1.1 the number 45,000); `010` (8); `1_000`; `0b11`. `yes`, `no`, `on` and
    `off` stay true and false: definitions of v0.2 use them.
    """

    yaml_implicit_resolvers = {
        first: [(tag, form) for tag, form in forms if tag.rpartition(":")[2] not in _SURPRISES]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


for _tag, _form in _NUMBERS.items():
    Loader.add_implicit_resolver(_tag, re.compile(f"(?:{_form})$"), list("-+.0123456789"))


class _FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """libyaml where PyYAML was built with it: ten times as fast, but its messages are poorer."""

    yaml_implicit_resolvers = Loader.yaml_implicit_resolvers


class Place(NamedTuple):
    """A position in a file."""

    line: int
    """From 1."""
    column: int
    """From 1."""
    file: Path | None = None
    """None: the source's own."""


@dataclass(frozen=True, slots=True)
class Source:
    """YAML as data and positions; from several files where overlays were applied."""

    path: Path
    """The file; with several files the lowest."""
    data: Any
    """Its content, as plain Python values."""
    marks: dict[Loc, Place] = field(default_factory=dict)
    """Path of keys and indexes → place of the value."""
    key_marks: dict[Loc, Place] = field(default_factory=dict)
    """The same for the keys themselves."""
    written: dict[Loc, Loc] = field(default_factory=dict)
    """Path of a key that was renamed → its path in the file."""

    def place(self, loc: Loc, *, at_key: bool = False) -> tuple[Path, int, int]:
        """File, line and column of a value; for a value that the file does not have, those of its parent."""
        if at_key and loc in self.key_marks:
            place = self.key_marks[loc]
        else:
            while loc and loc not in self.marks:
                loc = loc[:-1]
            place = self.marks.get(loc, Place(1, 1))
        return place.file or self.path, place.line, place.column

    def as_written(self, loc: Loc) -> Loc:
        """A path in the words of the file."""
        for count in range(len(loc), 0, -1):
            if (written := self.written.get(loc[:count])) is not None:
                return (*written, *loc[count:])
        return loc

    def called(self, loc: Loc) -> str:
        """A path in the words of the file, as text."""
        return ".".join(map(str, self.as_written(loc))) or "definition"

    def problem(
        self, loc: Loc, message: str, remedy: str | None = None, *, at_key: bool = False
    ) -> Problem:
        """A problem at a place."""
        file, line, column = self.place(loc, at_key=at_key)
        return Problem(message, str(file), line, column, remedy)


def other_ending(path: Path) -> Problem:
    """Why a file of a registry is not read that ends in .yml."""
    remedy = f"rename it to {path.with_suffix('.yaml').name}"
    return Problem(
        "a definition's file that does not end in .yaml is not read", str(path), 1, 1, remedy
    )


def read(path: Path) -> Source:
    """Read one YAML definition.

    Raises:
        UserError: no such file, too large, not UTF-8, not YAML, a key twice, or not a mapping.
    """
    return parse(path, read_text(path, MAX_BYTES))


def parse(path: Path, text: str) -> Source:
    """Read one YAML definition from text; problems name `path`.

    Raises:
        UserError: as `read`.
    """
    if len(text) > SHALLOW:
        _check_depth(path, text)
    try:
        return _compose(path, text, _FastLoader)
    except (yaml.YAMLError, RecursionError):
        return _compose_slowly(path, text)  # its message is better


def overlay(base: Source, over: Source) -> Source:
    """Overlay one definition on another: maps merge, all else replaces; `+key` appends, null deletes.

    Raises:
        UserError: a `+key` whose base is no list or that is no list itself, with its place.
    """
    laid = Source(
        base.path,
        copy.deepcopy(base.data),
        dict(base.marks),
        dict(base.key_marks),
        dict(base.written),
    )
    problems: list[Problem] = []
    _lay(laid, over, (), problems)
    if problems:
        raise UserError(*problems)
    return laid


class Unfit(UserError):
    """Data that do not fit the schema of their definition."""

    def __init__(self, source: Source, *problems: Problem) -> None:
        super().__init__(*problems)
        self.source = source
        """The source that was read."""


def validate(model: type[ModelT], source: Source) -> ModelT:
    """Validate the data as a definition; a key without a value is as if it were not there.

    Raises:
        Unfit: every mistake in it, each at its line and column.
    """
    found, details = checked(model, source.data)
    if found is None and (empty := list(_empty(model, source, details))):
        found, details = checked(model, _without(source.data, empty))
    if found is not None:
        return found
    typos = {
        (*detail["loc"][:-1], _meant(model, detail))
        for detail in details
        if detail["type"] in _UNKNOWN
    }
    problems = [_problem(model, source, detail) for detail in details if not _echo(detail, typos)]
    raise Unfit(source, *dict.fromkeys(problems))


# --- reading ------------------------------------------------------------------------------------------


def _check_depth(path: Path, text: str) -> None:
    """Refuse too deep nesting before any recursion; another function reports invalid YAML."""
    for loader in (_FastLoader, Loader):  # libyaml has its own limit, and names no place
        with contextlib.suppress(yaml.YAMLError):
            if place := _too_deep(yaml.parse(text, Loader=loader)):
                what = f"nested more than {MAX_DEPTH} levels deep"
                raise UserError(Problem(what, str(path), place.line, place.column, _FLATTER))
            return


def _too_deep(events: Iterable[yaml.Event]) -> Place | None:
    """Where the first collection starts that is deeper than `MAX_DEPTH`."""
    depth = 0
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            assert event.start_mark is not None
            return Place(event.start_mark.line + 1, event.start_mark.column + 1)
    return None


def _compose(path: Path, text: str, loader_class: Any) -> Source:
    loader = loader_class(text)
    try:
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise UserError(
                Problem("not a map of keys to values", str(path), 1, 1, "begin with `name: …`")
            )
        reader = _Reader(Source(path, None), loader)
        data = reader.value(node, (), 0)
        if reader.problems:
            raise UserError(*reader.problems)
        return Source(path, data, reader.source.marks, reader.source.key_marks)
    finally:
        loader.dispose()


def _compose_slowly(path: Path, text: str) -> Source:
    """PyYAML's own parser, whose errors give the expected token and its place."""
    try:
        return _compose(path, text, Loader)
    except ReaderError as error:
        what = f"character U+{ord(text[error.position]):04X} is not allowed in YAML"
        raise UserError(
            _after(path, text[: error.position], what)._replace(remedy="remove it")
        ) from error
    except yaml.MarkedYAMLError as error:
        raise UserError(_yaml_problem(path, error)) from error
    except yaml.YAMLError as error:
        raise UserError(
            Problem(f"not valid YAML: {str(error).splitlines()[0]}", str(path), 1, 1)
        ) from error
    except RecursionError:
        raise UserError(
            Problem(f"nested more than {MAX_DEPTH} levels deep", str(path), 1, 1, _FLATTER)
        ) from None


class _Reader:
    """Turns YAML nodes into data and records their positions."""

    def __init__(self, source: Source, loader: Any) -> None:
        self.source, self.loader = source, loader
        self.problems: list[Problem] = []
        self.seen = 0

    def value(self, node: yaml.Node, loc: Loc, depth: int, *, mark: bool = True) -> Any:
        """The value of a node; merged-in values get no mark, because they have no place of their own."""
        self.seen += 1
        if mark:
            start = node.start_mark
            self.source.marks[loc] = Place(start.line + 1, start.column + 1)
        if self.seen > MAX_NODES:
            raise UserError(
                self.source.problem(
                    loc,
                    f"more than {MAX_NODES:,} values, with aliases expanded",
                    "use fewer aliases",
                )
            )
        if depth > MAX_DEPTH:
            raise UserError(
                self.source.problem(loc, f"nested more than {MAX_DEPTH} levels deep", _FLATTER)
            )
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [
                self.value(child, (*loc, index), depth + 1, mark=mark)
                for index, child in enumerate(node.value)
            ]
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, loc, depth, mark)
        return self._wrong(node, f"a definition cannot contain {_short(node.tag)}", _NO_TAG)

    def _mapping(self, node: yaml.MappingNode, loc: Loc, depth: int, mark: bool) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                merged = {**self._merge(value_node, loc, depth), **merged}
                continue
            key = self._key(key_node)
            child = (*loc, key)
            if key in data:
                self._wrong(key_node, f"key '{key}' occurs twice", "remove one of them")
            if mark:
                start = key_node.start_mark
                self.source.key_marks[child] = Place(start.line + 1, start.column + 1)
            data[key] = self.value(value_node, child, depth + 1, mark=mark)
        return {**merged, **data} if merged else data

    def _merge(self, node: yaml.Node, loc: Loc, depth: int) -> dict[str, Any]:
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for one in nodes:
            value = self.value(one, loc, depth + 1, mark=False)
            if not isinstance(value, dict):
                self._wrong(one, "<< can only merge maps")
                continue
            merged = {**value, **merged}
        return merged

    def _key(self, node: yaml.Node) -> str:
        if isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}str":
            return str(node.value)
        if isinstance(node, yaml.ScalarNode):
            kind = _KEYS.get(node.tag.rpartition(":")[2], _short(node.tag))
            self._wrong(
                node, f"YAML reads the key {node.value!r:.40} as {kind}", "put it in quotes"
            )
            return str(node.value)
        self._wrong(node, "a key must be one word, or text in quotes")
        return "?"

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        tag = node.tag
        if tag == f"{_TAG}str":
            return node.value
        kind = tag.removeprefix(_TAG)
        if kind == "value":  # a bare `=`
            return node.value
        if kind not in _PLAIN:
            return self._wrong(node, f"a definition cannot contain {_short(tag)}", _NO_TAG)
        try:
            return self.loader.construct_object(node)
        except (ValueError, LookupError, AttributeError, OverflowError, TypeError):
            what = f"YAML cannot read {str(node.value)[:60]!r} as {_KEYS[kind]}"
            return self._wrong(node, what, "put it in quotes")

    def _wrong(self, node: yaml.Node, message: str, remedy: str | None = None) -> None:
        start = node.start_mark
        self.problems.append(
            Problem(message, str(self.source.path), start.line + 1, start.column + 1, remedy)
        )


def _short(tag: str) -> str:
    return f"!!{tag.removeprefix(_TAG)}" if tag.startswith(_TAG) else tag


def _after(path: Path, before: str, message: str) -> Problem:
    """A problem directly after a piece of the file."""
    lines = before.split("\n")
    return Problem(message, str(path), len(lines), len(lines[-1]) + 1)


def _yaml_problem(path: Path, error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    what = error.problem or error.context or "not valid YAML"
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    remedy = next((cure for said, cure in _CURES.items() if said in what), None)
    if "\\t" in what:
        what, remedy = "a tab cannot indent YAML", "use spaces"
    if "another document" in what:
        what = "a second definition begins"
    return Problem(what, str(path), line, column, remedy)


_KEYS = {"bool": "true or false", "int": "a whole number", "float": "a number", "null": "null"}
"""Type of YAML → its name for people."""
_FLATTER = "look for an alias of itself, or an extra bracket"
_NO_TAG = "remove the tag"
_CURES = {
    "unexpected end of stream": "close the quote",
    "<stream end>": "close the bracket",
    "<scalar>": "check the quotes of the line before",
    "expected <block end>": "let keys of one map begin in one column",
    "could not find expected ':'": "write `key: value`, with plain spaces before it",
    "another document": "keep one definition in a file: remove `---`",
    "mapping values are not allowed": "check the indentation; quote a text with a colon",
    "did not find expected": "check indentation and commas",
    "undefined alias": "define it before: &NAME",
    "alphabetic or numeric": "put it in quotes",
}
"""PyYAML's message → remedy."""


# --- overlays -----------------------------------------------------------------------------------------


def _lay(laid: Source, over: Source, loc: Loc, problems: list[Problem]) -> None:
    """Merge the map at `loc` of `over` into the map at the same place of `laid`."""
    below, above = _at(laid.data, loc), _at(over.data, loc)
    for key, value in above.items():
        source_loc = (*loc, key)
        if key.startswith("+") and len(key) > 1:
            _append(laid, over, loc, key, problems)
        elif value is None:
            below.pop(key, None)
            _forget(laid, source_loc)
        elif isinstance(value, dict) and isinstance(below.get(key), dict):
            _lay(laid, over, source_loc, problems)
        else:
            _forget(laid, source_loc)
            below[key] = copy.deepcopy(value)
            _remember(laid, over, source_loc, source_loc)


def _append(laid: Source, over: Source, loc: Loc, key: str, problems: list[Problem]) -> None:
    added_loc: Loc = (*loc, key)
    target, added = (*loc, key[1:]), _at(over.data, added_loc)
    below = _at(laid.data, loc).setdefault(key[1:], [])
    if not isinstance(below, list) or not isinstance(added, list):
        what = f"'{key}' appends to a list, but '{key[1:]}' is not a list in the lower definition"
        problems.append(
            over.problem(added_loc, what if isinstance(added, list) else f"'{key}' must be a list")
        )
        return
    for index, value in enumerate(added):
        _remember(laid, over, (*loc, key, index), (*target, len(below)))
        below.append(copy.deepcopy(value))
    laid.marks.setdefault(target, _own(over, over.marks[added_loc]))


def _at(data: Any, loc: Loc) -> Any:
    for part in loc:
        data = data[part]
    return data


def _forget(source: Source, loc: Loc) -> None:
    for marks in (source.marks, source.key_marks):
        for known in [one for one in marks if one[: len(loc)] == loc]:
            del marks[known]


def _remember(laid: Source, over: Source, there: Loc, here: Loc) -> None:
    for marks, others in ((laid.marks, over.marks), (laid.key_marks, over.key_marks)):
        for loc, place in others.items():
            if loc[: len(there)] == there:
                new = (*here, *loc[len(there) :])
                marks[new] = _own(over, place)


def _own(source: Source, place: Place) -> Place:
    return place._replace(file=place.file or source.path)


# --- pydantic's errors --------------------------------------------------------------------------------

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def _empty(
    model: type[BaseModel], source: Source, details: Iterable[Mapping[str, Any]]
) -> Iterator[Loc]:
    """Places of keys without a value, where their field must have one."""
    for detail in details:
        loc = _known_loc(source, detail["loc"])
        known = loc[-1:] == detail["loc"][-1:] and loc[-1] in _fields(model, detail["loc"][:-1])
        if known and detail["input"] is None:
            yield loc


def _without(data: Any, places: Iterable[Loc]) -> Any:
    """A copy of the data without some keys."""
    kept = copy.deepcopy(data)
    for loc in places:
        _at(kept, loc[:-1]).pop(loc[-1], None)
    return kept


def _problem(model: type[BaseModel], source: Source, detail: dict[str, Any]) -> Problem:
    loc = _known_loc(source, detail["loc"])
    kind, last, given = detail["type"], str(detail["loc"][-1]), detail["input"]
    if kind in _UNKNOWN:
        meant = _meant(model, detail)
        known = _fields(model, detail["loc"][:-1])
        listed = f"there are: {', '.join(known[:8])}{', …' if len(known) > 8 else ''}"
        remedy = f"did you mean '{meant}'?" if meant else listed if known else None
        at_key = loc[-1:] == detail["loc"][-1:]  # false if a merge added the key
        return source.problem(loc, f"unknown key '{last}'", remedy, at_key=at_key)
    if kind == "missing":
        last = str(source.as_written((*loc, last))[-1])
        return source.problem(loc, f"key '{last}' is missing", f"add `{last}: …`")
    if kind == "string_type" and isinstance(given, bool):
        what = f"YAML reads a bare yes, no, on, off, true or false as {str(given).lower()}"
        return source.problem(loc, f"{source.called(loc)}: {what}", "put the word in quotes")
    if kind == "string_type" and isinstance(given, (int, float)):
        return source.problem(
            loc, f"{source.called(loc)}: YAML reads {shown(given)} as a number", "put it in quotes"
        )
    remedy = _meant_choice(detail, given) if kind == "literal_error" else None
    if kind in NUMBERS and isinstance(given, bool):
        remedy = "write a number; YAML's yes, no, on and off are true and false"
    what = f"{source.called(loc)}: {complaint(detail)}, not {shown(given)}"
    return source.problem(loc, what, remedy)


def _meant_choice(detail: Mapping[str, Any], given: Any) -> str | None:
    """The choice nearest to a word that is no choice."""
    choices = re.findall(r"'([^']+)'", str(detail["ctx"]["expected"]))
    close = nearest(str(given), choices)
    return f"did you mean '{close}'?" if close else None


def _meant(model: type[BaseModel], detail: dict[str, Any]) -> str | None:
    """The field whose name is nearest to an unknown key."""
    known = _fields(model, detail["loc"][:-1])
    return nearest(str(detail["loc"][-1]), known)


def _echo(detail: dict[str, Any], typos: Collection[Loc]) -> bool:
    """Whether an error only follows from another error that is reported.

    A key that is missing because it is misspelt; a list that is too short because its entries are wrong.
    """
    if detail["type"] == "missing":
        return detail["loc"] in typos
    if detail["type"] != "too_short":
        return False
    return bool(len(detail["input"]) >= detail["ctx"]["min_length"])


def _known_loc(source: Source, loc: Loc) -> Loc:
    """A location without the parts that pydantic adds (tags of unions) and the file does not have."""
    known: Loc = ()
    for part in loc:
        if (*known, part) in source.marks:
            known = (*known, part)
    return known


def _fields(model: type[BaseModel], loc: Loc) -> list[str]:
    """Field names of the model at a place inside `model`; `loc` has the tags that pydantic adds."""
    current: list[Any] = [model]
    for part in loc:
        fields = [_members(one)[part] for one in current if part in _members(one)]
        tagged = [one for one in current if _is_tag(one, part)] if len(current) > 1 else []
        if tagged:
            current = tagged
        elif fields:
            current = _models_in(fields[0])
    return [str(name) for name in _members(current[0])] if current else []


def _is_tag(model: Any, part: str | int) -> bool:
    """Whether pydantic names this member of a union so in a location: its class or its `type`."""
    return part in (model.__name__, *get_args(_members(model).get("type")))


def _members(model: Any) -> Mapping[str | int, Any]:
    """Field → annotation, of a pydantic model or a dataclass."""
    if issubclass(model, BaseModel):
        return {name: one.annotation for name, one in model.model_fields.items()}
    return {name: None for name in getattr(model, "__dataclass_fields__", ())}


def _models_in(annotation: Any) -> list[Any]:
    """All models and dataclasses in an annotation, in its order."""
    if isinstance(annotation, type) and (
        issubclass(annotation, BaseModel) or hasattr(annotation, "__dataclass_fields__")
    ):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]


def shown(value: Any) -> str:
    """A value in a message, as YAML writes it where Python differs."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    try:
        return f"{value!r:.60}"
    except ValueError:  # an integer of more digits than Python writes
        return "a number too long to show"
