"""Commands to copy for a run task: quoted for a shell, without text that looks like a secret."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpcbench import secret
from hpcbench.errors import HpcbenchError
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.workers import WorkerRun
from hpcbench.portal.logs import masked, opened, readable
from hpcbench.portal.lru import LruCache, stamp_of
from hpcbench.portal.models.run_tasks import CommandLine
from hpcbench.portal.safe_open import open_beneath
from hpcbench.portal.worker_series import groups_of, rounds_of
from hpcbench.reporting.provenance import reproduce
from hpcbench.schema.plan import ResolvedPlan, ResolvedRunTask

LOG_BYTES = 1 << 20
"""Bytes at the start of a worker's log that are searched for the engine's command line."""

SCRIPT_BYTES = 32 << 10
"""Longest batch script that is shown, bytes."""

_STARTS = b"-- hpcbench starts "


_commands: LruCache[tuple[CommandLine, ...]] = LruCache(512)


def commands(
    experiment: Experiment, run_task: ResolvedRunTask, workers: Sequence[WorkerRun]
) -> tuple[CommandLine, ...]:
    """Commands for a run task, and the commands that started its engine and its job.

    Args:
        experiment: the experiment.
        run_task: the run task.
        workers: workers that may have taken shards of the run task.
    """
    stems = tuple(one.stem for one in workers)
    newest = experiment.workers_dir / f"{stems[-1]}.log" if stems else experiment.workers_dir
    stamp = stems, stamp_of(newest), stamp_of(experiment.submission_file)
    key = experiment.path, run_task.name
    return _commands.of(key, stamp, lambda: _made(experiment, run_task, workers))


def _made(
    experiment: Experiment, run_task: ResolvedRunTask, workers: Sequence[WorkerRun]
) -> tuple[CommandLine, ...]:
    name, here = run_task.name, experiment.id
    engine = engine_line(experiment, run_task, workers)
    found = [
        CommandLine(title="Run the plan again", text=reproduce(experiment)),
        _hpcbench("Resume the run task", "resume", here, name),
        _hpcbench("Status", "status", here),
        _hpcbench("Follow the logs of its workers", "logs", here, name, "--follow"),
        _hpcbench("Score its answers again", "score", here),
    ]
    if engine:
        found.append(
            CommandLine(title="Engine's command line, as the worker started it", text=engine)
        )
    if inside := _in_image(experiment, run_task, engine):
        found.append(CommandLine(title="The same command in its image, by hand", text=inside))
    found += _scripts(experiment, run_task.name)
    return tuple(one.model_copy(update={"text": masked(one.text)}) for one in found)


def _hpcbench(title: str, *words: str) -> CommandLine:
    return CommandLine(title=title, text=shlex.join(["hpcbench", *words]))


def engine_line(
    experiment: Experiment, run_task: ResolvedRunTask, workers: Sequence[WorkerRun]
) -> str:
    """The engine's command line from the newest worker log with one; empty if no log has one."""
    for worker in reversed(workers):
        try:
            with opened(experiment, f"workers.{worker.stem}.log") as log:
                data = log.read(LOG_BYTES, 0)
        except OSError:
            continue
        lines = [line for line in data.split(b"\n") if line.startswith(_STARTS)]
        for line in reversed(lines):
            text = readable([line])[0][len(_STARTS) :]
            if {run_task.model.name, run_task.model.source} & set(_words(text)):
                return shlex.join(_words(text))
    return ""


def _words(text: str) -> list[str]:
    """Words of a command line; older logs have no quotes, and spaces separate the words."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split(" ")


def _in_image(experiment: Experiment, run_task: ResolvedRunTask, engine: str) -> str:
    """The command line for the engine in a container of its image, for a manual test on a GPU node."""
    environment = experiment.environment_of(run_task)
    if environment.get("kind") != "apptainer" or not engine:
        return ""
    site = experiment.alone(run_task.name).site.container
    options = ["--containall"]
    if run_task.model.gpus:
        options.append("--rocm" if site.gpu_maker == "amd" else "--nv")
    if run_task.model.source:
        options += ["--bind", f"{run_task.model.source}:{run_task.model.source}:ro"]
    if packages := environment.get("packages"):
        options += ["--bind", f"{packages}:{packages}:ro"]
    words = [site.program or "apptainer", "exec", *options, str(environment.get("path"))]
    # The socket's folder belonged to the run and is gone: any folder of the container will do.
    inside = re.sub(r"(--uds) \S+", r"\1 /tmp/engine.sock", engine)
    return f"{shlex.join(words)} {inside}"


def _scripts(experiment: Experiment, run_task: str) -> Iterator[CommandLine]:
    """Batch scripts of the newest round's arrays that take the run task's shards."""
    plan = experiment.alone(run_task)
    if plan.executor != "slurm":
        return
    groups = groups_of(experiment, run_task)
    rounds = rounds_of(experiment)
    steps = [step for step in rounds[-1].steps.values() if step.group in groups] if rounds else []
    found = False
    for step in steps:
        if step.job and (text := _script(experiment, step.job)):
            found = True
            yield CommandLine(title=f"Batch script of array {step.job}", text=text)
    if not found and (text := _planned(experiment, plan, groups)):
        yield CommandLine(title="Batch script that hpcbench would submit from here", text=text)


def _script(experiment: Experiment, job: str) -> str:
    try:
        descriptor = open_beneath(experiment.path, "jobs", f"{job}_submission.sh")
    except OSError:
        return ""
    try:
        data = os.pread(descriptor, SCRIPT_BYTES + 1, 0)
    finally:
        os.close(descriptor)
    if len(data) > SCRIPT_BYTES:
        return ""
    return "\n".join(readable(data.rstrip(b"\n").split(b"\n")))


def _planned(experiment: Experiment, plan: ResolvedPlan, groups: set[str]) -> str:
    from hpcbench.submit.sbatch import sbatch_text

    group = next((one for one in experiment.work.groups if one.id in groups), None)
    if group is None:
        return ""
    try:
        return sbatch_text(experiment.path, plan, group).rstrip("\n")
    except (HpcbenchError, OSError, ValueError):
        return ""


def without_secrets(value: Any, name: str = "") -> Any:
    """Plain data with the values of variables with a secret's name masked; references stay."""
    if isinstance(value, Mapping):
        return {key: without_secrets(one, str(key)) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(one, name) for one in value]
    if isinstance(value, str):
        return secret.MASK if secret.written_out(name, value) else masked(value)
    return value
