"""ATIF 1.8 as JSON Schema, with the rules that JSON Schema cannot say.

Written after RFC 0001 of Harbor as the package `harbor` 0.26.0 (PyPI) publishes it in
`harbor.models.trajectories`: every object is closed. Fields that hpcbench does not write are left out here:
`reasoning_effort`, references to other trajectories, ids of tokens.
"""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator


def _closed(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


TEXT, WHOLE, NUMBER, ANY = (
    {"type": "string"},
    {"type": "integer"},
    {"type": "number"},
    {"type": "object"},
)
FLAG = {"type": "boolean"}
IMAGE = _closed(
    ("media_type", "path"),
    media_type={"enum": ["image/jpeg", "image/png", "image/gif", "image/webp"]},
    path=TEXT,
)
PART = {
    "oneOf": [
        _closed(("type", "text"), type={"const": "text"}, text=TEXT),
        _closed(("type", "source"), type={"const": "image"}, source=IMAGE),
    ]
}
CONTENT = {"oneOf": [TEXT, {"type": "array", "items": PART}]}
CALL = _closed(
    ("tool_call_id", "function_name", "arguments"),
    tool_call_id=TEXT, function_name=TEXT, arguments=ANY, extra=ANY,
)  # fmt: skip
RESULT = _closed(source_call_id=TEXT, content=CONTENT, extra=ANY)
METRICS = _closed(
    prompt_tokens=WHOLE, completion_tokens=WHOLE, cached_tokens=WHOLE, cost_usd=NUMBER, extra=ANY
)
STEP = _closed(
    ("step_id", "source", "message"),
    step_id={"type": "integer", "minimum": 1},
    timestamp=TEXT,
    source={"enum": ["system", "user", "agent"]},
    model_name=TEXT,
    message=CONTENT,
    reasoning_content=TEXT,
    tool_calls={"type": "array", "items": CALL},
    observation=_closed(("results",), results={"type": "array", "items": RESULT}),
    metrics=METRICS,
    is_copied_context=FLAG,
    llm_call_count={"type": "integer", "minimum": 0},
    extra=ANY,
)
TRAJECTORY = _closed(
    ("schema_version", "agent", "steps"),
    schema_version={"const": "ATIF-v1.8"},
    session_id=TEXT,
    trajectory_id=TEXT,
    agent=_closed(
        ("name", "version"), name=TEXT, version=TEXT, model_name=TEXT, extra=ANY,
        tool_definitions={"type": "array", "items": ANY},
    ),
    steps={"type": "array", "items": STEP, "minItems": 1},
    notes=TEXT,
    final_metrics=_closed(
        total_prompt_tokens=WHOLE, total_completion_tokens=WHOLE, total_cost_usd=NUMBER,
        total_steps={"type": "integer", "minimum": 0}, extra=ANY,
    ),
    extra=ANY,
)  # fmt: skip

_OF_AGENTS = ("model_name", "reasoning_content", "tool_calls", "metrics")
_validator = Draft202012Validator(TRAJECTORY)


def check(document: Any) -> None:
    """Raise where a document is no trajectory of ATIF 1.8."""
    _validator.validate(document)
    assert [one["step_id"] for one in document["steps"]] == [*range(1, len(document["steps"]) + 1)]
    every: list[str] = []
    for step in document["steps"]:
        ids = [one["tool_call_id"] for one in step.get("tool_calls", ())]
        every += ids
        if step["source"] != "agent":
            assert not {*step} & {*_OF_AGENTS}, "only an agent's step has these"
        for result in step.get("observation", {}).get("results", ()):
            assert result.get("source_call_id") in (None, *ids), "a result of no call"
    assert len(every) == len({*every}), "ids of calls are unique"
