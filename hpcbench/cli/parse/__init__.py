"""The command line: every verb with its options. Light: `hpcbench --help` answers at once."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Any, cast

import hpcbench
from hpcbench.cli.parse import (
    comparison,
    documents,
    interchange,
    models,
    portal,
    runs,
    setup,
    track,
)
from hpcbench.cli.parse.command_line import CommandLine

EPILOG = """\
examples:
  hpcbench init                      look at this cluster, write a site profile
  hpcbench doctor --run              check it, and send a tiny model through one real job
  hpcbench validate plan.yaml        every mistake at its line, nothing sent
  hpcbench submit plan.yaml --dry-run
  hpcbench submit plan.yaml --wait
  hpcbench status @last

exit codes: 0 done · 1 the run failed · 2 your input · 3 the environment · 4 NO-GO · 5 INCONCLUSIVE
"""


def parser(words: Collection[str] | None = None) -> argparse.ArgumentParser:
    """The command line.

    Args:
        words: what is to be parsed: of verbs that are not among these words only names are known, which is
            all that is needed and takes a fraction of the time; None: the whole command line.
    """
    top = CommandLine(
        prog="hpcbench",
        description="Benchmark vision-language models on document work on Slurm clusters.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"hpcbench {hpcbench.__version__}")
    top.add_argument(
        "--site", metavar="NAME", help="run the verb on the cluster of this site profile"
    )
    top.set_defaults(run="hpcbench.cli.start:first_steps", verb=None)

    def made(**more: Any) -> Any:
        asked = words is None or more["prog"].rpartition(" ")[2] in words
        return CommandLine(**more) if asked else _Unasked()

    # argparse takes whatever makes a parser; its types speak of a class.
    verbs = top.add_subparsers(metavar="VERB", parser_class=cast(type[CommandLine], made))

    def verb(name: str, run: str, text: str, example: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=f"example: {example}",
        )
        added.set_defaults(run=f"hpcbench.cli.{run}", verb=name)
        return added

    for group in (runs, comparison, setup, documents, models, interchange, track, portal):
        group.add(verb)
    return top


class _Unasked:
    """In place of the parser of a verb that is not asked for: takes whatever is told to it."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self


def words_of(arguments: argparse.Namespace, leave: Collection[str] = ()) -> list[str]:
    """What was parsed, as words again that parse to the same; all options in full.

    Args:
        arguments: what `parser` made of a command line.
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
