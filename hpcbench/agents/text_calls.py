"""Tool calls as text, for models whose engine has no parser for them.

The form is that of Hermes and Qwen models: a JSON object with `name` and `arguments` between `<tool_call>`
and `</tool_call>`. Engines that parse calls get OpenAI's `tools` instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pydantic_core import from_json

from hpcbench.agents.tools import ToolSpec, writable
from hpcbench.schema.records import ToolCall

_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)

RESPONSE = "<tool_response>\n{text}\n</tool_response>"
"""Form of a result in the user's turn."""


def instructions(specs: Sequence[ToolSpec]) -> str:
    """The part of the system prompt that describes the tools."""
    lines = [
        json.dumps(
            {"name": one.name, "description": one.description, "parameters": one.schema},
            ensure_ascii=False,
        )
        for one in specs
    ]
    return "\n".join(
        [
            "You can call these tools:",
            *lines,
            "To call one, write a JSON object with its name and arguments between these marks:",
            '<tool_call>\n{"name": "NAME", "arguments": {…}}\n</tool_call>',
            "The result comes in the next message. When you know the answer, write it without a call.",
        ]
    )


def calls_in(text: str, turn: int) -> tuple[ToolCall, ...]:
    """The calls in a reply; a call that cannot be read has its text as arguments and no tool.

    Args:
        text: the reply.
        turn: number of the turn, for the ids.
    """
    found = []
    for place, match in enumerate(_CALL.finditer(text)):
        name, arguments = "", match[1].strip()
        try:
            said = from_json(writable(arguments))
        except ValueError:
            said = None
        if isinstance(said, dict):
            name = str(said.get("name", ""))
            wanted = said.get("arguments", {})
            arguments = (
                wanted if isinstance(wanted, str) else json.dumps(wanted, ensure_ascii=False)
            )
        found.append(ToolCall(f"t{turn}c{place}", name, arguments))
    return tuple(found)


def with_calls(text: str, calls: Sequence[ToolCall]) -> str:
    """A reply with its calls as text; another model may have made them in OpenAI's form."""
    if _CALL.search(text):
        return text
    made = (f'{{"name": {json.dumps(one.tool)}, "arguments": {one.arguments}}}' for one in calls)
    return "\n".join(filter(None, (text, *(f"<tool_call>\n{one}\n</tool_call>" for one in made))))


def without_calls(text: str) -> str:
    """A reply without calls that are text."""
    return _CALL.sub("", text).strip() if _CALL.search(text) else text
