"""Which environment this Python is: versions and bytes of all that is installed, and of hpcbench itself.

Jobs wait in a queue for hours, and run whatever lies in the environment when they start. So submit writes
down what it saw, and whatever runs on a node looks again before it touches anything: after a `pip install`
or a `git pull` in between it stops and says what changed.

`python -m hpcbench.submit.fingerprint` prints that of the Python it runs in, as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import hpcbench
from hpcbench import installed
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import Appender, read_lines

SOURCES = (".py", ".j2", ".html")
"""Endings of files that are hpcbench's own source, or that of an editable package."""

SKIPPED = {"__pycache__", "node_modules", "build", "dist", "site-packages"}
"""Folders of a checkout without source; those that begin with a dot, and virtual environments, too."""

MOST_SOURCES = 5_000
"""Files of one checkout that are looked at: a folder of data below it must not cost a minute."""

TOLD = 5
"""Changes of one sort that are named; more are counted."""

_METADATA = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)(?:-py\d.*)?\.(?:dist|egg)-info")


@dataclass(frozen=True, slots=True)
class Distribution:
    """Something installed."""

    version: str
    """Its version."""
    digest: str
    """Of its list of files, which holds a hash of each."""
    place: str
    """Folder it is installed in."""


@dataclass(frozen=True)
class Fingerprint:
    """An environment."""

    python: str
    """Version of Python."""
    executable: str
    """Its path."""
    platform: str
    """Operating system and kind of CPU."""
    places: tuple[str, ...]
    """Folders of `sys.path` with something installed, in order."""
    distributions: Mapping[str, Distribution]
    """Name in lower case with dashes → what is installed."""
    sources: Mapping[str, str]
    """File of hpcbench or of an editable package → hash of its content."""

    @property
    def digest(self) -> str:
        """One word for all of it."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """As the manifest keeps it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Fingerprint:
        """What `to_json` gave."""
        known = {name: Distribution(**one) for name, one in data["distributions"].items()}
        places = tuple(data["places"])
        return cls(**{**data, "places": places, "distributions": known})

    def changes(self, now: Fingerprint) -> list[str]:
        """What is different in a later one, in a few words each; nothing if it is the same environment.

        What is installed in folders that were not there, such as those of a module that only nodes load,
        counts where it hides something that was.
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

    def _installed(self, now: Fingerprint) -> Iterator[str]:
        for name in sorted({*self.distributions, *now.distributions}):
            before, after = self.distributions.get(name), now.distributions.get(name)
            if after is None:
                yield f"{name} is gone"
            elif before is None:
                if after.place in self.places:
                    yield f"{name} {after.version} is new"
            elif before.version != after.version:
                yield f"{name} {before.version} → {after.version}"
            elif before.digest != after.digest:
                yield f"{name} {after.version} was installed anew"
            elif before.place != after.place:
                yield f"{name} comes from {after.place}"


def here(without: Path | None = None) -> Fingerprint:
    """That of the Python this runs in.

    Args:
        without: folder of a plan's packages (`plugins.add_folder`), which does not belong to it; it and
            what follows it on the search path is left out.
    """
    search = list(dict.fromkeys(sys.path if _isolated() else sys.path[1:]))
    if without is not None and str(without) in search:
        search = search[: search.index(str(without))]
    distributions: dict[str, Distribution] = {}
    places, sources = [], dict(_hashes("hpcbench", Path(hpcbench.__file__).parent))
    for place in search:
        found = list(metadata_folders(place))
        if not found:
            continue
        places.append(place)
        for name, version, metadata in found:
            if name in distributions:  # hidden by what stands before it
                continue
            distributions[name] = Distribution(version, _record(metadata), place)
            checkout = editable(metadata)
            if checkout is not None and name not in (installed.NAME, installed.OLD_NAME):
                sources |= dict(_hashes(name, checkout))
    return Fingerprint(
        platform.python_version(),
        sys.executable,
        sysconfig.get_platform(),
        tuple(places),
        distributions,
        sources,
    )


def changes_since_submit(experiment: Experiment) -> list[str]:
    """What is different here from the environment that the jobs of an experiment are to run in."""
    expected = of_experiment(experiment)
    return expected.changes(here(_host_packages(experiment))) if expected is not None else []


def of_experiment(experiment: Experiment) -> Fingerprint | None:
    """The environment an experiment's jobs are to run in; None for one of an earlier version of hpcbench."""
    *_, last = [{"fingerprint": experiment.manifest.get("fingerprint")}, *_accepted(experiment)]
    return Fingerprint.from_json(last["fingerprint"]) if last["fingerprint"] else None


def accept(experiment: Experiment) -> list[str]:
    """Let an experiment go on in the environment of this process: what `resume` wants.

    Returns:
        What is different from the one it ran in before; it is written down. Nothing for an experiment that
        runs from a copy of its environment.
    """
    if interpreter(experiment)[0] != sys.executable:
        return []
    before, now = of_experiment(experiment), here(_host_packages(experiment))
    changes = before.changes(now) if before is not None else []
    if changes or before is None:
        with Appender(experiment.environments_file) as file:
            file.write({"time": time.time(), "changes": changes, "fingerprint": now.to_json()})
    return changes


def interpreter(experiment: Experiment) -> tuple[str, ...]:
    """The Python that an experiment's jobs are started with: this one, or that of the copy it made.

    Raises:
        EnvironmentFault: the copy was removed.
    """
    copy = experiment.manifest.get("snapshot")
    if not copy:
        return installed.this_python()
    if not Path(f"{copy}/bin/python").exists():
        raise EnvironmentFault(
            f"{experiment.id} runs from a copy of its environment, and that is gone: {copy}",
            remedy="submit its plan anew",
        )
    return (f"{copy}/bin/python", "-I")


def editable(metadata: Path) -> Path | None:
    """The checkout that an editable distribution is installed from."""
    try:
        told = json.loads((metadata / "direct_url.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not told.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(told["url"]).path))


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


def _accepted(experiment: Experiment) -> Iterator[dict[str, Any]]:
    return read_lines(experiment.environments_file)


def _host_packages(experiment: Experiment) -> Path | None:
    folder = experiment.manifest.get("host_packages")
    return Path(str(folder)) if folder else None


def _isolated() -> bool:
    """Whether `sys.path` begins without the folder of the script, or the current one."""
    return bool(sys.flags.isolated or getattr(sys.flags, "safe_path", False))


def metadata_folders(place: str) -> Iterator[tuple[str, str, Path]]:
    """Name, version and metadata of what is installed in a folder, from its list of names alone."""
    try:
        names = sorted(os.listdir(place or "."))  # noqa: PTH208 - names, of thousands of entries
    except OSError:
        return
    for name in names:
        # `~name` is what pip sets aside while it installs another version.
        if not name.startswith("~") and (match := _METADATA.fullmatch(name)):
            yield re.sub(r"[-_.]+", "-", match["name"]).lower(), match["version"], Path(place, name)


def _record(metadata: Path) -> str:
    """Hash of a distribution's list of files; of its metadata where it has no list."""
    for path in (metadata / "RECORD", metadata / "METADATA", metadata / "PKG-INFO", metadata):
        try:
            return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
        except OSError:
            continue
    return ""


def _hashes(name: str, folder: Path) -> Iterator[tuple[str, str]]:
    for path in sources_of(folder):
        if name == "hpcbench" and path.is_relative_to(folder / "portal"):
            continue  # no job comes near it, and pages may be built anew while one waits
        try:
            data = path.read_bytes()
        except OSError:
            continue
        yield f"{name}/{path.relative_to(folder)}", hashlib.blake2b(data, digest_size=8).hexdigest()


def _fate(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    if name not in before:
        return "is new"
    return "differs" if name in after else "is gone"


def _few(lines: Iterable[str], what: str) -> list[str]:
    known = list(lines)
    more = len(known) - TOLD
    return known[:TOLD] + ([f"and {more} more {what}"] if more > 0 else [])


if __name__ == "__main__":
    print(json.dumps(here().to_json()))  # noqa: T201 - what it is for
