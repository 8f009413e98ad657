"""The command line: all verbs with their options. It imports little, so `hpcbench --help` answers at once."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Any, cast

import hpcbench
from hpcbench.cli.parse import (
    comparison,
    database,
    definitions,
    interchange,
    models,
    portal,
    runs,
    setup,
    track,
)
from hpcbench.cli.parse.command_line import CommandLine, examples
from hpcbench.cli.parse.shared_options import adder

EXAMPLES = (
    ("hpcbench init", "examine this cluster, write a site profile"),
    ("hpcbench doctor --run", "check it, and send a tiny model through one real job"),
    ("hpcbench validate PLAN", "report every mistake with its line"),
    ("hpcbench submit PLAN --dry-run", "show the jobs, change nothing"),
    ("hpcbench submit PLAN --wait", "run the plan, print the scores"),
    ("hpcbench status @last", "show the progress of the last experiment"),
)

EXIT_CODES = """\
exit codes: 0 success · 1 the run failed · 2 wrong input · 3 a fault of the environment · 4 NO-GO ·
5 INCONCLUSIVE"""


def parser(words: Collection[str] | None = None) -> argparse.ArgumentParser:
    """The command line.

    Args:
        words: words to parse: a verb that is not among them gets only its name, which suffices and takes
            a fraction of the time; None: the whole command line.
    """
    top = CommandLine(
        prog="hpcbench",
        description="Benchmark vision-language models on tasks with documents, on Slurm clusters.",
        epilog=examples(EXAMPLES, EXIT_CODES),
    )
    top.add_argument("--version", action="version", version=f"hpcbench {hpcbench.__version__}")
    top.add_argument(
        "--site", metavar="NAME", help="run the verb on the cluster of this site profile"
    )
    top.set_defaults(run="hpcbench.cli.start:first_steps", verb=None)

    def made(**more: Any) -> Any:
        asked = words is None or more["prog"].rpartition(" ")[2] in words
        return CommandLine(**more) if asked else _Unasked()

    # argparse accepts any callable that makes a parser; its types require a class.
    verbs = top.add_subparsers(metavar="VERB", parser_class=cast(type[CommandLine], made))
    verb = adder(verbs, "verb")
    for group in (
        runs,
        comparison,
        setup,
        definitions,
        models,
        interchange,
        track,
        database,
        portal,
    ):
        group.add(verb)
    return top


class _Unasked:
    """Replaces the parser of a verb that is not requested: it accepts every call."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self


def words_of(arguments: argparse.Namespace, leave: Collection[str] = ()) -> list[str]:
    """The parsed arguments as words that parse to the same arguments; options with their full names.

    Args:
        arguments: the arguments that `parser` parsed.
        leave: names of options and arguments to leave out.
    """
    (verbs,) = (action.choices for action in parser()._actions if isinstance(action.choices, dict))
    options: list[str] = []
    places: list[str] = []
    verb = verbs[arguments.verb]
    for action in verb._actions:
        if isinstance(action.choices, dict):  # `models fetch`
            options, verb = [arguments.below], action.choices[arguments.below]
    for action in verb._actions:
        given = getattr(arguments, action.dest, None)
        if action.dest in leave or given is None or given is False:
            continue
        values = [str(one) for one in (given if isinstance(given, list) else [given])]
        if not action.option_strings:
            places += values
        elif given == action.default:
            continue
        elif given is True:
            options.append(action.option_strings[-1])
        else:
            # `--name=value`: a value may begin with a dash.
            options += [f"{action.option_strings[-1]}={value}" for value in values]
    return [*options, *(["--", *places] if any(one.startswith("-") for one in places) else places)]
