"""A program's view of its container: mounts, `SRC[:DST[:ro]]`, variables, Python."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.errors import EnvironmentFault
from hpcbench.plugins import Environment

PACKAGES = "/opt/hpcbench/packages"
"""Folder of the packages mounted just in time in a container."""

FABRIC = ("NCCL_", "RCCL_", "GLOO_", "UCX_", "FI_")
"""Beginnings of variables about the nodes' network, which a site sets by its `env`, modules or `setup`."""


@dataclass(frozen=True, slots=True)
class Bind:
    """One parsed mount."""

    source: str
    target: str
    read_only: bool = False

    @classmethod
    def parse(cls, text: str) -> Bind:
        """Read `SRC[:DST[:ro]]`; variables are expanded, DST defaults to SRC."""
        source, _, rest = os.path.expandvars(text).partition(":")
        target, _, mode = rest.partition(":")
        return cls(source, target or source, mode == "ro")

    def check(self) -> None:
        """Check that the source is on this machine: the container program would report it late and vaguely.

        Raises:
            EnvironmentFault: it is not here.
        """
        if not Path(self.source).exists():
            raise EnvironmentFault(
                f"{self.source} cannot be mounted: it is not on this machine",
                remedy="put it on a file system that all nodes see",
            )

    @property
    def is_private(self) -> bool:
        """Whether it can be the run's private folder."""
        return not self.read_only and Path(self.source).is_dir()

    def links(self) -> Iterable[Bind]:
        """Targets of links in a mounted folder, as in Hugging Face's cache of models."""
        source = Path(self.source)
        if not self.read_only or not source.is_dir():
            return
        for entry in source.iterdir():
            if entry.is_symlink():
                place = os.path.normpath(Path(self.target, entry.readlink()))
                folder = entry.resolve().parent
                if folder.is_dir() and not Path(place).is_relative_to(self.target):
                    yield Bind(str(folder), str(Path(place).parent), read_only=True)


def private(mounts: Sequence[Bind]) -> Bind | None:
    """This run's private folder: the first writable mount."""
    return next((bind for bind in mounts if bind.is_private), None)


def variables(
    environment: Environment, env: Mapping[str, str], passed: Sequence[str]
) -> dict[str, str]:
    """The variables of a program: the visible ones of the job, its own, the path of its packages."""
    inside = {
        name: value
        for name, value in os.environ.items()
        if name in passed or name.startswith(FABRIC)
    }
    inside |= {"PYTHONDONTWRITEBYTECODE": "1", **env}
    if environment.packages is not None:
        image = environment.details.get("pythonpath")
        inside["PYTHONPATH"] = f"{PACKAGES}:{image}" if image else PACKAGES
    return inside


def words(argv: Sequence[str]) -> list[str]:
    """A command with the image's Python in place of the literal `python`."""
    first, *rest = argv
    return ["python3" if first == "python" else first, *rest]


def checked(mounts: Sequence[str], packages: str | None) -> list[Bind]:
    """All mounts, with the targets of their links, each once.

    Raises:
        EnvironmentFault: a source is not on this machine.
    """
    binds = [Bind.parse(mount) for mount in mounts]
    if packages is not None:
        binds.append(Bind(packages, PACKAGES, read_only=True))
    for bind in binds:
        bind.check()
    links = [link for bind in binds for link in bind.links()]
    return list(dict.fromkeys([*binds, *links]))
