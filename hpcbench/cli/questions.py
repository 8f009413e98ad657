"""Questions at a terminal. Answers come from stdin, questions go to stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpcbench.errors import unknown

if TYPE_CHECKING:
    from hpcbench.site.profile import Choice

_WIDTH = 42
"""Columns of a choice; details of shorter choices are aligned."""


def at_terminal() -> bool:
    """Whether a user can answer: stdin and stderr are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(
    question: str, choices: Sequence[Choice] = (), default: str = "", *, free: bool = False
) -> str:
    """Ask until the answer is valid; an empty answer or the end of input means the default.

    Args:
        question: the text before the prompt.
        choices: the possible answers, by value or number; none: any text.
        default: the answer to an empty line.
        free: whether any text is valid although there are choices.
    """
    _show(choices)
    values = [choice.value for choice in choices]
    while True:
        answer = _line(f"{question} [{default or 'none'}]: ") or default
        if answer == default or not values or free:
            return _by_number(answer, values)
        if (value := _by_number(answer, values)) in values:
            return value
        print(f"  {unknown('answer', answer, values)}", file=sys.stderr)


def ask_several(question: str, choices: Sequence[Choice], default: Sequence[str] = ()) -> list[str]:
    """Ask for any number of choices, by values or numbers, separated by commas; `none` means no choice."""
    _show(choices)
    values = [choice.value for choice in choices]
    while True:
        line = _line(f"{question}, separated by commas [{', '.join(default) or 'none'}]: ")
        if not line:
            return list(default)
        if line == "none":
            return []
        answers = [_by_number(one.strip(), values) for one in line.split(",") if one.strip()]
        wrong = [one for one in answers if one not in values]
        if not wrong:
            return list(dict.fromkeys(answers))
        print(f"  {unknown('answer', wrong[0], values)}", file=sys.stderr)


def _show(choices: Sequence[Choice]) -> None:
    width = min(_WIDTH, max((len(choice.value) for choice in choices), default=0))
    for number, choice in enumerate(choices, 1):
        detail = f"  ({choice.detail})" if choice.detail else ""
        line = f"  {number:>{len(str(len(choices)))}}  {choice.value:<{width}}{detail}"
        print(line.rstrip(), file=sys.stderr)


def _line(prompt: str) -> str:
    print(prompt, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


def _by_number(answer: str, values: Sequence[str]) -> str:
    chosen = answer.isdigit() and 0 < int(answer) <= len(values) and answer not in values
    return values[int(answer) - 1] if chosen else answer
