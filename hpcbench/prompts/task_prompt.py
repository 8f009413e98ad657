"""The prompt of a run task: the messages to the engine for a sample, and a hash of all their inputs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcbench import plugins
from hpcbench.errors import Problem, UserError
from hpcbench.files.hashing import hash_file
from hpcbench.plugins import PromptSpec, PromptStrategy
from hpcbench.prompts.templates import OF_THE_HOUSE, names_in
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.prompt import Prompt
from hpcbench.schema.records import Message, Sample

LONGEST_NAME = 64
"""Longest name of a schema in OpenAI's API; it consists of letters, digits, `-` and `_`."""

HASH_FORMULA = 2
"""Version of `prompt_hash`, raised whenever it gives the same prompt another hash."""


class TaskPrompt:
    """The prompt of a run task, as worker and evaluation use it: strategy, output schema, names."""

    def __init__(self, run_task: ResolvedRunTask) -> None:
        """Prepare the prompt.

        Raises:
            UserError: the strategy refuses the definition, e.g. an example lacks a field.
        """
        definition, task = run_task.prompt, run_task.ml_task
        self._judge, self._swapped = run_task.task.judge, run_task.swapped
        self._definition, self._strategy = definition.name, definition.strategy
        strategy = plugins.load("prompts", definition.strategy)
        with self._named():
            self.strategy: PromptStrategy = strategy(spec_of(run_task))
        wanted = run_task.task.output_schema
        schema = plugins.answer_schema(task) or {} if wanted != "none" else {}
        self._schema = schema if wanted == "prompt" else None
        settings = run_task.task.generation.model_dump(mode="json")
        extra = settings.pop("extra")
        said = {key: value for key, value in settings.items() if value not in (None, [])}
        self.generation: dict[str, Any] = said | extra
        """Parameters of the request, sent beside the messages."""
        if wanted == "response_format":
            name = re.sub(r"[^A-Za-z0-9_-]", "_", task.name)[:LONGEST_NAME]
            form = {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}
            self.generation["response_format"] = form

    def build(self, sample: Sample, judged: Sequence[str] | None = None) -> tuple[Message, ...]:
        """The messages for a sample; the output schema follows the last one if the run task says so.

        Args:
            sample: the sample.
            judged: for a judge: the answer of each run task that it reads. None: placeholders, as the answers
                do not exist yet, or do not matter.

        Raises:
            UserError: the strategy has no valid messages for the sample.
        """
        if self._judge is not None:
            answers = judged or [f"[answer of {name}]" for name in self._judge.judged]
            sample = _judged(sample, answers, swapped=self._swapped, pages=self._judge.pages)
        with self._named():
            messages = self.strategy.build(sample)
        if not messages or messages[-1].role != "user":
            made = f"a last message of the {messages[-1].role}" if messages else "no message"
            what = f"strategy '{self._strategy}' makes {made} for sample '{sample.id}'"
            raise UserError(Problem(what, remedy="the last message must be the user's"))
        if self._schema is None:
            return messages
        *others, last = messages
        schema = json.dumps(self._schema, ensure_ascii=False)
        text = f"{last.text}\n\nAnswer with JSON that meets this JSON Schema:\n{schema}"
        return (*others, Message(last.role, text, last.images))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Put the definition's name before its problems."""
        try:
            yield
        except UserError as error:
            named = (
                one._replace(message=f"prompts/{self._definition}: {one.message}")
                for one in error.problems
            )
            raise UserError(*named) from error

    def name(self, sample: Sample) -> str:
        """`DOCUMENT`, or `DOCUMENT/ENTRY` of a collection."""
        entry = self.strategy.name(sample) if hasattr(self.strategy, "name") else ""
        return f"{self._definition}/{entry}" if entry else self._definition


def _judged(sample: Sample, answers: Sequence[str], *, swapped: bool, pages: bool) -> Sample:
    """The sample as a judge sees it: with the answers to rate, its references, and perhaps no images."""
    references = [
        one if isinstance(one, str) else json.dumps(one, ensure_ascii=False, sort_keys=True)
        for one in sample.references
    ]
    first, *others = reversed(answers) if swapped else answers
    shown = {"answer": first} if not others else {"first": first, "second": others[0]}
    own = {"references": references, "reference": references[0] if references else ""}
    fields = {**sample.fields, **own, **shown}
    return replace(sample, fields=fields, images=sample.images if pages else ())


def spec_of(run_task: ResolvedRunTask) -> PromptSpec:
    """The specification that a run task's prompt strategy gets."""
    definition = run_task.prompt
    return PromptSpec(
        user=definition.user,
        system=definition.system,
        entries=definition.prompts,
        examples=definition.examples,
        dataset=run_task.dataset.name,
        task=run_task.ml_task.name,
        options=definition.options,
    )


def prompt_hash(run_task: ResolvedRunTask) -> str:
    """`sha256:…` over all inputs of the words and example images that a model gets beside a sample's own.

    Images count by their bytes, not by their paths. The names of dataset and ML task count where a template
    or condition uses them.

    Raises:
        UserError: an example's image cannot be read.
    """
    definition = run_task.prompt
    inputs = definition.model_dump(
        mode="json", include={"strategy", "system", "user", "prompts", "examples", "options"}
    )
    for one in (inputs, *inputs["prompts"]):
        for example in one["examples"]:
            example["images"] = [_digest(image, definition) for image in example["images"]]
    schema = run_task.task.output_schema
    wanted = plugins.answer_schema(run_task.ml_task) if schema != "none" else None
    inputs["output_schema"] = [schema, wanted]
    if (judge := run_task.task.judge) is not None:
        inputs["judge"] = [judge.against is not None, judge.pages, run_task.swapped]
    names = {"dataset": run_task.dataset.name, "task": run_task.ml_task.name}
    inputs |= {name: names[name] for name in OF_THE_HOUSE & _used(definition)}
    text = json.dumps(inputs, sort_keys=True, ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _digest(image: str, definition: Prompt) -> str:
    try:
        return hash_file(Path(image))
    except OSError as error:
        what = f"prompt '{definition.name}': cannot read the image of an example"
        raise UserError(Problem(f"{what}: {error.strerror}", image)) from error


def _used(definition: Prompt) -> frozenset[str]:
    """Names in a prompt's templates and conditions."""
    texts = [definition.system, definition.user]
    texts += [text for one in definition.prompts for text in (one.system, one.user)]
    conditions = {name for one in definition.prompts for name in one.when}
    return names_in(text for text in texts if text is not None) | conditions
