"""Verbs about documents and plugins."""

from __future__ import annotations

from pathlib import Path

from hpcbench.cli.parse.shared_options import (
    Verb,
    sub,
    with_json,
    with_registry,
    with_settings,
)


def add(verb: Verb) -> None:
    """Verbs about documents."""
    validate = verb(
        "validate", "registry:validate", "check a plan, or all documents there are",
        "hpcbench validate plan.yaml --set run_tasks.0.limit=20",
    )  # fmt: skip
    validate.add_argument(
        "plan", type=Path, nargs="?", help="the plan's YAML file; none: all documents"
    )
    validate.add_argument(
        "--packages",
        action="store_true",
        help="also build the packages it uses, and check their plugins",
    )
    with_registry(validate)
    with_settings(validate)
    with_json(validate)

    schema = verb(
        "schema", "registry:schema", "write JSON Schemas of the documents", "hpcbench schema models"
    )
    schema.add_argument(
        "kind", nargs="?", help="models, datasets, …, or report, of report.json; none: all"
    )
    schema.add_argument("--out", type=Path, metavar="DIR", help="write KIND.json files there")
    schema.add_argument("--markdown", action="store_true", help="print the reference page instead")

    registry = verb(
        "registry", "", "look at documents", "hpcbench registry show models/tiny-vlm --resolved"
    ).add_subparsers(metavar="VERB", required=True)
    listing = sub(registry, "list", "registry:list_documents", "list documents")
    listing.add_argument("kind", nargs="?", help="only of this kind")
    show = sub(registry, "show", "registry:show", "show a document")
    show.add_argument("name", help="KIND/NAME, or a name that only one kind has")
    show.add_argument(
        "--resolved",
        action="store_true",
        help="with overlays and defaults, and where each value is from",
    )
    with_settings(show)
    where = sub(registry, "where", "registry:where", "tell the files of a document")
    where.add_argument("name", help="KIND/NAME, or a name that only one kind has")
    differ = sub(registry, "diff", "registry:diff", "compare two documents, defaults filled in")
    differ.add_argument("a", help="KIND/NAME")
    differ.add_argument("b", help="KIND/NAME")
    for one in (listing, show, where, differ):
        with_registry(one)
    for one in (listing, show, where):
        with_json(one)

    _plugins(verb)
    _metrics(verb)


def _metrics(verb: Verb) -> None:
    """Verbs about metrics."""
    metrics = verb(
        "metrics", "", "say what metrics there are, and score with one",
        "hpcbench metrics score anls answers.jsonl --option tau=0.3",
    ).add_subparsers(metavar="VERB", required=True)  # fmt: skip
    with_json(sub(metrics, "list", "metrics:list_metrics", "list metrics that are installed"))
    show = sub(
        metrics,
        "show",
        "metrics:show",
        "define a metric: options, dialects of other kits, signature",
    )
    show.add_argument("name", help="name of the metric")
    with_json(show)
    score = sub(metrics, "score", "metrics:score", "score a file of predictions and references")
    score.add_argument("name", help="name of the metric")
    score.add_argument(
        "file", type=Path,
        help="JSONL, CSV or Parquet with `prediction`, `references` or `reference`, and perhaps `document`",
    )  # fmt: skip
    score.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE",
        help="option of the metric; may be repeated; compat=NAME computes as another kit does",
    )  # fmt: skip
    score.add_argument("--each", action="store_true", help="also the value of every row")
    with_json(score)


def _plugins(verb: Verb) -> None:
    """Verbs about plugins."""
    plugins = verb(
        "plugins", "", "list, begin and check plugins", "hpcbench plugins new metrics word_count"
    ).add_subparsers(metavar="VERB", required=True)
    listing = sub(plugins, "list", "plugins:list_plugins", "list plugins that are installed")
    listing.add_argument("kind", nargs="?", help="only of this kind")
    with_json(listing)
    new = sub(plugins, "new", "plugins:new", "write a working package with a test")
    new.add_argument("kind", help="datasets, engines, metrics, …")
    new.add_argument("name", help="name of the plugin, lower case")
    new.add_argument("--out", type=Path, help="folder to make (hpcbench-NAME)")
    check = sub(
        plugins, "check", "plugins:check", "run the contract tests of its kinds on a package"
    )
    check.add_argument("path", type=Path, help="folder of the package, with its pyproject.toml")
    with_json(check)
