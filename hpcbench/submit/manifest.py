"""Content of an experiment's manifest: host, versions and hashes of its inputs, and keys of its stages."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import hpcbench
from hpcbench.environments.packages import locked_in
from hpcbench.experiment.layout import MANIFEST_VERSION, Experiment
from hpcbench.experiment.manifest import Commit, Manifest
from hpcbench.planning import answer_basis, stage_key
from hpcbench.plugins import Environment
from hpcbench.registry.catalog import Catalog
from hpcbench.schema.plan import Measured, ResolvedPlan, WorkPlan
from hpcbench.submit.plan_packages import Packages
from hpcbench.subprocesses import printed

RECORDED_PACKAGES = (
    "aiohttp", "jinja2", "matplotlib", "numpy", "polars", "pydantic", "pyyaml", "rapidfuzz", "scipy",
    "submitit",
)  # fmt: skip
"""Packages whose versions the manifest has; packages of the image are in `environments`."""


def manifest_of(
    experiment: Experiment,
    resolved: ResolvedPlan,
    plan_file: Path,
    measured: Measured,
    work: WorkPlan,
    prepared: dict[str, Environment],
    packages: Packages,
) -> Manifest:
    digests = {key: environment.digest for key, environment in prepared.items()}
    plugin_packages = {name: locked.identity for name, locked in packages.locked.items()}
    keys = {
        run_task.name: {
            stage: stage_key(
                run_task,
                measured,
                digests[run_task.environment],
                stage,
                plugin_packages,
                list(resolved.engines_beside(run_task)),
            )
            for stage in ("inference", "evaluation")
        }
        for run_task in resolved.run_tasks
    }
    bases = {
        run_task.name: answer_basis(
            run_task,
            measured.model_hashes[run_task.model.name],
            prepared[run_task.environment],
            plugin_packages,
        )
        for run_task in resolved.run_tasks
    }
    return Manifest(
        version=MANIFEST_VERSION,
        id=experiment.id,
        created=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        host=socket.gethostname(),
        hpcbench=hpcbench.__version__,
        python=platform.python_version(),
        executable=sys.executable,
        packages={name: _version(name) for name in RECORDED_PACKAGES},
        git={
            "plan": _git(plan_file.resolve().parent),
            "hpcbench": _git(Path(hpcbench.__file__).parent),
        },
        plan_key=plan_key(resolved, measured),
        seed=resolved.plan.seed,
        mode=resolved.mode,
        settings=resolved.settings,
        baseline=resolved.plan.baseline,
        host_packages=str(packages.host) if packages.host is not None else None,
        plugin_packages=plugin_packages,
        locks=_locks(resolved, prepared, packages),
        stage_keys=keys,
        answer_bases=bases,
        environments={key: asdict(environment) for key, environment in prepared.items()},
        prompts={run_task.name: run_task.prompt.name for run_task in resolved.run_tasks},
        measured=measured.model_dump(exclude={"chosen"}),
        work=asdict(work),
    )


def _locks(
    resolved: ResolvedPlan, prepared: Mapping[str, Environment], packages: Packages
) -> dict[str, list[str]]:
    """Environment with packages of the plan → what was installed there, by version and hash.

    The host's key is empty.
    """
    folders = {"": str(packages.host)} if packages.host is not None else {}
    for run_task in resolved.run_tasks:
        with_packages = [one.environment for one in run_task.scoring_images if one.packages]
        if run_task.engine_packages:
            with_packages.append(run_task.environment)
        for key in with_packages:
            if key in prepared and (folder := prepared[key].packages) is not None:
                folders[key] = folder
    return {key: locked_in(Path(folder)) for key, folder in folders.items()}


def plan_key(resolved: ResolvedPlan, measured: Measured) -> str:
    """Identity of a run: equal for the same plan over the same bytes by the same version of hpcbench."""
    # What images say of their metrics follows from the rest, and is known only when they are prepared.
    left_out: Any = {"origins": True, "images": True, "run_tasks": {"__all__": {"metric_facts"}}}
    data = resolved.model_dump(mode="json", exclude=left_out)
    # The hash of the weights covers the configuration beside them.
    facts = measured.model_dump(exclude={"image_processing"})
    text = json.dumps([hpcbench.__version__, data, facts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def of_machine(resolved: ResolvedPlan) -> bool:
    """Whether the site profile belongs to this machine and did not come with the plan."""
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


def _git(folder: Path) -> Commit | None:
    """Commit of a folder's checkout, and whether the folder has changes since."""
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
