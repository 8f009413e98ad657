"""Writes definitions of VLMHyperBench v0.2 in today's spelling, in their own text, with their comments.

`upgrade` decides what the words mean. This module compares its result with the text: each value still has
the position that it was read from, so a key with another name at an old position is a renamed key. Only
characters that must change are replaced. The result is read again; where any value would differ, as with
anchors, the whole text is written from its data, below its comments.
"""

from __future__ import annotations

import contextlib
import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hpcbench.errors import Problem, UserError
from hpcbench.files.atomic import write_atomic
from hpcbench.registry.source import Loader, Loc, Place, Source, other_ending, parse, read
from hpcbench.registry.upgrade import CURRENT, FOLDERS, upgrade
from hpcbench.schema.kinds import KINDS

VERSION = "schema_version"
WIDTH = 110

_KINDS = {name: kind for kind in KINDS for name in (kind, *FOLDERS.get(kind, ()))}
"""Folder, today's or v0.2's → kind of its definitions."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A file of a registry in today's spelling."""

    path: Path
    """The file as it is."""
    target: Path
    """Where the new text belongs: below the folder of today's name."""
    before: str
    """Its text."""
    after: str
    """Its text in today's spelling."""


def rewritten(folder: Path) -> list[Rewritten]:
    """Files below a folder of registries that are not in today's spelling.

    Args:
        folder: it has the folders of the kinds of definitions, `run_tasks/` or `runs/` …

    Raises:
        UserError: every definition that cannot be read or translated; or the folder has no definitions.
    """
    found, problems = list[Rewritten](), list[Problem]()
    files = [path for name in _KINDS for path in _yaml_below(folder / name)]
    if not files:
        what = f"the folder has no definitions: none of {', '.join(_KINDS)} has YAML files"
        raise UserError(what, file=folder, remedy="name the folder above them")
    for path in files:
        if path.suffix != ".yaml":
            problems.append(other_ending(path))
            continue
        name, *below = path.relative_to(folder).parts
        target = folder.joinpath(_KINDS[name], *below)
        try:
            before = read_exactly(path)
            after = in_todays_spelling(_KINDS[name], path, before)
        except UserError as error:
            problems.extend(error.problems)
            continue
        if target != path and target.exists() and read_exactly(target) != after:
            problems.append(Problem(f"{target} exists already", str(path), remedy="remove one"))
        if after != before or target != path:
            found.append(Rewritten(path, target, before, after))
    if problems:
        raise UserError(*problems)
    return found


def left(folder: Path) -> list[Path]:
    """YAML files below a folder of registries that are in no folder of a kind: v0.2's `frameworks/` …"""
    return [
        path
        for path in _yaml_below(folder)
        if path.relative_to(folder).parts[0] not in _KINDS
        and not _is_hidden(path.relative_to(folder))
    ]


def _yaml_below(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.suffix in (".yaml", ".yml") and path.is_file()
    )


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def write(found: Sequence[Rewritten]) -> None:
    """Write the new texts. After a kill, the next call does the rest: what is done is in today's spelling.

    Raises:
        UserError: a file cannot be written.
    """
    for one in found:
        try:
            one.target.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(one.target, one.after.encode())
            if one.target != one.path:
                one.path.unlink()
                with contextlib.suppress(OSError):  # other files are in it
                    one.path.parent.rmdir()
        except OSError as error:
            raise UserError(f"cannot write this file: {error.strerror}", file=one.target) from error


def read_exactly(path: Path) -> str:
    """The text of a file with its own line ends and byte order mark.

    Raises:
        UserError: as `source.read`.
    """
    read(path)
    return path.read_bytes().decode()


def in_todays_spelling(kind: str, path: Path, text: str) -> str:
    """The text of a definition; the same where it is in today's form.

    Raises:
        UserError: it cannot be read, or has words of v0.2 that hpcbench does not obey.
    """
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    source = parse(path, text.removeprefix(mark))
    new = upgrade(kind, source)
    if new is source:
        return text
    ends = "\r\n" if text.count("\r\n") == text.count("\n") else "\n"
    plain = text.removeprefix(mark).replace("\r\n", "\n")
    wanted = {VERSION: CURRENT, **new.data}
    after = _edited(path, plain, new, wanted)
    return mark + after.replace("\n", ends)


def _edited(path: Path, text: str, new: Source, wanted: Mapping[str, Any]) -> str:
    text = text if text.endswith("\n") else f"{text}\n"
    root = yaml.compose(text, Loader)
    assert isinstance(root, yaml.MappingNode)
    edits = _Edits(text, new, root)
    try:
        edits.mapping((), root, wanted)
        after = edits.applied()
        if parse(path, after).data == wanted:
            return after
    except (UserError, _Unclear):
        pass
    comments = "".join(f"{one}\n" for _, one in edits.comments(0, len(text)))
    return comments + _dump(wanted)


class _Unclear(Exception):
    """The text cannot be edited in place."""


@dataclass(slots=True)
class _Edits:
    """Replacements in a text, collected while its nodes are compared with the wanted data."""

    text: str
    new: Source
    root: yaml.Node
    found: list[tuple[int, int, str]] = field(default_factory=list)
    """Begin, end and new text."""
    kept: set[int] = field(default_factory=set)
    """Beginnings of comments that stay in the text or are written elsewhere."""
    scalars: list[tuple[int, int]] = field(default_factory=list)
    keys: dict[tuple[int, int], tuple[yaml.Node, yaml.Node, bool]] = field(default_factory=dict)
    """Line and column of a key → key, value, and whether it is in a map of one line."""

    def __post_init__(self) -> None:
        self._collect(self.root)

    def _collect(self, node: yaml.Node) -> None:
        if isinstance(node, yaml.ScalarNode):
            self.scalars.append((node.start_mark.index, node.end_mark.index))
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                place = (key.start_mark.line + 1, key.start_mark.column + 1)
                self.keys[place] = (key, value, bool(node.flow_style))
                self._collect(key)
                self._collect(value)
        elif isinstance(node, yaml.SequenceNode):
            for one in node.value:
                self._collect(one)

    # --- comparing --------------------------------------------------------------------------------------

    def mapping(self, loc: Loc, node: yaml.MappingNode, wanted: Mapping[str, Any]) -> None:
        """Make a map of the text equal to the wanted one."""
        own = {_place(key): (key, value) for key, value in node.value}
        here: dict[Place, str] = {}
        added: list[str] = []
        for name in wanted:
            place = self._origin((*loc, name))
            if place in own and place not in here:
                here[place] = name
            else:
                added.append(name)
        removed = [key for place, (key, _) in own.items() if place not in here]
        if not loc and VERSION in added:  # also where its value was another one
            added.remove(VERSION)
            old = [key for key in removed if key.value == VERSION]
            for key in old:
                removed.remove(key)
                here[_place(key)] = VERSION
            if not old:
                first = node.value[0][0].start_mark.index
                self.found.append((first, first, f"{VERSION}: {CURRENT}\n"))
        if node.flow_style and (added or removed):
            self._value(node, dict(wanted))
            return
        at = self._end(node)
        indent = node.start_mark.column
        # Before the parts that they come from, which keep the comments that are left in them.
        entries = [self._entry((*loc, name), name, wanted[name], indent) for name in added]
        for place, name in here.items():
            key, value = own[place]
            if key.value != name:
                self._replace(key, _scalar(name, key))
            self._same((*loc, name), key, value, wanted[name])
        self.found += [
            (at, at, entry) for entry in entries
        ]  # behind what inner maps add at this place
        for key in removed:
            self._remove(node, key)

    def _same(self, loc: Loc, key: yaml.Node, node: yaml.Node, wanted: Any) -> None:
        """Make a value of the text equal to the wanted one."""
        if isinstance(node, yaml.MappingNode) and isinstance(wanted, dict) and wanted:
            self.mapping(loc, node, wanted)
        elif isinstance(node, yaml.SequenceNode) and isinstance(wanted, list) and wanted:
            self._sequence(loc, key, node, wanted)
        elif _plain(node) != wanted:
            self._value(node, wanted, key)

    def _sequence(
        self, loc: Loc, key: yaml.Node, node: yaml.SequenceNode, wanted: list[Any]
    ) -> None:
        own = {_place(one): one for one in node.value}
        places = [self.new.marks.get((*loc, index)) for index in range(len(wanted))]
        inside = [place for place in places if place in own]
        if inside != places or inside != [place for place in own if place in inside]:
            if _plain(node) != wanted:
                self._value(node, wanted, key)
            return
        if node.flow_style and len(inside) < len(own):
            self._value(node, wanted, key)
            return
        for index, place in enumerate(inside):
            self._same((*loc, index), node.value[index], own[place], wanted[index])
        for place, one in own.items():
            if place not in inside:
                self._cut(one.start_mark.index, self._end(one), dash=True)

    def _origin(self, loc: Loc) -> Place | None:
        return self.new.key_marks.get(loc)

    # --- editing ----------------------------------------------------------------------------------------

    def _replace(self, node: yaml.Node, text: str) -> None:
        self.found.append((node.start_mark.index, node.end_mark.index, text))

    def _value(self, node: yaml.Node, wanted: Any, key: yaml.Node | None = None) -> None:
        """Write a value in one line, in place of the one in the text."""
        if isinstance(node, yaml.ScalarNode):
            inside = node.style not in ("|", ">")
        else:
            inside = bool(isinstance(node, yaml.CollectionNode) and node.flow_style)
        if inside:
            begin, end = node.start_mark.index, node.end_mark.index
            written = _scalar(wanted, node)
        else:
            if key is None or self.text[key.end_mark.index] != ":":
                raise _Unclear
            begin, end = key.end_mark.index, self._end(node) - 1
            written = f": {_flow(wanted)}"
        self._keep(begin, end, self._line(begin))
        self.found.append((begin, end, written))

    def _entry(self, loc: Loc, name: str, wanted: Any, indent: int) -> str:
        """Lines of a key that this map did not have: moved from elsewhere in the text, or new."""
        origin = self._origin(loc)
        known = self.keys.get((origin.line, origin.column)) if origin is not None else None
        if known is not None and _plain(known[1]) == wanted:
            key, value, in_line = known
            if in_line:
                text = self.text[value.start_mark.index : value.end_mark.index]
                if "\n" not in text:
                    return f"{' ' * indent}{_scalar(name)}: {text}\n"
            elif self._begins_line(key.start_mark.index):
                begin, end = self._line(key.start_mark.index), self._end(value)
                self.kept |= {at for at, _ in self.comments(begin, end)}
                after_key = self.text[key.end_mark.index : end]
                moved = " " * key.start_mark.column + _scalar(name, key) + after_key
                return textwrap.indent(textwrap.dedent(moved), " " * indent)
        return textwrap.indent(_dump({name: wanted}), " " * indent)

    def _remove(self, node: yaml.MappingNode, key: yaml.Node) -> None:
        value = next(value for one, value in node.value if one is key)
        end = self._end(value) if self._end(value) > key.end_mark.index else self._next(key)
        self._cut(key.start_mark.index, end)

    def _cut(self, begin: int, end: int, *, dash: bool = False) -> None:
        """Take whole lines out of the text; their comments stay, as lines of their own."""
        start = self._line(begin)
        before = self.text[start:begin].strip()
        if before != ("-" if dash else ""):
            raise _Unclear
        self._keep(start, end, start)
        self.found.append((start, end, ""))

    def _keep(self, begin: int, end: int, at: int) -> None:
        """Write comments of a part that goes as lines before a line."""
        indent = re.match(r" *", self.text[at:])
        for place, comment in self.comments(begin, end):
            if place not in self.kept:
                self.kept.add(place)
                self.found.append((at, at, f"{indent[0] if indent else ''}{comment}\n"))

    def comments(self, begin: int, end: int) -> Iterator[tuple[int, str]]:
        """Comments of a part of the text, each with its place."""
        for found in re.finditer(r"(?:^|(?<=\s))#.*", self.text[begin:end], re.MULTILINE):
            at = begin + found.start()
            if not any(first <= at < last for first, last in self.scalars):
                yield at, found[0].rstrip()

    def applied(self) -> str:
        """The text with all replacements.

        Raises:
            _Unclear: two of them overlap.
        """
        parts, at = list[str](), 0
        for begin, end, text in sorted(self.found, key=lambda one: (one[0], one[1])):
            if begin < at:
                raise _Unclear
            parts += [self.text[at:begin], text]
            at = end
        return "".join([*parts, self.text[at:]])

    # --- places -----------------------------------------------------------------------------------------

    def _line(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def _next(self, key: yaml.Node) -> int:
        return self.text.find("\n", key.end_mark.index) + 1

    def _begins_line(self, at: int) -> bool:
        return not self.text[self._line(at) : at].strip()

    def _end(self, node: yaml.Node) -> int:
        """The beginning of the line after a node; comments behind a block belong to what follows."""
        last = node
        while isinstance(last, yaml.CollectionNode) and not last.flow_style and last.value:
            last = last.value[-1]
            last = last[1] if isinstance(last, tuple) else last
        end: int = last.end_mark.index
        if end and self.text[end - 1] == "\n":  # a text block ends with its line
            return end
        return self.text.find("\n", end) + 1


def _place(node: yaml.Node) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)


def _plain(node: yaml.Node) -> Any:
    loader = Loader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _scalar(value: Any, like: yaml.Node | None = None) -> str:
    """A value in one line; text in double quotes where the earlier text had them."""
    if isinstance(value, str) and getattr(like, "style", None) == '"':
        return json.dumps(value, ensure_ascii=False)
    return _flow(value)


def _flow(value: Any) -> str:
    text = yaml.safe_dump(
        value, default_flow_style=True, allow_unicode=True, sort_keys=False, width=10**9
    )
    return text.removesuffix("...\n").strip()


def _dump(data: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=WIDTH)
