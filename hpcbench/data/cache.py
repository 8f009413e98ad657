"""Datasets and models as folders of this machine: found, or brought into the cache once for all.

HOME/cache/datasets/…   versions of datasets (`sync`)
HOME/cache/models/…     versions of models
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from hpcbench import plugins
from hpcbench.data.hub import COMMIT, find_in_hub
from hpcbench.data.progress import Progress, silent
from hpcbench.data.sync import SmartSync
from hpcbench.data.tree import Version
from hpcbench.errors import EnvironmentFault, HpcbenchError, Problem, UserError
from hpcbench.experiment.access import ensure_folder
from hpcbench.schema.documents import Dataset, Model, Site

DocumentT = TypeVar("DocumentT", bound=Dataset | Model)


@dataclass
class Cache:
    """Where datasets and models are kept that lie elsewhere."""

    folder: Path
    """`HOME/cache`."""
    site: Site
    """Storage options, read-only caches, the limit, folders of models."""
    progress: Progress = silent
    """Told how far a transfer is."""
    in_use: Callable[[], Collection[str]] = frozenset
    """Keys of versions that experiments which have not ended read."""

    def sync(self, kind: str) -> SmartSync:
        """What brings `datasets` or `models`."""
        limit = self.site.cache_gb
        return SmartSync(
            self.folder / kind,
            shared=[Path(folder) / kind for folder in self.site.caches],
            limit=int(limit * 2**30) if limit is not None else None,
            in_use=self.in_use,
            progress=self.progress,
            make_folder=partial(ensure_folder, site=self.site),
        )

    def options(self, document: Dataset | Model) -> dict[str, Any]:
        """Options of the storage of a document's source: the site's, the document's laid over them."""
        scheme = document.source.partition("://")[0]
        return {**self.site.storage.get(scheme, {}), **document.storage}

    def local(self, document: DocumentT, *, fetch: bool = True) -> DocumentT:
        """The dataset or model with a folder of this machine as its source.

        Args:
            document: it.
            fetch: whether to bring it, or what changed of it; else what is here counts.

        Raises:
            UserError: there is nothing there, or it is not here and not to be fetched.
            EnvironmentFault: it cannot be fetched.
        """
        if "://" not in document.source:
            return document
        kind = "datasets" if isinstance(document, Dataset) else "models"
        url, missing = self.url(document), None
        if url.startswith("hf://"):
            try:
                return _at(document, find_in_hub(url, self.site.models))
            except UserError as error:
                missing = error
        sync = self.sync(kind)
        version = sync.newest(url, self.options(document), pack=_may_pack(document))
        if fetch and not (missing and version and _settled(url, version, sync)):
            if missing and _offline():
                raise missing
            try:
                version = sync.bring(url, self.options(document), pack=_may_pack(document))
            except EnvironmentFault as error:
                if missing is None or "cannot list" not in error.message:
                    raise
                (problem,) = missing.problems
                raise EnvironmentFault(
                    f"{problem.message}, and {error.message}",
                    remedy=f"{error.remedy}; without: {problem.remedy}",
                ) from error
        if version is None:
            verb = "data sync" if kind == "datasets" else "models fetch"
            raise UserError(
                Problem(
                    f"{url} is not here yet",
                    remedy=f"`hpcbench {verb} {document.name}{of_site(self.site)}`",
                )
            )
        if sync.folder in version.folder.parents:  # what is others' is only read
            version.touch()
        return _at(document, version.files)

    def here(self, document: DocumentT) -> DocumentT | None:
        """The dataset or model with a folder of this machine as its source; None: it is not here yet.

        Only reads: nothing is fetched, and nothing notes that it was used.
        """
        if "://" not in document.source:
            return document
        url = self.url(document)
        if url.startswith("hf://"):
            with contextlib.suppress(UserError):
                return _at(document, find_in_hub(url, self.site.models))
        kind = "datasets" if isinstance(document, Dataset) else "models"
        try:
            pack = _may_pack(document)
        except HpcbenchError:
            return None  # its iterator comes with a package that is not built yet
        version = self.sync(kind).newest(url, self.options(document), pack=pack)
        return _at(document, version.files) if version is not None else None

    def url(self, document: Dataset | Model) -> str:
        """Where a document's files come from; a model of the hub at its revision."""
        revision = document.revision if isinstance(document, Model) else None
        if document.source.startswith("hf://") and revision and "@" not in document.source:
            return f"{document.source}@{revision}"
        return document.source


def of_site(site: Site) -> str:
    """What a command is told for the caches of a site; empty: it is the user's own."""
    return f" --site {site.name}" if site.name != "default" else ""


def _settled(url: str, version: Version, sync: SmartSync) -> bool:
    """Whether the hub need not be asked: commits do not change. What is damaged is brought again."""
    fixed = COMMIT.fullmatch(url.partition("@")[2]) or _offline()
    return bool(fixed) and not sync.damaged(version)


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "0") not in ("0", "")


def _at(document: DocumentT, folder: Path) -> DocumentT:
    return cast(DocumentT, document.model_copy(update={"source": str(folder)}))


def _may_pack(document: Dataset | Model) -> bool:
    """Whether whoever reads it can read packs: engines cannot, and not every iterator."""
    if isinstance(document, Model):
        return False
    return bool(getattr(plugins.load("datasets", document.iterator), "packs", False))
