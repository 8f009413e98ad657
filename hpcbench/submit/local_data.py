"""Datasets and models of plans as folders of this machine, and the parts of the caches still in use."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from pathlib import Path
from typing import Any

from hpcbench.data.copies import Cache
from hpcbench.data.durability import settle
from hpcbench.data.language import language_of
from hpcbench.data.progress import Progress, silent
from hpcbench.data.tree import Version
from hpcbench.environments.images import built_images
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.experiment.access import use_umask
from hpcbench.experiment.layout import all_experiments, home, private_experiments
from hpcbench.experiment.view.as_written import texts
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.model import Model
from hpcbench.schema.plan import ResolvedPlan, ResolvedRunTask
from hpcbench.schema.site import Site

UNSEEN_DAYS = 30
"""If there are unreadable experiments, versions used within so many days stay: their needs are unknown."""

_log = logging.getLogger(__name__)


def open_cache(site: Site, progress: Progress = silent) -> Cache:
    """The cache below the site's home; it keeps versions that an experiment still reads.

    This process uses the site's umask from now on.
    """
    use_umask(site)
    root = home(site)

    def in_use() -> set[str]:
        named = _named(root, r"/cache/(?:datasets|models)/([0-9a-f]{24})/files")
        since = _unseen(root)
        versions = [one for kind in ("datasets", "models") for one in cache.sync(kind).versions()]
        return named | {one.folder.name for one in versions if one.used > since}

    cache = Cache(root / "cache", site, progress, in_use)
    return cache


def localise(resolved: ResolvedPlan, cache: Cache, *, fetch: bool = True) -> ResolvedPlan:
    """The plan with every dataset and model as a folder of this machine, and default prompts chosen.

    Args:
        resolved: the plan.
        cache: cache of fetched files.
        fetch: whether to fetch datasets and models that are not here.

    Raises:
        UserError: a dataset or model does not exist, or is not here and `fetch` is False.
        EnvironmentFault: a dataset or model cannot be fetched.
    """
    here: dict[str, Dataset | Model] = {}
    problems: list[Problem] = []
    for run_task in resolved.run_tasks:
        definitions: tuple[Dataset | Model, ...] = (run_task.dataset, run_task.model)
        for definition in definitions:
            if (key := _source_key(definition)) in here:
                continue
            here[key] = definition
            try:
                here[key] = cache.local(definition, fetch=fetch)
            except UserError as error:
                problems.extend(error.problems)
    if problems:
        raise UserError(*dict.fromkeys(problems))
    run_tasks = []
    for run_task in resolved.run_tasks:
        update: dict[str, Any] = {}
        for key in ("dataset", "model"):
            definition = getattr(run_task, key)
            source = here[_source_key(definition)].source
            if source != definition.source:
                update[key] = definition.model_copy(update={"source": source})
        here_now = run_task.model_copy(update=update) if update else run_task
        run_tasks.append(in_language(here_now, cache.folder))
    return resolved.model_copy(update={"run_tasks": tuple(run_tasks)})


def in_language(run_task: ResolvedRunTask, cache: Path) -> ResolvedRunTask:
    """The run task with the default prompt of its dataset's language, if it names no prompt.

    Args:
        run_task: the run task; its dataset is a folder of this machine.
        cache: `HOME/cache`.
    """
    if not run_task.default_prompts:
        return run_task
    language = language_of(run_task.dataset, cache)
    prompt = run_task.default_prompts.get(language, run_task.prompt)
    return run_task.model_copy(update={"prompt": prompt, "default_prompts": {}})


def settle_all(resolved: ResolvedPlan, cache: Cache) -> None:
    """Make the experiment's data survive a power cut; by now the kernel has written most of it to disk.

    Raises:
        EnvironmentFault: a power cut damaged a file.
    """
    for source in dict.fromkeys(
        definition.source
        for run_task in resolved.run_tasks
        for definition in (run_task.dataset, run_task.model)
    ):
        folder = Path(source).parent
        version = Version.read(folder) if cache.folder in folder.parents else None
        if version is not None and (damaged := settle(version, cache.progress)):
            raise EnvironmentFault(
                f"{version.folder} is damaged: {damaged[0].path}",
                remedy="run `hpcbench data verify --repair` or `hpcbench models verify NAME --repair`",
            )


def _source_key(definition: Dataset | Model) -> str:
    """Key of a definition's files: definitions of the same key have the same files."""
    revision = definition.revision if isinstance(definition, Model) else None
    iterator = definition.iterator if isinstance(definition, Dataset) else None
    parts = [
        type(definition).__name__,
        definition.source,
        revision,
        iterator,
        dict(definition.storage),
    ]
    return json.dumps(parts, sort_keys=True)


def images_in_use(site: Site) -> set[str]:
    """Names of built images that experiments without a report run in."""
    root = home(site)
    named = _named(root, r"/images/([0-9a-f]{64}-[0-9a-f]{12})\.sif")
    since = _unseen(root)
    return named | {one.name for one in built_images(root / "cache") if one.used > since}


def _named(root: Path, pattern: str) -> set[str]:
    """Matches of a pattern in resolved plans and manifests of experiments without a report."""
    found: set[str] = set()
    for experiment in all_experiments(root):
        if not experiment.report_dir.exists():
            # Other users' experiments may be private, and one may be removed just now.
            with contextlib.suppress(FileNotFoundError, PermissionError):
                for text in texts(experiment):
                    found.update(re.findall(pattern, text))
    return found


def _unseen(root: Path) -> float:
    """Time since which a used version may be in use by other users' unreadable experiments."""
    since = time.time() - UNSEEN_DAYS * 86400

    def changed(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except FileNotFoundError:  # it is removed just now
            return 0.0

    private = [path for path in private_experiments(root) if changed(path) > since]
    if not private:
        return float("inf")
    _log.warning(
        "%d experiments in %s cannot be read: hpcbench keeps data that were used in the last %d days",
        len(private), private[0].parent, UNSEEN_DAYS,
    )  # fmt: skip
    return since
