"""Verbs about definitions: validate, schema, registry, images lock, models verify."""

from __future__ import annotations

import argparse
import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from hpcbench.cli.output import console, print_json, say, table, transfer_bar
from hpcbench.errors import UserError, unknown
from hpcbench.experiment.layout import home
from hpcbench.registry.catalog import Catalog, share_dir, user_dir, user_site
from hpcbench.registry.source import Loc, Source
from hpcbench.schema.definition import Definition
from hpcbench.schema.kinds import KINDS
from hpcbench.schema.package import Package
from hpcbench.schema.site import Site


def validate(arguments: argparse.Namespace) -> int:
    """`hpcbench validate [PLAN]`."""
    from hpcbench.number_format import many
    from hpcbench.registry.resolve import Needed, check_registries, load_plan
    from hpcbench.submit.plan_packages import load_with_packages, make_visible

    if arguments.plan is None:
        count, needed = check_registries(arguments.registry)
        if arguments.packages:
            dev = Catalog(arguments.registry).mode == "dev"
            make_visible(needed, home(user_site()) / "cache", say, dev=dev)
            count, needed = check_registries(arguments.registry)
        done: dict[str, Any] = {"definitions": count}
        line = f"{count} definitions are valid"
    else:
        given = (arguments.plan, arguments.registry, arguments.settings)
        plan = load_with_packages(*given, say=say)[0] if arguments.packages else load_plan(*given)
        if arguments.tokens:
            from hpcbench.submit.oauth_tokens import require

            require(plan, say)
        needed = Needed(plan.packages, plan.origins)
        done = {"plan": plan.plan.name, "run_tasks": [one.name for one in plan.run_tasks]}
        tasks = many(len(plan.run_tasks), "run task")
        line = f"{plan.plan.name} is valid: {tasks}, RUN_MODE {plan.mode}"
    done["unchecked_packages"] = [] if arguments.packages else sorted(_unseen(needed.packages))
    if arguments.json:
        print_json({"problems": [], **done})
        return 0
    print(line)
    if done["unchecked_packages"]:
        names = ", ".join(done["unchecked_packages"])
        say(
            f"not checked: plugins of {names}, and options for them; --packages builds and checks them"
        )
    return 0


def _unseen(packages: Mapping[str, Package]) -> Iterator[str]:
    """Packages with plugins that this Python does not have, so that no check has seen them."""
    from hpcbench import plugins

    for name, package in packages.items():
        provided = [(kind, one) for kind, names in package.provides.items() for one in names]
        if not provided or any(one not in plugins.available(kind) for kind, one in provided):
            yield name


def schema(arguments: argparse.Namespace) -> int:
    """`hpcbench schema [KIND]`."""
    from hpcbench.schema.describe import json_schema, reference

    made: dict[str, Callable[[], Any]] = {kind: partial(json_schema, kind) for kind in KINDS}
    made["report"] = _report_schema
    if arguments.markdown:
        print(reference(), end="")
        return 0
    if arguments.kind is not None and arguments.kind not in made:
        raise UserError(unknown("kind of definition", arguments.kind, made))
    if arguments.out is None:
        one = arguments.kind
        print_json(made[one]() if one else {kind: json_schema(kind) for kind in KINDS})
        return 0
    for kind in [arguments.kind] if arguments.kind else made:
        path = arguments.out / f"{kind}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(made[kind](), ensure_ascii=False, indent=1) + "\n"
        path.write_text(text, encoding="utf-8")
        say(f"wrote {path}")
    return 0


def _report_schema() -> Any:
    """JSON Schema of `report.json`: the data behind reports, not a definition."""
    from hpcbench.reporting.report_tables import json_schema

    return json_schema()


# --- registry -------------------------------------------------------------------------------------------


def list_definitions(arguments: argparse.Namespace) -> int:
    """`hpcbench registry list [KIND]`."""
    catalog = Catalog(arguments.registry)
    kinds = [_kind(arguments.kind)] if arguments.kind else list(KINDS)
    if kinds == ["datasets"] or arguments.markdown or _filters(arguments):
        from hpcbench.cli import benchmarks

        if kinds != ["datasets"]:
            what = "--task, --language, --licence, --max-gb and --markdown are for datasets"
            raise UserError(what, remedy="hpcbench registry list datasets …")
        return benchmarks.list_datasets(catalog, arguments)
    rows = []
    for kind in kinds:
        for name in catalog.names(kind):
            definition, source = catalog.get_with_source(KINDS[kind], name)
            rows.append(
                {
                    "kind": kind,
                    "name": name,
                    "from": catalog.label(source.path),
                    "overlays": len(catalog.files(kind, name)) - 1,
                    "description": definition.description,
                }
            )
    if arguments.json:
        print_json(rows)
        return 0
    shown = table("definition", "from", "description")
    for row in rows:
        mark = " + overlay" if row["overlays"] else ""
        shown.add_row(
            f"{row['kind']}/{row['name']}", f"{row['from']}{mark}", str(row["description"])
        )
    console().print(shown)
    return 0


def _filters(arguments: argparse.Namespace) -> bool:
    names = ("ml_task", "language", "licence", "max_gb")
    return any(getattr(arguments, name) is not None for name in names)


def show(arguments: argparse.Namespace) -> int:
    """`hpcbench registry show NAME [--resolved]`."""
    from hpcbench.registry.settings import read_settings

    catalog = Catalog(arguments.registry, settings=read_settings(arguments.settings))
    kind, name = _named(catalog, arguments.name)
    definition, source = catalog.get_with_source(KINDS[kind], name)
    if arguments.json:
        data = definition.model_dump(mode="json")
        places = {_dotted(loc): _place(source, loc) for loc in source.marks if loc}
        print_json(
            {"kind": kind, "definition": data, "from": places} if arguments.resolved else data
        )
        return 0
    if not arguments.resolved:
        print(yaml.safe_dump(source.data, sort_keys=False, allow_unicode=True, width=110), end="")
        return 0
    data = definition.model_dump(mode="json")
    lines = [(loc, text) for loc, text in _lines(data, (), 0)]
    width = min(max(len(text) for _, text in lines), 78)
    for loc, text in lines:
        origin = _place(source, loc) if loc in source.marks else "default"
        print(f"{text:<{width}}  # {origin}")
    return 0


def where(arguments: argparse.Namespace) -> int:
    """`hpcbench registry where NAME`."""
    catalog = Catalog(arguments.registry)
    kind, name = _named(catalog, arguments.name)
    counting = catalog.files(kind, name)
    rows = [
        *({"path": str(path), "from": catalog.label(path), "counts": True} for path in counting),
        *(
            {"path": str(path), "from": catalog.label(path), "counts": False}
            for path in catalog.hidden(kind, name)
        ),
    ]
    if arguments.json:
        print_json(rows)
        return 0
    for row in rows:
        note = "" if row["counts"] else ", not used"
        print(f"{row['path']}  ({row['from']}{note})")
    return 0


def diff(arguments: argparse.Namespace) -> int:
    """`hpcbench registry diff A B`; exit code 1 if they differ, as diff's."""
    catalog = Catalog(arguments.registry)
    texts = []
    for given in (arguments.a, arguments.b):
        kind, name = _named(catalog, given)
        definition = catalog.get(KINDS[kind], name)
        text = yaml.safe_dump(
            definition.model_dump(mode="json"), sort_keys=False, allow_unicode=True
        )
        texts.append(text.splitlines())
    before, after = texts
    changed = list(difflib.unified_diff(before, after, arguments.a, arguments.b, lineterm="", n=1))
    print("\n".join(changed) if changed else "no difference")
    return 1 if changed else 0


def _kind(text: str) -> str:

    if text not in KINDS:
        raise UserError(unknown("kind of definition", text, KINDS))
    return text


def _named(catalog: Catalog, text: str) -> tuple[str, str]:
    """`KIND/NAME`, or a name that only one kind has."""

    kind, slash, name = text.partition("/")
    if slash and kind in KINDS:
        if not catalog.files(kind, name):
            raise UserError(unknown("definition", name, catalog.names(kind), of=kind))
        return kind, name
    found = [kind for kind in KINDS if catalog.files(kind, text)]
    if len(found) == 1:
        return found[0], text
    if found:
        listed = ", ".join(f"{kind}/{text}" for kind in found)
        raise UserError(f"several definitions have the name '{text}'", remedy=f"name one: {listed}")
    every = [name for kind in KINDS for name in catalog.names(kind)]
    raise UserError(unknown("definition", text, every))


def _lines(data: Any, loc: Loc, depth: int) -> Iterator[tuple[Loc, str]]:
    """Lines of a definition as YAML, each with the place of its value; empty values are left out."""
    indent = "  " * depth
    for key, value in data.items() if isinstance(data, Mapping) else enumerate(data):
        here = (*loc, key)
        head = f"{indent}- " if isinstance(data, list) else f"{indent}{key}:"
        if isinstance(value, (Mapping, list)) and value:
            yield here, head.rstrip()
            yield from _lines(value, here, depth + 1)
        elif value not in (None, "", [], {}):
            text = json.dumps(value, ensure_ascii=False)
            yield here, f"{head}{text}" if head.endswith(" ") else f"{head} {text}"


def _place(source: Source, loc: Loc) -> str:
    file, line, _ = source.place(loc)
    return f"{file}:{line}"


def _dotted(loc: Loc) -> str:
    return ".".join(map(str, loc))


# --- locks ----------------------------------------------------------------------------------------------


def lock_image(arguments: argparse.Namespace) -> int:
    """`hpcbench images lock NAME|REFERENCE`."""
    from hpcbench.environments.oci import resolve
    from hpcbench.schema.image import Image
    from hpcbench.schema.image_reference import Reference

    insecure = (user_site() or Site(name="default")).container.insecure_registries
    given = arguments.image
    if "://" in given:
        digest = resolve(Reference.parse(given), insecure)
        print(f"{given.partition('@')[0]}@{digest}")
        return 0
    definition, source = Catalog(arguments.registry).get_with_source(Image, given)
    if not (definition.reference or "").startswith("docker://"):
        raise UserError(
            source.problem(
                ("reference",),
                "only a docker:// reference has a digest to lock",
                "lock an image with such a reference",
            )
        )
    digest = resolve(Reference.parse(str(definition.reference)), insecure)
    _write_locked(source, "images", definition, {"digest": digest})
    return 0


def verify_model(arguments: argparse.Namespace) -> int:
    """`hpcbench models verify NAME|URL|KEY`: reads every byte; exit code 1 if any is damaged."""
    from hpcbench.cli import data

    names = list(arguments.names)
    if not names and arguments.plan is not None:
        names = [one.name for one in data.definitions_of_plan(arguments)]
    if not names:
        raise UserError(
            "the command names no model", remedy="give names of models/ definitions, or --plan FILE"
        )
    catalog, site = Catalog(arguments.registry), data.site_of(arguments)
    codes = []
    for name in names:
        one = argparse.Namespace(**{**vars(arguments), "names": [name]})
        known = bool(catalog.files("models", name))
        codes.append(_verify_model(one, catalog, site) if known else data.verify(one))
    return max(codes)


def _verify_model(arguments: argparse.Namespace, catalog: Catalog, site: Site) -> int:
    """Compare a model's bytes with its definition's hash, or write the missing hash."""
    from hpcbench.cli import data
    from hpcbench.data.progress import Moved
    from hpcbench.data.tree import Tree, content_hash, folder_files
    from hpcbench.registry.paths import with_absolute_paths
    from hpcbench.schema.model import Model
    from hpcbench.submit.local_data import open_cache

    (name,) = arguments.names
    found, source = catalog.get_with_source(Model, name)
    model = with_absolute_paths(found, source)
    if not model.source:
        what = f"model '{model.name}' has no weights to verify: it is an endpoint elsewhere"
        raise UserError(source.problem((), what, "leave it out"))
    folder = Path(open_cache(site).local(model, fetch=False).source)
    hashes = home(site) / "cache" / "hashes.json"
    if Tree(folder).version is not None:
        data.verify(arguments)  # may repair: only then all files are present
        digest = content_hash(folder, folder_files(folder), hashes)
    else:
        files = folder_files(folder)
        whole, done = sum(path.stat().st_size for path in files), 0

        def count(size: int) -> None:
            nonlocal done
            done += size
            progress(Moved(f"hashing {folder}", done, whole))

        with transfer_bar() as progress:
            digest = content_hash(folder, files, hashes, count, read=True)
    if model.content_hash is not None:
        if model.content_hash != digest:
            raise UserError(
                source.problem(
                    ("content_hash",),
                    f"the files have another hash: {digest}",
                    "fetch the model again, or correct the hash",
                )
            )
        print(f"{model.name} matches its definition: {digest}")
        return 0
    _write_locked(source, "models", found, {"content_hash": digest})
    return 0


def _write_locked(
    source: Source, kind: str, definition: Definition, lock: Mapping[str, str]
) -> None:
    """Write a lock into the definition's own file, or into the user's copy of a shipped definition."""
    from hpcbench.files.atomic import write_atomic

    shipped = share_dir() / "registries" in source.path.resolve().parents
    if shipped and "://" not in str(source.data.get("source", "://")):
        for key, value in lock.items():
            print(f"{key}: {value}")
        return
    path = user_dir() / kind / f"{definition.name}.yaml" if shipped else source.path
    if shipped and path.exists():
        raise UserError("your copy of this definition exists already", file=path, remedy="edit it")
    text = source.path.read_text(encoding="utf-8")
    if shipped:  # the editor's line is relative to the file's old folder
        text = "".join(
            line for line in text.splitlines(keepends=True) if "yaml-language-server" not in line
        )
    for key, value in lock.items():
        lines = [line for line in text.splitlines() if not line.startswith(f"{key}:")]
        text = "\n".join([*lines, f"{key}: {value}", ""])
    write_atomic(path, text)
    for key, value in lock.items():
        print(f"{path}: {key}: {value}")
