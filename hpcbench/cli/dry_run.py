"""`--dry-run` and `--estimate`: jobs, command lines and sbatch texts of a plan, or its cost."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from hpcbench.cli.output import print_json, say
from hpcbench.errors import UserError
from hpcbench.experiment.layout import home
from hpcbench.experiment.submission import Step, arrays
from hpcbench.number_format import many
from hpcbench.schema.plan import Group, ResolvedPlan, ResolvedRunTask
from hpcbench.submit import provider_cost
from hpcbench.submit.estimate import spared
from hpcbench.submit.estimate_text import outlook, words
from hpcbench.submit.preview import (
    WIDTH,
    Preview,
    command_of,
    facts_json,
    model_words,
    size_words,
    wrapped,
)
from hpcbench.submit.reuse import Policy, groups_with_work
from hpcbench.submit.reuse_forecast import Forecast, forecast
from hpcbench.submit.rounds import MAX_ARRAY_SIZE
from hpcbench.submit.sbatch import sbatch_text


def show(preview: Preview, as_json: bool, reuse: Policy = "none") -> int:
    """Print a plan's jobs; exit code 2 if `submit` would refuse the plan.

    `reuse`: which answers of earlier experiments `submit` would take over.
    """
    resolved, work = preview.resolved, preview.work
    folder = home(resolved.site) / "experiments" / f"ID-{resolved.plan.name}"
    largest = resolved.site.slurm.max_array_size or MAX_ARRAY_SIZE
    answered = forecast(preview, reuse)
    needed = groups_with_work(work.groups, answered.shards)
    groups = {group.id: group for group in needed}
    steps = arrays(needed, largest) if resolved.executor == "slurm" else []
    texts = {step.name: sbatch_text(folder, resolved, groups[step.group], step) for step in steps}
    if as_json:
        print_json(
            {
                "executor": resolved.executor,
                "work": asdict(work),
                **_answered_json(resolved, answered),
                "sbatch": texts,
                **facts_json(preview),
            }
        )
        return tell_findings(preview, warnings=False)
    print(
        f"{resolved.plan.name}: {many(len(resolved.run_tasks), 'run task')}, "
        f"executor {resolved.executor}, site {resolved.site.name}"
    )
    for line in answered.lines():
        print(_folded(line))
    for line in spared(work.fewer):
        print(line)
    for line in provider_cost.words(resolved, answered):
        print(_folded(f"cost: {line}"))
    for group in work.groups:
        if group.id not in groups:
            print(f"\ngroup {group.id}: no job, all of its samples have answers")
            continue
        print("\n" + "\n".join(_group(preview, groups[group.id])))
        own = [step for step in steps if step.group == group.id]
        if len(own) > 1:
            print(f"\n  in {len(own)} array jobs: Slurm takes at most {largest} tasks in one")
        for step in own:
            print("\n" + "\n".join(_script(step, texts[step.name])))
    print("\nhpcbench fetched, built and submitted nothing")
    return tell_findings(preview)


def show_estimate(preview: Preview, as_json: bool, reuse: Policy = "none") -> int:
    """Print the estimated cost of a plan; nothing is submitted or written. `reuse`: as of `show`."""
    resolved, found = preview.resolved, outlook(preview, reuse)
    if as_json:
        queues = {name: [asdict(queue) for queue in known] for name, known in found.queues.items()}
        data = {**asdict(found.estimate), "measured": found.estimate.measured, "queues": queues}
        data["last_job"] = found.estimate.last_job and found.estimate.last_job.stated()
        print_json(
            {
                "plan": resolved.plan.name,
                **_answered_json(resolved, found.forecast),
                **data,
                **facts_json(preview),
            }
        )
    else:
        print("\n".join(_folded(line) for line in words(preview, found)))
    return tell_findings(preview, warnings=not as_json)


def _answered_json(resolved: ResolvedPlan, answered: Forecast) -> dict[str, Any]:
    """Samples of each run task, how many are asked and at what cost, who answered the others, and why none
    is taken over."""
    return {
        "full_answers_cost": provider_cost.full_answers(resolved, answered),
        "budget": resolved.plan.budget._asdict(),
        "samples": dict(answered.samples),
        "asked": {name: answered.asked(name) for name in answered.samples},
        "reused": answered.reused,
        "all_asked": answered.all_asked,
        "unmeasured": answered.unmeasured,
        "assumed_images": answered.assumed,
    }


def tell_findings(preview: Preview, *, warnings: bool = True) -> int:
    """Print the findings; returns 2 if any of them certainly prevents the run, else 0."""
    if warnings:
        for one in preview.findings:
            if not one.certain:
                say(f"! {one.problem}")
        for problem in preview.unlocked:
            say(f"! fix before submission: {problem}")
    refused = [one.problem for one in preview.findings if one.certain]
    for problem in refused:
        say(str(problem))
    return UserError.exit_code if refused else 0


def _group(preview: Preview, group: Group) -> Iterator[str]:
    need = group.resources
    gpus = many(group.gpus, "GPU") if group.gpus else "no GPU"
    gpus += f" on each of {group.nodes} nodes" if group.nodes > 1 else ""
    workers = many(group.workers, "worker")
    if group.replicas > 1:
        workers = f"{many(group.workers, 'job')} of {group.replicas} workers"
    yield f"group {group.id}: {workers}, at most {group.throttle} at once"
    cpus = many(need.cpus, "CPU")
    yield from _row("each", f"{cpus}, {need.memory_gb:g} GiB, {gpus}, {need.time_limit}")
    tasks = [preview.resolved.run_task(name) for name in group.run_tasks]
    for task in tasks:
        yield from _row("run task", _samples(preview, task))
    datasets = {task.dataset.name: preview.facts.datasets[task.dataset.name] for task in tasks}
    for name, size in datasets.items():
        if not size.here:
            yield from _row("data", f"{name}: to fetch, {size_words(size)}")
    for name in dict.fromkeys(task.model.name for task in tasks):
        own = next(task for task in tasks if task.model.name == name)
        yield from _model(preview, own)


def _samples(preview: Preview, task: ResolvedRunTask) -> str:
    shards = len(preview.work.shards_of((task.name,)))
    count, why = preview.samples(task.name), preview.unknown.get(task.name)
    if count is None:
        assumed = preview.measured.samples[task.name]
        return f"{task.name}: samples unknown, {why} (assumed: {assumed})"
    cut = f"{task.name}: {many(count, 'sample')} in {many(shards, 'shard')}"
    return f"{cut}, according to its definition: {why}" if why is not None else cut


def _model(preview: Preview, task: ResolvedRunTask) -> Iterator[str]:
    known = preview.facts.models[task.name]
    yield ""
    yield f"  model {known.model.name}"
    for title, text in model_words(known, preview.resolved.site.container.manager):
        yield from _row(title, text)
    if known.model.env:
        # References stay references: no secret is read here.
        names = ", ".join(f"{name}=***" for name in sorted(known.model.env))
        yield from _row("env", names)
    command = command_of(preview, task)
    if command is None:
        yield from _row(
            "engine",
            f"{known.model.engine}: hpcbench knows the command once it has built the package",
        )
        return
    yield from _row("engine", f"{known.model.engine}, with the command")
    yield from wrapped(command, "    ")


def _row(title: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"  {title:<9} ",
        subsequent_indent=" " * 12,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _script(step: Step, text: str) -> Iterator[str]:
    yield f"  sbatch of {step.name}"
    yield from (f"    {line}" for line in text.splitlines())


def _folded(line: str) -> str:
    """A line folded at 80 columns; continuation lines are aligned with its text."""
    title = re.match(r"  [A-Za-z-]+(?: fetch)?  +(?=\S)", line)
    hang = len(title[0]) if title else len(line) - len(line.lstrip()) + 4
    return textwrap.fill(
        line, WIDTH, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False
    )
