"""The prompt of a run task: what goes to the engine for a sample, and the hash of all that decides on it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hpcbench import plugins
from hpcbench.errors import Problem, UserError
from hpcbench.files.hashing import hash_file
from hpcbench.plugins import PromptSpec, PromptStrategy
from hpcbench.prompts.templates import OF_THE_HOUSE, names_in
from hpcbench.schema.documents import Prompt
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Message, Sample

LONGEST_NAME = 64
"""Of a schema, by OpenAI's API: letters, digits, `-` and `_`."""

HASH_FORMULA = 2
"""Raised whenever `prompt_hash` makes another hash of a prompt that is the same."""


class TaskPrompt:
    """The prompt of a run task, as worker and evaluation use it: strategy, output schema, names."""

    def __init__(self, run_task: ResolvedRunTask) -> None:
        """Make it.

        Raises:
            UserError: the strategy refuses the document, e.g. an example that lacks a field.
        """
        document, task = run_task.prompt, run_task.ml_task
        self._document, self._strategy = document.name, document.strategy
        strategy = plugins.load("prompts", document.strategy)
        with self._named():
            self.strategy: PromptStrategy = strategy(spec_of(run_task))
        wanted = run_task.task.output_schema
        schema = plugins.answer_schema(task) or {} if wanted != "none" else {}
        self._schema = schema if wanted == "prompt" else None
        settings = run_task.task.generation.model_dump(mode="json")
        extra = settings.pop("extra")
        said = {key: value for key, value in settings.items() if value not in (None, [])}
        self.generation: dict[str, Any] = said | extra
        """What is sent beside the messages."""
        if wanted == "response_format":
            name = re.sub(r"[^A-Za-z0-9_-]", "_", task.name)[:LONGEST_NAME]
            form = {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}
            self.generation["response_format"] = form

    def build(self, sample: Sample) -> tuple[Message, ...]:
        """The messages for a sample, the output schema after the last one if the run task says so.

        Raises:
            UserError: there are none for it.
        """
        with self._named():
            messages = self.strategy.build(sample)
        if not messages or messages[-1].role != "user":
            made = f"ends with a message of the {messages[-1].role}" if messages else "is empty"
            what = f"what strategy '{self._strategy}' makes of sample '{sample.id}' {made}"
            raise UserError(Problem(what, remedy="a user message comes last"))
        if self._schema is None:
            return messages
        *others, last = messages
        schema = json.dumps(self._schema, ensure_ascii=False)
        text = f"{last.text}\n\nAnswer with JSON that meets this JSON Schema:\n{schema}"
        return (*others, Message(last.role, text, last.images))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """The document's name before what is wrong with it."""
        try:
            yield
        except UserError as error:
            named = (
                one._replace(message=f"prompts/{self._document}: {one.message}")
                for one in error.problems
            )
            raise UserError(*named) from error

    def name(self, sample: Sample) -> str:
        """`DOCUMENT`, or `DOCUMENT/ENTRY` of a collection."""
        entry = self.strategy.name(sample) if hasattr(self.strategy, "name") else ""
        return f"{self._document}/{entry}" if entry else self._document


def spec_of(run_task: ResolvedRunTask) -> PromptSpec:
    """What a run task's prompt strategy is told."""
    document = run_task.prompt
    return PromptSpec(
        user=document.user,
        system=document.system,
        entries=document.prompts,
        examples=document.examples,
        dataset=run_task.dataset.name,
        task=run_task.ml_task.name,
        options=document.options,
    )


def prompt_hash(run_task: ResolvedRunTask) -> str:
    """`sha256:…` over all that decides which words and example images a model gets beside a sample's own.

    Images count by their bytes, wherever they lie; the names of dataset and ML task where a template or
    condition uses them.

    Raises:
        UserError: an example's image cannot be read.
    """
    document = run_task.prompt
    told = document.model_dump(
        mode="json", include={"strategy", "system", "user", "prompts", "examples", "options"}
    )
    for one in (told, *told["prompts"]):
        for example in one["examples"]:
            example["images"] = [_digest(image, document) for image in example["images"]]
    schema = run_task.task.output_schema
    wanted = plugins.answer_schema(run_task.ml_task) if schema != "none" else None
    told["output_schema"] = [schema, wanted]
    names = {"dataset": run_task.dataset.name, "task": run_task.ml_task.name}
    told |= {name: names[name] for name in OF_THE_HOUSE & _used(document)}
    text = json.dumps(told, sort_keys=True, ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _digest(image: str, document: Prompt) -> str:
    try:
        return hash_file(Path(image))
    except OSError as error:
        what = f"prompt '{document.name}': the image of an example cannot be read"
        raise UserError(Problem(f"{what}: {error.strerror}", image)) from error


def _used(document: Prompt) -> frozenset[str]:
    """Names in a prompt's templates and conditions."""
    texts = [document.system, document.user]
    texts += [text for one in document.prompts for text in (one.system, one.user)]
    conditions = {name for one in document.prompts for name in one.when}
    return names_in(text for text in texts if text is not None) | conditions
