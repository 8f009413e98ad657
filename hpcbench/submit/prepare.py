"""Everything that must be true before a job starts: data measured, images built, the manifest written."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import platform
import re
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import hpcbench
from hpcbench import environments, plugins
from hpcbench.data.cache import Cache
from hpcbench.data.durability import settle
from hpcbench.data.progress import Progress, silent
from hpcbench.data.tree import Version
from hpcbench.environments.images import built_images
from hpcbench.environments.packages import metadata_of
from hpcbench.environments.plugin_packages import Locked, check_provides, host_folder, lock
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.experiment.access import ensure_folder, new_folder, use_umask
from hpcbench.experiment.layout import (
    Experiment,
    all_experiments,
    experiments_dir,
    find,
    home,
    new_id,
    private_experiments,
)
from hpcbench.files.atomic import write_atomic, write_json
from hpcbench.planning import plan_work, stage_key
from hpcbench.plugins import Environment
from hpcbench.registry.catalog import Catalog, RunMode
from hpcbench.registry.resolve import load_plan
from hpcbench.schema.documents import Dataset, Model, Site
from hpcbench.schema.plan import Measured, ResolvedPlan, WorkPlan
from hpcbench.submit import secrets_file
from hpcbench.submit.engine_check import check_engines
from hpcbench.submit.estimate import spared
from hpcbench.submit.fingerprint import here
from hpcbench.submit.image_check import check_images, judge, refuse
from hpcbench.submit.kept_files import keep
from hpcbench.submit.measure import measure
from hpcbench.submit.plan_facts import look
from hpcbench.submit.snapshot import copy_environment
from hpcbench.subprocesses import printed
from hpcbench.usage import history

RECORDED_PACKAGES = (
    "aiohttp", "jinja2", "matplotlib", "numpy", "polars", "pydantic", "pyyaml", "rapidfuzz", "scipy",
    "submitit",
)  # fmt: skip
"""Versions that the manifest keeps; what is in the image is in `environments`."""

UNSEEN_DAYS = 30
"""So long what was used stays where experiments are that cannot be read: nobody knows what they need."""

Say = Callable[[str], None]
"""Tells the user what is going on, one line at a time."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Packages:
    """The packages of a plan, built."""

    host: Path | None
    """Folder for hpcbench's own Python; None if nothing runs there."""
    locked: Mapping[str, Locked]
    """Package → what it was made of."""


def load(
    plan: Path,
    registries: Sequence[Path] = (),
    settings: Sequence[str] = (),
    *,
    mode: RunMode | None = None,
    say: Say = lambda line: None,
) -> tuple[ResolvedPlan, Packages]:
    """Read a plan, build the packages it uses, and check it again with their plugins at hand.

    Raises:
        UserError: every mistake found; a package is not what it says it is.
        EnvironmentFault: a package cannot be fetched or built.
    """
    resolved = load_plan(plan, registries, settings, mode)
    if not resolved.packages:
        return on_all_gpus(resolved), Packages(None, {})
    cache = Cache(home(resolved.site) / "cache", resolved.site)
    refuse(judge(resolved, look(resolved, cache), plan))
    packages = build(resolved, say)
    return on_all_gpus(load_plan(plan, registries, settings, mode)), packages


def on_all_gpus(resolved: ResolvedPlan) -> ResolvedPlan:
    """A plan for this machine that does not say its `parallelism`, with as many workers as its GPUs allow."""
    if resolved.executor != "local" or "parallelism" in resolved.plan.model_fields_set:
        return resolved
    manager = resolved.site.container.manager
    needs = [
        run_task.model.gpus
        for run_task in resolved.run_tasks
        if environments.kind_of(run_task.model.image, manager) not in environments.ELSEWHERE
    ]
    if not any(needs):
        return resolved
    from hpcbench.monitor import handles  # what Slurm's plans need not wait for

    workers = len(handles()) // min(filter(None, needs))
    plan = resolved.plan.model_copy(update={"parallelism": max(1, workers)})
    return resolved.model_copy(update={"plan": plan})


def build(resolved: ResolvedPlan, say: Say, kept: Mapping[str, Path] | None = None) -> Packages:
    """Build the packages of a plan, and make those of the host importable.

    Args:
        resolved: the plan.
        say: told what takes long.
        kept: folder of a local package → where its files are today.

    Raises:
        UserError: a package is not what it says it is.
        EnvironmentFault: one cannot be fetched or built.
    """
    cache = home(resolved.site) / "cache"
    problems: list[Problem] = []
    locked: dict[str, Locked] = {}
    for name, package in resolved.packages.items():
        try:
            path = package.source.path if package.source.type == "local" else ""
            folder = (kept or {}).get(path)
            dev = resolved.mode == "dev"
            locked[name] = lock(package, cache, dev=dev, say=say, kept=folder)
        except UserError as error:
            problems.extend(error.problems)
    if problems:
        raise UserError(*problems)
    names = resolved.host_packages
    if not names:
        return Packages(None, locked)
    say(f"installing {', '.join(names)} and what they need")
    folder = host_folder([locked[name] for name in names], cache)
    on_host = {name: resolved.packages[name] for name in names}
    check_provides(folder, on_host, resolved.origins)
    plugins.add_folder(folder)
    return Packages(folder, locked)


def open_cache(site: Site, progress: Progress = silent) -> Cache:
    """The cache below the site's home; versions that an experiment still reads stay in it.

    What this process writes from now on can be read and written by whom the site's umask lets.
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


def images_in_use(site: Site) -> set[str]:
    """Names of built images that an experiment without a report runs in."""
    root = home(site)
    named = _named(root, r"/images/([0-9a-f]{64}-[0-9a-f]{12})\.sif")
    since = _unseen(root)
    return named | {one.name for one in built_images(root / "cache") if one.used > since}


def _unseen(root: Path) -> float:
    """Since when what was used may be in use by experiments of others, which we may not read."""
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
        "%d experiments in %s cannot be read: what was used in the last %d days stays",
        len(private), private[0].parent, UNSEEN_DAYS,
    )  # fmt: skip
    return since


def _named(root: Path, pattern: str) -> set[str]:
    """What experiments that have no report yet name in what they were resolved and prepared to."""
    found: set[str] = set()
    for experiment in all_experiments(root):
        if not experiment.report_dir.exists():
            for path in (experiment.resolved_file, experiment.manifest_file):
                if not os.access(path, os.R_OK):
                    continue
                with contextlib.suppress(FileNotFoundError):  # it is removed just now
                    found.update(re.findall(pattern, path.read_text(encoding="utf-8")))
    return found


def localise(resolved: ResolvedPlan, cache: Cache, *, fetch: bool = True) -> ResolvedPlan:
    """The plan with every dataset and model as a folder of this machine.

    Args:
        resolved: the plan.
        cache: where what is fetched is kept.
        fetch: whether to bring what lies elsewhere.

    Raises:
        UserError: a dataset or model is not to be had, or not yet here and not to be fetched.
        EnvironmentFault: it cannot be fetched.
    """
    here: dict[str, Dataset | Model] = {}
    problems: list[Problem] = []
    for run_task in resolved.run_tasks:
        documents: tuple[Dataset | Model, ...] = (run_task.dataset, run_task.model)
        for document in documents:
            if (key := _source_key(document)) in here:
                continue
            here[key] = document
            try:
                here[key] = cache.local(document, fetch=fetch)
            except UserError as error:
                problems.extend(error.problems)
    if problems:
        raise UserError(*dict.fromkeys(problems))
    run_tasks = []
    for run_task in resolved.run_tasks:
        update: dict[str, Any] = {}
        for key in ("dataset", "model"):
            document = getattr(run_task, key)
            source = here[_source_key(document)].source
            if source != document.source:
                update[key] = document.model_copy(update={"source": source})
        run_tasks.append(run_task.model_copy(update=update) if update else run_task)
    return resolved.model_copy(update={"run_tasks": tuple(run_tasks)})


def _settle(resolved: ResolvedPlan, cache: Cache) -> None:
    """See that what the experiment reads outlasts a power cut; by now the kernel wrote most of it by itself.

    Raises:
        EnvironmentFault: a power cut took something of it.
    """
    for source in dict.fromkeys(
        document.source
        for run_task in resolved.run_tasks
        for document in (run_task.dataset, run_task.model)
    ):
        folder = Path(source).parent
        version = Version.read(folder) if cache.folder in folder.parents else None
        if version is not None and (damaged := settle(version, cache.progress)):
            raise EnvironmentFault(
                f"{version.folder} is damaged: {damaged[0].path}",
                remedy="`hpcbench data verify --repair`, or `models verify NAME --repair`",
            )


def _source_key(document: Dataset | Model) -> str:
    """Documents of the same key are the same files."""
    revision = document.revision if isinstance(document, Model) else None
    iterator = document.iterator if isinstance(document, Dataset) else None
    told = [type(document).__name__, document.source, revision, iterator, dict(document.storage)]
    return json.dumps(told, sort_keys=True)


NO_PACKAGES = Packages(None, {})


def prepare(
    resolved: ResolvedPlan,
    plan_file: Path,
    say: Say = lambda line: None,
    packages: Packages = NO_PACKAGES,
    progress: Progress = silent,
    *,
    snapshot_env: bool = False,
) -> Experiment:
    """Make the experiment's directory, ready to be submitted.

    The manifest is written last: a directory without one was never an experiment. With `snapshot_env` jobs
    run from a copy of this Python's environment.

    Raises:
        UserError, EnvironmentFault: something the plan needs is wrong or missing.
    """
    secrets_file.require(resolved)
    use_umask(resolved.site)
    root = home(resolved.site)
    findings = judge(resolved, look(resolved, Cache(root / "cache", resolved.site)), plan_file)
    refuse(findings)
    for finding in findings:
        say(f"! {finding.problem}")
    _ensure(root, resolved.site)
    if resolved.plan.baseline is not None:
        find(root, resolved.plan.baseline)
    sources = {
        f"{kind}/{document.name}": document.source
        for run_task in resolved.run_tasks
        for kind, document in (("datasets", run_task.dataset), ("models", run_task.model))
        if "://" in document.source
    }
    cache = open_cache(resolved.site, progress)
    resolved = localise(resolved, cache)
    measured = measure(resolved, say=say)
    prepared = prepare_environments(resolved, root / "cache", say, packages)
    check_engines(resolved, prepared)
    check_images(resolved, prepared)
    rates = history.rates(root, resolved, measured, keep=True)
    work = plan_work(resolved, measured, *rates.for_planning)
    for line in spared(work.fewer):
        say(line)
    copy = copy_environment(root / "cache", packages.host, say) if snapshot_env else None
    _settle(resolved, cache)
    experiment = _new_directory(root, resolved)
    write_atomic(experiment.plan_file, plan_file.read_text(encoding="utf-8-sig"))
    write_atomic(experiment.resolved_file, resolved.model_dump_json(indent=2) + "\n")
    keep(experiment, resolved, say)
    for folder in (experiment.jobs_dir, experiment.workers_dir):
        folder.mkdir()
    write_json(experiment.chosen_file, {name: list(one) for name, one in measured.chosen.items()})
    manifest = _manifest(experiment, resolved, plan_file, measured, work, prepared, packages)
    jobs_run_in = copy.fingerprint if copy is not None else here(packages.host)
    manifest |= {
        "sources": sources,
        "site_of_machine": _of_machine(resolved),
        "fingerprint": jobs_run_in.to_json(),
        "snapshot": str(copy.path) if copy is not None else None,
    }
    write_json(experiment.manifest_file, manifest)
    return experiment


def prepare_environments(
    resolved: ResolvedPlan,
    cache: Path,
    say: Say = lambda line: None,
    packages: Packages = NO_PACKAGES,
) -> dict[str, Environment]:
    """Key of an environment (`ResolvedRunTask.environment`) → prepared environment; each once."""
    prepared: dict[str, Environment] = {}
    for run_task in resolved.run_tasks:
        key = run_task.environment
        if key in prepared:
            continue
        say(f"preparing {key or 'this Python'}")
        lines = [
            line for name in run_task.engine_packages for line in packages.locked[name].requirements
        ]
        found = environments.prepare(
            run_task.model.image, cache, resolved.site.container, lines, say
        )
        if run_task.engine_packages and found.packages is not None:
            inside = {name: resolved.packages[name] for name in run_task.engine_packages}
            with metadata_of(Path(found.packages)) as folder:
                check_provides(folder, inside, resolved.origins)
        prepared[key] = found
    return prepared


def plan_key(resolved: ResolvedPlan, measured: Measured) -> str:
    """Identity of what would be run: the same plan over the same bytes by the same version."""
    data = resolved.model_dump(mode="json", exclude={"origins", "images"})
    text = json.dumps([hpcbench.__version__, data, measured.model_dump()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _new_directory(root: Path, resolved: ResolvedPlan) -> Experiment:
    folder = experiments_dir(root)
    _ensure(folder, resolved.site)
    while True:
        experiment = Experiment(folder / new_id(resolved.plan.name))
        try:
            new_folder(experiment.path, resolved.site)
        except FileExistsError:
            continue
        except OSError as error:
            raise _not_writable(folder, error) from error
        return experiment


def _ensure(folder: Path, site: Site) -> None:
    try:
        ensure_folder(folder, site)
    except OSError as error:
        raise _not_writable(folder, error) from error


def _not_writable(folder: Path, error: OSError) -> EnvironmentFault:
    return EnvironmentFault(
        f"cannot make an experiment below {folder}: {error.strerror}",
        remedy="set HPCBENCH_HOME or `home` in the site profile to a folder you can write",
    )


def _manifest(
    experiment: Experiment,
    resolved: ResolvedPlan,
    plan_file: Path,
    measured: Measured,
    work: WorkPlan,
    prepared: dict[str, Environment],
    packages: Packages,
) -> dict[str, Any]:
    digests = {key: environment.digest for key, environment in prepared.items()}
    plugin_packages = {name: locked.identity for name, locked in packages.locked.items()}
    keys = {
        run_task.name: {
            stage: stage_key(
                run_task, measured, digests[run_task.environment], stage, plugin_packages
            )
            for stage in ("inference", "evaluation")
        }
        for run_task in resolved.run_tasks
    }
    return {
        "version": 1,
        "id": experiment.id,
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "host": socket.gethostname(),
        "hpcbench": hpcbench.__version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": {name: _version(name) for name in RECORDED_PACKAGES},
        "git": {
            "plan": _git(plan_file.resolve().parent),
            "hpcbench": _git(Path(hpcbench.__file__).parent),
        },
        "plan_key": plan_key(resolved, measured),
        "seed": resolved.plan.seed,
        "mode": resolved.mode,
        "settings": list(resolved.settings),
        "baseline": resolved.plan.baseline,
        "host_packages": str(packages.host) if packages.host is not None else None,
        "plugin_packages": plugin_packages,
        "stage_keys": keys,
        "environments": {key: asdict(environment) for key, environment in prepared.items()},
        "measured": measured.model_dump(exclude={"chosen"}),
        "work": work.model_dump(mode="json"),
    }


def _of_machine(resolved: ResolvedPlan) -> bool:
    """Whether the site profile is this machine's own, and did not come with the plan."""
    origin = resolved.origins.get(f"sites/{resolved.site.name}")
    if origin is None:
        return True  # built in
    file = Path(origin.partition(" + ")[0])
    return Catalog(project=False).label(file) in ("user", "site", "shipped")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(folder: Path) -> dict[str, Any] | None:
    """Commit of the checkout a folder belongs to, and whether it was changed since."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}

    def ask(*arguments: str) -> str | None:
        return printed(["git", "-C", str(folder), *arguments], 10, environ)

    commit = ask("rev-parse", "HEAD")
    if commit is None:
        return None
    return {
        "commit": commit.strip(),
        "dirty": bool(ask("status", "--porcelain", "--", str(folder))),
    }
