"""Prompts: a sample becomes messages through Jinja2 templates over its fields and metadata.

    prompts:
      - {id: total, user: "What is the total?", when: {doc_type: invoice, field: total}}
      - {id: invoice, user: "What is the {{ field }} of this invoice?", when: {doc_type: invoice}}
    user: "What is the {{ field }}?"

A sample gets the entry with the most conditions of all that hold for it; `user` is for the others. Two that
hold with equally many (a tie) and a sample that none is for (a hole) are errors, found at preparation, where
the prompt of every sample is built once.

Templates run in Jinja2's sandbox with undefined names refused: a prompt that names a field the sample
does not have is an error before anything is sent, never an empty gap in a prompt.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar

from jinja2 import StrictUndefined, Template, TemplateError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment
from pydantic import BaseModel, ConfigDict

from hpcbench import plugins
from hpcbench.errors import Problem, UserError
from hpcbench.plugins import PromptSpec, PromptStrategy
from hpcbench.schema.documents import Model
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import Message, PromptEntry, PromptExample, Sample

TEXTS_KEPT = 512
"""Templates that are kept compiled: a prompt is made anew for every shard, and run tasks share prompts."""

_ENVIRONMENT = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=False)


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt ready to be filled in."""

    id: str
    when: Mapping[str, Any]
    system: Template | None
    user: Template
    examples: tuple[PromptExample, ...]


class TemplatePrompt:
    """Templates, one or a collection; images go with the user message."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        """It has none."""

        model_config = ConfigDict(extra="forbid")

    def __init__(self, spec: PromptSpec) -> None:
        self._spec = spec
        texts = [spec.system, spec.user]
        texts += [text for entry in spec.entries for text in (entry.system, entry.user)]
        try:
            self._parsed = []
            for text in dict.fromkeys(texts):
                if text is not None:
                    _compiled(text)  # finds filters that are none, too
                    self._parsed.append(_parsed(text))
        except (TemplateError, ValueError, RecursionError) as error:
            # ValueError: a number without end
            what = f"prompt is no Jinja2 template: {str(error)[:200]}"
            raise UserError(Problem(what)) from error
        if problems := _clashes(spec.entries):
            raise UserError(*problems)

    def placeholders(self) -> frozenset[str]:
        """Names that the templates take from the sample."""
        found = (meta.find_undeclared_variables(parsed) for parsed in self._parsed)
        return frozenset().union(*found) - _ENVIRONMENT.globals.keys() - {"dataset", "task"}

    def name(self, sample: Sample) -> str:
        """Id of the entry that a sample gets; empty for the document's own user message."""
        return self._chosen(sample, self._context(sample)).id

    def build(self, sample: Sample) -> tuple[Message, ...]:
        """The messages for a sample.

        Raises:
            UserError: no entry is for it, or two are; a template names a field the sample does not have.
        """
        context = self._context(sample)
        prompt = self._chosen(sample, context)
        messages = []
        try:
            if prompt.system is not None:
                messages.append(Message("system", prompt.system.render(context)))
            for example in prompt.examples:
                shown = {**context, **example.fields}
                images = tuple(Path(image) for image in example.images)
                messages.append(Message("user", prompt.user.render(shown), images))
                messages.append(Message("assistant", example.answer))
            messages.append(Message("user", prompt.user.render(context), sample.images))
        except TemplateError as error:
            raise UserError(Problem(f"prompt for sample '{sample.id}': {error}")) from error
        return tuple(messages)

    def _context(self, sample: Sample) -> dict[str, Any]:
        context = {**sample.metadata, **sample.fields}
        if "doc_class" in context and "question_type" in context:  # what v0.1 chooses by
            context["doc_class_question_type"] = (
                f"{context['doc_class']} {context['question_type']}"
            )
        return {"dataset": self._spec.dataset, "task": self._spec.task, **context}

    def _chosen(self, sample: Sample, context: Mapping[str, Any]) -> _Prompt:
        holding = [one for one in self._prompts if _holds(one.when, context)]
        if not holding:
            known = {name for one in self._prompts for name in one.when}
            told = ", ".join(f"{name} {context.get(name)!r}" for name in sorted(known))
            raise UserError(Problem(f"no prompt is for sample '{sample.id}' ({told})"))
        most = max(len(one.when) for one in holding)
        best = [one for one in holding if len(one.when) == most]
        if len(best) > 1:
            names = " and ".join(f"'{one.id}'" for one in best)
            raise UserError(
                Problem(
                    f"prompts {names} are for sample '{sample.id}' alike",
                    remedy="add a condition to one of them, or an entry with the conditions of both",
                )
            )
        return best[0]

    @cached_property
    def _prompts(self) -> tuple[_Prompt, ...]:
        """All prompts, ready to be filled in."""
        spec = self._spec
        entries = list(spec.entries)
        if spec.user is not None:
            entries.append(PromptEntry("", spec.user))
        return tuple(
            _Prompt(
                entry.id,
                entry.when,
                _template(entry.system if entry.system is not None else spec.system),
                _compiled(entry.user),
                entry.examples or spec.examples,
            )
            for entry in entries
        )


class TaskPrompt:
    """The prompt of a run task, as worker and evaluation use it: strategy, output schema, names."""

    def __init__(self, run_task: ResolvedRunTask) -> None:
        document, task = run_task.prompt, run_task.ml_task
        self._document = document.name
        self.strategy: PromptStrategy = plugins.load("prompts", document.strategy)(
            spec_of(run_task)
        )
        wanted = run_task.task.output_schema
        schema = plugins.answer_schema(task) or {} if wanted != "none" else {}
        self._schema = schema if wanted == "prompt" else None
        self.generation: dict[str, Any] = {}
        if wanted == "response_format":
            described = {
                "name": task.name.replace("/", "_"),
                "schema": schema,
            }
            self.generation = {"response_format": {"type": "json_schema", "json_schema": described}}

    def build(self, sample: Sample) -> tuple[Message, ...]:
        """The messages for a sample, the output schema after the last one if the run task says so."""
        messages = self.strategy.build(sample)
        if self._schema is None:
            return messages
        *others, last = messages
        schema = json.dumps(self._schema, ensure_ascii=False)
        text = f"{last.text}\n\nAnswer with JSON that meets this JSON Schema:\n{schema}"
        return (*others, Message(last.role, text, last.images))

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


def as_text(messages: Sequence[Message], model: Model) -> str:
    """The text that a chat template makes of messages, as Hugging Face's tokenizers write it.

    Args:
        messages: the prompt.
        model: its document, a folder of this machine as its source; its own template goes first.

    Raises:
        UserError: the model has no chat template, or it refuses these messages.
    """
    if not model.source:
        raise UserError(Problem(f"model '{model.name}' has no weights here, so no chat template"))
    folder = Path(model.source)
    config = _json_of(folder / "tokenizer_config.json")
    template = model.chat_template or _template_of(folder, config)
    if template is None:
        raise UserError(Problem(f"model '{model.name}' has no chat template", model.source))
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, **more: Any) -> str:
        return json.dumps(value, ensure_ascii=False, **more)

    environment.globals |= {
        "raise_exception": refuse,
        "strftime_now": lambda form: time.strftime(form),
    }
    environment.filters["tojson"] = tojson
    told = [
        {
            "role": message.role,
            "content": [
                *({"type": "image"} for _ in message.images),
                {"type": "text", "text": message.text},
            ],
        }
        for message in messages
    ]
    tokens = {
        key: value["content"] if isinstance(value, dict) else value
        for key, value in config.items()
        if key.endswith("_token") and value
    }
    try:
        return environment.from_string(template).render(
            messages=told, add_generation_prompt=True, **tokens
        )
    except (TemplateError, TypeError, ValueError) as error:
        what = f"the chat template of '{model.name}' refuses it: {error}"
        raise UserError(Problem(what, model.source)) from error


def _template_of(folder: Path, config: Mapping[str, Any]) -> str | None:
    """A model's own chat template, from wherever its publisher put it."""
    plain = folder / "chat_template.jinja"
    if plain.is_file():
        return plain.read_text(encoding="utf-8")
    for found in (_json_of(folder / "chat_template.json"), config):
        template = found.get("chat_template")
        if isinstance(template, list):  # several, by name
            template = {one["name"]: one["template"] for one in template}.get("default")
        if isinstance(template, str):
            return template
    return None


def _json_of(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def prompt_hash(run_task: ResolvedRunTask) -> str:
    """`sha256:…` over all that decides which words and example images a model gets beside a sample's own.

    Raises:
        UserError: an example's image cannot be read.
    """
    document = run_task.prompt
    told = document.model_dump(
        mode="json", include={"strategy", "system", "user", "prompts", "examples", "options"}
    )
    schema = run_task.task.output_schema
    wanted = plugins.answer_schema(run_task.ml_task) if schema != "none" else None
    told["output_schema"] = [schema, wanted]
    names = {
        image for one in _examples(document.examples, document.prompts) for image in one.images
    }
    for name in sorted(names):
        try:
            told[f"image {name}"] = hashlib.sha256(Path(name).read_bytes()).hexdigest()
        except OSError as error:
            what = f"prompt '{document.name}': the image of an example cannot be read"
            raise UserError(Problem(f"{what}: {error.strerror}", name)) from error
    text = json.dumps(told, sort_keys=True, ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _clashes(entries: Iterable[PromptEntry]) -> list[Problem]:
    """Entries of one id, and entries with the very same conditions."""
    problems, ids, conditions = [], set[str](), dict[str, str]()
    for entry in entries:
        if entry.id in ids:
            problems.append(Problem(f"two prompts have the id '{entry.id}'"))
        ids.add(entry.id)
        key = json.dumps({name: str(value) for name, value in entry.when.items()}, sort_keys=True)
        if key in conditions:
            what = f"prompts '{conditions[key]}' and '{entry.id}' are for the same samples"
            problems.append(Problem(what, remedy="another `when` for one of them"))
        conditions.setdefault(key, entry.id)
    return problems


def _examples(
    own: Iterable[PromptExample], entries: Iterable[PromptEntry]
) -> Iterable[PromptExample]:
    return [*own, *(example for entry in entries for example in entry.examples)]


def _holds(when: Mapping[str, Any], context: Mapping[str, Any]) -> bool:
    """A CSV knows texts only, so values are compared as such."""
    return all(name in context and str(context[name]) == str(value) for name, value in when.items())


def _template(text: str | None) -> Template | None:
    return _compiled(text) if text is not None else None


@lru_cache(TEXTS_KEPT)
def _compiled(text: str) -> Template:
    return _ENVIRONMENT.from_string(text)


@lru_cache(TEXTS_KEPT)
def _parsed(text: str) -> nodes.Template:
    return _ENVIRONMENT.parse(text)
