"""Parts that all verbs share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from hpcbench.cli.parse.command_line import CommandLine, Example, examples


class Verb(Protocol):
    """Adds a verb: name, function, help text, examples, and a note below them."""

    def __call__(
        self, name: str, run: str, text: str, *shown: Example, note: str = ""
    ) -> CommandLine: ...


EXPERIMENT = (
    "experiment: its id or a unique prefix, the name of a baseline, a path, or @last (the newest)"
)

SCORED = f"{EXPERIMENT}; with /rescored/NAME behind it: by the scores of `score --save NAME`"


def adder(verbs: Any, level: str) -> Verb:
    """A function that adds verbs.

    Args:
        verbs: what `add_subparsers` returned.
        level: argument that gets the name: `verb`, or `below` for one such as `fetch` of `models fetch`.
    """

    def add(name: str, run: str, text: str, *shown: Example, note: str = "") -> CommandLine:
        added: CommandLine = verbs.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=examples(shown, note),
        )
        added.set_defaults(run=f"hpcbench.cli.{run}", **{level: name})
        return added

    return add


def group(verb: Verb, name: str, text: str, *shown: Example) -> Verb:
    """Add a verb that needs a verb below it; returns a function that adds those."""
    added = verb(name, "", text, *shown)
    return adder(added.add_subparsers(metavar="VERB", required=True), "below")


def also(verb: CommandLine, *parts: Callable[[CommandLine], None]) -> None:
    """Add several options of this module to a verb."""
    for part in parts:
        part(verb)


def with_registry(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--registry", type=Path, action="append", default=[], metavar="DIR",
        help="additional registry of definitions; may be repeated, the last one takes precedence",
    )  # fmt: skip


def with_settings(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="PATH=VALUE",
        help="set a value of the plan (run_tasks.NAME.limit=20) or of a definition "
        "(models/NAME:dtype=float16); may be repeated",
    )  # fmt: skip


def with_json(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--json", action="store_true", help="print JSON")


def with_site(verb: argparse.ArgumentParser) -> None:
    """Let the verb run on a cluster's login node, from another machine."""
    verb.add_argument(
        "--site", metavar="NAME", default=argparse.SUPPRESS,  # a default would hide `--site` before the verb
        help="run the verb on the cluster of this site profile, by its `ssh:`",
    )  # fmt: skip
    verb.set_defaults(elsewhere=True)


def with_caches(verb: argparse.ArgumentParser, *, plan: bool = False) -> None:
    """Let the verb use a site's caches: of `--site`, else of the plan's site, else of the user's own."""
    verb.add_argument(
        "--site", metavar="NAME", default=argparse.SUPPRESS,
        help="use the home, caches, model folders, credentials and mirrors of this site profile",
    )  # fmt: skip
    if plan:
        verb.add_argument(
            "--plan", type=Path, metavar="FILE",
            help="take the datasets or models of this plan, and the site that it names",
        )  # fmt: skip
    verb.set_defaults(elsewhere=True, caches=True)


def with_names(
    place: argparse.ArgumentParser | argparse._ArgumentGroup,
    *options: str,
    metavar: str,
    help: str,
) -> None:
    """Add an option that lists names, separated by commas; it may be repeated."""
    place.add_argument(
        *options, type=_names, action="extend", default=[], metavar=metavar, help=help
    )


def _names(text: str) -> list[str]:
    from hpcbench.schema.names import names_in  # help needs no hashes

    return names_in(text)


def with_metrics(place: argparse.ArgumentParser | argparse._ArgumentGroup, help: str) -> None:
    """Add the option that names metrics, in both of its spellings."""
    with_names(place, "--metrics", "--metric", metavar="A,B", help=help)


class MetricOption(argparse.Action):
    """Parse `METRIC.OPTION=VALUE`, the value as YAML: metric → option → value."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: Any = None,
    ) -> None:
        from hpcbench.registry.settings import read_value

        place, equals, value = str(values).partition("=")
        metric, dot, name = place.rpartition(".")
        if not equals or not dot or not metric or not name:
            parser.error(
                f"{option} {values} is not of the form METRIC.OPTION=VALUE, for example anls.tau=0.3"
            )
        found = {key: dict(more) for key, more in getattr(namespace, self.dest).items()}
        found.setdefault(metric, {})[name] = read_value(f"{option} {values}", value)
        setattr(namespace, self.dest, found)
