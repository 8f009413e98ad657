"""Packages with plugins: where they come from and what they provide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from hpcbench.schema.definition import Definition, Name
from hpcbench.schema.shared_types import Part, name_or


class LocalSource(Part):
    """A package in a folder, with its own `pyproject.toml`; for development."""

    type: Literal["local"]
    """`local`."""
    path: str
    """The package's folder, relative to this file."""
    editable: bool = True
    """`true`: changes in the folder take effect at once; beside an engine, and where metrics score in an
    image, with the next submission. `false`: they take effect after the next build."""


class GitSource(Part):
    """A package in a git repository."""

    type: Literal["git"]
    """`git`."""
    url: str
    """URL of the repository. Write a password in it as a reference, `https://${env:TOKEN}@host/repo.git`."""
    ref: str | None = None
    """Commit or tag. `RUN_MODE=prod` refuses a branch, since a branch moves."""
    subdirectory: str | None = None
    """Folder of the package inside the repository."""


class PypiSource(Part):
    """A package from PyPI or from a mirror."""

    type: Literal["pypi"]
    """`pypi`."""
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the distribution."""
    version: str | None = Field(default=None, pattern=r"^[A-Za-z0-9.!+_-]+$")
    """Exact version; `RUN_MODE=prod` requires it."""
    index: str | None = None
    """URL of the simple index to install from. Without it: pip's index. Write a password in it as a
    reference."""


class RequirementSource(Part):
    """A distribution by a requirement: the version is chosen at submission, and the manifest has it."""

    type: Literal["requirement"]
    """`requirement`."""
    line: str
    """The requirement, as pip writes it: `pillow`, `torch>=2.4`."""


class InstallArgs(Part):
    """How a package is installed."""

    extras: tuple[str, ...] = ()
    """Extras of the distribution to install."""


PluginKind = Literal[
    "datasets", "engines", "environments", "metrics", "notifiers", "parsers", "prompts", "reports",
    "storage", "tasks", "tools", "trackers",
]  # fmt: skip
"""Kinds of plugins; the entry-point groups are `hpcbench.KIND`."""


class Package(Definition):
    """A Python package with plugins; it need not be installed."""

    source: Annotated[
        LocalSource | GitSource | PypiSource | RequirementSource, Discriminator("type")
    ]
    """Where the package comes from."""
    install_args: InstallArgs = Field(default_factory=InstallArgs)
    """How to install it."""
    provides: Mapping[PluginKind, tuple[str, ...]] = Field(default_factory=dict)
    """Its plugins: kind → names. A definition that names one of these plugins gets the package."""

    @property
    def on_host(self) -> bool:
        """Whether it has plugins that run outside the image; only engines run inside."""
        return not self.provides or bool(set(self.provides) - {"engines"})


def _no_place(entry: object) -> object:
    """Refuse a text that is a folder or an address; what is no text has its own message."""
    if isinstance(entry, str) and (
        entry.startswith((".", "/", "~", "-")) or ("://" in entry and " @ " not in entry)
    ):
        raise ValueError(
            "must be a package's name or a requirement such as `torch>=2.4`; write a folder as "
            "{name: NAME, source: {type: local, path: FOLDER}} and an address as NAME @ URL"
        )
    return entry


PackageEntry = Annotated[
    Annotated[Name, BeforeValidator(_no_place, json_schema_input_type=Name), Tag("name")]
    | Annotated[Package, Tag("package")],
    name_or("package"),
]
"""A package by name or requirement, or written out."""
