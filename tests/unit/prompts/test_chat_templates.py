"""A model's chat template writes here what it writes on the node: compared with transformers itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment

from hpcbench.errors import UserError
from hpcbench.inference.request_body import prepare
from hpcbench.prompts import as_text
from hpcbench.schema.chat_content import keeping_texts
from hpcbench.schema.model import Model
from hpcbench.schema.records import Message, Request, ToolCall

MESSAGES = (
    Message("system", "You read <documents>. "),
    Message("user", "First?"),
    Message("assistant", "12.50"),
    Message("user", "Total?", (b"\x89PNG\r\n\x1a\nxx",)),
)

TEMPLATES = {
    "a system message is taken for a text": "{{ messages[0]['content']|trim }}",
    "the shape of each message": "{% for m in messages %}{{ m.role }} {{ m.content }}\n{% endfor %}",
    "what trainers mark": (
        "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %};{% endfor %}"
    ),
    "JSON as it is": "{{ messages|tojson }} {{ messages[0]|tojson(indent=2, sort_keys=True) }}",
    "JSON in other letters": "{{ 'ж'|tojson(ensure_ascii=True, separators=(',', ':')) }}",
    "nothing but messages": "{{ tools is none }} {{ documents is defined }}",
    "settings": "{% if not enable_thinking %}<think></think>{% endif %}",
}


def text_of(folder: Path, template: str, engine: str = "vllm", **settings: Any) -> str:
    (folder / "chat_template.jinja").write_text(template)
    return as_text(MESSAGES, Model(name="m", source=str(folder), engine=engine), settings)


@pytest.mark.long
@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_a_template_writes_as_transformers_would_of_what_is_sent(
    tmp_path: Path, template: str
) -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    from hpcbench.engines.chat import ChatRequest, unpack

    body, _ = prepare("m", Request("s", MESSAGES, {}, 1.0))
    sent, _ = unpack(ChatRequest.model_validate_json(body))
    (theirs,), _ = utils.render_jinja_template(
        [sent], chat_template=template, add_generation_prompt=True, enable_thinking=False
    )
    assert text_of(tmp_path, template, enable_thinking=False) == theirs


def test_tools_calls_and_results_are_written_as_the_engine_would(tmp_path: Path) -> None:
    template = (
        "{{ tools[0].function.name }};{% for m in messages %}{{ m.role }}"
        "{% for c in m.tool_calls or [] %} {{ c.function.name }} {{ c.function.arguments.at }}{% endfor %}"
        "{% if m.tool_call_id %} {{ m.tool_call_id }} {{ m.content }}{% endif %};{% endfor %}"
    )
    (tmp_path / "chat_template.jinja").write_text(template)
    talk = (
        Message("user", "Look"),
        Message("assistant", "", calls=(ToolCall("c1", "crop", '{"at": 7}'),)),
        Message("tool", "image 2", call_id="c1"),
    )
    model = Model(name="m", source=str(tmp_path), engine="vllm")
    tools = [{"type": "function", "function": {"name": "crop"}}]
    assert as_text(talk, model, tools=tools) == "crop;user;assistant crop 7;tool c1 image 2;"
    broken = (Message("assistant", "", calls=(ToolCall("c1", "crop", "{"),)),)
    assert "crop ;" in as_text(broken, model, tools=tools)


OF_PARTS_ALONE = (
    "{% for m in messages %}{{ m['role'] }}:"
    "{% for content in m['content'] | selectattr('type', 'equalto', 'image') %}<image>{% endfor %}"
    "{% for content in m['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] }}{% endfor %};{% endfor %}"
)
"""As that of LLaVA-OneVision."""


@pytest.mark.parametrize("engine", ["vllm", "huggingface"])
def test_a_text_is_a_part_of_its_message_where_the_template_would_lose_it(
    tmp_path: Path, engine: str
) -> None:
    assert text_of(tmp_path, OF_PARTS_ALONE, engine) == (
        "system:You read <documents>. ;user:First?;assistant:12.50;user:<image>Total?;"
    )


def test_the_text_of_an_engine_that_loses_it_shows_so(tmp_path: Path) -> None:
    lost = "system:;user:;assistant:;user:<image>Total?;"
    assert text_of(tmp_path, OF_PARTS_ALONE, "sglang") == lost


TEXT_FOR_SYSTEM = (
    "{% for m in messages %}{% if m['role'] == 'system' %}[{{ m['content'] }}]{% else %}"
    "{% for content in m['content'] %}{{ content['text'] }}{% endfor %}{% endif %}{% endfor %}"
)
"""Prints parts of users, and a text of the system."""

SENT = [
    {"role": "system", "content": "Read."},
    {"role": "user", "content": "First?"},
    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Total?"}]},
]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (OF_PARTS_ALONE, "system:Read.;user:First?;user:<image>Total?;"),
        (TEXT_FOR_SYSTEM, "[Read.]First?Total?"),
        ("Read. First? Say it.{{ messages|length }}", "Read. First? Say it.3"),
    ],
)
def test_only_texts_that_a_template_would_lose_become_parts(template: str, expected: str) -> None:
    def written(messages: Any) -> str:
        return Environment(autoescape=True).from_string(template).render(messages=messages)

    assert written(keeping_texts(SENT, written)) == expected


def test_messages_that_a_template_refuses_stay_as_they_are() -> None:
    def written(messages: Any) -> str:
        raise ValueError("no system")

    assert keeping_texts(SENT, written) == SENT


def test_settings_of_a_request_go_before_those_of_the_server(tmp_path: Path) -> None:
    template = "{{ add_generation_prompt }} {{ messages|length }}"
    assert text_of(tmp_path, template, add_generation_prompt=False, messages=[]) == "False 4"


@pytest.mark.parametrize("template", ["{{ raise_exception('no system') }}", "{{ 1 / 0 }}"])
def test_a_template_that_refuses_is_reported(tmp_path: Path, template: str) -> None:
    with pytest.raises(UserError, match="the chat template of model 'm' refuses these messages"):
        text_of(tmp_path, template)


@pytest.mark.parametrize("source", ["", "hf://org/m"])
def test_a_model_that_is_not_here_has_no_template_here(source: str) -> None:
    with pytest.raises(UserError, match="are not on this machine, so its chat template is unknown"):
        as_text(MESSAGES, Model(name="m", source=source, engine="vllm"))
