"""argparse whose mistakes are one line each: what is wrong, what was meant, where help is."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from hpcbench.errors import printable, unknown

_UNKNOWN_SHOWN = 3
"""Unknown arguments that one line names."""


class CommandLine(argparse.ArgumentParser):
    """A parser; parsers of its verbs are of the same class."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.register("type", int, _whole)
        self.register("type", float, _number)

    def error(self, message: str) -> NoReturn:
        """End in one line; the usage of a verb with twenty options would hide it."""
        self.exit(2, f"{self.prog}: {printable(message)} (see `{self.prog} --help`)\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, but what is unknown is refused by the verb that could not read it."""
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
