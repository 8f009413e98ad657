"""The example of an agent: sheets with small print, and the chat template of the model that crops them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment
from PIL import Image

from hpcbench.agents.conversation import conversation
from hpcbench.agents.text_calls import instructions
from hpcbench.agents.tools import ToolResult, ToolSpec
from hpcbench.agents.trajectory import Called, Stamps, Trajectory, Turn
from hpcbench.inference.request_body import prepare
from hpcbench.schema.records import Message, Request, ToolCall
from tests.conftest import ROOT

EXAMPLE = ROOT / "examples/agent"
CROP = ToolSpec("crop", "Shows a part.", {"type": "object"})
ARGUMENTS = '{"image": 1, "box": [50, 650, 250, 850]}'
CALL = f'<tool_call>\n{{"name": "crop", "arguments": {ARGUMENTS}}}\n</tool_call>'
TALK = f"""\
<|im_start|>system
<tools><|im_end|>
<|im_start|>user
<|vision_start|><|image_pad|><|vision_end|>What is the code of K?<|im_end|>
<|im_start|>assistant
{CALL}<|im_end|>
<|im_start|>user
<|vision_start|><|image_pad|><|vision_end|><tool_response>
image 2: Part of image 1, 168 × 84 pixels.
</tool_response>%s<|im_end|>
<|im_start|>assistant
"""


def talk(text: str, *, as_text: bool) -> tuple[Message, ...]:
    """The messages of a second turn, after a call of `crop`."""
    asked = Message("user", "What is the code of K?", (b"\x89PNG\r\n\x1a\nxx",))
    call = ToolCall("c1", "crop", ARGUMENTS)
    result = ToolResult("ok", "Part of image 1, 168 × 84 pixels.", (b"",))
    turn = Turn(text, (call,), (Called(call, result),), Stamps(1, 2, 3, 4))
    trajectory = Trajectory("s")
    trajectory.add(turn)
    picture = EXAMPLE / "data/images/0001.png"
    return conversation([asked], trajectory, lambda _: picture, 1, as_text=as_text)


def shown(messages: Sequence[Message], **variables: Any) -> str:
    """The chat template's text of messages, as they are sent to the engine."""
    body, _ = prepare("m", Request("s", tuple(messages), {}, 1.0))
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((EXAMPLE / "model/chat_template.jinja").read_text())
    sent = json.loads(body)["messages"]
    return template.render(messages=sent, add_generation_prompt=True, **variables)


def test_calls_as_text_are_shown_to_the_model_as_in_its_training() -> None:
    system = Message("system", instructions([CROP]))
    assert shown([system, *talk(CALL, as_text=True)]) == TALK % ""


def test_calls_that_the_engine_parses_are_shown_in_the_same_form() -> None:
    said = shown(talk("", as_text=False), tools=[{"type": "function"}])
    assert said == TALK % "The tools gave image 2."


def test_without_tools_there_is_no_word_of_them() -> None:
    (asked, *_) = talk("", as_text=True)
    assert "tool" not in shown([asked])


def test_each_question_is_about_a_sheet_and_has_a_code() -> None:
    lines = (EXAMPLE / "data/codes.jsonl").read_text().splitlines()
    samples = [json.loads(line) for line in lines]
    assert len({one["id"] for one in samples}) == len(samples) == 100
    for one in samples:
        assert re.fullmatch(r"What is the code of [A-Z]\?", one["fields"]["question"])
        assert re.fullmatch(r"[1-9]\d{3}", one["references"][0])
    for name in {one["images"][0] for one in samples}:
        with Image.open(EXAMPLE / "data" / name) as image:
            assert image.size == (840, 420)


def test_the_model_sees_a_sheet_smaller_than_its_small_print_needs() -> None:
    settings = json.loads((EXAMPLE / "model/preprocessor_config.json").read_text())
    assert settings["max_pixels"] * 5**2 == 840 * 420
