"""A copy of the submitting environment, from which jobs run and which no later `pip install` changes.

The copy has all folders that this Python imports from: its virtual environment, or the whole prefix of a
separate Python (conda); further folders (the user's site, PYTHONPATH); the checkouts of editable packages.
It is in `HOME/cache/environments/KEY`; equal environments have the same key, so they are copied once. The
interpreter and standard library under a virtual environment are not copied.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import site
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.access import close_to_others, own_place, owner_writes
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.outcome import state_of
from hpcbench.files.lease import make_once, remove
from hpcbench.submit.fingerprint import (
    MOST_SOURCES,
    SKIPPED,
    Fingerprint,
    editable,
    here,
    metadata_folders,
    search_path,
    sources_of,
)
from hpcbench.subprocesses import run

FOLDER = "environments"
"""Folder of copies below the cache."""

MODULES = (".py", ".so", ".pyi")
"""Suffixes of files that Python imports."""

SYSTEM_PREFIXES = ("/usr", "/usr/local")
"""Prefixes that are not copied as a whole."""

SMALLEST_BINARY = 1 << 20
"""Files in `bin` that are larger are no scripts."""

_SAYS = """\
import json, hpcbench
from hpcbench.submit.fingerprint import here
print(json.dumps([hpcbench.__file__, here().to_json()]))
"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of an environment."""

    path: Path
    """Its folder; `bin/python` runs from it."""
    fingerprint: Fingerprint
    """The copy's fingerprint."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A folder to copy."""

    source: Path
    """Its path."""
    place: str
    """Its path below the copy."""
    kind: Literal["whole", "checkout", "modules"] = "whole"
    """`whole`: all files; `checkout`: no files of tools (`.git`, virtual environments, …); `modules`: an
    arbitrary folder of PYTHONPATH, of which only files that Python imports are copied."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file of the copy."""

    source: Path
    place: str
    size: int
    changed: int
    """Time of its last change, ns; the key ignores compiled modules."""
    link: str | None
    """Target of a link that stays a link; else None."""


def copy_environment(
    cache: Path, without: Path | None = None, say: Callable[[str], None] = lambda line: None
) -> Snapshot:
    """Copy this Python's environment, or use an existing copy.

    Args:
        cache: the cache of a home.
        without: folder of a plan's packages, which is in that cache already.
        say: receives a line with the number of files.

    Raises:
        EnvironmentFault: the copy does not run, the disk is full, or the environment changes meanwhile.
    """
    original = here(without)
    parts = _parts(original, without)
    entries = _entries(parts, cache.parent)
    key = _key(entries)
    target = own_place(cache / FOLDER / key)
    size = sum(entry.size for entry in entries)
    summary = f"{len(entries):,} files, {size / 1e6:,.0f} MB"
    if target.exists():
        say(f"jobs run from an existing copy of this environment ({summary})")
    else:
        say(f"copying this environment ({summary}) to {target}")
    target.parent.mkdir(parents=True, exist_ok=True)

    def build(place: Path) -> None:
        with owner_writes():
            _copy(entries, place, target, parts)
        close_to_others(place)
        if _key(_entries(parts, cache.parent)) != key:
            raise EnvironmentFault(
                "the environment changed while it was copied", remedy="submit again"
            )

    try:
        made = make_once(target, build)
        os.utime(target)  # used again, so not old
    except OSError as error:
        raise EnvironmentFault(
            f"cannot copy the environment to {target}: {error.strerror or error}",
            remedy="make room, or submit without --snapshot-env",
        ) from error
    try:
        return Snapshot(target, _verified(target, original))
    except EnvironmentFault:
        if made:
            remove(target)
        raise


def unused(root: Path, experiments: Iterable[Experiment], days: float) -> list[Path]:
    """Copies that no experiment needs, unless its plan is submitted again.

    Args:
        root: the home.
        experiments: experiments that stay.
        days: copies made or used within so many days are left out: a submission may be under way.
    """
    needed = {
        Path(copy).name
        for one in experiments
        if state_of(one) != "done" and (copy := one.manifest.snapshot)
    }
    folder = root / "cache" / FOLDER
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [
        path
        for path in found
        if path.is_dir()
        and not path.name.startswith("tmp-")
        and path.name not in needed
        and path.stat().st_mtime < time.time() - 86400 * days
    ]


# --- parts of a copy ------------------------------------------------------------------------------------


def _parts(original: Fingerprint, without: Path | None) -> list[_Part]:
    """Folders that this Python imports from, and their places in the copy."""
    prefix = Path(sys.prefix)
    parts = [_Part(prefix, "")] if not _is_system() else []
    checkouts: dict[Path, str] = {}
    for place in original.places:
        for name, _, metadata in metadata_folders(place):
            folder = editable(metadata)
            if folder is not None:
                checkouts.setdefault(folder, f"src/{len(checkouts)}-{name}")
    parts += [_Part(folder, place, "checkout") for folder, place in checkouts.items()]
    search = _search(without)
    own = prefix / _site_folder()
    behind = search.index(own) if own in search else len(search)
    for number, path in enumerate(search):
        if _moved(parts, path) is None:
            place = f"{'before' if number < behind else 'after'}/{number}"
            parts.append(_Part(path, place, "whole" if _holds_metadata(path) else "modules"))
    return parts


def _search(without: Path | None) -> list[Path]:
    """Folders of the search path without the standard library's, in order."""
    own = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    own |= {f"{folder}/lib-dynload" for folder in own}
    names = (name for name in search_path(without) if name and name not in own)
    return [Path(name) for name in names if Path(name).is_dir()]


def _entries(parts: Sequence[_Part], root: Path) -> list[_Entry]:
    """Every file of the copy, in order; files below the home of experiments are left out."""
    found: dict[str, _Entry] = {}
    for part in parts:
        of_part = _modules(part) if part.kind == "modules" else _walk(part, part.source, root)
        for entry in of_part:
            found.setdefault(entry.place, entry)
    return [found[place] for place in sorted(found)]


def _walk(part: _Part, folder: Path, root: Path) -> Iterator[_Entry]:
    for one in sorted(os.scandir(folder), key=lambda one: one.name):
        path = Path(one.path)
        place = str(Path(part.place, path.relative_to(part.source)))
        if one.is_dir(follow_symlinks=False):
            if path != root and not _left_out(part, folder, one.name):
                yield from _walk(part, path, root)
            continue
        link = _link(part, path) if one.is_symlink() else None
        if link is None and one.is_symlink() and one.is_dir():
            yield from _modules(_Part(path.resolve(), place))
            continue
        try:
            stat = one.stat(follow_symlinks=link is None)
        except FileNotFoundError:
            continue  # a broken link
        if one.is_file() or link is not None:
            yield _Entry(path, place, stat.st_size, stat.st_mtime_ns, link)


def _modules(part: _Part) -> Iterator[_Entry]:
    """Files that Python imports, in an arbitrary folder."""
    found = list(sources_of(part.source, MODULES))
    if len(found) == MOST_SOURCES:
        raise EnvironmentFault(
            f"{part.source} is on Python's search path and holds more than {MOST_SOURCES:,} modules",
            remedy="take it out of PYTHONPATH, or submit without --snapshot-env",
        )
    for path in found:
        stat = path.stat()
        place = str(Path(part.place, path.relative_to(part.source)))
        yield _Entry(path, place, stat.st_size, stat.st_mtime_ns, None)


def _left_out(part: _Part, folder: Path, name: str) -> bool:
    if part.kind == "whole":
        # A conda installation has all other environments, and their packages, below it.
        return (
            folder == part.source and name in ("pkgs", "envs") and (folder / "conda-meta").is_dir()
        )
    tools = SKIPPED - {"build", "dist"}
    return name.startswith(".") or name in tools or (folder / name / "pyvenv.cfg").exists()


def _link(part: _Part, path: Path) -> str | None:
    """Target of a link in the copy; None: the target is outside the copied folder, so a file is written.

    The interpreter of a virtual environment is outside and stays a link.
    """
    target = os.readlink(path)  # noqa: PTH115 - the text as written
    end = Path(os.path.normpath(path.parent / target))
    if end.is_relative_to(part.source):
        return os.path.relpath(end, path.parent)
    is_python = path.parent.name == "bin" and path.name.startswith("python")
    return str(end) if is_python and part.kind == "whole" else None


def _key(entries: Sequence[_Entry]) -> str:
    """Identity of a copy: names, sizes and times of its files, and the Python that it uses."""
    rows = [
        [entry.place, entry.size, entry.changed, entry.link]
        for entry in entries
        if "__pycache__" not in entry.place
    ]
    text = json.dumps([2, sys.version, os.path.realpath(sys.executable), rows])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


# --- copying --------------------------------------------------------------------------------------------


def _copy(entries: Sequence[_Entry], place: Path, target: Path, parts: Sequence[_Part]) -> None:
    """Copy files to `place`, changed so that they work at `target`."""
    made: set[Path] = set()
    for entry in entries:
        path = place / entry.place
        if path.parent not in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.add(path.parent)
        if entry.link is not None:
            path.symlink_to(entry.link)
        else:
            shutil.copy2(entry.source, path)
    own = _site_folder()
    (place / own).mkdir(parents=True, exist_ok=True)
    _interpreter(place)
    final = [replace(part, place=str(target / part.place)) for part in parts]
    for folder in {place / own, *(place / part.place for part in parts if part.kind == "whole")}:
        _rewrite(folder, final)
    for path in (place / "bin").iterdir():
        _relocate(path, sys.prefix, str(target))
    (place / own / "_hpcbench_snapshot.pth").write_text(
        _path_line(final, target / own), encoding="utf-8"
    )


def _path_line(parts: Sequence[_Part], own: Path) -> str:
    """A line for a path file: folders outside the environment, in the order of the search path."""
    before, after = (
        [part.place for part in parts if Path(part.place).parent.name == name]
        for name in ("before", "after")
    )
    standard = {*site.getsitepackages(), site.getusersitepackages()}
    sites = [
        part.place
        for part in parts
        if part.place in (*before, *after) and str(part.source) in standard
    ]
    return (
        f"import site, sys; at = sys.path.index({str(own)!r}); sys.path[at:at] = {before!r}; "
        f"sys.path += {after!r}; [site.addsitedir(one) for one in {sites!r}]\n"
    )


def _interpreter(place: Path) -> None:
    """Ensure `bin/python`, and a virtual environment that excludes packages outside it."""
    python = place / "bin" / "python"
    python.parent.mkdir(exist_ok=True)
    if not python.exists() and not python.is_symlink():
        version = python.with_name(f"python{sys.version_info[0]}.{sys.version_info[1]}")
        python.symlink_to(version.name if version.exists() else os.path.realpath(sys.executable))
    if _is_system():
        base = Path(os.path.realpath(sys.executable)).parent
        text = f"home = {base}\nversion = {sys.version.split()[0]}\n"
    elif sys.prefix != sys.base_prefix:
        text = (place / "pyvenv.cfg").read_text(encoding="utf-8")
        text = re.sub(r"(?m)^include-system-site-packages.*\n?", "", text)
    else:
        return
    text = f"include-system-site-packages = false\n{text}"
    (place / "pyvenv.cfg").write_text(text, encoding="utf-8")


def _rewrite(folder: Path, parts: Sequence[_Part]) -> None:
    """Make path files and finders of editable packages point to the copies."""
    for path in [*folder.glob("*.pth"), *folder.glob("__editable__*.py")]:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".pth":
            lines = [_line(line, parts) for line in text.splitlines()]
            new = "".join(f"{line}\n" for line in lines)
        else:
            new = text
            for part in sorted(parts, key=lambda part: -len(str(part.source))):
                new = new.replace(str(part.source), part.place)
        if new != text:
            path.write_text(new, encoding="utf-8")


def _line(line: str, parts: Sequence[_Part]) -> str:
    moved = _moved(parts, Path(line.strip())) if line.strip().startswith("/") else None
    return line if moved is None else moved


def _relocate(path: Path, old: str, new: str) -> None:
    """Make a script of `bin` start the Python of the copy."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > SMALLEST_BINARY:
        return
    data = path.read_bytes()
    if data.startswith(b"#!") and f"{old}/bin/".encode() in data:
        path.write_bytes(data.replace(f"{old}/bin/".encode(), f"{new}/bin/".encode()))


def _verified(target: Path, original: Fingerprint) -> Fingerprint:
    """The copy's fingerprint, after a check that it is the same environment at another place."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    try:
        ended = run([f"{target}/bin/python", "-I", "-c", _SAYS], None, env=environ, cwd="/")
    except OSError as error:
        raise _unfit(f"bin/python: {error.strerror}") from error
    if ended.failed:
        raise _unfit(ended.message)
    file, data = json.loads(ended.text.strip().splitlines()[-1])
    copy = Fingerprint.from_json(data)
    outside = [place for place in (file, *copy.places) if not Path(place).is_relative_to(target)]
    if outside:
        raise _unfit(f"the copy still imports from {outside[0]}")
    there = {name: replace(one, place="") for name, one in original.distributions.items()}
    here_ = {name: replace(one, place="") for name, one in copy.distributions.items()}
    same = replace(original, executable="", places=("",), distributions=there)
    changes = same.changes(replace(copy, executable="", places=("",), distributions=here_))
    if changes:
        raise _unfit("; ".join(changes))
    return copy


def _unfit(why: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"the copy of this environment does not run: {why}",
        remedy="submit without --snapshot-env, from an environment that does not change",
    )


# --- small helpers --------------------------------------------------------------------------------------


def _is_system() -> bool:
    """Whether this is the system's own Python: then only folders outside its prefix are copied."""
    return sys.prefix == sys.base_prefix and sys.prefix in SYSTEM_PREFIXES


def _site_folder() -> str:
    """Folder of packages below a prefix."""
    return f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def _moved(parts: Sequence[_Part], path: Path) -> str | None:
    """Place of a path in the copy; None: it is not copied."""
    holders = [part for part in parts if path.is_relative_to(part.source)]
    if not holders:
        return None
    part = max(holders, key=lambda part: len(part.source.parts))
    return os.path.normpath(Path(part.place, path.relative_to(part.source)))


def _holds_metadata(folder: Path) -> bool:
    return any(folder.glob("*.dist-info"))
