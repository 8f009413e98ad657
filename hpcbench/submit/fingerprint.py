"""Fingerprint of this Python's environment: versions and hashes of all packages, and of hpcbench itself.

Jobs wait in a queue for hours, and run with the packages that are installed when they start. So submit writes
a fingerprint, and each process on a node compares it before it does any work: after a `pip install` in
between, the process stops and reports the changes. A later hpcbench alone stops no job: see `stops_jobs`.

`python -m hpcbench.submit.fingerprint` prints the fingerprint of its Python, as JSON.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import platform
import re
import sys
import sysconfig
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.version import Version

import hpcbench
from hpcbench import installed
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import MANIFEST_VERSION, Experiment
from hpcbench.experiment.submission import rounds
from hpcbench.files import lease
from hpcbench.files.atomic import Appender
from hpcbench.subprocesses import printed

SOURCES = (".py", ".j2", ".html")
"""Suffixes of source files of hpcbench, or of an editable package."""

SKIPPED = {"__pycache__", "node_modules", "build", "dist", "site-packages"}
"""Folders of a checkout without source; folders that start with a dot and virtual environments count, too."""

MOST_SOURCES = 5_000
"""Most hashed files of one checkout: a folder of data below it must not cost a minute."""

MOST_SHOWN = 5
"""Maximum number of named changes of one sort; further changes are counted."""

LOCK_SECONDS = 20.0
"""How long a process waits for others that write the environment they share."""

GIT_SECONDS = 30.0

_OWN_NAMES = (installed.NAME, installed.OLD_NAME)

_METADATA = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)(?:-py\d.*)?\.(?:dist|egg)-info")


@dataclass(frozen=True, slots=True)
class Distribution:
    """An installed distribution."""

    version: str
    """Its version."""
    digest: str
    """Digest of its list of files, which has a hash of each file."""
    place: str
    """Its folder of installation."""


@dataclass(frozen=True)
class Fingerprint:
    """An environment."""

    python: str
    """Version of Python."""
    executable: str
    """Path of the Python executable."""
    platform: str
    """Operating system and kind of CPU."""
    places: tuple[str, ...]
    """Folders of `sys.path` with distributions, in order."""
    distributions: Mapping[str, Distribution]
    """Name in lower case with dashes → installed distribution."""
    sources: Mapping[str, str]
    """File of hpcbench or of an editable package → hash of its content."""

    @property
    def digest(self) -> str:
        """Digest of the whole fingerprint."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """As plain data, for the manifest."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Fingerprint:
        """The fingerprint of a result of `to_json`."""
        known = {name: Distribution(**one) for name, one in data["distributions"].items()}
        places = tuple(data["places"])
        return cls(**{**data, "places": places, "distributions": known})

    def changes(self, now: Fingerprint) -> list[str]:
        """Changes in a later fingerprint, in a few words each; empty: the environments are the same.

        Packages in folders that were not there before, such as the folders of a module that only nodes load,
        count only if they hide an earlier package.
        """
        found = [
            f"{word}{before} → {after}"
            for word, before, after in (
                ("Python ", self.python, now.python),
                ("", self.executable, now.executable),
                ("", self.platform, now.platform),
            )
            if before != after
        ]
        found += _few(self._installed(now), "packages")
        files = [
            f"{name} {_fate(name, self.sources, now.sources)}"
            for name in sorted({*self.sources, *now.sources})
            if self.sources.get(name) != now.sources.get(name)
        ]
        return found + _few(files, "files")

    def only_hpcbench_differs(self, now: Fingerprint, requirements: Collection[str]) -> bool:
        """Whether a later environment has another hpcbench and no other difference.

        Args:
            now: the later environment.
            requirements: distributions that the later hpcbench needs; they may be new.
        """
        new = set(requirements) - set(self.distributions)
        return not self._without_hpcbench().changes(now._without_hpcbench(new))

    def _without_hpcbench(self, others: Collection[str] = ()) -> Fingerprint:
        left = {
            name: one
            for name, one in self.distributions.items()
            if name not in _OWN_NAMES and name not in others
        }
        sources = {
            name: one for name, one in self.sources.items() if not name.startswith("hpcbench/")
        }
        return replace(self, distributions=left, sources=sources)

    def _installed(self, now: Fingerprint) -> Iterator[str]:
        for name in sorted({*self.distributions, *now.distributions}):
            before, after = self.distributions.get(name), now.distributions.get(name)
            if after is None:
                yield f"{name} was removed"
            elif before is None:
                if after.place in self.places:
                    yield f"{name} {after.version} is new"
            elif before.version != after.version:
                yield f"{name} {before.version} → {after.version}"
            elif before.digest != after.digest:
                yield f"{name} {after.version} was reinstalled"
            elif before.place != after.place:
                yield f"{name} now comes from {after.place}"


def here(without: Path | None = None) -> Fingerprint:
    """The fingerprint of this process's Python.

    Args:
        without: folder of a plan's packages (`plugins.add_folder`), which is not part of the environment; it
            and all later folders of the search path are left out.
    """
    distributions: dict[str, Distribution] = {}
    places, sources = [], dict(_hashes("hpcbench", Path(hpcbench.__file__).parent))
    for place in search_path(without):
        found = list(metadata_folders(place))
        if not found:
            continue
        places.append(place)
        for name, version, metadata in found:
            if name in distributions:  # hidden by an earlier folder
                continue
            distributions[name] = Distribution(version, _record(metadata), place)
            checkout = editable(metadata)
            if checkout is not None and name not in _OWN_NAMES:
                sources |= dict(_hashes(name, checkout))
    return Fingerprint(
        platform.python_version(),
        sys.executable,
        sysconfig.get_platform(),
        tuple(places),
        distributions,
        sources,
    )


def stops_jobs(experiment: Experiment) -> list[str]:
    """Changes of the environment that stop an experiment's jobs; empty: the jobs may run.

    They may run after an upgrade of hpcbench: it is completely installed, it is no earlier version, it reads
    the experiment, and there is no other difference. The new environment is then written to the experiment,
    as `resume` does for any other environment.
    """
    before, now = of_experiment(experiment), here(_host_packages(experiment))
    changes = before.changes(now) if before is not None else []
    if before is None or not changes or not _is_upgrade(experiment, before, now):
        return changes
    accept(experiment)
    return []


def of_experiment(experiment: Experiment) -> Fingerprint | None:
    """The expected environment of an experiment's jobs; None: an experiment of an earlier hpcbench."""
    *_, last = [{"fingerprint": experiment.manifest.fingerprint}, *experiment.environments()]
    return Fingerprint.from_json(last["fingerprint"]) if last["fingerprint"] else None


def accept(experiment: Experiment) -> list[str]:
    """Let an experiment continue in this process's environment, for `resume`.

    Returns:
        The differences from its earlier environment, which are also written to the experiment. Empty for an
        experiment that runs from a copy of its environment.
    """
    if interpreter(experiment)[0] != sys.executable:
        return []
    now = here(_host_packages(experiment))
    # All tasks of an array may start at once. A task that waits too long may write a duplicate line: no harm.
    with lease.alone(experiment.environments_file.with_suffix(".lock"), LOCK_SECONDS):
        before = of_experiment(experiment)
        changes = before.changes(now) if before is not None else []
        if changes or before is None:
            with Appender(experiment.environments_file) as file:
                file.write({"time": time.time(), "changes": changes, "fingerprint": now.to_json()})
    return changes


def interpreter(experiment: Experiment) -> tuple[str, ...]:
    """The Python command of an experiment's jobs: this Python, or the Python of the experiment's copy.

    Raises:
        EnvironmentFault: the copy was removed.
    """
    copy = experiment.manifest.snapshot
    if not copy:
        return installed.this_python()
    if not Path(f"{copy}/bin/python").exists():
        raise EnvironmentFault(
            f"{experiment.id} runs from a copy of its environment, and that copy no longer exists: {copy}",
            remedy="submit its plan again",
        )
    return (f"{copy}/bin/python", "-I")


def editable(metadata: Path) -> Path | None:
    """The checkout of an editable distribution; None: the distribution is not editable."""
    try:
        origin = json.loads((metadata / "direct_url.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(origin["url"]).path))


def sources_of(checkout: Path, endings: tuple[str, ...] = SOURCES) -> Iterator[Path]:
    """Source files of a checkout, in order; at most MOST_SOURCES."""
    count = 0
    for folder, folders, files in os.walk(checkout):
        folders[:] = sorted(
            name
            for name in folders
            if name not in SKIPPED
            and not name.startswith(".")
            and not Path(folder, name, "pyvenv.cfg").exists()
        )
        for name in sorted(files):
            if name.endswith(endings) and count < MOST_SOURCES:
                count += 1
                yield Path(folder, name)


def _is_upgrade(experiment: Experiment, before: Fingerprint, now: Fingerprint) -> bool:
    """Whether the only difference is a later hpcbench that reads the experiment."""
    try:
        needed, whole = installed.needed(), _is_installed(now)
    except EnvironmentFault:  # merely on PYTHONPATH
        needed, whole = set(), False
    return (
        before.only_hpcbench_differs(now, needed)
        and (whole or _is_later_commit(experiment))
        and _reads(experiment)
    )


def _reads(experiment: Experiment) -> bool:
    """Whether this hpcbench can read the experiment's format, plan and rounds."""
    manifest = experiment.manifest
    if manifest.version != MANIFEST_VERSION:
        return False
    if Version(manifest.hpcbench) > Version(hpcbench.__version__):
        return False
    try:
        return bool(experiment.resolved.run_tasks and experiment.work.groups and rounds(experiment))
    except (ValueError, KeyError):
        return False


def _is_installed(now: Fingerprint) -> bool:
    """Whether hpcbench is completely installed: its files match its list of files, byte for byte.

    They do not during `pip install`, or after a file was edited.
    """
    package = Path(hpcbench.__file__).parent
    distribution = installed.own()
    # Not `Distribution.files`: from Python 3.12 on that leaves out what is gone.
    record = csv.reader((distribution.read_text("RECORD") or "").splitlines())
    rows = ([*row, ""] for row in record if row)  # pip may be writing it: the last line can be cut
    listed = {name: hash_ for name, hash_, *_ in rows if name.startswith("hpcbench/")}
    if "hpcbench/__init__.py" not in listed:  # editable
        return False
    root = Path(str(distribution.locate_file("")))
    if (root / "hpcbench").resolve() != package.resolve():
        return False  # another hpcbench comes first on the search path
    own = {name for name in now.sources if name.startswith("hpcbench/")}
    return own <= listed.keys() and all(
        _has_hash(root / name, hash_) for name, hash_ in listed.items()
    )


def _has_hash(path: Path, listed: str) -> bool:
    """Whether a file has its hash of RECORD, `sha256=…`; files compiled by Python have none there."""
    if not listed:
        return True
    mode, _, wanted = listed.partition("=")
    try:
        found = hashlib.new(mode, path.read_bytes()).digest()
    except OSError:
        return False
    return base64.urlsafe_b64encode(found).rstrip(b"=").decode() == wanted


def _is_later_commit(experiment: Experiment) -> bool:
    """Whether hpcbench runs from a clean checkout of a later commit than submit's."""
    before = experiment.manifest.git["hpcbench"]
    if before is None or before["dirty"]:
        return False
    package = Path(hpcbench.__file__).parent
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    ask = ["git", "-C", str(package)]
    later = [*ask, "merge-base", "--is-ancestor", before["commit"], "HEAD"]
    changed = printed([*ask, "status", "--porcelain", "--", str(package)], GIT_SECONDS, environ)
    return changed == "" and printed(later, GIT_SECONDS, environ) is not None


def _host_packages(experiment: Experiment) -> Path | None:
    folder = experiment.manifest.host_packages
    return Path(folder) if folder else None


def search_path(without: Path | None = None) -> list[str]:
    """Folders that this Python imports from, each once; without the script's and the current folder.

    Args:
        without: see `here`.
    """
    first = int(not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)))
    search = list(dict.fromkeys(sys.path[first:]))
    if without is not None and str(without) in search:
        return search[: search.index(str(without))]
    return search


def metadata_folders(place: str) -> Iterator[tuple[str, str, Path]]:
    """Name, version and metadata folder of each distribution in a folder, from the names of its entries."""
    try:
        names = sorted(os.listdir(place or "."))  # noqa: PTH208 - names, of thousands of entries
    except OSError:
        return
    for name in names:
        # pip renames a package to `~name` while it installs another version.
        if not name.startswith("~") and (match := _METADATA.fullmatch(name)):
            yield re.sub(r"[-_.]+", "-", match["name"]).lower(), match["version"], Path(place, name)


def _record(metadata: Path) -> str:
    """Hash of a distribution's list of files; without a list, hash of its metadata."""
    for path in (metadata / "RECORD", metadata / "METADATA", metadata / "PKG-INFO", metadata):
        try:
            return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
        except OSError:
            continue
    return ""


def _hashes(name: str, folder: Path) -> Iterator[tuple[str, str]]:
    for path in sources_of(folder):
        if name == "hpcbench" and path.is_relative_to(folder / "portal"):
            continue  # no job uses the portal, and its pages may be rebuilt while a job waits
        try:
            data = path.read_bytes()
        except OSError:
            continue
        yield f"{name}/{path.relative_to(folder)}", hashlib.blake2b(data, digest_size=8).hexdigest()


def _fate(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    if name not in before:
        return "is new"
    return "differs" if name in after else "was removed"


def _few(lines: Iterable[str], what: str) -> list[str]:
    known = list(lines)
    more = len(known) - MOST_SHOWN
    return known[:MOST_SHOWN] + ([f"and {more} more {what}"] if more > 0 else [])


if __name__ == "__main__":
    print(json.dumps(here().to_json()))  # noqa: T201 - the purpose of the call
