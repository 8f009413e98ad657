"""argparse with one line per mistake: the mistake, the likely intention, the place of help.

The help of each verb ends with examples, one command a line, so that a user can copy a line.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from hpcbench.errors import printable, unknown

_UNKNOWN_SHOWN = 3
"""Number of unknown arguments that one line names."""


_WIDTH = 36
"""Columns for the command of an example; the text of a longer command is on the next line."""

Example = str | tuple[str, str]
"""A command, or a command and its effect."""


class _Help(argparse.HelpFormatter):
    """Wraps a paragraph, and keeps the lines of a text that has several."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return "".join(f"{indent}{line}" for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)


def examples(shown: Sequence[Example], note: str = "") -> str:
    """The end of a help text: the examples, then the note."""
    lines = ["example:" if len(shown) == 1 else "examples:"]
    for one in shown:
        command, text = (one, "") if isinstance(one, str) else one
        if text and len(command) > _WIDTH:
            lines += [f"  {command}", f"  {'':<{_WIDTH}}  {text}"]
        else:
            lines.append(f"  {command:<{_WIDTH}}  {text}".rstrip())
    return "\n".join([*lines, *(["", note] if note else [])]) + "\n"


class CommandLine(argparse.ArgumentParser):
    """A parser; its verbs' parsers have the same class."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **{"formatter_class": _Help, **more})
        self.register("type", int, _whole)
        self.register("type", float, _number)

    def option(self, spelling: str, help: str, **more: Any) -> None:
        """Add an option, spelled as in the help: its names, and the word for its value if it has one."""
        *names, last = spelling.split(" ")
        if last.startswith("-"):
            self.add_argument(*names, last, help=help, **more)
        else:
            self.add_argument(*names, metavar=last, help=help, **more)

    def flag(self, spelling: str, help: str) -> None:
        """Add an option without a value."""
        self.option(spelling, help, action="store_true")

    def several(self, spelling: str, help: str, **more: Any) -> None:
        """Add an option that may be repeated."""
        self.option(spelling, help, action="append", default=[], **more)

    def error(self, message: str) -> NoReturn:
        """End with one line; the usage text of a verb with twenty options would hide it."""
        self.exit(2, f"{self.prog}: {printable(message)} (see `{self.prog} --help`)\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Same as argparse's, but the verb that cannot read an argument refuses it."""
        found, left = super().parse_known_args(args, namespace)
        if left:
            self.error(self._unknown([str(word) for word in left]))
        return found, left

    def _unknown(self, words: list[str]) -> str:
        options = [word.partition("=")[0] for word in words if word.startswith("-")]
        if not options:
            more = ", …" if len(words) > _UNKNOWN_SHOWN else ""
            return f"too many arguments: {' '.join(words[:_UNKNOWN_SHOWN])}{more}"
        known = [name for action in self._actions for name in action.option_strings]
        return "; ".join(
            unknown("option", option, known) for option in dict.fromkeys(options[:_UNKNOWN_SHOWN])
        )

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = "verb" if isinstance(action, argparse._SubParsersAction) else "value"
            names = [str(choice) for choice in action.choices]
            message = unknown(what, str(value), names)
            raise argparse.ArgumentError(None if what == "verb" else action, message)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text:.60}' is not a whole number") from None


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text:.60}' is not a number") from None
    if number - number != 0:
        raise argparse.ArgumentTypeError(f"'{text:.60}' is not a finite number")
    return number
