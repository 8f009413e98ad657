"""`hpcbench prompts show`: what a model gets, word for word."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcbench.cli.screen import console, print_json
from hpcbench.data.datasets import name_of, open_dataset, samples
from hpcbench.errors import Problem, UserError
from hpcbench.launch.prepare import open_cache
from hpcbench.plugins import DatasetIterator
from hpcbench.prompts import TaskPrompt, as_text
from hpcbench.registry.resolve import load_plan
from hpcbench.schema.documents import Site
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Message, Sample

ANY_MODEL = "tiny-vlm"
"""Stands where a plan needs a model and none matters; shipped with hpcbench."""


def show(arguments: argparse.Namespace) -> int:
    """`hpcbench prompts show DATASET [--sample ID]`."""
    run_task, site = _run_task(arguments)
    cache = open_cache(site)
    iterator = open_dataset(cache.local(run_task.dataset), cache.folder)
    sample = _sample(iterator, arguments.sample)
    prompt = TaskPrompt(run_task)
    messages, name = prompt.build(sample), prompt.name(sample)
    written = None
    if arguments.model or arguments.plan:
        model = cache.local(run_task.model, fetch=False)
        written = as_text(messages, model)
    if arguments.json:
        print_json(
            {
                "sample": sample.id,
                "prompt": name,
                "messages": [_plain(message) for message in messages],
                "generation": prompt.generation,
                "chat_template": written,
            }
        )
        return 0
    out = console()
    out.print(f"sample {sample.id}, prompt {name}", style="dim", markup=False)
    for message in messages:
        out.print(f"\n{message.role}", style="bold cyan")
        for image in message.images:
            out.print(f"<{name_of(image)}>", style="magenta", markup=False, soft_wrap=True)
        out.print(message.text, markup=False, soft_wrap=True)
    if prompt.generation:
        told = json.dumps(prompt.generation, ensure_ascii=False, indent=2)
        out.print(f"\nsent beside them\n{told}", markup=False, soft_wrap=True)
    if written is not None:
        out.print(f"\nas the chat template of {run_task.model.name} writes it", style="bold cyan")
        out.print(written, markup=False, soft_wrap=True)
    return 0


def _run_task(arguments: argparse.Namespace) -> tuple[ResolvedRunTask, Site]:
    if arguments.plan is not None:
        plan = load_plan(arguments.plan, arguments.registry)
        for run_task in plan.run_tasks:
            if arguments.dataset in (run_task.name, run_task.dataset.name):
                return run_task, plan.site
        what = f"no run task is called '{arguments.dataset}' or uses such a dataset"
        raise UserError(Problem(what, str(arguments.plan)))
    asked = {
        "name": "show",
        "ml_task": arguments.task,
        "dataset": arguments.dataset,
        "model": arguments.model or ANY_MODEL,
        **({"prompt": arguments.prompt} if arguments.prompt else {}),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arguments.yaml"
        path.write_text(json.dumps({"schema_version": 1, "name": "show", "run_tasks": [asked]}))
        plan = load_plan(path, arguments.registry, mode="dev")
    return plan.run_tasks[0], plan.site


def _sample(iterator: DatasetIterator, wanted: str | None) -> Sample:
    count = iterator.count()
    for index, sample in enumerate(samples(iterator, [(0, count)], 0, count, images=False)):
        if wanted in (None, sample.id):
            return next(iter(iterator.iter(index, index + 1)))
    raise UserError(Problem(f"no sample is called '{wanted}'"))


def _plain(message: Message) -> dict[str, Any]:
    images: Sequence[str] = [name_of(image) for image in message.images]
    return {"role": message.role, "images": images, "text": message.text}
