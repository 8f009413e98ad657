"""Copies in the experiment of files that definitions name besides their data, for a rerun.

`resolved.json` has every definition after overlays and settings, with the texts of chat templates and prompt
collections. The files that it still names by path are small: images of prompts' examples, recipes of images,
local packages, the job template of a site that came with the plan. These files are copied:

EXPERIMENT/kept/NNN/…       a file, or the needed files of a folder
EXPERIMENT/kept/kept.json   its path → its place below kept/, and its files with their SHA-256

Data and weights are not copied: the manifest has their hashes.
"""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpcbench.environments import recipes
from hpcbench.environments.plugin_packages import package_files
from hpcbench.errors import UserError
from hpcbench.experiment.access import close_to_others, ensure_folder
from hpcbench.experiment.layout import Experiment, decoding
from hpcbench.files.atomic import read_json, write_json
from hpcbench.files.hashing import hash_file
from hpcbench.registry.paths import is_dockerfile
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.submit import Say

LARGEST = 64 << 20
"""Maximum number of bytes of one copied path; a larger path is data."""


def keep(experiment: Experiment, resolved: ResolvedPlan, say: Say) -> None:
    """Copy the files that a plan names by path into its experiment."""
    known: dict[str, Any] = {}
    for path, files in named(resolved).items():
        size = sum(file.stat().st_size for file in files.values())
        if size > LARGEST:
            say(
                f"{path} is too large for a copy in the experiment: a rerun needs the file at this path"
            )
            continue
        place = f"{len(known):03d}"
        for name, file in files.items():
            target = experiment.kept_dir / place / name
            ensure_folder(target.parent, resolved.site)
            shutil.copyfile(file, target)  # who may read it is the site's word, not the source's
            if file.stat().st_mode & stat.S_IXUSR:
                mode = target.stat().st_mode
                target.chmod(stat.S_IMODE(mode | (mode & 0o444) >> 2))
        top = Path(path).name if Path(path).is_file() else ""
        hashes = {name: hash_file(file) for name, file in files.items()}
        known[path] = {"place": f"{place}/{top}".rstrip("/"), "files": hashes}
    if known:
        write_json(experiment.kept_file, known)
        close_to_others(experiment.kept_dir)


def today(experiment: Experiment) -> dict[str, Path]:
    """Path that the plan names → its copy in the experiment, for paths whose files have changed."""
    if not experiment.kept_file.is_file():
        return {}
    with decoding(experiment.kept_file):
        return {
            path: experiment.kept_dir / one["place"]
            for path, one in read_json(experiment.kept_file).items()
            if not _as_it_was(Path(path), one["files"])
        }


def named(resolved: ResolvedPlan) -> dict[str, dict[str, Path]]:
    """Path in a resolved plan → its files by the names of their copies; paths without files are left out."""
    found: dict[str, dict[str, Path]] = {}
    for path, folder in _paths(resolved):
        if path in found:
            continue
        if folder and (Path(path) / "pyproject.toml").is_file():
            found[path] = {name: Path(path) / name for name in package_files(Path(path))}
        elif not folder and Path(path).is_file():
            found[path] = {Path(path).name: Path(path), **_copied_by(Path(path))}
    return found


def _paths(resolved: ResolvedPlan) -> Iterator[tuple[str, bool]]:
    """Paths of files, and of folders of packages."""
    for run_task in resolved.run_tasks:
        prompt = run_task.prompt
        entries = (example for entry in prompt.prompts for example in entry.examples)
        for example in (*prompt.examples, *entries):
            yield from ((image, False) for image in example.images)
        if (judge := run_task.task.judge) is not None and judge.labels is not None:
            yield judge.labels, False
        scoring = (one.image for one in run_task.scoring_images)
        for image in (run_task.model.image or "", *scoring):
            if image.endswith(".def") or is_dockerfile(image):
                yield image, False
    for package in resolved.packages.values():
        if package.source.type == "local":
            yield package.source.path, True
    template = resolved.site.slurm.template
    if template is not None and template.startswith("/"):
        yield template, False


def _copied_by(path: Path) -> dict[str, Path]:
    """The files that a Dockerfile copies, by their path relative to its folder."""
    if not is_dockerfile(path.name):
        return {}
    try:
        files = recipes.parse(path).files
    except UserError:
        return {}  # preparation reports the mistake
    return {one.path.relative_to(path.resolve().parent).as_posix(): one.path for one in files}


def _as_it_was(path: Path, files: Mapping[str, str]) -> bool:
    """Whether a path still has the same bytes."""
    folder = path if path.is_dir() else path.parent
    if path.is_dir() and package_files(path) != sorted(files):
        return False
    try:
        return all(hash_file(folder / name) == digest for name, digest in files.items())
    except OSError:
        return False
