"""Verbs about plugins: list, new, check."""

from __future__ import annotations

import argparse
import inspect
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hpcbench import plugins
from hpcbench.cli.output import console, print_json, say, table
from hpcbench.errors import EnvironmentFault, Problem, RunFailed, UserError, unknown

NOT_BUILT = "built when a definition names it"
"""State of a plugin in a package that is not installed."""


def list_plugins(arguments: argparse.Namespace) -> int:
    """`hpcbench plugins list [KIND]`."""
    from hpcbench.registry.catalog import Catalog
    from hpcbench.registry.resolve import packaged

    catalog, rows = Catalog(arguments.registry), []
    for kind in [_kind(arguments.kind)] if arguments.kind else plugins.REQUIRED:
        for name, point in sorted(plugins.available(kind).items()):
            try:
                plugins.load(kind, name)
                state = "ok"
            except EnvironmentFault as fault:
                state = str(fault)
            rows.append(
                {
                    "kind": kind,
                    "name": name,
                    "runs": plugins.RUNS[kind],
                    "from": plugins.origin(point),
                    "state": state,
                }
            )
        rows += [
            {
                "kind": kind,
                "name": name,
                "runs": plugins.RUNS[kind],
                "from": f"packages/{package}",
                "state": NOT_BUILT,
            }
            for name, package in sorted(packaged(catalog, kind).items())
            if name not in plugins.available(kind)
        ]
    if arguments.json:
        print_json(rows)
        return 0
    shown = table("kind", "name", "runs", "from", "state")
    for row in rows:
        style = {"ok": None, NOT_BUILT: "dim"}.get(row["state"], "red")
        shown.add_row(*row.values(), style=style)
    console().print(shown)
    return 0


def new(arguments: argparse.Namespace) -> int:
    """`hpcbench plugins new KIND NAME`."""
    from hpcbench.cli.plugin_skeletons import package

    kind, name = _kind(arguments.kind), arguments.name
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        what = f"'{name}' is not a valid name of a plugin"
        raise UserError(what, remedy="use lower-case letters, digits and _, a letter first")
    folder = arguments.out or Path(f"hpcbench-{name.replace('_', '-')}")
    if folder.exists():
        raise UserError("exists already", file=folder, remedy="name another folder: --out FOLDER")
    if plugins.ships(kind, name):
        what = f"hpcbench has a {plugins.called(kind)} '{name}' already"
        raise UserError(what, remedy="choose another name: two plugins of one name cannot be used")
    for path, text in package(kind, name).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
        say(f"wrote {folder / path}")
    print(f"hpcbench plugins check {folder}")
    return 0


def check(arguments: argparse.Namespace) -> int:
    """`hpcbench plugins check PATH`."""
    from hpcbench.environments.plugin_packages import host_folder, lock
    from hpcbench.experiment.layout import home
    from hpcbench.registry.catalog import user_site
    from hpcbench.schema.package import LocalSource, Package
    from hpcbench.schema.site import Site

    if not (arguments.path / "pyproject.toml").is_file():
        what = "is not a package: it has no pyproject.toml"
        remedy = "`hpcbench plugins new KIND NAME` writes a package"
        raise UserError(what, file=arguments.path, remedy=remedy)
    source = LocalSource(type="local", path=str(arguments.path.resolve()), editable=False)
    cache = home(user_site() or Site(name="default")) / "cache"
    locked = lock(
        Package(name=_slug(arguments.path.resolve().name), source=source), cache, dev=True, say=say
    )
    folder = host_folder([locked], cache)
    plugins.add_folder(folder, [arguments.path])
    distribution = locked.requirements[0].partition(" @ ")[0].partition("[")[0]
    rows, elsewhere = [], ""
    for kind in plugins.REQUIRED:
        for name, point in plugins.available(kind).items():
            if point.dist is None or not _same(point.dist.metadata["Name"], distribution):
                continue
            rows += [{"plugin": f"{kind}/{name}", **row} for row in tried(kind, name)]
            elsewhere = elsewhere or _elsewhere(kind, name, (folder, arguments.path.resolve()))
    if not rows:
        raise UserError(
            Problem(
                "has no entry point for hpcbench",
                str(arguments.path / "pyproject.toml"),
                remedy='add [project.entry-points."hpcbench.KIND"] NAME = "module:Class"',
            )  # fmt: skip
        )
    if elsewhere:
        say(
            f"{distribution} is installed here: its copy {elsewhere} is checked, not this folder; "
            "uninstall it to check this folder"
        )
    if arguments.json:
        print_json(rows)
    else:
        for row in rows:
            mark = "✓" if row["problem"] is None else "✗"
            print(f"{mark} {row['plugin']}: {row['contract']}")
            if row["problem"]:
                print(f"    {row['problem']}")
    failed = sum(row["problem"] is not None for row in rows)
    if failed:
        raise RunFailed(f"the package breaks {failed} of {len(rows)} contracts")
    return 0


def _elsewhere(kind: str, name: str, folders: Sequence[Path]) -> str:
    """The file that a plugin comes from, if it is in none of these folders."""
    try:
        file = Path(inspect.getfile(plugins.load(kind, name))).resolve()
    except (EnvironmentFault, OSError, TypeError):
        return ""
    return "" if any(file.is_relative_to(one.resolve()) for one in folders) else str(file)


def tried(kind: str, name: str) -> list[dict[str, str | None]]:
    """Each contract with its problem; None: the plugin satisfies it."""
    from hpcbench.testing import contracts

    try:
        plugin = plugins.load(kind, name)
    except EnvironmentFault as fault:
        return [{"contract": "It fits its Protocol", "problem": str(fault)}]
    rows: list[dict[str, str | None]] = [{"contract": "It fits its Protocol", "problem": None}]
    for text, test in contracts(kind):
        with tempfile.TemporaryDirectory() as room:
            try:
                test(plugin, Path(room))
                problem = None
            except AssertionError as error:
                problem = str(error) or "an assertion without a message"
            except Exception as error:  # noqa: BLE001 - foreign code: any exception is the finding
                place = plugins.place_in(error, {plugin.__module__.partition(".")[0]})
                problem = f"{type(error).__name__}: {error}{f' ({place})' if place else ''}"
        rows.append({"contract": text, "problem": problem})
    return rows


def _same(one: str, other: str) -> bool:
    return re.sub(r"[-_.]+", "-", one).lower() == re.sub(r"[-_.]+", "-", other).lower()


def _slug(name: str) -> str:
    """A folder's name as a valid name of a package."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name.encode("ascii", "replace").decode()).strip("-") or "x"


def _kind(text: str) -> str:
    if text not in plugins.REQUIRED:
        raise UserError(unknown("kind of plugin", text, plugins.REQUIRED))
    return text
