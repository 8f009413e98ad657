"""Verbs that start and end work: submit, resume, cancel."""

from __future__ import annotations

import argparse
from pathlib import Path

from hpcbench.cli.screen import finish, print_json, say, transfer_bar
from hpcbench.errors import UserError
from hpcbench.experiment.layout import Experiment, all_experiments, find, home
from hpcbench.launch.measure import measure
from hpcbench.launch.prepare import load, localise, open_cache, plan_key, prepare
from hpcbench.launch.status import status
from hpcbench.launch.submit import cancel as cancel_jobs
from hpcbench.launch.submit import (
    release_dead,
    remaining,
    rounds,
    sbatch_text,
    submit_round,
    submitting,
)
from hpcbench.planning import plan_work
from hpcbench.registry.catalog import user_site
from hpcbench.schema.plan import Measured, ResolvedPlan


def submit(arguments: argparse.Namespace) -> int:
    """`hpcbench submit PLAN`."""
    resolved, packages = load(arguments.plan, arguments.registry, arguments.settings, say=say)
    if arguments.dry_run:
        return _dry_run(resolved, arguments.json)
    experiment = _interrupted(resolved)
    if experiment is not None:
        say(f"going on with {experiment.id}, whose submission was interrupted")
    else:
        with transfer_bar() as progress:
            experiment = prepare(resolved, arguments.plan, say, packages, progress)
    submit_round(experiment)
    return _submitted(experiment, arguments)


def resume(arguments: argparse.Namespace) -> int:
    """`hpcbench resume EXPERIMENT`."""
    experiment = find(home(user_site()), arguments.experiment)
    now = status(experiment)
    if now.state == "done":
        say(f"{experiment.id} is done: nothing to resume")
        return 0
    if now.state in ("pending", "running", "evaluating", "submitting"):
        say(f"{experiment.id} is {now.state}: nothing to resume")
        return 0
    released = release_dead(experiment)
    left = len(remaining(experiment))
    say(f"{experiment.id}: {left} shards left, {len(released)} taken over from dead workers")
    submit_round(experiment)
    return _submitted(experiment, arguments)


def cancel(arguments: argparse.Namespace) -> int:
    """`hpcbench cancel EXPERIMENT`."""
    experiment = find(home(user_site()), arguments.experiment)
    count = cancel_jobs(experiment)
    print(f"{experiment.id}: told {count} jobs to end; `hpcbench resume` goes on from here")
    return 0


def _submitted(experiment: Experiment, arguments: argparse.Namespace) -> int:
    last = rounds(experiment)[-1]
    if not arguments.wait:
        if arguments.json:
            print_json({"id": experiment.id, "path": str(experiment.path), "jobs": last.jobs})
        else:
            jobs = ", ".join(f"{step} {job}" for step, job in last.jobs.items())
            print(f"submitted {experiment.id} ({jobs})\n  hpcbench watch {experiment.id}")
        return 0
    if not arguments.json:
        print(f"submitted {experiment.id} in {experiment.path}")
    return finish(experiment, as_json=arguments.json)


def _interrupted(resolved: ResolvedPlan) -> Experiment | None:
    """An experiment of the very same plan and data whose submission was cut off."""
    candidates = [
        experiment
        for experiment in all_experiments(home(resolved.site))
        if _unfinished_submission(experiment)
    ]
    if not candidates:
        return None
    try:
        here = localise(resolved, open_cache(resolved.site), fetch=False)
    except UserError:
        return None  # what is not here yet was not being submitted
    key = plan_key(here, measure(here))
    same = [experiment for experiment in candidates if experiment.manifest["plan_key"] == key]
    return same[-1] if same else None


def _unfinished_submission(experiment: Experiment) -> bool:
    known = rounds(experiment)
    return (not known or not known[-1].complete) and not submitting(experiment)


def _dry_run(resolved: ResolvedPlan, as_json: bool) -> int:
    """Print what would be done; read the datasets, touch nothing."""
    resolved = localise(resolved, open_cache(resolved.site), fetch=False)
    measured: Measured = measure(resolved, hashes=False)
    work = plan_work(resolved, measured)
    folder = Path(home(resolved.site)) / "experiments" / f"ID-{resolved.plan.name}"
    texts = {
        group.id: sbatch_text(folder, resolved, group)
        for group in work.groups
        if resolved.executor == "slurm"
    }
    if as_json:
        print_json(
            {
                "executor": resolved.executor,
                "work": work.model_dump(mode="json"),
                "samples": dict(measured.samples),
                "sbatch": texts,
            }
        )
        return 0
    print(
        f"{resolved.plan.name}: {len(resolved.run_tasks)} run tasks, executor {resolved.executor}"
    )
    for group in work.groups:
        need = group.resources
        print(
            f"\ngroup {group.id}: {group.workers} workers, at most {group.throttle} at once; each "
            f"{need.cpus} CPUs, {need.memory_gb:g} GiB, {group.gpus} GPUs, {need.time_limit}; "
            f"image {group.image or 'none: this Python'}"
        )
        for name in group.run_tasks:
            shards = work.shards_of((name,))
            print(f"  {name}: {measured.samples[name]} samples in {len(shards)} shards")
        if group.id in texts:
            print("\n" + "\n".join(f"    {line}" for line in texts[group.id].splitlines()))
    return 0
