"""Verbs about definitions and plugins."""

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
    """Add verbs about definitions."""
    validate = verb(
        "validate", "registry:validate", "check a plan, or all definitions of the registries",
        "hpcbench validate examples/demo/plan.yaml --set run_tasks.0.limit=20",
        ("hpcbench validate", "check all definitions"),
    )  # fmt: skip
    validate.add_argument(
        "plan",
        type=Path,
        nargs="?",
        help="the plan's YAML file, or its name; default: all definitions",
    )
    validate.flag("--packages", help="also build the needed packages, and check their plugins")
    validate.flag(
        "--tokens", help="also get a token for each model with `auth`, so that a wrong secret shows"
    )
    with_registry(validate)
    with_settings(validate)
    with_json(validate)

    schema = verb(
        "schema", "registry:schema", "print or write JSON Schemas of the definitions",
        "hpcbench schema models",
        ("hpcbench schema --out schemas", "write the schemas of all kinds"),
    )  # fmt: skip
    schema.add_argument(
        "kind", nargs="?", help="models, datasets, …, or report for report.json; default: all"
    )
    schema.add_argument(
        "--out", type=Path, metavar="DIR",
        help="folder for files KIND.json; default: standard output",
    )  # fmt: skip
    schema.flag("--markdown", help="print the reference page of all keys instead")

    registry = verb(
        "registry", "", "list, show and compare definitions",
        "hpcbench registry show models/tiny-vlm --resolved",
    ).add_subparsers(metavar="VERB", required=True)  # fmt: skip
    listing = sub(
        registry, "list", "registry:list_definitions", "list definitions",
        "hpcbench registry list models",
        ("hpcbench registry list datasets --task vqa --language en --max-gb 5", "what fits a small disk"),
    )  # fmt: skip
    listing.add_argument("kind", nargs="?", help="only this kind, for example models")
    listing.add_argument(
        "--task", dest="ml_task", metavar="NAME", help="only datasets for this ML task"
    )
    listing.add_argument(
        "--language", metavar="CODE", help="only datasets with texts in this language: en, zh"
    )
    listing.add_argument(
        "--licence", metavar="TEXT", help="only datasets whose licence contains this text"
    )
    listing.add_argument(
        "--max-gb", type=float, metavar="GB", help="only datasets known to be at most this large"
    )
    listing.flag("--markdown", help="print a page of the datasets, with published scores")
    show = sub(
        registry, "show", "registry:show", "show a definition",
        "hpcbench registry show models/tiny-vlm --resolved",
    )  # fmt: skip
    show.add_argument("name", help="KIND/NAME, or a name that only one kind has")
    show.flag("--resolved", help="with overlays and defaults, and the file and line of each value")
    with_settings(show)
    where = sub(
        registry, "where", "registry:where", "list the files of a definition",
        "hpcbench registry where models/tiny-vlm",
    )  # fmt: skip
    where.add_argument("name", help="KIND/NAME, or a name that only one kind has")
    differ = sub(
        registry, "diff", "registry:diff", "compare two definitions, with default values filled in",
        "hpcbench registry diff prompts/demo_vqa prompts/demo_ocr",
    )  # fmt: skip
    differ.add_argument("a", help="KIND/NAME")
    differ.add_argument("b", help="KIND/NAME")
    for one in (listing, show, where, differ):
        with_registry(one)
    for one in (listing, show, where):
        with_json(one)

    _plugins(verb)
    _metrics(verb)


def _metrics(verb: Verb) -> None:
    """Add verbs about metrics."""
    metrics = verb(
        "metrics", "", "list and define metrics, and score a file with one",
        "hpcbench metrics show anls",
    ).add_subparsers(metavar="VERB", required=True)  # fmt: skip
    listing = sub(
        metrics, "list", "metrics:list_metrics",
        "list installed metrics, and those of packages in the registries", "hpcbench metrics list",
    )  # fmt: skip
    with_registry(listing)
    with_json(listing)
    show = sub(
        metrics, "show", "metrics:show",
        "define a metric: its options, the variants of other kits, its signature",
        "hpcbench metrics show anls",
    )  # fmt: skip
    show.add_argument(
        "name", help="name of the metric, or of a metrics/ definition; its package is built"
    )
    with_registry(show)
    with_json(show)
    score = sub(
        metrics, "score", "metrics:score", "score a file of predictions and references",
        "hpcbench metrics score anls FILE --option tau=0.3",
    )  # fmt: skip
    score.add_argument("name", help="name of the metric, or of a metrics/ definition")
    score.add_argument(
        "file", type=Path,
        help="JSONL, CSV or Parquet file with `prediction`, with `references` or `reference`, and "
        "optionally with `document`",
    )  # fmt: skip
    score.several(
        "--option",
        "NAME=VALUE",
        help="option of the metric, may be repeated; compat=NAME computes it as another kit does",
    )
    score.flag("--each", help="also print the value of every row")
    with_registry(score)
    with_json(score)


def _plugins(verb: Verb) -> None:
    """Add verbs about plugins."""
    plugins = verb(
        "plugins", "", "list, write and check plugins", "hpcbench plugins new metrics word_count"
    ).add_subparsers(metavar="VERB", required=True)
    listing = sub(
        plugins, "list", "plugins:list_plugins",
        "list installed plugins, and those of packages in the registries",
        "hpcbench plugins list metrics",
    )  # fmt: skip
    listing.add_argument("kind", nargs="?", help="only this kind, for example metrics")
    with_registry(listing)
    with_json(listing)
    new = sub(
        plugins, "new", "plugins:new", "write a package with a working plugin and its test",
        "hpcbench plugins new metrics word_count",
    )  # fmt: skip
    new.add_argument(
        "kind",
        help="datasets, engines, environments, metrics, notifiers, parsers, prompts, reports, "
        "storage, tasks, tools or trackers",
    )
    new.add_argument("name", help="name of the plugin: lower-case letters, digits and _")
    new.add_argument("--out", type=Path, help="the new folder; default: hpcbench-NAME")
    check = sub(
        plugins, "check", "plugins:check", "run the contract tests on the plugins of a package",
        "hpcbench plugins check examples/plugins/amount-metric",
    )  # fmt: skip
    check.add_argument("path", type=Path, help="folder of the package, with its pyproject.toml")
    with_json(check)
