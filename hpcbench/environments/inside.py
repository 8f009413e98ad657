"""What a program finds in a container: what is mounted, `SRC[:DST[:ro]]`, its variables, its Python."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench.errors import EnvironmentFault
from hpcbench.plugins import Environment

PACKAGES = "/opt/hpcbench/packages"
"""Where the packages mounted just in time lie in a container."""


@dataclass(frozen=True, slots=True)
class Bind:
    """One mount, taken apart."""

    source: str
    target: str
    read_only: bool = False

    @classmethod
    def parse(cls, text: str) -> Bind:
        """Read `SRC[:DST[:ro]]`; variables are expanded, DST is SRC if it is not said."""
        source, _, rest = os.path.expandvars(text).partition(":")
        target, _, mode = rest.partition(":")
        return cls(source, target or source, mode == "ro")

    def check(self) -> None:
        """See that it is here: what mounts it would say so late and little.

        Raises:
            EnvironmentFault: it is not.
        """
        if not Path(self.source).exists():
            raise EnvironmentFault(
                f"{self.source} cannot be mounted: it is not on this machine",
                remedy="put it on a file system that all nodes see",
            )

    @property
    def is_private(self) -> bool:
        """Whether it can be the run's home."""
        return not self.read_only and Path(self.source).is_dir()

    def links(self) -> Iterable[Bind]:
        """Folders that links in a mounted folder lead to, as in Hugging Face's cache of models."""
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
    """The folder that is this run's alone: the first that may be written."""
    return next((bind for bind in mounts if bind.is_private), None)


def variables(
    environment: Environment, env: Mapping[str, str], passed: Sequence[str]
) -> dict[str, str]:
    """The variables of a program: those of the job that it may see, its own, the way to its packages."""
    inside = {name: os.environ[name] for name in passed if name in os.environ}
    inside |= {"PYTHONDONTWRITEBYTECODE": "1", **env}
    if environment.packages is not None:
        image = environment.details.get("pythonpath")
        inside["PYTHONPATH"] = f"{PACKAGES}:{image}" if image else PACKAGES
    return inside


def words(argv: Sequence[str]) -> list[str]:
    """A command with the image's Python for the literal `python`."""
    first, *rest = argv
    return ["python3" if first == "python" else first, *rest]


def checked(mounts: Sequence[str], packages: str | None) -> list[Bind]:
    """All that is to be mounted, with what links in it lead to, each once.

    Raises:
        EnvironmentFault: one of them is not on this machine.
    """
    binds = [Bind.parse(mount) for mount in mounts]
    if packages is not None:
        binds.append(Bind(packages, PACKAGES, read_only=True))
    for bind in binds:
        bind.check()
    links = [link for bind in binds for link in bind.links()]
    return list(dict.fromkeys([*binds, *links]))
