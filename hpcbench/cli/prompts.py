"""`hpcbench prompts show`: the exact text that a model gets."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcbench.cli.output import console, print_json, say
from hpcbench.data.copies import Cache
from hpcbench.data.datasets import open_dataset, samples
from hpcbench.data.pictures import name_of
from hpcbench.errors import HpcbenchError, Problem, UserError
from hpcbench.plugins import DatasetIterator
from hpcbench.prompts import TaskPrompt, as_text
from hpcbench.registry.resolve import load_plan
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Message, Sample
from hpcbench.schema.site import Site
from hpcbench.submit.local_data import in_language, open_cache
from hpcbench.submit.plan_packages import load_visible

ANY_MODEL = "tiny-vlm"
"""Model of the temporary plan if its choice does not matter; shipped with hpcbench."""

ANY_TASK = "vqa"
"""ML task if none is given."""


def show(arguments: argparse.Namespace) -> int:
    """`hpcbench prompts show DATASET [--sample ID]`."""
    run_task, site = _run_task(arguments)
    cache = open_cache(site)
    local = cache.local(run_task.dataset)
    run_task = in_language(run_task.model_copy(update={"dataset": local}), cache.folder)
    iterator = open_dataset(local, cache.folder)
    sample = _sample(iterator, arguments.sample)
    prompt = TaskPrompt(run_task)
    messages, name = prompt.build(sample), prompt.name(sample)
    written = why = None
    if arguments.model or arguments.plan:
        written, why = _written(cache, run_task, prompt, messages)
    if arguments.json:
        print_json(
            {
                "sample": sample.id,
                "prompt": name,
                "messages": [_plain(message) for message in messages],
                "generation": prompt.generation,
                "chat_template": written,
                **({"no_chat_template": why} if why else {}),
            }
        )
        return 0
    out = console()
    out.print(f"sample {sample.id}, prompt {name}", style="dim", markup=False, emoji=False)
    for message in messages:
        out.print(f"\n{message.role}", style="bold cyan")
        for image in message.images:
            out.print(f"<{name_of(image)}>", style="magenta", markup=False, soft_wrap=True)
        _print_as_it_is(message.text)
    out.print("\nsent with the messages", style="bold cyan")
    _print_as_it_is(json.dumps(prompt.generation, ensure_ascii=False, indent=2))
    if written is not None:
        out.print(
            f"\nas the chat template of {run_task.model.name} formats them", style="bold cyan"
        )
        _print_as_it_is(written)
    if why:
        out.print(f"\n{why}", style="dim", markup=False, emoji=False, soft_wrap=True)
    return 0


def _written(
    cache: Cache, run_task: ResolvedRunTask, prompt: TaskPrompt, messages: Sequence[Message]
) -> tuple[str | None, str | None]:
    """The messages as the model's chat template formats them, or why there is no such text."""
    settings = prompt.generation.get("chat_template_kwargs")
    try:
        return as_text(messages, cache.local(run_task.model, fetch=False), settings), None
    except HpcbenchError as error:
        return None, f"the chat template gives no text: {error}"


def _print_as_it_is(text: str) -> None:
    """Print without rich, which would turn `:key:` into an emoji, and tabs into spaces."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _run_task(arguments: argparse.Namespace) -> tuple[ResolvedRunTask, Site]:
    if arguments.plan is not None:
        return _of_plan(arguments)
    asked = {
        "name": "show",
        "ml_task": arguments.task or ANY_TASK,
        "dataset": arguments.dataset,
        "model": arguments.model or ANY_MODEL,
        "generation": {"max_tokens": 1},  # no request is sent, so it fits any context length
        **({"prompt": arguments.prompt} if arguments.prompt else {}),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arguments.yaml"
        path.write_text(json.dumps({"schema_version": 1, "name": "show", "run_tasks": [asked]}))
        try:
            plan = load_visible(lambda: load_plan(path, arguments.registry, mode="dev"), say)
        except UserError as error:  # a temporary file: its content came from the command line
            problems = (
                Problem(one.message, remedy=one.remedy) if one.file == str(path) else one
                for one in error.problems
            )
            raise UserError(*problems) from error
    return plan.run_tasks[0], plan.site


def _of_plan(arguments: argparse.Namespace) -> tuple[ResolvedRunTask, Site]:
    """The plan's run task that the arguments select.

    Raises:
        UserError: no run task matches, or several with different prompts.
    """
    if arguments.task is not None:
        raise UserError("--plan sets the ML task already", remedy="leave --task out")
    plan = load_visible(lambda: load_plan(arguments.plan, arguments.registry, locks=False), say)
    asked = arguments.dataset
    found = [
        one
        for one in plan.run_tasks
        if asked in (one.name, one.dataset.name)
        and arguments.prompt in (None, one.prompt.name)
        and arguments.model in (None, one.model.name)
    ]
    if not found:
        wanted = [f"with prompt '{arguments.prompt}'"] if arguments.prompt else []
        wanted += [f"with model '{arguments.model}'"] if arguments.model else []
        what = " ".join([f"no run task has the name or the dataset '{asked}'", *wanted])
        known = ", ".join(one.name for one in plan.run_tasks[:10])
        raise UserError(what, file=arguments.plan, remedy=f"its run tasks: {known}")
    named = [one for one in found if one.name == asked]
    found = named or found
    if len({_asks(one) for one in found}) > 1:
        names = ", ".join(one.name for one in found[:10])
        what = f"several run tasks of '{asked}' send different prompts: {names}"
        raise UserError(
            what, file=arguments.plan, remedy="name one of them, or give --prompt or --model"
        )
    return found[0], plan.site


def _asks(run_task: ResolvedRunTask) -> str:
    """All properties that decide the output; repeats differ only in seeds."""
    generation = run_task.task.generation.model_copy(update={"seed": None})
    task = f"{generation} {run_task.task.output_schema}"
    definitions = (run_task.prompt, run_task.ml_task, run_task.dataset, run_task.model)
    return task + "".join(definition.model_dump_json() for definition in definitions)


def _sample(iterator: DatasetIterator, wanted: str | None) -> Sample:
    count = iterator.count()
    for index, sample in enumerate(samples(iterator, [(0, count)], 0, count, images=False)):
        if wanted in (None, sample.id):
            return next(iter(iterator.iter(index, index + 1)))
    raise UserError(f"no sample has the id '{wanted}'", remedy="without --sample: the first")


def _plain(message: Message) -> dict[str, Any]:
    images: Sequence[str] = [name_of(image) for image in message.images]
    return {"role": message.role, "images": images, "text": message.text}
