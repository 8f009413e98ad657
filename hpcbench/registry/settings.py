"""`--set path.to.key=value`: the last overlay, from the command line.

--set run_tasks.0.limit=20            in the plan; entries of a list by number …
--set run_tasks.vqa-hard.limit=20     … or by name
--set models/org/tiny:dtype=float16   in another definition
--set +reports=[csv]                  appended
--set site=null                       removed
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.errors import Problem, UserError, unknown
from hpcbench.registry.source import Loc, Place, Source, parse
from hpcbench.schema.kinds import KINDS


def read_value(option: str, text: str) -> Any:
    """A value of the command line, read as YAML.

    Args:
        option: the option as it was written, for the message.
        text: the value's part of it.

    Raises:
        UserError: it is not YAML, or a value that no definition may hold.
    """
    try:
        return parse(Path(option), f"value: {text}").data["value"]
    except UserError as error:
        message = error.problems[0].message
        raise UserError(message, file=option, remedy="put the value in quotes") from error


@dataclass(frozen=True, slots=True)
class Setting:
    """One `--set`."""

    text: str
    """As it was written."""
    definition: str | None
    """`KIND/NAME`; None: the plan."""
    path: tuple[str, ...]
    """Keys and entries, from the top."""
    value: Any
    """The value to set."""

    @classmethod
    def read(cls, text: str) -> Setting:
        """Parse `[KIND/NAME:]path.to.key=value`; the value is YAML.

        Raises:
            UserError: it does not have that form.
        """
        left, equals, value = text.partition("=")
        definition, colon, path = left.rpartition(":")
        kind = definition.partition("/")[0]
        if not equals or not path or not all(path.split(".")):
            raise UserError(_wrong(text, "must have the form path.to.key=value"))
        if colon and (kind not in KINDS or "/" not in definition):
            raise UserError(_wrong(text, unknown("kind of definition", kind, KINDS)))
        try:
            found = read_value(f"--set {text}", value)
        except UserError as error:
            raise UserError(_wrong(text, error.problems[0].message)) from error
        return cls(text, definition or None, tuple(path.split(".")), found)

    def applied(self, source: Source) -> Source:
        """The definition with the setting applied.

        Raises:
            UserError: the path contains a part that the definition does not have.
        """
        data = copy.deepcopy(source.data)
        marks, key_marks = dict(source.marks), dict(source.key_marks)
        here = Place(1, 1, Path(f"--set {self.text}"))
        parent: Any = data
        loc: Loc = ()
        for part in self.path[:-1]:
            step = self._step(parent, part, create=True)
            parent, loc = parent[step], (*loc, step)
            marks.setdefault(loc, here)
            key_marks.setdefault(loc, here)
        last = self.path[-1]
        append, last = (last.startswith("+"), last.removeprefix("+"))
        step = self._step(parent, last, create=False)
        loc = (*loc, step)
        for known in [one for one in marks if one[: len(loc)] == loc and not append]:
            del marks[known]
        marks[loc] = key_marks[loc] = here
        if append:
            self._append(parent, step, loc, marks)
        elif self.value is None and isinstance(parent, dict):
            parent.pop(step, None)
        else:
            parent[step] = self.value
        return Source(source.path, data, marks, key_marks, source.written)

    def _append(self, parent: Any, step: str | int, loc: Loc, marks: dict[Loc, Place]) -> None:
        below = parent.setdefault(step, []) if isinstance(parent, dict) else parent[step]
        if not isinstance(below, list) or not isinstance(self.value, list):
            raise UserError(_wrong(self.text, "`+` appends a list to a list"))
        for value in self.value:
            place: Loc = (*loc, len(below))
            marks[place] = marks[loc]
            below.append(value)

    def _step(self, parent: Any, part: str, *, create: bool) -> str | int:
        """The key or index of a part of the path."""
        if isinstance(parent, dict):
            if create:
                parent.setdefault(part, {})
            return part
        if isinstance(parent, list):
            named = [one.get("name") if isinstance(one, dict) else one for one in parent]
            if part in named:
                return named.index(part)
            if part.isdigit() and int(part) < len(parent):
                return int(part)
            names = [str(name) for name in named if name is not None]
            raise UserError(_wrong(self.text, unknown("entry", part, names)))
        raise UserError(_wrong(self.text, f"there is no '{part}' in {parent!r:.40}"))


def read_settings(texts: Sequence[str]) -> tuple[Setting, ...]:
    """All `--set` of a command line.

    Raises:
        UserError: every setting that does not have the right form.
    """
    problems: list[Problem] = []
    found: list[Setting] = []
    for text in texts:
        try:
            found.append(Setting.read(text))
        except UserError as error:
            problems.extend(error.problems)
    if problems:
        raise UserError(*problems)
    return tuple(found)


def typed(name: str, value: object) -> str:
    """An option as users type it: `max_gpu_hours` and 3 give `--max-gpu-hours 3`."""
    return f"--{name.replace('_', '-')} {value}"


def named_as_typed(error: UserError, options: Mapping[str, str]) -> UserError:
    """The same mistakes, with the options that the user typed in place of the settings made of them.

    Args:
        error: the mistakes.
        options: setting, such as `limit=0` → option, such as `--limit 0`.
    """
    shown = {f"--set {text}": option for text, option in options.items()}
    return UserError(
        *(one._replace(file=shown.get(one.file or "", one.file)) for one in error.problems)
    )


def _wrong(text: str, message: str) -> Problem:
    return Problem(message, f"--set {text}", 1, 1, "hpcbench submit --help has examples")
