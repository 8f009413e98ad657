"""Verbs about data: data list, sync, verify, prune, check; models fetch, list, prune; upload."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpcbench.cli.output import (
    console,
    day,
    print_json,
    say,
    table,
    transfer_bar,
)
from hpcbench.data.copies import Cache
from hpcbench.data.progress import Progress, silent, size_text
from hpcbench.data.sync import LEASE, Freed, SmartSync
from hpcbench.data.tree import Version
from hpcbench.errors import EnvironmentFault, HpcbenchError, Problem, RunFailed, UserError
from hpcbench.registry.catalog import Catalog, user_site
from hpcbench.registry.paths import with_absolute_paths
from hpcbench.registry.starter import plain_name
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.model import Model
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.schema.site import Site
from hpcbench.submit.local_data import open_cache


def list_versions(arguments: argparse.Namespace) -> int:
    """`hpcbench data list`, `hpcbench models list`."""
    versions = list(_sync(arguments).versions())
    if arguments.json:
        print_json([_row(version) for version in versions])
        return 0
    if not versions:
        say(f"{_sync(arguments).folder} is empty")
        return 0
    shown = table("key", "source", "files", "size", "last used", right=("files", "size"))
    for one in versions:
        row = _row(one)
        files = f"{one.count}{' packed' if row['packed'] else ''}"
        shown.add_row(row["key"][:8], one.url, files, size_text(one.bytes), row["used"])
    shown.add_row("", "", "", size_text(sum(one.bytes for one in versions)), "", style="dim")
    console().print(shown)
    return 0


def _row(version: Version) -> dict[str, Any]:
    return {
        "key": version.folder.name, "source": version.url, "files": version.count,
        "bytes": version.bytes, "packed": version.pack_mtime_ns is not None,
        "used": day(version.used), "content": version.content, "path": str(version.files),
    }  # fmt: skip


def sync(arguments: argparse.Namespace) -> int:
    """`hpcbench data sync NAME…`, `hpcbench models fetch NAME…`."""
    definitions = _named(arguments)
    done = []
    for definition in definitions:
        start = time.monotonic()
        with transfer_bar() as progress:
            here = _cache(arguments, progress).local(definition)
        took = time.monotonic() - start
        done.append({"name": definition.name, "path": here.source, "seconds": round(took, 2)})
        if not arguments.json:
            print(f"{definition.name}: {here.source}")
    if arguments.json:
        print_json(done)
    return 0


def verify(arguments: argparse.Namespace) -> int:
    """`hpcbench data verify [NAME|KEY]`: exit code 1 if any damage remains."""
    cache = _cache(arguments)
    chosen = _versions(cache, arguments)
    found, left = [], 0
    for version in chosen:
        error = None
        with transfer_bar() as progress:
            syncing = _sync(arguments, progress)
            damaged = syncing.verify(version)
            if damaged and arguments.repair:
                try:
                    syncing.repair(version, damaged, _options(cache, version, arguments))
                except HpcbenchError as found_out:  # the others may still be repaired
                    error = str(found_out)
        repaired = arguments.repair and error is None
        left += 0 if repaired else len(damaged)
        one = {"key": version.folder.name, "source": version.url, "damaged": damaged}
        found.append({**one, "error": error} if error else one)
        if not arguments.json:
            _tell_damage(version, damaged, repaired=repaired)
            if error:
                say(error)
    if arguments.json:
        print_json(found)
    if left:
        remedy = (
            "are still damaged"
            if arguments.repair
            else "are damaged; `--repair` fetches them again"
        )
        raise RunFailed(f"{left} files {remedy}")
    return 0


def prune(arguments: argparse.Namespace) -> int:
    """`hpcbench data prune`: always removes leftovers; removes versions by age or to free a given space.

    A version used within the last day stays, as an experiment may need it, unless `--older` gives a
    shorter time.
    """
    from hpcbench.files.lease import remove

    syncing = _sync(arguments)
    seconds = None if arguments.older is None else arguments.older * 86400
    to_remove, freed = list[Version](), Freed()
    for version in syncing.removable(LEASE if seconds is None else min(LEASE, seconds)):
        old = seconds is not None and time.time() - version.used > seconds
        if old or (arguments.free is not None and freed.bytes < arguments.free * 2**30):
            to_remove.append(version)
            freed.add(version)
    if arguments.free is not None and freed.bytes < arguments.free * 2**30:
        others = len(syncing.versions()) > len(to_remove)
        why = "the other versions are in use, were used within a day, or belong to other users"
        say(f"cannot free more: {why}" if others else f"{syncing.folder} has nothing else")
    leftovers = syncing.leftovers()
    stayed = 0
    for version in to_remove:
        print(f"{version.folder.name[:8]} {version.url} {size_text(version.bytes)}")
        if not arguments.dry_run:
            stayed += not syncing.remove(version)
    for path in leftovers:
        print(f"{path.name}: left by an interrupted transfer")
        if not arguments.dry_run:
            remove(path)
            stayed += path.exists()
    verb = "would be" if arguments.dry_run else "were"
    rest = f"; only their owner can remove the rest of {stayed}" if stayed else ""
    say(
        f"{len(to_remove)} versions ({size_text(freed.bytes)}) and {len(leftovers)} leftovers "
        f"{verb} removed{rest}"
    )
    return 0


def check(arguments: argparse.Namespace) -> int:
    """`hpcbench data check NAME`: exit code 1 if part of it is unusable."""
    from rich.progress import Progress as Bar

    from hpcbench.data.check import sheet_html, sheet_png, survey
    from hpcbench.data.datasets import open_dataset
    from hpcbench.files.atomic import write_atomic

    definition = _dataset(arguments.name, arguments.registry)
    with transfer_bar() as progress:
        cache = _cache(arguments, progress)
        here = cache.local(definition)
    here = here.model_copy(update={"on_bad": "skip", "split": arguments.split or definition.split})
    iterator = open_dataset(here, cache.folder)
    with Bar(console=console(), transient=True, disable=not console().is_terminal) as bar:
        task = bar.add_task(f"checking {definition.name}", total=None)
        found, cards = survey(
            iterator, lambda done, count: bar.update(task, completed=done, total=count)
        )
    folder = arguments.out or Path(f"{definition.name.replace('/', '_')}-check")
    write_atomic(folder / "sheet.png", sheet_png(cards))
    write_atomic(folder / "index.html", sheet_html(definition.name, found, cards))
    if arguments.json:
        print_json({**asdict(found), "path": str(folder)})
    else:
        _print_survey(definition.name, asdict(found))
        print(f"\ncontact sheet: {folder / 'index.html'}, {folder / 'sheet.png'}")
    if found.bad:
        raise RunFailed(f"{len(found.bad)} rows or samples of {definition.name} are unusable")
    return 0


def upload(arguments: argparse.Namespace) -> int:
    """`hpcbench upload [EXPERIMENT] [--to URL]`."""
    from hpcbench.experiment.layout import find, home
    from hpcbench.reporting.upload import upload_results

    experiment = find(home(user_site()), arguments.experiment)
    with transfer_bar() as progress:
        done = upload_results(experiment, arguments.to, progress)
    if not done:
        raise UserError(
            "no destination for the upload", remedy="`--to URL`, or `upload:` in the plan"
        )
    if arguments.json:
        print_json(done)
        return 0
    for one in done:
        print(f"{one['url']}: {one.get('error') or str(one['sent']) + ' files sent'}")
        for line in one.get("left", ()):
            print(f"{one['url']}: {line}")
    if failed := [one for one in done if "error" in one]:
        raise EnvironmentFault(f"{len(failed)} uploads failed", remedy="repeat `hpcbench upload`")
    return 0


# --- inside ---------------------------------------------------------------------------------------------


def site_of(arguments: argparse.Namespace) -> Site:
    """The site whose caches are used: that of `--site`, else of `--plan`, else the user's own."""
    plan = getattr(arguments, "plan", None)
    if arguments.site is not None:
        return Catalog(project=False).get(Site, arguments.site)
    if plan is not None:
        return _of_plan(arguments).site
    return user_site() or Site(name="default")


def definitions_of_plan(arguments: argparse.Namespace) -> list[Dataset | Model]:
    """The datasets or models of `--plan` that have files, without duplicates."""
    found: dict[str, Dataset | Model] = {}
    for run_task in _of_plan(arguments).run_tasks:
        one = run_task.dataset if arguments.kind == "datasets" else run_task.model
        if one.source:
            found.setdefault(one.name, one)
    return list(found.values())


def _of_plan(arguments: argparse.Namespace) -> ResolvedPlan:
    from hpcbench.submit.preview import read_only

    return read_only(arguments.plan, arguments.registry)[0]


def _named(arguments: argparse.Namespace) -> list[Dataset | Model]:
    """The named definitions; without names, those of the plan."""
    if not arguments.names and getattr(arguments, "plan", None) is not None:
        return definitions_of_plan(arguments)
    if not arguments.names:
        what = f"the command names no {arguments.kind}"
        raise UserError(what, remedy=f"give names of {arguments.kind}/ definitions, or --plan FILE")
    return [_definition(arguments.kind, name, arguments.registry) for name in arguments.names]


def _cache(arguments: argparse.Namespace, progress: Progress = silent) -> Cache:
    return open_cache(site_of(arguments), progress)


def _sync(arguments: argparse.Namespace, progress: Progress = silent) -> SmartSync:
    return _cache(arguments, progress).sync(arguments.kind)


def _definition(kind: str, name: str, registries: Sequence[Path]) -> Dataset | Model:
    return _dataset(name, registries) if kind == "datasets" else _model(name, registries)


def _dataset(name: str, registries: Sequence[Path]) -> Dataset:
    """A definition by name; a URL makes a definition with only that source."""
    if "://" in name:
        return Dataset(name=plain_name(name.partition("://")[2]), source=name)
    return with_absolute_paths(
        *_visible(registries, "datasets", name).get_with_source(Dataset, name)
    )


def _model(name: str, registries: Sequence[Path]) -> Model:
    if "://" in name:
        return Model(name=plain_name(name.partition("://")[2]), source=name, engine="none")
    return with_absolute_paths(*_visible(registries, "models", name).get_with_source(Model, name))


def _visible(registries: Sequence[Path], kind: str, name: str) -> Catalog:
    """The catalog; plugins of packages that the definition needs here are importable."""
    from hpcbench.submit.plan_packages import use

    catalog = Catalog(registries)
    use(catalog, say, [(kind, name)])
    return catalog


def _versions(cache: Cache, arguments: argparse.Namespace) -> list[Version]:
    kind, names = arguments.kind, arguments.names
    syncing = cache.sync(kind)
    if not names and getattr(arguments, "plan", None) is not None:
        named: list[Dataset | Model] = definitions_of_plan(arguments)
        return [
            version
            for one in named
            if (version := syncing.newest(cache.url(one), cache.options(one))) is not None
        ]
    if not names:
        return syncing.versions()
    chosen = []
    for name in names:
        try:
            definition = _definition(kind, name, arguments.registry)
        except UserError:  # no such name; perhaps it is a key
            by_key = [one for one in syncing.versions() if one.folder.name.startswith(name)]
            if len(by_key) != 1:
                raise
            chosen += by_key
            continue
        version = syncing.newest(cache.url(definition), cache.options(definition))
        if version is None:
            verb = "data sync" if kind == "datasets" else "models fetch"
            what = f"{definition.source} is not in {syncing.folder}"
            raise UserError(what, remedy=f"hpcbench {verb} {name}")
        chosen.append(version)
    return chosen


def _options(cache: Cache, version: Version, arguments: argparse.Namespace) -> dict[str, Any]:
    """Storage options of a version: those of the named definition with its source, else the site's."""
    for name in arguments.names:
        with contextlib.suppress(UserError):  # the name is a key
            definition = _definition(arguments.kind, name, arguments.registry)
            if cache.url(definition) == version.url:
                return cache.options(definition)
    return dict(cache.site.storage.get(version.url.partition("://")[0], {}))


def _tell_damage(version: Version, damaged: Sequence[str], *, repaired: bool) -> None:
    if not damaged:
        print(f"{version.url}: {version.count} files are unchanged, {version.content}")
        return
    state = "repaired" if repaired else "damaged"
    for path in damaged[:20]:
        print(f"{version.url}: {path} {'was ' if repaired else 'is '}{state}")
    if len(damaged) > 20:
        print(f"{version.url}: and {len(damaged) - 20} more")


def _print_survey(name: str, found: dict[str, Any]) -> None:
    print(
        f"{name}: {found['samples']} samples of {found['documents']} documents, {found['images']} images"
    )

    def line(title: str, values: dict[str, Any]) -> None:
        if values:
            text = ", ".join(f"{key} {value}" for key, value in values.items())
            print(f"  {title:<16} {text}")

    line("fields", found["fields"])
    for key, values in found["metadata"].items():
        line(key, values)
    line("reference, characters", found["references"])
    line("image sizes, px", found["sizes"])
    line("formats", found["formats"])
    if found["without_images"]:
        print(f"  {found['without_images']} samples have no image")
    for ids in found["same_images"][:10]:
        print(f"  several documents have the same image: {', '.join(ids)}")
    for ids in found["same_samples"][:10]:
        print(f"  several samples have the same question and images: {', '.join(ids)}")
    for one in found["bad"][:20]:
        print(f"  {Problem(one['message'], one['file'], one['line'])}")
