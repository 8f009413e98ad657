"""Finds documents by kind and name in the registries, later ones laid over earlier ones.

Order: what hpcbench ships, the user's own (`~/.config/hpcbench`), then each `--registry DIR`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar, cast

import hpcbench
from hpcbench.errors import Problem, UserError
from hpcbench.plugins import unknown
from hpcbench.registry.source import Loc, Source, read, validate
from hpcbench.schema.documents import KINDS, Document, Site

DocumentT = TypeVar("DocumentT", bound=Document)

FOLDERS = {model: kind for kind, model in KINDS.items()}
"""Kind of document → its folder in a registry."""


def share_dir() -> Path:
    """Folder of what ships beside the code: `registries/`, `examples/`."""
    package = Path(hpcbench.__file__).parent
    installed = package / "share"
    return installed if installed.is_dir() else package.parent


def user_dir() -> Path:
    """The user's own registry, where `hpcbench init` writes the site profile."""
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "hpcbench"


def user_site() -> Site | None:
    """The site profile that `hpcbench init` wrote; None without one.

    Raises:
        UserError: it is wrong.
    """
    path = user_dir() / "sites" / "default.yaml"
    return load_document(Site, path, "default")[0] if path.is_file() else None


class Catalog:
    """All documents by kind and name; each file is read when asked for, once."""

    def __init__(self, registries: Sequence[Path] = ()) -> None:
        for folder in registries:
            if not folder.is_dir():
                raise UserError(Problem("no such folder", str(folder), remedy="--registry DIR"))
        self.folders = [share_dir() / "registries", user_dir(), *registries]
        self._loaded: dict[tuple[str, str], tuple[Document, Source]] = {}

    def names(self, kind: str) -> list[str]:
        """Names of all documents of a kind."""
        found = {
            str(path.relative_to(folder / kind).with_suffix(""))
            for folder in self.folders
            for path in (folder / kind).glob("**/*.yaml")
        }
        return sorted(name for name in found if not name.endswith(".dev"))

    def get(
        self, model: type[DocumentT], name: str, asked: tuple[Source, Loc] | None = None
    ) -> DocumentT:
        """The document of that kind and name.

        Args:
            model: kind of document.
            name: its name.
            asked: where the name was written, for the error.

        Raises:
            UserError: there is none, or it is wrong.
        """
        return self.get_with_source(model, name, asked)[0]

    def get_with_source(
        self, model: type[DocumentT], name: str, asked: tuple[Source, Loc] | None = None
    ) -> tuple[DocumentT, Source]:
        """The document and where it was read from; see `get`."""
        kind = FOLDERS[model]
        if (kind, name) not in self._loaded:
            path = self._find(kind, name)
            if path is None:
                message = unknown(kind.removesuffix("s").replace("_", " "), name, self.names(kind))
                raise UserError(asked[0].problem(asked[1], message) if asked else Problem(message))
            self._loaded[kind, name] = load_document(model, path, name)
        return cast("tuple[DocumentT, Source]", self._loaded[kind, name])

    def _find(self, kind: str, name: str) -> Path | None:
        for folder in reversed(self.folders):
            path = folder / kind / f"{name}.yaml"
            if path.is_file():
                return path
        return None


def load_document(
    model: type[DocumentT], path: Path, name: str | None = None
) -> tuple[DocumentT, Source]:
    """Read one document from a file; with `name`, the document must be called so.

    Raises:
        UserError: every mistake in it.
    """
    source = read(path)
    document = validate(model, source)
    if name is not None and document.name != name:
        raise UserError(
            source.problem(
                ("name",), f"is called '{document.name}' but stands in the file of '{name}'"
            )
        )
    return document, source
