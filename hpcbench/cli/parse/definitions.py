"""Verbs about definitions and plugins."""

from __future__ import annotations

from pathlib import Path

from hpcbench.cli.parse.shared_options import (
    Verb,
    also,
    group,
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
        "plan", type=Path, nargs="?", help="the plan's YAML file, or its name; default: all definitions",
    )  # fmt: skip
    validate.flag("--packages", "also build the needed packages, and check their plugins")
    validate.flag(
        "--tokens", "also get a token for each model with `auth`, so that a wrong secret shows"
    )
    also(validate, with_registry, with_settings, with_json)

    schema = verb(
        "schema", "registry:schema", "print or write JSON Schemas of the definitions",
        "hpcbench schema models",
        ("hpcbench schema --out schemas", "write the schemas of all kinds"),
    )  # fmt: skip
    schema.add_argument(
        "kind", nargs="?", help="models, datasets, …, or report for report.json; default: all"
    )
    schema.option("--out DIR", "folder for files KIND.json; default: standard output", type=Path)
    schema.flag("--markdown", "print the reference page of all keys instead")

    registry = group(
        verb, "registry", "list, show and compare definitions",
        "hpcbench registry show models/tiny-vlm --resolved",
    )  # fmt: skip
    listing = registry(
        "list", "registry:list_definitions", "list definitions",
        "hpcbench registry list models",
        ("hpcbench registry list datasets --task vqa --language en --max-gb 5", "what fits a small disk"),
    )  # fmt: skip
    listing.add_argument("kind", nargs="?", help="only this kind, for example models")
    listing.option("--task NAME", "only datasets for this ML task", dest="ml_task")
    listing.option("--language CODE", "only datasets with texts in this language: en, zh")
    listing.option("--licence TEXT", "only datasets whose licence contains this text")
    listing.option("--max-gb GB", "only datasets known to be at most this large", type=float)
    listing.flag("--markdown", "print a page of the datasets, with published scores")
    show = registry(
        "show", "registry:show", "show a definition",
        "hpcbench registry show models/tiny-vlm --resolved",
    )  # fmt: skip
    show.add_argument("name", help="KIND/NAME, or a name that only one kind has")
    show.flag("--resolved", "with overlays and defaults, and the file and line of each value")
    with_settings(show)
    where = registry(
        "where", "registry:where", "list the files of a definition",
        "hpcbench registry where models/tiny-vlm",
    )  # fmt: skip
    where.add_argument("name", help="KIND/NAME, or a name that only one kind has")
    differ = registry(
        "diff", "registry:diff", "compare two definitions, with default values filled in",
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
    metrics = group(
        verb, "metrics", "list and define metrics, and score a file with one",
        "hpcbench metrics show anls",
    )  # fmt: skip
    listing = metrics(
        "list", "metrics:list_metrics",
        "list installed metrics, and those of packages in the registries", "hpcbench metrics list",
    )  # fmt: skip
    also(listing, with_registry, with_json)
    show = metrics(
        "show", "metrics:show", "define a metric: its options, the variants of other kits, its signature",
        "hpcbench metrics show anls",
    )  # fmt: skip
    show.add_argument(
        "name", help="name of the metric, or of a metrics/ definition; its package is built"
    )
    also(show, with_registry, with_json)
    score = metrics(
        "score", "metrics:score", "score a file of predictions and references",
        "hpcbench metrics score anls FILE --option tau=0.3",
    )  # fmt: skip
    score.add_argument("name", help="name of the metric, or of a metrics/ definition")
    score.add_argument(
        "file", type=Path,
        help="JSONL, CSV or Parquet file with `prediction`, with `references` or `reference`, and "
        "optionally with `document`",
    )  # fmt: skip
    score.several(
        "--option NAME=VALUE",
        "option of the metric, may be repeated; compat=NAME computes it as another kit does",
    )  # fmt: skip
    score.flag("--each", "also print the value of every row")
    also(score, with_registry, with_json)


def _plugins(verb: Verb) -> None:
    """Add verbs about plugins."""
    plugins = group(
        verb, "plugins", "list, write and check plugins", "hpcbench plugins new metrics word_count"
    )
    listing = plugins(
        "list", "plugins:list_plugins", "list installed plugins, and those of packages in the registries",
        "hpcbench plugins list metrics",
    )  # fmt: skip
    listing.add_argument("kind", nargs="?", help="only this kind, for example metrics")
    also(listing, with_registry, with_json)
    new = plugins(
        "new", "plugins:new", "write a package with a working plugin and its test",
        "hpcbench plugins new metrics word_count",
    )  # fmt: skip
    new.add_argument(
        "kind",
        help="datasets, engines, environments, metrics, notifiers, parsers, prompts, reports, storage, "
        "tasks, tools or trackers",
    )  # fmt: skip
    new.add_argument("name", help="name of the plugin: lower-case letters, digits and _")
    new.option("--out", "the new folder; default: hpcbench-NAME", type=Path)
    check = plugins(
        "check", "plugins:check", "run the contract tests on the plugins of a package",
        "hpcbench plugins check examples/plugins/amount-metric",
    )  # fmt: skip
    check.add_argument("path", type=Path, help="folder of the package, with its pyproject.toml")
    with_json(check)
