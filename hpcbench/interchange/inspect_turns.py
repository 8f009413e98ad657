"""Turns of an agent as Inspect's messages and events.

Images that tools made are attachments, each once. An event of the model has its reply, not the messages
before it: those are the sample's own. Times are relative to the experiment's creation, since workers record
no wall clock.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from hpcbench.agents.tools import ResultKind, arguments_of
from hpcbench.agents.trajectory import Called, Trajectory, Turn
from hpcbench.data_uri import uri_head
from hpcbench.schema.records import ToolCall

_ERRORS: dict[ResultKind, str] = {
    "arguments": "parsing", "time": "timeout", "memory": "limit", "size": "limit",
}  # fmt: skip
"""How a call ended → Inspect's type of error; others are `unknown`."""


@dataclass
class Work:
    """An agent's work on a sample."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    attachments: dict[str, str] = field(default_factory=dict)
    """Hash → data URI."""


def of(trajectory: Trajectory, model_of: Callable[[str], str], created: datetime) -> Work:
    """Messages and events of a trajectory, after its prompt.

    Args:
        trajectory: the trajectory.
        model_of: name of the model of an agent, as Inspect writes it.
        created: the time that stands for its beginning.
    """
    work, passed = Work(), 0.0
    for turn in trajectory.turns:
        model = model_of(turn.agent)
        said = _said(turn, model)
        work.messages.append(said)
        work.events.append(_model_event(turn, said, model, created, passed))
        passed += turn.think_seconds
        for one in turn.called:
            content, error = _content(one, work), _error(one)
            message = {
                "role": "tool", "content": content, "tool_call_id": one.call.id, "function": one.call.tool,
            }  # fmt: skip
            work.messages.append(message if error is None else {**message, "error": error})
            work.events.append(_tool_event(one, content, error, created, passed))
            passed += one.result.seconds
    return work


def _said(turn: Turn, model: str) -> dict[str, Any]:
    content: Any = turn.text
    if turn.reasoning is not None:
        reasoning = {"type": "reasoning", "reasoning": turn.reasoning}
        content = [reasoning, {"type": "text", "text": turn.text}]
    said = {"role": "assistant", "content": content, "source": "generate", "model": model}
    return {**said, "tool_calls": [_call(call) for call in turn.calls]} if turn.calls else said


def _call(call: ToolCall) -> dict[str, Any]:
    arguments, error = _arguments(call)
    found = {"id": call.id, "function": call.tool, "arguments": arguments, "type": "function"}
    return {**found, "parse_error": error} if error else found


def _arguments(call: ToolCall) -> tuple[dict[str, Any], str]:
    """Arguments as an object; what is none is under `raw`, with the reason."""
    try:
        return arguments_of(call.arguments), ""
    except ValueError as error:
        return {"raw": call.arguments}, str(error)


def _content(one: Called, work: Work) -> Any:
    """The result's text, and its images as attachments."""
    if not one.result.images:
        return one.result.text
    parts: list[dict[str, Any]] = [{"type": "text", "text": one.result.text}]
    for image in one.result.images:
        name = hashlib.sha256(image).hexdigest()
        uri = uri_head(image) + base64.b64encode(image)
        work.attachments.setdefault(name, uri.decode())
        parts.append({"type": "image", "image": f"attachment://{name}"})
    return parts


def _error(one: Called) -> dict[str, str] | None:
    kind = one.result.kind
    if kind == "ok":
        return None
    return {"type": _ERRORS.get(kind, "unknown"), "message": one.result.text}


def _model_event(
    turn: Turn, said: dict[str, Any], model: str, created: datetime, passed: float
) -> dict[str, Any]:
    stop = "tool_calls" if turn.calls else "max_tokens" if turn.outcome == "truncated" else "stop"
    stop = "content_filter" if turn.outcome == "refused" else stop
    sent, came = (turn.usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens"))
    return {
        "event": "model",
        **_times(created, passed, turn.think_seconds),
        "model": model,
        "input": [],
        "tools": [],
        "tool_choice": "auto",
        "config": {},
        "output": {
            "model": model,
            "choices": [{"message": said, "stop_reason": stop}],
            "usage": {"input_tokens": sent, "output_tokens": came, "total_tokens": sent + came},
            "time": turn.think_seconds,
        },
        **({"role": turn.agent} if turn.agent else {}),
    }


def _tool_event(
    one: Called, content: Any, error: dict[str, str] | None, created: datetime, passed: float
) -> dict[str, Any]:
    arguments, _ = _arguments(one.call)
    return {
        "event": "tool",
        **_times(created, passed, one.result.seconds),
        "type": "function",
        "id": one.call.id,
        "function": one.call.tool,
        "arguments": arguments,
        "result": content,
        "events": [],
        **({"error": error} if error is not None else {}),
    }


def _times(created: datetime, passed: float, seconds: float) -> dict[str, Any]:
    begin = created + timedelta(seconds=passed)
    return {
        "timestamp": begin.isoformat(),
        "working_start": round(passed, 6),
        "completed": (begin + timedelta(seconds=seconds)).isoformat(),
        "working_time": round(seconds, 6),
    }
