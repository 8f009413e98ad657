"""Datasets and models as folders of this machine: found there, or transferred into the cache once.

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
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.model import Model
from hpcbench.schema.site import Site

DefinitionT = TypeVar("DefinitionT", bound=Dataset | Model)


@dataclass
class Cache:
    """The cache of datasets and models from other places."""

    folder: Path
    """`HOME/cache`."""
    site: Site
    """Storage options, read-only caches, the limit, folders of models."""
    progress: Progress = silent
    """Receives the progress of a transfer."""
    in_use: Callable[[], Collection[str]] = frozenset
    """Keys of versions that unfinished experiments read."""

    def sync(self, kind: str) -> SmartSync:
        """The transfer of `datasets` or `models`."""
        limit = self.site.cache_gb
        return SmartSync(
            self.folder / kind,
            shared=[Path(folder) / kind for folder in self.site.caches],
            limit=int(limit * 2**30) if limit is not None else None,
            in_use=self.in_use,
            progress=self.progress,
            make_folder=partial(ensure_folder, site=self.site),
        )

    def options(self, definition: Dataset | Model) -> dict[str, Any]:
        """Storage options for a definition's source: the site's, overridden by the definition's."""
        scheme = definition.source.partition("://")[0]
        return {**self.site.storage.get(scheme, {}), **definition.storage}

    def local(self, definition: DefinitionT, *, fetch: bool = True) -> DefinitionT:
        """The dataset or model with a folder of this machine as its source.

        Args:
            definition: the definition of the dataset or model.
            fetch: whether to transfer it, or its changed files; False: only the local version counts.

        Raises:
            UserError: the source is empty, or there is no local version and none may be fetched.
            EnvironmentFault: the transfer failed.
        """
        if "://" not in definition.source:
            return definition
        kind = "datasets" if isinstance(definition, Dataset) else "models"
        url, missing = self.url(definition), None
        if url.startswith("hf://"):
            try:
                return _at(definition, find_in_hub(url, self.site.models))
            except UserError as error:
                missing = error
        sync = self.sync(kind)
        version = sync.newest(url, self.options(definition), pack=_may_pack(definition))
        if fetch and not (missing and version and _settled(url, version, sync)):
            if missing and _offline():
                raise missing
            try:
                version = sync.bring(url, self.options(definition), pack=_may_pack(definition))
            except EnvironmentFault as error:
                if missing is None or "cannot list" not in error.message:
                    raise
                (problem,) = missing.problems
                raise EnvironmentFault(
                    f"{problem.message}, and {error.message}",
                    remedy=f"{error.remedy}; or {problem.remedy}",
                ) from error
        if version is None:
            verb = "data sync" if kind == "datasets" else "models fetch"
            raise UserError(
                Problem(
                    f"{url} is not on this machine yet",
                    remedy=f"`hpcbench {verb} {definition.name}{of_site(self.site)}`",
                )
            )
        if sync.folder in version.folder.parents:  # other users' versions are only read
            version.touch()
        return _at(definition, version.files)

    def here(self, definition: DefinitionT) -> DefinitionT | None:
        """The dataset or model with a folder of this machine as its source; None: it is not here yet.

        It only reads: it fetches no file and does not record the use.
        """
        if "://" not in definition.source:
            return definition
        url = self.url(definition)
        if url.startswith("hf://"):
            with contextlib.suppress(UserError):
                return _at(definition, find_in_hub(url, self.site.models))
        kind = "datasets" if isinstance(definition, Dataset) else "models"
        try:
            pack = _may_pack(definition)
        except HpcbenchError:
            return None  # its iterator comes with a package that is not built yet
        version = self.sync(kind).newest(url, self.options(definition), pack=pack)
        return _at(definition, version.files) if version is not None else None

    def url(self, definition: Dataset | Model) -> str:
        """URL of a definition's files; for a model of the hub, with its revision."""
        revision = definition.revision if isinstance(definition, Model) else None
        if definition.source.startswith("hf://") and revision and "@" not in definition.source:
            return f"{definition.source}@{revision}"
        return definition.source


def of_site(site: Site) -> str:
    """The `--site` option of a command for a site; empty for the default site."""
    return f" --site {site.name}" if site.name != "default" else ""


def _settled(url: str, version: Version, sync: SmartSync) -> bool:
    """Whether no request to the hub is needed: commits do not change. A damaged version needs one."""
    fixed = COMMIT.fullmatch(url.partition("@")[2]) or _offline()
    return bool(fixed) and not sync.damaged(version)


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "0") not in ("0", "")


def _at(definition: DefinitionT, folder: Path) -> DefinitionT:
    return cast(DefinitionT, definition.model_copy(update={"source": str(folder)}))


def _may_pack(definition: Dataset | Model) -> bool:
    """Whether the reader of a dataset or model can read packs: engines and some iterators cannot."""
    if isinstance(definition, Model):
        return False
    return bool(getattr(plugins.load("datasets", definition.iterator), "packs", False))
