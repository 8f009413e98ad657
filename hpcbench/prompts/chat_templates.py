"""The text that a model's chat template renders from messages, as Hugging Face's tokenizers write it.

https://huggingface.co/docs/transformers/chat_templating; compared with transformers 5 in the tests.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hpcbench.errors import Problem, UserError
from hpcbench.schema.chat_content import keeping_texts
from hpcbench.schema.model import Model
from hpcbench.schema.records import Message

WRAPPING = frozenset({"vllm", "huggingface"})
"""Engines that send a text as a message part where the template would lose a plain text; SGLang does not."""


def as_text(
    messages: Sequence[Message],
    model: Model,
    settings: Mapping[str, Any] | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The text that a chat template renders from messages.

    Args:
        messages: the prompt.
        model: its definition, with a folder of this machine as its source; the definition's own template is
            preferred.
        settings: further variables of the template, a request's `chat_template_kwargs`.
        tools: the tools of the request, in OpenAI's form.

    Raises:
        UserError: the model has no chat template here, or the template refuses these messages.
    """
    if not model.source or "://" in model.source:
        what = f"the weights of model '{model.name}' are not on this machine, so its chat template is unknown"
        raise UserError(Problem(what))
    folder = Path(model.source)
    config = _json_of(folder / "tokenizer_config.json")
    template = model.chat_template or _template_of(folder, config)
    if template is None:
        raise UserError(Problem(f"model '{model.name}' has no chat template", model.source))
    tokens = {
        key: value["content"] if isinstance(value, dict) else value
        for key, value in config.items()
        if key.endswith("_token") and value
    }
    variables = {
        **{"tools": [*tools] or None, "documents": None, "add_generation_prompt": True},
        **tokens,
        **(settings or {}),
    }

    def written(sent: Sequence[Mapping[str, Any]]) -> str:
        return _environment().from_string(template).render({**variables, "messages": sent})

    sent = [*map(_sent, messages)]
    try:
        return written(keeping_texts(sent, written) if model.engine in WRAPPING else sent)
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        what = f"the chat template of model '{model.name}' refuses these messages: {error}"
        raise UserError(Problem(what, model.source)) from error


def _sent(message: Message) -> dict[str, Any]:
    """A message as templates get it; without images its content is a string, not a list of parts."""
    content: str | list[dict[str, str]] = message.text
    if message.images:
        content = [
            *({"type": "image"} for _ in message.images),
            {"type": "text", "text": message.text},
        ]
    sent: dict[str, Any] = {"role": message.role, "content": content}
    if message.calls:
        sent["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.tool, "arguments": _arguments(call.arguments)},
            }
            for call in message.calls
        ]
    if message.call_id is not None:
        sent["tool_call_id"] = message.call_id
    return sent


def _arguments(written: str) -> Any:
    """Arguments of a call as templates get them: objects, as vLLM's server passes them on."""
    try:
        return json.loads(written or "{}")
    except ValueError:
        return written


class _Generation(Extension):
    """`{% generation %}`, which marks the assistant's words for training; here it renders them unchanged."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse the words inside as a call block."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_words"), [], [], body).set_lineno(line)

    def _words(self, caller: Callable[[], str]) -> str:
        return caller()


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _Generation],
    )
    environment.globals |= {
        "raise_exception": _refuse,
        "strftime_now": lambda form: time.strftime(form),
    }
    environment.filters["tojson"] = _tojson
    return environment


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as in transformers; Jinja2's own filter escapes for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _template_of(folder: Path, config: Mapping[str, Any]) -> str | None:
    """A model's own chat template, from any of the files in which publishers put it."""
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
