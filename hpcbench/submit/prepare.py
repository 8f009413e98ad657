"""Preparation before the first job: measure data, build images, write the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcbench import environments
from hpcbench.data.copies import Cache
from hpcbench.data.progress import Progress, silent
from hpcbench.environments.packages import metadata_of
from hpcbench.environments.plugin_packages import check_provides
from hpcbench.errors import EnvironmentFault
from hpcbench.evaluation.plan_metrics import load_metrics
from hpcbench.evaluation.repeats import base_of
from hpcbench.experiment.access import ensure_folder, new_folder, owner_writes, use_umask
from hpcbench.experiment.layout import (
    Experiment,
    experiments_dir,
    find,
    home,
    new_id,
)
from hpcbench.experiment.seal import seal
from hpcbench.files.atomic import write_atomic, write_json
from hpcbench.judging.labels import keep_labels, read_labels
from hpcbench.judging.verdict_summary import as_labels
from hpcbench.metrics.judge import Judge
from hpcbench.planning import plan_work
from hpcbench.plugins import Environment
from hpcbench.schema.plan import Measured, ResolvedPlan
from hpcbench.schema.site import Site
from hpcbench.submit import Say, oauth_tokens, own_modules, secrets_file
from hpcbench.submit.estimate import spared
from hpcbench.submit.executor_check import unchosen
from hpcbench.submit.fingerprint import here
from hpcbench.submit.image_check import (
    Finding,
    check_engines,
    check_images,
    judge,
    judge_fetched,
    refuse,
)
from hpcbench.submit.kept_files import keep
from hpcbench.submit.local_data import localise, open_cache, settle_all
from hpcbench.submit.manifest import manifest_of, of_machine
from hpcbench.submit.measure import measure
from hpcbench.submit.plan_facts import look
from hpcbench.submit.plan_packages import NO_PACKAGES, Packages
from hpcbench.submit.reuse import Policy
from hpcbench.submit.scoring_images import prepare_images, with_facts
from hpcbench.submit.snapshot import copy_environment
from hpcbench.usage import durations


def prepare(
    resolved: ResolvedPlan,
    plan_file: Path,
    say: Say = lambda line: None,
    packages: Packages = NO_PACKAGES,
    progress: Progress = silent,
    *,
    snapshot_env: bool = False,
    reuse: Policy = "none",
) -> Experiment:
    """Write the experiment's directory, ready to be submitted.

    The manifest is written last: a directory without a manifest was never an experiment. With `snapshot_env`,
    jobs run from a copy of this Python's environment. `reuse`: which answers of earlier experiments
    submission takes over.

    Raises:
        UserError, EnvironmentFault: an input of the plan is wrong or missing.
    """
    secrets_file.require(resolved)
    oauth_tokens.require(resolved, say)
    use_umask(resolved.site)
    root = home(resolved.site)
    refuse(tuple(unchosen(resolved, plan_file)))
    own_modules.refuse(resolved)
    findings = judge(resolved, look(resolved, Cache(root / "cache", resolved.site)), plan_file)
    _report(findings, say)
    _ensure(root, resolved.site)
    if resolved.plan.baseline is not None:
        find(root, resolved.plan.baseline)
    sources = _sources(resolved)
    cache = open_cache(resolved.site, progress)
    resolved = localise(resolved, cache)
    _report(judge_fetched(resolved, findings, plan_file), say)
    labels = labels_of(resolved)
    measured = measure(resolved, say=say)
    prepared = prepare_environments(resolved, root / "cache", say, packages)
    own_modules.check(resolved, prepared)
    if "evaluation" in resolved.plan.stages:
        prepared |= prepare_images(resolved, root / "cache", packages.locked, say)
        resolved = with_facts(resolved, prepared)
    tools: Mapping[str, Any] = {}
    if any(run_task.agent is not None for run_task in resolved.run_tasks):
        from hpcbench.submit.agent_tools import prepare_tools

        of_tools, tools = prepare_tools(resolved, root / "cache", say)
        prepared |= of_tools
    check_engines(resolved, prepared)
    check_images(resolved, prepared)
    rates = durations.rates(root, resolved, measured, keep=True)
    work = plan_work(resolved, measured, *rates.for_planning)
    for line in spared(work.fewer):
        say(line)
    copy = copy_environment(root / "cache", packages.host, say) if snapshot_env else None
    settle_all(resolved, cache)
    experiment = _new_directory(root, resolved)
    _write_inputs(experiment, resolved, plan_file, measured, say)
    for name, path in labels.items():
        keep_labels(experiment, name, path)
    manifest = manifest_of(experiment, resolved, plan_file, measured, work, prepared, packages)
    jobs_run_in = copy.fingerprint if copy is not None else here(packages.host)
    manifest = replace(
        manifest,
        reuse=reuse,
        tools=tools,
        sources=sources,
        site_of_machine=of_machine(resolved),
        fingerprint=jobs_run_in.to_json(),
        snapshot=str(copy.path) if copy is not None else None,
    )
    with owner_writes():
        write_json(experiment.manifest_file, manifest.to_json())
    seal(experiment)
    return experiment


def _sources(resolved: ResolvedPlan) -> dict[str, str]:
    """`datasets/NAME` or `models/NAME` → its URL, where data will be fetched."""
    return {
        f"{kind}/{definition.name}": definition.source
        for run_task in resolved.run_tasks
        for kind, definition in (("datasets", run_task.dataset), ("models", run_task.model))
        if "://" in definition.source
    }


def _write_inputs(
    experiment: Experiment, resolved: ResolvedPlan, plan_file: Path, measured: Measured, say: Say
) -> None:
    """Write all but the manifest: the plan as written and resolved, kept files, chosen samples."""
    write_atomic(experiment.plan_file, plan_file.read_text(encoding="utf-8-sig"))
    with owner_writes():
        write_atomic(experiment.resolved_file, resolved.model_dump_json(indent=2) + "\n")
        keep(experiment, resolved, say)
        experiment.jobs_dir.mkdir()
    experiment.workers_dir.mkdir()
    write_json(experiment.chosen_file, {name: list(one) for name, one in measured.chosen.items()})


def _report(findings: tuple[Finding, ...], say: Say) -> None:
    """Refuse what certainly cannot run, and warn of the rest."""
    refuse(findings)
    for finding in findings:
        say(f"! {finding.problem}")


def labels_of(resolved: ResolvedPlan) -> dict[str, Path]:
    """Judge without the mark of its repeats → its file of human labels, read once to find mistakes.

    Raises:
        UserError: a file cannot be read, or a label is wrong.
    """
    found: dict[str, Path] = {}
    for run_task in resolved.run_tasks:
        own, base = run_task.task.judge, base_of(run_task.name)
        if own is None or own.labels is None or base in found:
            continue
        for metric in load_metrics(run_task).values():
            if isinstance(metric, Judge):
                found[base] = Path(own.labels)
                read_labels(found[base], as_labels(metric), pairs=own.against is not None)
                break
    return found


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
        say(f"preparing {key or 'this Python environment'}")
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
        f"cannot create an experiment in {folder}: {error.strerror}",
        remedy="set HPCBENCH_HOME or `home` in the site profile to a folder that you can write to",
    )
