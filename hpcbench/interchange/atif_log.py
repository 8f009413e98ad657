"""Trajectories in ATIF, the Agent Trajectory Interchange Format, version 1.8.

Specification: RFC 0001 of Harbor (github.com/harbor-framework/harbor, `rfcs/0001-trajectory-format.md`), read
as the models that the package `harbor` 0.26.0 of PyPI publishes in `harbor.models.trajectories`. A document
is one trajectory: one sample. They are written into a file a run task, one document a line; images lie beside
it in `images/`, named by their hashes. A sample that was answered at once is a trajectory of one turn.

What ATIF has no field for is in `extra`: the exit, scores, how a call ended, arguments that are no object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hpcbench
from hpcbench.agents.tools import arguments_of
from hpcbench.agents.trajectory import Called, Trajectory, Turn
from hpcbench.data_uri import mime
from hpcbench.files.atomic import replacing, write_atomic
from hpcbench.interchange.log_records import Logged, RunTaskLog, as_json, flat, identity
from hpcbench.schema.model import Model
from hpcbench.schema.records import Message, ToolCall

VERSION = "ATIF-v1.8"

_TYPES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
"""Types of images that the format knows → suffix."""

_SUFFIXES = {**{f".{suffix}": kind for kind, suffix in _TYPES.items()}, ".jpeg": "image/jpeg"}

_ROLES = {"system": "system", "user": "user", "assistant": "agent", "tool": "system"}


def write(log: RunTaskLog, out: Path) -> tuple[Path, int]:
    """Write the trajectories of a run task; return the file and the number of samples."""
    path, images = out / f"{flat(log.run_task.name)}.atif.jsonl", _Images(out)
    count = 0
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for one in log.samples:
            if one.response is not None:
                file.write(as_json(_document(log, one, images)) + "\n")
                count += 1
    return path, count


class _Images:
    """Images that tools made, each once."""

    def __init__(self, out: Path) -> None:
        self._out = out

    def part(self, data: bytes) -> dict[str, Any]:
        """A part of a message that shows an image; its path is relative to the file of trajectories."""
        kind = mime(data)
        if kind not in _TYPES:
            return {"type": "text", "text": f"[image of type {kind}, {len(data)} bytes]"}
        path = f"images/{hashlib.sha256(data).hexdigest()}.{_TYPES[kind]}"
        if not (self._out / path).exists():
            write_atomic(self._out / path, data)
        return {"type": "image", "source": {"media_type": kind, "path": path}}


def _document(log: RunTaskLog, one: Logged, images: _Images) -> dict[str, Any]:
    trajectory, response = one.trajectory, one.response
    assert response is not None
    steps = list(_steps(log, one, trajectory, images))
    for number, step in enumerate(steps, 1):
        step["step_id"] = number
    figures = dict(response.trajectory or {})
    usage = response.usage or {}
    known = {
        "total_prompt_tokens": usage.get("prompt_tokens"),
        "total_completion_tokens": usage.get("completion_tokens"),
        "total_cost_usd": _whole_cost(
            log, usage, trajectory, figures.get("images", len(response.image_sha256))
        ),
    }
    scores = {name: one.scores[name] for name in log.names if one.scores.get(name) is not None}
    return {
        "schema_version": VERSION,
        "session_id": f"{log.experiment.id}/{log.run_task.name}",
        "trajectory_id": identity("sample", log.experiment.id, log.run_task.name, one.sample.id),
        "agent": {
            "name": "hpcbench",
            "version": log.experiment.manifest.hpcbench or hpcbench.__version__,
            "model_name": log.run_task.model.name,
            **({"tool_definitions": tools} if (tools := _tools(log)) else {}),
        },
        "steps": steps,
        "final_metrics": {
            **{name: value for name, value in known.items() if value is not None},
            "total_steps": len(steps),
            "extra": {
                name: figures[name]
                for name in ("wasted", "think_seconds", "tool_seconds", "sync_seconds", "plan")
                if name in figures
            },
        },
        "extra": {
            "experiment": log.experiment.id,
            "run_task": log.run_task.name,
            "dataset": log.run_task.dataset.name,
            "sample": one.sample.id,
            "document": one.sample.document,
            "outcome": response.outcome,
            "exit": figures.get("exit"),
            "why": figures.get("why") or response.error,
            "scores": scores,
        },
    }


def _tools(log: RunTaskLog) -> list[dict[str, Any]]:
    """The tools as the model saw them, in OpenAI's form; those of several agents each once."""
    written = log.experiment.manifest.tools.get(log.run_task.name, {})
    seen = [one for tools in written.get("functions", {}).values() for one in tools]
    return [*{one["function"]["name"]: one for one in seen}.values()]


def _steps(
    log: RunTaskLog, one: Logged, trajectory: Trajectory | None, images: _Images
) -> Iterator[dict[str, Any]]:
    """The prompt, then one step for each reply of the model; `step_id` is set later."""
    for message in one.messages:
        source = _ROLES[message.role]
        step: dict[str, Any] = {"source": source, "message": _content(message)}
        if source == "agent":  # an answer of an example in the prompt
            step["is_copied_context"] = True
        yield step
    if trajectory is not None:
        seen: set[str] = set()
        for number, turn in enumerate(trajectory.turns, 1):
            yield _turn(log, number, turn, seen, images)
        return
    response = one.response
    assert response is not None
    if response.text is None:
        return
    step = {"source": "agent", "message": one.text, "llm_call_count": 1}
    if response.reasoning is not None:
        step["reasoning_content"] = response.reasoning
    if response.usage:
        step["metrics"] = dict(response.usage)
    yield step


def _turn(
    log: RunTaskLog, number: int, turn: Turn, seen: set[str], images: _Images
) -> dict[str, Any]:
    """A reply with its calls and their results."""
    names = [_unique(call, number, place, seen) for place, call in enumerate(turn.calls)]
    stamps = turn.stamps
    first = None if stamps.first is None else round((stamps.first - stamps.send) / 1e6, 3)
    metrics: dict[str, Any] = {
        name: turn.usage[name]
        for name in ("prompt_tokens", "completion_tokens")
        if name in turn.usage
    }
    model = log.model(turn.agent)
    if (cost := _cost(model, turn.usage, len(turn.image_sha256))) is not None:
        metrics["cost_usd"] = cost
    metrics["extra"] = {"ttft_ms": first, "think_seconds": turn.think_seconds}
    step: dict[str, Any] = {
        "source": "agent",
        "model_name": model.name,
        "message": turn.text,
        "metrics": metrics,
        "llm_call_count": 1,
        "extra": {
            "finish_reason": turn.finish_reason,
            "outcome": turn.outcome,
            **({"agent": turn.agent} if turn.agent else {}),
        },
    }
    if turn.reasoning is not None:
        step["reasoning_content"] = turn.reasoning
    if turn.calls:
        step["tool_calls"] = [
            _call(call, name) for call, name in zip(turn.calls, names, strict=True)
        ]
        step["observation"] = {
            "results": [
                _result(one, name, images) for one, name in zip(turn.called, names, strict=False)
            ]
        }
    return step


def _unique(call: ToolCall, number: int, place: int, seen: set[str]) -> str:
    """The call's id; engines repeat ids, or give none."""
    name = call.id if call.id and call.id not in seen else f"turn{number}-{place + 1}"
    seen.add(name)
    return name


def _call(call: ToolCall, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"tool_call_id": name, "function_name": call.tool}
    try:
        return {**found, "arguments": arguments_of(call.arguments)}
    except ValueError:
        return {**found, "arguments": {}, "extra": {"arguments": call.arguments}}


def _result(one: Called, name: str, images: _Images) -> dict[str, Any]:
    result = one.result
    content: Any = result.text
    if result.images:
        texts = [{"type": "text", "text": result.text}] if result.text else []
        content = [*texts, *map(images.part, result.images)]
    extra = {"kind": result.kind, "seconds": round(result.seconds, 6)}
    return {"source_call_id": name, "content": content, "extra": extra}


def _content(message: Message) -> str | list[dict[str, Any]]:
    """A message of the prompt; images by their paths, or by name where they have no file of a known type."""
    if not message.images:
        return message.text
    parts: list[dict[str, Any]] = []
    for image in message.images:
        kind = _SUFFIXES.get(image.suffix.lower()) if isinstance(image, Path) else None
        if kind is not None:
            parts.append({"type": "image", "source": {"media_type": kind, "path": str(image)}})
        else:
            name = "in the table" if isinstance(image, bytes) else getattr(image, "name", "")
            parts.append({"type": "text", "text": f"[image {name}]"})
    return [*parts, {"type": "text", "text": message.text}]


def _whole_cost(
    log: RunTaskLog, usage: Any, trajectory: Trajectory | None, images: int
) -> float | None:
    """The charge for a sample; None: it is not known, or models of other run tasks have a part in it."""
    agent = log.run_task.agent
    if agent is None or trajectory is None or not agent.models_of:
        return _cost(log.run_task.model, usage, images)
    if agent.reader is not None:
        return None
    each = [
        _cost(log.model(one.agent), one.usage, len(one.image_sha256)) for one in trajectory.turns
    ]
    known = [one for one in each if one is not None]
    return round(sum(known), 12) if len(known) == len(each) else None


def _cost(model: Model, usage: Any, images: int) -> float | None:
    """The charge of the model's provider, if in US dollars; None: it is not known."""
    prices = model.prices
    counts: Sequence[Any] = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    if prices is None or prices.currency != "USD" or None in counts:
        return None
    return round(prices.cost(counts[0], counts[1], images), 12)
