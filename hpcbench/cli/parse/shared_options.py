"""What all verbs are made of."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

Verb = Callable[[str, str, str, str], argparse.ArgumentParser]
"""Adds a verb: name, function, text, example."""

EXPERIMENT = "experiment: id, unique beginning of one, name of a baseline, path, or @last"


def sub(
    verbs: Any, name: str, run: str, text: str, example: str | None = None
) -> argparse.ArgumentParser:
    added: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"example: {example}" if example else None,
    )
    added.set_defaults(run=f"hpcbench.cli.{run}", below=name)
    return added


def with_registry(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--registry", type=Path, action="append", default=[], metavar="DIR",
        help="further registry of documents; may be repeated, the last one wins",
    )  # fmt: skip


def with_settings(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="PATH=VALUE",
        help="set a value of the plan, run_tasks.NAME.limit=20, or of a document, models/X:dtype=float16",
    )  # fmt: skip


def with_json(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--json", action="store_true", help="print JSON")


def with_site(verb: argparse.ArgumentParser) -> None:
    """The verb may run on a cluster's login node, from elsewhere."""
    verb.add_argument(
        "--site", metavar="NAME", default=argparse.SUPPRESS,  # else it would hide that before the verb
        help="run it on the cluster of this site profile, through its `ssh:`",
    )  # fmt: skip
    verb.set_defaults(elsewhere=True)


def with_caches(verb: argparse.ArgumentParser, *, plan: bool = False) -> None:
    """The verb is about the caches of a site: those of `--site`, else of the plan's site, else the own."""
    verb.add_argument(
        "--site", metavar="NAME", default=argparse.SUPPRESS,
        help="with home, caches, folders of models, credentials and mirrors of this site profile",
    )  # fmt: skip
    if plan:
        verb.add_argument(
            "--plan", type=Path, metavar="FILE",
            help="those of this plan, with the site that it names",
        )  # fmt: skip
    verb.set_defaults(elsewhere=True, caches=True)


def words(text: str) -> list[str]:
    """`a,b` as a list."""
    return [word for word in (part.strip() for part in text.split(",")) if word]


class MetricOption(argparse.Action):
    """`METRIC.OPTION=VALUE`, the value as YAML reads it: metric → option → value."""

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
            parser.error(f"{option} {values}: METRIC.OPTION=VALUE, such as anls.tau=0.3")
        found = {key: dict(more) for key, more in getattr(namespace, self.dest).items()}
        found.setdefault(metric, {})[name] = read_value(f"{option} {values}", value)
        setattr(namespace, self.dest, found)
